"""Console sessions at a real server: used once, no more rights than their credential, and over when that is."""

from __future__ import annotations

import io
import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect

from semel.server import offline_backup
from semel.server.store_check import StoreCheck
from tests.harness.server import RunningServer, free_port
from tests.harness.together import at_once, eventually
from tests.harness.tokens import Issuer, token_file
from tests.server.auth.test_reload import last_words
from tests.server.auth.token_site import TokenAdmin, first_token
from tests.server.console.links import (
    PAGE,
    age_links,
    audit_lines,
    bearer,
    caller,
    exchange,
    make_link,
    sign_in,
    sign_out,
)
from tests.server.console.site import ADMIN, READER

RACERS = 64
SCOPED, ACTIVE, NEXT = "the-scoped-token", "the-active-token", "the-next-token"
ENTRIES = {
    "ada": (ADMIN, ("admin",), ()),
    "bob": (READER, ("read",), ()),
    "eve": (SCOPED, ("read", "write"), ("streams:eve/*",)),
}
NEVER_ROTATED = {"SEMEL_TOKEN_ACTIVE": ACTIVE, "SEMEL_TOKEN_NEXT": NEXT}


class Secrets:
    """A server, and every code and token that was used with it."""

    def __init__(self, server: RunningServer, folder: Path, issuer: Issuer) -> None:
        self.server, self.url, self.folder, self.issuer = server, server.url, folder, issuer
        self.used: list[str] = []

    def link(self, token: str) -> str:
        self.used.append(make_link(self.url, token))
        return self.used[-1]

    def sign_in(self, token: str) -> str:
        self.used.append(str(exchange(self.url, self.link(token)).json()["token"]))
        return self.used[-1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secrets]:
    folder = tmp_path_factory.mktemp("sessions")
    issuer = Issuer(folder)
    env = {
        "SEMEL_TOKENS": str(token_file(folder, ENTRIES)),
        "SEMEL_JWT_KEYS": str(issuer.keys),
        "SEMEL_ACCESS_LOG": "1",
    }
    env |= NEVER_ROTATED | {"SEMEL_STREAMS_SSE_MAX_MS": "600000"}
    with RunningServer(folder / "data", env=env) as server:
        found = Secrets(server, folder, issuer)
        yield found
        server.stop()
        written = [server.output.read_bytes(), *(one.read_bytes() for one in server.data.rglob("*") if one.is_file())]
        assert len(found.used) > 20
        for secret in found.used:
            assert not any(secret.encode() in text for text in written)
        server.start()


def test_a_session_is_the_caller_of_the_link_and_nothing_more(site: Secrets) -> None:
    jwt = site.issuer.token("carol", "room-7", role="read")
    for token in (ADMIN, READER, SCOPED, ACTIVE, NEXT, jwt):
        own, session = caller(site.url, token), site.sign_in(token)
        seen = caller(site.url, session)
        assert seen.pop("expires_ms") <= (own.pop("expires_ms") or 2**63)
        assert seen == own
        for method, path in (
            ("GET", "/v1/stream/eve/1"),
            ("PUT", "/v1/stream/eve/1"),
            ("PUT", "/v1/stream/other"),
            ("GET", "/v1/tokens"),
            ("GET", "/v1/settings"),
            ("POST", "/v1/jobs"),
            ("GET", "/v1/jobs"),
            ("GET", "/v1/events?partitions=room-7"),
            ("GET", "/v1/events?partitions=room-8"),
        ):
            asked = [httpx.request(method, site.url + path, headers=bearer(one), json={}) for one in (token, session)]
            assert asked[0].is_success == asked[1].is_success, (method, path)
            assert (asked[0].status_code == 403) == (asked[1].status_code == 403), (method, path)


def test_a_session_lives_for_8_hours_and_never_longer_than_its_credential(site: Secrets) -> None:
    now_ms = time.time() * 1_000
    long, short = caller(site.url, site.sign_in(READER)), caller(site.url, site.sign_in(site.issuer.token("carol")))
    assert 8 * 3_600_000 - 60_000 < long["expires_ms"] - now_ms < 8 * 3_600_000 + 60_000
    assert short["expires_ms"] - now_ms < 660_000


def test_a_session_ends_with_its_jwt(site: Secrets) -> None:
    session = site.sign_in(site.issuer.token("carol", exp=int(time.time()) + 4))
    assert caller(site.url, session)
    eventually(lambda: not caller(site.url, session), "the JWT has expired")


