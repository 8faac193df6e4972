"""Keys of JWTs from a URL: fetched, refreshed, kept while the URL is away, and never from another host."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import httpx
import pytest

from semel.kernel.errors import Refused
from semel.server.auth import jwks_url
from semel.server.auth.jwks_url import FetchedKeys, KeyUrl, fetch_keys
from semel.server.auth.jwt_claims import KeyFileError
from semel.server.auth.jwt_keys import MAX_FILE_BYTES
from semel.server.auth.jwt_tokens import JwtVerifier
from semel.server.settings_loader import SettingsError, load_settings
from semel.surfaces.registry import SCOPE_RULES
from tests.harness.server import HOST, RunningServer
from tests.server.auth.key_server import KeyServer, key_set, signed
from tests.server.auth.signing import oct_jwk


@pytest.fixture
def issuer() -> Iterator[KeyServer]:
    made = KeyServer()
    yield made
    made.close()


def status(server: RunningServer, token: str) -> int:
    return httpx.get(f"{server.url}/v1/streams", headers={"Authorization": f"Bearer {token}"}).status_code


def measured(server: RunningServer) -> dict[str, float]:
    token = {"Authorization": "Bearer the-one-token"}
    facts: dict[str, float] = httpx.get(f"{server.url}/metrics", headers=token).json()
    return facts


def test_a_server_uses_the_keys_of_a_url_and_keeps_them_while_it_is_away(issuer: KeyServer, tmp_path: Path) -> None:
    env = {"SEMEL_JWT_KEYS": issuer.url, "SEMEL_STORE": "memory:", "SEMEL_TOKEN_ACTIVE": "the-one-token"}
    with RunningServer(tmp_path / "data", env=env | {"SEMEL_LOG_FORMAT": "json"}) as server:
        assert [status(server, token) for token in (signed(0, "first"), signed(1, "second"))] == [200, 401]
        assert measured(server)["semel_auth_key_age_seconds"] >= 0
        issuer.close()
        assert status(server, signed(0, "first", jti="2")) == 200
        assert "the keys of JWTs were fetched" in server.output.read_text()


def test_a_server_starts_without_its_keys_and_accepts_no_jwt(tmp_path: Path) -> None:
    env = {"SEMEL_JWT_KEYS": f"http://{HOST}:9/keys.json", "SEMEL_STORE": "memory:"}
    with RunningServer(tmp_path / "data", env=env | {"SEMEL_TOKEN_ACTIVE": "the-one-token"}) as server:
        assert [status(server, token) for token in (signed(0, "first"), "the-one-token")] == [401, 200]
        assert measured(server)["semel_auth_key_fetch_failures_total"] >= 1
        assert "cannot be fetched; no JWT is accepted" in server.output.read_text()


class Script:
    """Answers of a URL, one after the other; the last one stays."""

    def __init__(self, *answers: FetchedKeys | Exception) -> None:
        self.answers = list(answers)
        self.fetches = 0
        self.threads: set[int] = set()

    def __call__(self, url: str) -> FetchedKeys:
        self.threads.add(threading.get_ident())
        answer = self.answers[min(self.fetches, len(self.answers) - 1)]
        self.fetches += 1
        if isinstance(answer, Exception):
            raise answer
        return answer


def names(keys: KeyUrl, *kids: str) -> list[bool]:
    return [bool(keys.keys.fitting("EdDSA", kid)) for kid in kids]


def test_an_unknown_key_is_fetched_once_in_the_shortest_time_and_not_on_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jwks_url, "MISS_SECONDS", 0.2)
    script = Script(FetchedKeys(key_set("first"), None), FetchedKeys(key_set("first", "second"), None))

    async def run() -> None:
        keys = KeyUrl("https://issuer.example/keys", ["EdDSA"], script)
        await keys.refresh()
        assert (names(keys, "first", "second"), keys.look(0), keys.look(0)) == ([True, False], True, False)
        task = asyncio.create_task(keys.run())
        began = time.monotonic()
        while time.monotonic() - began < 0.7:
            keys.miss()
            await asyncio.sleep(0.001)
        task.cancel()
        assert names(keys, "first", "second") == [True, True]
        assert 2 <= script.fetches <= 5
        assert keys.look(0)
        assert threading.get_ident() not in script.threads

    asyncio.run(run())


@pytest.mark.parametrize(
    ("max_age", "pause"), [(None, 300.0), (0.0, 30.0), (1.0, 30.0), (120.0, 120.0), (999_999_999.0, 3_600.0)]
)
def test_keys_are_used_for_as_long_as_they_may_within_bounds(max_age: float | None, pause: float) -> None:
    async def run() -> None:
        keys = KeyUrl("https://issuer.example/keys", ["EdDSA"], Script(FetchedKeys(key_set("first"), max_age)))
        await keys.refresh()
        assert keys._pause == pause

    asyncio.run(run())


UNUSABLE: dict[str, FetchedKeys | Exception] = {
    "away": KeyFileError("the connection failed"),
    "unexpected": RuntimeError("canary"),
    "no JSON": FetchedKeys(b"<html>canary", None),
    "no keys": FetchedKeys(b'{"keys": []}', None),
    "a published secret": FetchedKeys(json.dumps({"keys": [oct_jwk()]}).encode(), None),
    "a private key": FetchedKeys(json.dumps({"keys": [{"kty": "OKP", "d": "canary"}]}).encode(), None),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_unusable_answer_is_counted_told_once_and_changes_nothing(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        script = Script(FetchedKeys(key_set("first"), None), UNUSABLE[name])
        keys = KeyUrl("https://issuer.example/keys?secret=canary", ["HS256", "EdDSA"], script)
        await keys.refresh()
        keys.look(0)
        with caplog.at_level(logging.INFO):
            await keys.refresh()
            await keys.refresh()
        assert (names(keys, "first"), keys.failures, keys.look(0)) == ([True], 2, False)

    asyncio.run(run())
    told = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(told) == 1
    assert "stay in use" in told[0].getMessage()
    assert "canary" not in str(vars(told[0]))


def refused(issuer: KeyServer, answer: Callable[[BaseHTTPRequestHandler], None]) -> str:
    issuer.answer = answer
    with pytest.raises(KeyFileError) as error:
        fetch_keys(issuer.url)
    return str(error.value)


def no_http(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"canary\r\n\r\n")


def test_what_is_no_whole_answer_of_this_host_is_not_taken(issuer: KeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    issuer.answer = issuer.keys("first", Cache_Control='private, max-age="77"')
    assert fetch_keys(issuer.url) == (key_set("first"), 77.0)
    issuer.answer = issuer.keys("first", Cache_Control="no-store, max-age=77")
    assert fetch_keys(issuer.url).max_age == 0.0
    assert "redirects are not followed" in refused(issuer, issuer.body(b"", 302, Location="http://127.0.0.1:1/keys"))
    assert len(issuer.asked) == 3
    assert "status 500" in refused(issuer, issuer.body(b"canary", 500))
    assert "too large" in refused(issuer, issuer.body(b"x" * (MAX_FILE_BYTES + 100_000)))
    assert "cut off" in refused(issuer, issuer.body(b"{}", Content_Length="9"))
    assert "not HTTP" in refused(issuer, no_http)
    monkeypatch.setattr(jwks_url, "FETCH_SECONDS", 0.3)

    def drip(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        with suppress(OSError):  # the client has given up
            for _ in range(200):
                request.wfile.write(b"x")
                time.sleep(0.02)

    assert "in time" in refused(issuer, drip)


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("http://issuer.example/keys", "only on loopback"),
        ("http://10.0.0.1/keys", "only on loopback"),
        ("https://user:secret@issuer.example/keys", "not a usable URL"),
        ("https://", "not a usable URL"),
        ("https://issuer.example:port/keys", "not a usable URL"),
    ],
)
def test_a_url_that_could_be_exchanged_on_the_way_is_refused_at_the_start(url: str, word: str) -> None:
    with pytest.raises(SettingsError, match=word) as error:
        load_settings({"jwt_keys": url}, {}, None)
    assert "secret" not in str(error.value)


def test_a_url_on_loopback_or_over_https_is_taken() -> None:
    for url in ("http://127.0.0.1:8000/keys", "http://[::1]/keys", "http://localhost/keys", "https://issuer.example/k"):
        assert load_settings({"jwt_keys": url}, {}, None).has_key_url
    with pytest.raises(SettingsError, match="HS256"):
        load_settings({"jwt_keys": "https://issuer.example/k", "jwt_algorithms": "HS256"}, {}, None)


def test_a_token_that_names_an_unknown_key_asks_for_a_fetch() -> None:
    async def run() -> None:
        keys = KeyUrl("https://issuer.example/keys", ["EdDSA"], Script(FetchedKeys(key_set("first"), None)))
        await keys.refresh()
        verifier, now_ms = JwtVerifier(keys, SCOPE_RULES), int(time.time() * 1_000)
        assert verifier.verify(signed(0, "first").encode(), now_ms).name == "ada"
        with pytest.raises(Refused):
            verifier.verify(signed(1, "first").encode(), now_ms)  # a wrong signature is no reason
        assert not keys._wanted.is_set()
        with pytest.raises(Refused):
            verifier.verify(signed(1, "second").encode(), now_ms)
        assert keys._wanted.is_set()

    asyncio.run(run())
