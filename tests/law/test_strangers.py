"""Text of a caller without a credential is forgotten with its request: no cache of the server keeps it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.harness.server import HOST
from tests.law.rig import BESIDE_BYTES, WatchedServer, watched

REQUESTS = 300
LONG = 57_000
"""Bytes of the text of each request; a head may have 64 KiB."""

Head = Callable[[int], bytes]


def target(path: bytes, unit: bytes) -> Head:
    """A head with a long path, another one for each number."""
    return lambda number: b"GET %b%d%b HTTP/1.1\r\nHost: a\r\n" % (path, number, unit * (LONG // len(unit)))


def field(name: bytes, path: bytes = b"/v1/jobs") -> Head:
    """A head with one long field."""
    return lambda number: b"GET %b HTTP/1.1\r\nHost: a\r\n%b: %d%b\r\n" % (path, name, number, b"x" * LONG)


HEADS: dict[str, Head] = {
    **{
        f"{path.decode()} {name}": target(path, unit)
        for path in (
            b"/ledger/v1/orgs/",
            b"/ledger/v1/orgs/1/entities/",
            b"/v1/stream/",
            b"/v1/stream/__ds/subscriptions/",
            b"/v1/events/",
            b"/v1/jobs/",
            b"/sync/",
            b"/v1/writes/",
            b"/",
        )
        for name, unit in (("deep", b"/ab"), ("wide", b"a"), ("escaped", b"%41"))
    },
    **{name.decode(): field(name) for name in (b"Authorization", b"X-API-Key", b"Origin", b"X-Request-Id", b"Accept")},
    "Host": lambda number: b"GET /v1/jobs HTTP/1.1\r\nHost: a%d%b\r\n" % (number, b".b" * (LONG // 2)),
}


def test_text_of_strangers_is_not_kept(tmp_path: Path) -> None:
    token = {"TOKEN_ACTIVE": "a-token-that-no-stranger-has-0123456789", "STORE": "memory:"}
    with watched(tmp_path, **token) as server:
        kept = {name: server.cost_of(partial(refused, server, head)).memory_bytes for name, head in HEADS.items()}
    assert {name: size for name, size in kept.items() if size > BESIDE_BYTES} == {}


def refused(server: WatchedServer, head: Head) -> None:
    """Send the requests one after another, and see each refused."""
    with socket.create_connection((HOST, server.port)) as connection, connection.makefile("rb") as answers:
        for number in range(REQUESTS):
            connection.sendall(head(number) + b"\r\n")
            status = int(answers.readline().split()[1])
            assert 400 <= status < 500, status
            length = 0
            while line := answers.readline().strip().lower():
                if line.startswith(b"content-length:"):
                    length = int(line.partition(b":")[2])
            answers.read(length)