def test_of_64_exchanges_one_gets_the_session(site: Secrets) -> None:
    code = site.link(READER)
    answers = at_once([lambda: exchange(site.url, code)] * RACERS)
    assert sorted(answer.status_code for answer in answers) == [201] + [401] * (RACERS - 1)
    refused = next(answer for answer in answers if answer.status_code == 401)
    assert "run `semel console` for a new one" in refused.json()["detail"]
    session = next(answer for answer in answers if answer.status_code == 201).json()["token"]
    site.used.append(session)
    assert caller(site.url, session)["name"] == "bob"


def test_wrong_codes_are_refused_like_wrong_credentials(site: Secrets) -> None:
    count = "auth_fail_1m"
    before = httpx.get(f"{site.url}/metrics", headers=bearer(ADMIN)).json()[count]
    for code in ("unknown", "x" * 32, "", "not a code", "x" * 200):
        assert exchange(site.url, code).status_code == 401, code
    assert httpx.get(f"{site.url}/metrics", headers=bearer(ADMIN)).json()[count] >= before + 5

    def refused() -> int:
        return [one["reason"] for one in audit_lines(site.server.data, "AUTH_FAILURE")].count("bad_link")

    eventually(lambda: refused() >= 5, "each is audited")
    for body in (b"", b"{", b"[]", b'"x"', b'{"code": 7}', b'{"code": "x", "more": 1}'):
        answer = httpx.post(f"{site.url}/console/sessions", headers=PAGE, content=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_REQUEST"), body
    large = httpx.post(f"{site.url}/console/sessions", headers=PAGE, content=b"x" * 2_000)
    assert large.status_code == 413


def test_a_link_needs_a_credential_and_a_session_makes_none(site: Secrets) -> None:
    assert httpx.post(f"{site.url}/console/links").status_code == 401
    assert httpx.post(f"{site.url}/console/links", headers=bearer("wrong")).status_code == 401
    refused = httpx.post(f"{site.url}/console/links", headers=bearer(site.sign_in(ADMIN)))
    assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN")


def test_no_other_page_makes_exchanges_or_ends_anything(site: Secrets) -> None:
    foreign: list[dict[str, str]] = [
        {"Origin": "https://evil.example"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ]
    code, session = site.link(ADMIN), site.sign_in(ADMIN)
    for headers in foreign:
        answers = [
            httpx.post(f"{site.url}/console/links", headers=bearer(ADMIN) | headers),
            exchange(site.url, code, **headers),
            httpx.delete(f"{site.url}/console/sessions", headers=bearer(session) | headers),
        ]
        for answer in answers:
            assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN_ORIGIN"), headers
            assert not [name for name in answer.headers if name.startswith("access-control")]
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    for path in ("/console/links", "/console/sessions"):
        preflight = httpx.options(site.url + path, headers=asked)
        assert not [name for name in preflight.headers if name.startswith("access-control-allow")]
    assert caller(site.url, session)
    assert exchange(site.url, code).status_code == 201


def test_signing_out_ends_the_session_and_what_is_open_and_leaves_a_token(site: Secrets) -> None:
    stream = f"{site.url}/v1/stream/open"
    httpx.put(stream, headers=bearer(ADMIN) | {"Content-Type": "text/plain"}).raise_for_status()
    session = site.sign_in(ADMIN)
    with ThreadPoolExecutor(1) as pool, httpx.Client(timeout=60) as client:
        live = {"live": "sse", "offset": "now"}
        with client.stream("GET", stream, params=live, headers=bearer(session)) as answer:
            assert answer.status_code == 200
            rest = pool.submit(lambda: b"".join(answer.iter_raw()))
            assert sign_out(site.url, session) == 204
            rest.result(30)
    assert not caller(site.url, session)
    assert sign_out(site.url, session) == sign_out(site.url, ADMIN) == sign_out(site.url, "wrong") == 204
    assert caller(site.url, ADMIN)


def test_each_step_and_each_act_is_audited_under_the_name_of_the_credential(site: Secrets) -> None:
    session = site.sign_in(ADMIN)
    job = httpx.post(f"{site.url}/v1/jobs", headers=bearer(session), json={"kind": "k", "params": {}}).json()["job_id"]
    made = {"name": "made", "sha256": "cd" * 32}
    assert httpx.post(f"{site.url}/console/api/v1/tokens", headers=bearer(session) | PAGE, json=made).is_success
    sign_out(site.url, session)
    names = ("CONSOLE_LINK_CREATED", "CONSOLE_SIGNED_IN", "CONSOLE_SIGNED_OUT")
    lines = [audit_lines(site.server.data, name)[-1] for name in names]
    assert len({line["session_id"] for line in lines}) == 1
    assert {line["by"] for line in lines} == {"client:ada"}
    assert audit_lines(site.server.data, "TOKEN_CREATED")[-1]["by"] == "client:ada"
    assert httpx.get(f"{site.url}/v1/jobs/{job}", headers=bearer(ADMIN)).is_success


def test_a_reader_stays_a_reader_in_the_console(site: Secrets) -> None:
    session = bearer(site.sign_in(READER)) | PAGE
    api = f"{site.url}/console/api"
    assert httpx.get(f"{api}/v1/jobs", headers=session).status_code == 200
    assert httpx.get(f"{api}/v1/settings", headers=session).status_code == 403
    assert httpx.post(f"{api}/v1/jobs", headers=session, json={"kind": "k", "params": {}}).status_code == 403


def test_the_51st_session_of_a_principal_ends_its_oldest_and_links_end_none(site: Secrets) -> None:
    other, first = site.sign_in(ADMIN), site.sign_in(SCOPED)
    for _ in range(60):
        site.link(SCOPED)
    assert caller(site.url, first)
    for _ in range(50):
        site.sign_in(SCOPED)
    assert not caller(site.url, first)
    assert caller(site.url, other)
    # Nothing of the principal was left besides those: the next one is let in as well.
    assert caller(site.url, site.sign_in(SCOPED))


def test_a_restart_ends_neither_a_link_nor_a_session(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data", env={"SEMEL_TOKENS": str(token_file(tmp_path, ENTRIES))}) as server:
        code, session, ended = make_link(server.url, READER), sign_in(server.url, ADMIN), sign_in(server.url, ADMIN)
        sign_out(server.url, ended)
        server.kill()
        server.start()
        assert caller(server.url, session)["name"] == "ada"
        assert not caller(server.url, ended)
        assert exchange(server.url, code).status_code == 201
        server.restart()
        assert exchange(server.url, code).status_code == 401


def hang_up(server: RunningServer) -> None:
    """Let the server read its files again."""
    os.kill(server.pid, signal.SIGHUP)


def test_a_token_that_leaves_the_file_ends_its_sessions_for_good(tmp_path: Path) -> None:
    file = token_file(tmp_path, ENTRIES)
    with RunningServer(tmp_path / "data", env={"SEMEL_TOKENS": str(file)}) as server:
        gone, changed, kept = (sign_in(server.url, one) for one in (ADMIN, READER, SCOPED))
        code = make_link(server.url, READER)
        token_file(tmp_path, {"bob": (READER, ("read", "write"), ()), "eve": ENTRIES["eve"]})
        hang_up(server)
        eventually(lambda: not caller(server.url, gone), "the token has left the file")
        eventually(lambda: not caller(server.url, changed), "the token has another role")
        assert caller(server.url, kept)["name"] == "eve"
        assert exchange(server.url, code).status_code == 401
        token_file(tmp_path, ENTRIES)
        hang_up(server)
        eventually(lambda: bool(caller(server.url, ADMIN)), "the token is in the file again")
        assert not caller(server.url, gone)
        server.restart()
        assert (caller(server.url, gone), caller(server.url, changed)) == ({}, {})
        assert caller(server.url, kept)


def test_a_token_with_more_roles_after_a_restart_ends_its_sessions(tmp_path: Path) -> None:
    file = token_file(tmp_path, ENTRIES)
    with RunningServer(tmp_path / "data", env={"SEMEL_TOKENS": str(file)}) as server:
        session, scoped, kept = (sign_in(server.url, one) for one in (READER, SCOPED, ADMIN))
        code = make_link(server.url, READER)
        server.stop()
        more = {"bob": (READER, ("admin",), ()), "eve": (SCOPED, ("read", "write"), ("streams:*",))}
        token_file(tmp_path, {**ENTRIES, **more})
        server.start()
        assert caller(server.url, READER)["roles"] == ["admin", "read", "work", "write"]
        assert (caller(server.url, session), caller(server.url, scoped)) == ({}, {})
        assert exchange(server.url, code).status_code == 401
        assert caller(server.url, kept)


def test_a_revoked_token_ends_its_session_and_what_is_open(tmp_path: Path) -> None:
    boss = first_token(f"sqlite:{tmp_path / 'data'}", str(tmp_path / "data"))
    with RunningServer(tmp_path / "data") as server:
        site = TokenAdmin(server, boss)
        token = site.create("ada")
        session = sign_in(server.url, token.secret)
        hello = {"type": "connect", "protocol_version": "1.0", "msg_id": "1", "timestamp": 0}
        with connect(f"{server.url.replace('http', 'ws')}/v1/events", additional_headers=bearer(session)) as peer:
            peer.send(json.dumps(hello | {"payload": {"token": session, "client_id": "ada"}}))
            assert "connected" in str(peer.recv(30))
            site.revoke(token.id)
            assert not caller(server.url, session)
            assert "credential" in last_words(peer)
        new = site.rotate(site.create("eve").id)
        session = sign_in(server.url, new.secret)
        site.rotate(new.id, overlap_ms=1_500)
        assert caller(server.url, session)
        eventually(lambda: not caller(server.url, session), "the overlap is over")


def test_a_withdrawn_key_ends_the_sessions_of_its_jwts(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)
    with RunningServer(tmp_path / "data", env={"SEMEL_JWT_KEYS": str(issuer.keys)}) as server:
        session = sign_in(server.url, issuer.token("carol"))
        server.restart()
        assert caller(server.url, session)["actor"] == "user:carol"
        Issuer(tmp_path)  # another key of the same name
        hang_up(server)
        eventually(lambda: not caller(server.url, session), "the key was withdrawn")


def test_a_link_of_yesterday_is_over(tmp_path: Path) -> None:
    file, folder = token_file(tmp_path, ENTRIES), tmp_path / "data"
    with RunningServer(folder, env={"SEMEL_TOKENS": str(file)}) as server:
        code = make_link(server.url, READER)
        server.stop()
        age_links(folder)
        server.start()
        assert exchange(server.url, code).status_code == 401


def test_a_session_belongs_to_its_namespace(tmp_path: Path) -> None:
    env = {"SEMEL_TOKENS": str(token_file(tmp_path, ENTRIES)), "SEMEL_NAMESPACES": "shop"}
    with RunningServer(tmp_path / "data", env=env) as server:
        shop = f"{server.url}/ns/shop"
        code = make_link(shop, READER)
        assert exchange(server.url, code).status_code == 401
        session = str(exchange(shop, code).json()["token"])
        assert caller(shop, session)["namespace"] == "shop"
        assert not caller(server.url, session)


def test_the_control_listener_has_the_links(tmp_path: Path) -> None:
    control = free_port()
    env = {"SEMEL_TOKENS": str(token_file(tmp_path, ENTRIES)), "SEMEL_CONTROL_PORT": str(control)}
    with RunningServer(tmp_path / "data", env=env) as server:
        own = f"http://127.0.0.1:{control}"
        assert caller(own, sign_in(own, READER))["name"] == "bob"
        assert httpx.post(f"{server.url}/console/links", headers=bearer(READER)).status_code == 410


def test_without_credentials_there_is_no_code(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as server:
        answer = httpx.post(f"{server.url}/console/links")
        assert (answer.status_code, answer.json()) == (200, {"code": None, "expires_at": None})
    env = {"SEMEL_TOKENS": str(token_file(tmp_path, ENTRIES)), "SEMEL_TOKEN_REQUIRED": "0"}
    with RunningServer(tmp_path / "data", env=env) as server:
        assert httpx.post(f"{server.url}/console/links").json()["code"] is None
        assert caller(server.url, sign_in(server.url, READER))["name"] == "bob"
    with RunningServer(tmp_path / "data", env={"SEMEL_CONSOLE": "0"}) as server:
        refused = httpx.post(f"{server.url}/console/links")
        assert refused.status_code == 404
        assert "turned off" in refused.json()["detail"]


@pytest.mark.parametrize("keep_epoch", [False, True])
def test_a_restore_brings_no_session_back_unless_nothing_was_lost(tmp_path: Path, keep_epoch: bool) -> None:
    env = {"SEMEL_TOKENS": str(token_file(tmp_path, ENTRIES))}
    with RunningServer(tmp_path / "data", env=env) as server, io.BytesIO() as file:
        code, ended = make_link(server.url, READER), sign_in(server.url, ADMIN)
        offline_backup.back_up(f"sqlite:{server.data}", file, lambda _: None)
        sign_out(server.url, ended)
        server.stop()
        file.seek(0)
        (tmp_path / "restored").mkdir()
        url = f"sqlite:{tmp_path / 'restored'}"
        offline_backup.restore(url, file, lambda _: None, None, keep_epoch=keep_epoch)
    assert list(StoreCheck(url, has_files=False).faults()) == []
    with RunningServer(tmp_path / "restored", env=env) as server:
        assert bool(caller(server.url, ended)) == keep_epoch
        assert exchange(server.url, code).status_code == (201 if keep_epoch else 401)
        assert caller(server.url, sign_in(server.url, ADMIN))
