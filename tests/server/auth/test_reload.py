"""SIGHUP reads the token file and the key file again: a token is revoked, and one is added, without a restart."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.harness.server import RunningServer
from tests.harness.together import eventually
from tests.server.auth.signing import good_token, oct_jwk, write_keys

OLD, NEW, OTHER = "old-t0ken-canary", "new-t0ken-canary", "other-t0ken-canary"
PATH = "/v1/stream/there"
PATIENT = {"SEMEL_STREAMS_LONG_POLL_MS": "600000", "SEMEL_STREAMS_SSE_MAX_MS": "600000"}
"""What ends in these tests was ended by something else."""


def entry(token: str, name: str, roles: str = '["read", "write"]') -> str:
    return f'[[token]]\nname = "{name}"\nsha256 = "{sha256(token.encode()).hexdigest()}"\nroles = {roles}\n'


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


class Guarded:
    """A server with a token file, which is changed under it."""

    def __init__(self, server: RunningServer, file: Path) -> None:
        self.server = server
        self.file = file

    def hang_up(self) -> None:
        """Send SIGHUP and wait until it was acted upon."""
        before = self.reloads()
        os.kill(self.server.pid, signal.SIGHUP)
        eventually(lambda: self.reloads() > before, "the signal is acted upon")

    def reloads(self) -> int:
        """How often credentials were read again: the line about keys is the last one of each time."""
        said = [str(line["message"]) for line in self.log()]
        return sum("SIGHUP" in one and "key" in one for one in said)

    def log(self) -> list[dict[str, object]]:
        lines = self.server.output.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def status(self, token: str) -> int:
        return httpx.head(self.server.url + PATH, headers=bearer(token)).status_code


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    file = folder / "tokens.toml"
    file.write_text(entry(OTHER, "other"))
    env = {
        "SEMEL_TOKENS": str(file),
        "SEMEL_JWT_KEYS": str(write_keys(folder / "keys.json")),
        "SEMEL_DELTAS_JWT_SECRET": "s" * 32,
        "SEMEL_LOG_FORMAT": "json",
        "SEMEL_STORE": "memory:",
    }
    with RunningServer(folder / "data", env=env | PATIENT) as server:
        first = {**bearer(OTHER), "Content-Type": "text/plain"}
        httpx.put(server.url + PATH, headers=first, content=b"x").raise_for_status()
        yield Guarded(server, file)
    assert "canary" not in server.output.read_text()


@pytest.fixture
def server(started: Guarded) -> Guarded:
    """The one server, which knows an administrator, who will be revoked, and another caller."""
    started.file.write_text(entry(OLD, "old", '["admin"]') + entry(OTHER, "other"))
    started.hang_up()
    return started


def test_b6_a_revoked_token_is_401_and_a_new_one_counts(server: Guarded) -> None:
    assert [server.status(token) for token in (OLD, NEW, OTHER)] == [200, 401, 200]
    server.file.write_text(entry(NEW, "new") + entry(OTHER, "other"))
    assert server.status(OLD) == 200  # nothing is read before the signal
    server.hang_up()
    assert [server.status(token) for token in (OLD, NEW, OTHER)] == [401, 200, 200]
    told = [line for line in server.log() if "token file was read again" in str(line["message"])][-1]
    assert (told["level"], told["tokens"], told["added"], told["revoked"]) == ("info", 2, 1, 1)


def test_b6_a_token_counts_with_its_new_roles(server: Guarded) -> None:
    server.file.write_text(entry(OLD, "old", '["work"]') + entry(OTHER, "other"))
    server.hang_up()
    assert [server.status(token) for token in (OLD, OTHER)] == [403, 200]


BROKEN = {
    "no TOML": "[[token]\nname = canary",
    "no token": "",
    "an unknown field": '[[token]]\nname = "x"\ncanary = 1\n',
    "a scope that is none": entry(NEW, "canary-name") + 'scopes = ["canary"]\n',
    "a hash that is none": '[[token]]\nname = "canary-name"\nsha256 = "canary"\n',
    "not there": None,
    "no text": "\udcff",
}


def test_b6_a_file_that_cannot_be_used_leaves_the_old_one_in_force(server: Guarded) -> None:
    for name, text in BROKEN.items():
        if text is None:
            server.file.unlink()
        else:
            server.file.write_bytes(text.encode("utf-8", "surrogateescape"))
        server.hang_up()
        told = [line for line in server.log() if "the token file" in str(line["message"])][-1]
        assert told["level"] == "error", name
        assert told["why"], name
        assert [server.status(token) for token in (OLD, NEW)] == [200, 401], name
    server.file.write_text(entry(NEW, "new") + entry(OTHER, "other"))
    server.hang_up()
    assert [server.status(token) for token in (OLD, NEW)] == [401, 200]


@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_b6_a_live_read_of_a_revoked_token_ends(server: Guarded, live: str) -> None:
    query = {"live": live, "offset": "now"}
    url = server.server.url + PATH
    with (
        httpx.Client(timeout=60) as client,
        client.stream("GET", url, params=query, headers=bearer(OLD)) if live == "sse" else polling(url, query),
    ):
        eventually(lambda: readers(server) == 1, "the reader waits")
        server.file.write_text(entry(OTHER, "other"))
        server.hang_up()
        eventually(lambda: readers(server) == 0, "the reader has ended")


@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_b6_a_live_read_of_an_expired_token_ends(server: Guarded, live: str) -> None:
    query = {"live": live, "offset": "now"}
    url = server.server.url + PATH
    token = good_token({"sub": "ada", "roles": ["read"], "exp": int(time.time()) + 4}).decode()
    with (
        httpx.Client(timeout=60) as client,
        client.stream("GET", url, params=query, headers=bearer(token)) if live == "sse" else polling(url, query, token),
    ):
        eventually(lambda: readers(server) == 1, "the reader waits")
        eventually(lambda: readers(server) == 0, "the reader has ended")


@contextmanager
def polling(url: str, query: dict[str, str], token: str = OLD) -> Iterator[None]:
    """A long poll that is under way."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(httpx.get, url, params=query, headers=bearer(token), timeout=60)
        yield
        assert answer.result().status_code == 204


