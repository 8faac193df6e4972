"""Tokens in the store of a real server: who is let in, what ends with a token, and what is told of it."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from websockets.sync.client import connect

from semel.engine.clock import SystemWorld
from semel.engine.engine import Engine
from semel.server import offline_backup
from semel.server.auth.principals import Principals
from semel.server.auth.stored_tokens import StoredTokens, TokenState
from semel.server.auth.token_contract import TokenChanged
from semel.server.auth.token_table import NEVER, TokenRow
from semel.server.offline_tokens import OfflineTokens
from semel.server.settings_loader import SettingsError, load_settings, make_settings
from semel.server.store_check import StoreCheck
from semel.store.memory import MemoryStore
from semel.surfaces.ledger.proto import ledger_pb2 as pb
from semel.surfaces.registry import SCOPE_RULES
from semel.surfaces.schema import TABLES
from tests.harness.server import HOST, RunningServer
from tests.harness.together import eventually
from tests.server.auth.test_reload import last_words
from tests.server.auth.token_site import Issued, TokenAdmin, first_token, status

PATIENT = {"SEMEL_STREAMS_LONG_POLL_MS": "600000", "SEMEL_STREAMS_SSE_MAX_MS": "600000"}
"""What ends in these tests was ended by something else."""
STREAM = "/v1/stream/there"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenAdmin]:
    folder = tmp_path_factory.mktemp("tokens")
    data = folder / "data"
    data.mkdir()
    boss = first_token(f"sqlite:{data}", str(data))
    with RunningServer(data, env={"SEMEL_LOG_FORMAT": "json"} | PATIENT, grpc=True) as server:
        headers = {**boss.bearer, "Content-Type": "text/plain"}
        httpx.put(server.url + STREAM, headers=headers, content=b"x").raise_for_status()
        site = TokenAdmin(server, boss)
        yield site
    kept = [path.read_bytes() for path in data.rglob("*") if path.is_file()]
    assert any(sha256(boss.secret.encode()).digest() in content for content in kept)  # so the search finds something
    for secret in site.secrets:
        assert not any(secret.encode() in content for content in (*kept, server.output.read_bytes()))


def test_a_token_counts_as_soon_as_it_is_created_and_no_longer_when_it_is_revoked(site: TokenAdmin) -> None:
    assert status(site.server, None) == 401
    token = site.create("ada", roles=["read"], scopes=["streams:there"])
    assert [status(site.server, token, path) for path in (STREAM, "/v1/stream/other")] == [200, 403]
    assert httpx.put(site.server.url + STREAM, headers=token.bearer).status_code == 403
    assert site.revoke(token.id)["changed"] is True
    assert status(site.server, token, STREAM) == 401
    again = site.revoke(token.id)
    assert (again["changed"], again["state"]) == (False, "revoked")


def test_an_admin_with_scopes_and_a_caller_without_the_role_change_no_token(site: TokenAdmin) -> None:
    limited = site.create("limited", roles=["admin"], scopes=["*:mine*"])
    for token in (limited, site.create("writer")):
        asked = TokenAdmin(site.server, token)
        for method, path in (("GET", ""), ("POST", ""), ("POST", f"/{token.id}/revoke"), ("GET", f"/{token.id}")):
            assert asked.call(method, path, {} if path == "" else None).status_code == 403, (method, path)


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"name": "x"}, "sha256"),
        ({"name": "x", "sha256": "ab"}, "64 hex digits"),
        ({"name": "", "sha256": "0" * 64}, "name"),
        ({"name": "user:x", "sha256": "0" * 64}, "may not begin with"),
        ({"name": "x", "sha256": "0" * 64, "roles": ["boss"]}, "must be some of"),
        ({"name": "x", "sha256": "0" * 64, "roles": []}, "non-empty"),
        ({"name": "x", "sha256": "0" * 64, "scopes": ["there"]}, "SURFACE:NAME"),
        ({"name": "x", "sha256": "0" * 64, "expires_at": "tomorrow"}, "time"),
        ({"name": "x", "sha256": "0" * 64, "expires_at": "2020-01-01T00:00:00Z"}, "past"),
        ({"name": "x", "sha256": "0" * 64, "token": "canary"}, "unknown member"),
    ],
)
def test_a_token_that_cannot_be_is_refused_with_what_to_correct(
    site: TokenAdmin, body: dict[str, Any], word: str
) -> None:
    answer = site.call("POST", "", body)
    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_REQUEST")
    assert word in answer.json()["detail"]
    assert "canary" not in answer.text


def test_a_rotated_token_and_its_connection_live_for_the_overlap(site: TokenAdmin) -> None:
    token = site.create("grace")
    with following(site, token) as ends:
        new = site.rotate(token.id, overlap_ms=1_500)
        assert new.facts["replaces"]["state"] == "rotated"
        assert [status(site.server, one, STREAM) for one in (token, new)] == [200, 200]
        assert not ends.done()
        eventually(ends.done, "the stream of the old token ends with the overlap")
        eventually(lambda: status(site.server, token, STREAM) == 401, "the old token has ended")
    assert status(site.server, new, STREAM) == 200


@contextmanager
def following(site: TokenAdmin, token: Issued) -> Iterator[Any]:
    """An event stream that is under way; the result of the future is all that it sent."""
    query = {"live": "sse", "offset": "now"}
    with (
        httpx.Client(timeout=60) as client,
        ThreadPoolExecutor(1) as pool,
        client.stream("GET", site.server.url + STREAM, params=query, headers=token.bearer) as answer,
    ):
        assert answer.status_code == 200
        yield pool.submit(lambda: b"".join(answer.iter_raw()))


def test_everything_that_is_open_ends_with_a_revoked_token(site: TokenAdmin) -> None:
    token = site.create("ada", roles=["admin"])
    server = site.server
    org = httpx.post(f"{server.url}/ledger/v1/orgs", headers=token.bearer, json={"name": "o"}).json()["slug"]["slug"]
    watch = pb.WatchBlocksRequest(organization=pb.OrganizationSlug(slug=int(org)), start_height=1)
    socket = f"{server.url.replace('http', 'ws')}/v1/events"
    hello = {"type": "connect", "protocol_version": "1.0", "msg_id": "1", "timestamp": 0}
    with (
        following(site, token) as stream,
        ThreadPoolExecutor(1) as pool,
        connect(socket, additional_headers=token.bearer) as peer,
        grpc.insecure_channel(f"{HOST}:{server.grpc_port}") as channel,
    ):
        poll = pool.submit(
            httpx.get,
            server.url + STREAM,
            params={"live": "long-poll", "offset": "now"},
            headers=token.bearer,
            timeout=60,
        )
        peer.send(json.dumps(hello | {"payload": {"token": token.secret, "client_id": "ada"}}))
        assert "connected" in str(peer.recv(30))
        call: Any = channel.unary_stream("/ledger.v1.ReadService/WatchBlocks")
        blocks = call(watch.SerializeToString(), metadata=[("x-api-key", token.secret)], timeout=60)
        assert blocks.initial_metadata() is not None
        site.revoke(token.id)
        stream.result(30)
        assert poll.result(30).status_code == 204
        assert "credential" in last_words(peer)
        with pytest.raises(grpc.RpcError) as ended:
            list(blocks)
        assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_no_secret_is_told_by_metrics_a_diagnosis_an_error_or_a_backup(site: TokenAdmin, tmp_path: Path) -> None:
    token = site.rotate(site.create("canary-bird").id)
    headers = site.boss.bearer if site.boss is not None else {}
    told = [httpx.get(f"{site.server.url}/metrics", headers=headers).content, site.call("GET", "").content]
    bundle = httpx.get(f"{site.server.url}/v1/diagnose", headers=headers).content
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        told += [archive.read(name) for name in archive.namelist()]
    told += [httpx.get(site.server.url + STREAM, headers={"Authorization": f"Bearer {token.secret}x"}).content]
    with io.BytesIO() as file:
        offline_backup.back_up(f"sqlite:{site.server.data}", file, lambda _: None)
        told.append(file.getvalue())
    assert any(b"canary-bird" in content for content in told)
    digests = [sha256(secret.encode()).hexdigest().encode() for secret in site.secrets]
    for content in told:
        assert not any(secret.encode() in content for secret in site.secrets)
        assert not any(digest in content for digest in digests)


def test_every_change_is_in_the_audit_log_by_id_and_name_before_it_is_answered(site: TokenAdmin) -> None:
    token = site.create("lin")
    new = site.rotate(token.id)
    site.revoke(new.id)
    lines = (site.server.data / "logs" / "audit-important.jsonl").read_text().splitlines()
    told = [(line["event"], line["details"]) for line in map(json.loads, lines) if line["details"].get("name") == "lin"]
    assert [event for event, _ in told] == ["TOKEN_CREATED", "TOKEN_ROTATED", "TOKEN_REVOKED"]
    assert [details["token_id"] for _, details in told] == [token.id, new.id, new.id]
    assert told[1][1]["replaces"] == token.id
    assert {details["by"] for _, details in told} == {"client:boss"}


def test_the_check_of_the_store_knows_tokens(site: TokenAdmin) -> None:
    assert list(StoreCheck(f"sqlite:{site.server.data}").row_faults()) == []


def test_a_store_that_has_had_a_token_never_returns_to_development_mode(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    boss = first_token(f"sqlite:{data}", str(data))
    env = {"SEMEL_STORED_TOKEN_RETENTION_MS": "1000", "SEMEL_SWEEP_INTERVAL_MS": "50"}
    with RunningServer(data, env=env) as server:
        TokenAdmin(server, boss).revoke(boss.id)
        assert [status(server, token) for token in (None, boss)] == [401, 401]
        settings = make_settings(store=f"sqlite:{data}", data=str(data))
        eventually(lambda: not OfflineTokens(settings).list(), "the token is deleted")
        server.restart()
        assert [status(server, token) for token in (None, boss)] == [401, 401]
        assert "tokens required" in server.output.read_text()


def test_the_first_token_closes_a_server_in_development_mode(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as server:
        assert status(server, None) == 200
        boss = TokenAdmin(server).create("boss", roles=["admin"])
        assert [status(server, token) for token in (None, boss)] == [401, 200]


def test_stored_tokens_close_a_server_before_the_first_token_and_may_listen_anywhere(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data", env={"SEMEL_STORED_TOKENS": "true"}) as server:
        assert status(server, None) == 401
    assert load_settings({"host": "0.0.0.0", "stored_tokens": True}, {}, None).needs_token
    with pytest.raises(SettingsError, match="--stored-tokens"):
        load_settings({"host": "0.0.0.0"}, {}, None)


def test_a_token_of_the_file_is_no_token_of_the_store(tmp_path: Path) -> None:
    file, digest = tmp_path / "tokens.toml", sha256(b"in the file").hexdigest()
    file.write_text(f'[[token]]\nname = "file"\nsha256 = "{digest}"\nroles = ["admin"]\n')
    env = {"SEMEL_TOKENS": str(file), "SEMEL_STORE": "memory:"}
    with RunningServer(tmp_path / "data", env=env) as server:
        site = TokenAdmin(server, Issued("in the file", "", {}))
        answer = site.call("POST", "", {"name": "x", "sha256": digest})
        assert (answer.status_code, answer.json()["code"]) == (409, "TOKEN_EXISTS")
        token = site.create("ada")
        site.revoke(token.id)
        assert [status(server, one) for one in (token, Issued("in the file", "", {}))] == [401, 200]


def test_a_known_head_with_a_revoked_token_is_refused(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as server, httpx.Client() as client:
        site = TokenAdmin(server)
        site.boss = site.create("boss", roles=["admin"])
        token = site.create("ada")
        headers = {**token.bearer, "Content-Type": "text/plain"}
        client.put(server.url + STREAM, headers=headers).raise_for_status()
        told = [client.post(server.url + STREAM, headers=headers, content=b"x").status_code for _ in range(5)]
        site.revoke(token.id)
        assert client.post(server.url + STREAM, headers=headers, content=b"x").status_code == 401
        assert set(told) == {204}


@pytest.mark.parametrize("point", ["flushed", "committed"])
def test_a_crash_before_the_answer_leaves_no_token_or_one_that_is_listed(tmp_path: Path, point: str) -> None:
    order, data = tmp_path / "order", tmp_path / "data"
    body = {"name": "ada", "sha256": sha256(b"canary").hexdigest(), "roles": ["admin"]}
    tokens = OfflineTokens(make_settings(store=f"sqlite:{data}", data=str(data)))
    left: list[str] = []
    for _ in range(4):  # a commit of the start may be the one that dies
        with RunningServer(data, env={"SEMEL_CRASH_FILE": str(order)}) as server:
            order.write_text(point)
            with pytest.raises(httpx.TransportError):
                TokenAdmin(server).call("POST", "", body)
            assert server.wait_for_death(60) == -signal.SIGKILL
        left = [one["id"] for one in tokens.list()]
        if left or point == "flushed":
            break
    assert len(left) == (point == "committed")
    again = tokens.create(body)  # the retry
    assert (again["changed"], [one["id"] for one in tokens.list()]) == (not left, left or [again["id"]])
    assert tokens.revoke(again["id"])["state"] == "revoked"
    assert list(StoreCheck(f"sqlite:{data}").faults()) == []


# -- The tokens in memory --------------------------------------------------------------------------------


def row(number: int, **members: Any) -> TokenRow:
    whole = TokenRow(b"%016x" % number, b"%032d" % number, b"n%d" % number, b"read", None, 0, None, NEVER, None, None)
    return whole._replace(**members)


def with_tokens(work: Callable[[StoredTokens, Principals], None]) -> None:
    async def run() -> None:
        world, principals = SystemWorld(), Principals()
        engine = Engine(MemoryStore(TABLES, world.wall_ms), world)
        work(StoredTokens(engine, principals, SCOPE_RULES, world), principals)
        await engine.stop()

    asyncio.run(run())


def test_an_older_state_does_not_bring_a_revoked_token_back() -> None:
    def work(stored: StoredTokens, principals: Principals) -> None:
        one, two = row(1), row(2)
        stored.load(TokenState(1, True, {one.id: one}))
        read = TokenState(2, True, {one.id: one, two.id: two})  # of another node, while this one revokes the first
        stored.take(TokenChanged((one._replace(revoked_at=5, ends_at=5),), 3, is_change=True))
        stored.load(read)
        assert set(principals.tokens) == set()
        stored.load(TokenState(3, True, {one.id: one._replace(revoked_at=5, ends_at=5), two.id: two}))
        assert set(principals.tokens) == {two.digest}

    with_tokens(work)


def test_a_token_of_an_unknown_surface_lets_no_one_in() -> None:
    def work(stored: StoredTokens, principals: Principals) -> None:
        stored.load(TokenState(1, True, {b"1": row(1, scopes=b'["kites:x"]'), b"2": row(2, scopes=b"[")}))
        assert (dict(principals.tokens), principals.are_known) == ({}, True)

    with_tokens(work)
