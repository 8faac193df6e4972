"""Events and ledger transactions as the load generator sends them, one or many a request.

Large requests are rendered before the clock starts, because rendering one takes the generator as long as the server
takes to store it; when they run out, the window ends.
"""

from __future__ import annotations

import argparse
import itertools
import random
import socket
from collections.abc import Iterator

from bench.events_wire import PATH, Drafts, connect_frame
from bench.ledger_wire import Draft, HttpClient, Scope
from bench.load_keys import random_key
from bench.load_loop import HOST, NOT_AN_ANSWER, BrokenError
from bench.load_sources import HttpSource
from bench.load_wires import ask, cut_websocket, receive_until

LEDGER = "/ledger/v1/orgs"
ENTITIES = 10**12
"""Entities are chosen at random among this number: nearly every one is new."""
_UPGRADE = (
    f"GET {PATH} HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
).encode()
_TEXT = 0x81


class Events:
    """Batches of events over WebSocket, in the dialect of Insieme 2.x; each connection has a project of its own."""

    cut = staticmethod(cut_websocket)

    def __init__(self, asked: argparse.Namespace) -> None:
        self._batch: int = asked.batch
        self._upgrade = _UPGRADE.replace(b"GET ", b"GET " + asked.base.encode(), 1)
        run = random.getrandbits(40)
        self._names = [(f"client-{number:04}", f"p{run:x}-{number:04}") for number in range(asked.connections)]
        self._drafts = [Drafts(client, project) for client, project in self._names]

    def prepare(self, port: int) -> None:
        """Nothing."""

    def open(self, caller: socket.socket, connection: int) -> None:
        """Upgrade and say who it is."""
        caller.sendall(self._upgrade)
        head = receive_until(caller, b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101"):
            raise BrokenError(f"no WebSocket: {head!r}")
        caller.sendall(connect_frame(*self._names[connection]))
        welcome = receive_until(caller, b"}")
        while not cut_websocket(welcome):
            welcome += caller.recv(65_536)
        if b'"connected"' not in welcome:
            raise BrokenError(f"not connected: {welcome[:500]!r}")

    def request(self, connection: int) -> bytes:
        """One batch."""
        return self._drafts[connection].frame([random_key() for _ in range(self._batch)])

    def answered(self, connection: int, answer: bytes) -> int:
        """All of the batch must be committed."""
        if answer[0] != _TEXT or b'"submit_events_result"' not in answer[:200]:
            if b'"error"' in answer[:200]:
                raise BrokenError(f"refused: {answer[:500]!r}")
            return NOT_AN_ANSWER
        if answer.count(b'"status":"committed"') != self._batch:
            raise BrokenError(f"not all were committed: {answer[:500]!r}")
        return self._batch


class Transactions(HttpSource):
    """Transactions of one operation, or of as many as a batch has, in one vault; an operation is the unit."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self._asked = asked
        self._batch: int = asked.batch
        self._left: list[Iterator[bytes]] = []

    def prepare(self, port: int) -> None:
        """Create the vault, and render the transactions."""
        org = ask(port, "POST", LEDGER, {"name": "bench"})["slug"]["slug"]
        vault = ask(port, "POST", f"{LEDGER}/{org}/vaults", {})["vault"]["slug"]
        scope = Scope(int(org), int(vault))
        self._left = [iter(self._rendered(number, scope)) for number in range(self._asked.connections)]

    def _rendered(self, client: int, scope: Scope) -> list[bytes]:
        chance, batch = random.Random(client), self._batch
        count = self._asked.prepared // self._asked.connections // batch
        return [
            HttpClient.content(
                scope, Draft(client, sequence, b"", [chance.randrange(ENTITIES) for _ in range(batch)], batch > 1)
            )
            for sequence in itertools.islice(itertools.count(1), count)
        ]

    def request(self, connection: int) -> bytes | None:
        """One transaction, if any is left."""
        return next(self._left[connection], None)

    def answered(self, connection: int, answer: bytes) -> int:
        """It must be committed."""
        if b'\r\n\r\n{"success":{"txId"' not in answer:
            raise BrokenError(f"refused: {answer[:500]!r}")
        return self._batch


class ManyTransactions(Transactions):
    """Transactions of one operation, as many in one request as a batch has; a transaction is the unit."""

    def _rendered(self, client: int, scope: Scope) -> list[bytes]:
        chance, batch = random.Random(client), self._batch
        count = self._asked.prepared // self._asked.connections // batch
        sequences = itertools.count(1)
        return [
            HttpClient.many(
                scope,
                [Draft(client, next(sequences), b"", [chance.randrange(ENTITIES)], False) for _ in range(batch)],
            )
            for _ in range(count)
        ]

    def answered(self, connection: int, answer: bytes) -> int:
        """All of them must be committed."""
        if answer.count(b'{"status":200,"success":{"txId"') != self._batch:
            raise BrokenError(f"refused: {answer[:500]!r}")
        return self._batch