def readers(server: Guarded) -> int:
    answer = httpx.get(server.server.url + "/metrics", headers=bearer(OTHER))
    return int(answer.json()["semel_live_readers"])


def test_b6_event_streams_of_events_and_blocks_of_a_revoked_token_end(server: Guarded) -> None:
    url, sse = server.server.url, {**bearer(OLD), "Accept": "text/event-stream"}
    org = httpx.post(url + "/ledger/v1/orgs", headers=bearer(OLD), json={"name": "o"}).json()["slug"]["slug"]
    with (
        httpx.Client(timeout=60) as client,
        client.stream("GET", url + "/v1/events?partition=p", headers=sse) as events,
        client.stream("GET", f"{url}/ledger/v1/orgs/{org}/blocks:watch?from=1", headers=sse) as blocks,
    ):
        assert (events.status_code, blocks.status_code) == (200, 200)
        server.file.write_text(entry(OTHER, "other"))
        server.hang_up()
        assert b"credential" in b"".join(blocks.iter_raw())
        assert b"data:" not in b"".join(events.iter_raw())


def test_b6_a_websocket_of_events_of_a_revoked_token_is_closed(server: Guarded) -> None:
    address = server.server.url.replace("http", "ws") + "/v1/events"
    with connect(address, additional_headers=bearer(OLD)) as revoked, connect(address) as kept:
        for socket, token, name in ((revoked, OLD, "old"), (kept, OTHER, "other")):
            hello = {"type": "connect", "protocol_version": "1.0", "msg_id": "1", "timestamp": 0}
            socket.send(json.dumps(hello | {"payload": {"token": token, "client_id": name}}))
            assert "connected" in str(socket.recv(30))
        server.file.write_text(entry(OTHER, "other"))
        server.hang_up()
        assert "credential" in last_words(revoked)
        assert kept.ping().wait(30)


def test_b6_a_websocket_of_deltas_of_a_revoked_token_is_closed(server: Guarded) -> None:
    address = server.server.url.replace("http", "ws") + "/v1/sync/g/ws"
    with (
        connect(address, additional_headers=bearer(OLD)) as revoked,
        connect(address, additional_headers=bearer(OTHER)) as kept,
    ):
        server.file.write_text(entry(OTHER, "other"))
        server.hang_up()
        assert "AUTH_ERROR" in last_words(revoked)
        assert kept.ping().wait(30)


def last_words(socket: ClientConnection) -> str:
    """All that it is still sent until it is closed, and the reason of the close."""
    heard = ""
    try:
        while True:
            heard += str(socket.recv(30))
    except ConnectionClosed as closed:
        return heard + str(closed)


@pytest.mark.parametrize("files", ["none", "keys"])
def test_b6_without_a_token_file_the_signal_kills_nothing(tmp_path: Path, files: str) -> None:
    env = {"SEMEL_LOG_FORMAT": "json", "SEMEL_STORE": "memory:"}
    if files == "keys":
        env["SEMEL_JWT_KEYS"] = str(write_keys(tmp_path / "keys.json"))
    with RunningServer(tmp_path / "data", env=env) as server:
        watched = Guarded(server, tmp_path / "keys.json")
        for _ in range(3):
            watched.hang_up()
        expected = 401 if files == "keys" else 404
        assert httpx.head(server.url + PATH).status_code == expected
        if files == "keys":
            token = good_token({"sub": "ada", "exp": int(time.time()) + 3_600}).decode()
            assert watched.status(token) == 404
            watched.file.write_text("{ canary")
            watched.hang_up()
            assert watched.log()[-1]["level"] == "error"
            assert watched.status(token) == 404
            write_keys(watched.file, oct_jwk(b"another secret" * 4))
            watched.hang_up()
            assert watched.status(token) == 401
    assert "canary" not in server.output.read_text()
