"""Clients of one gateway led by hand, a call at a time: for tests of what exactly each cursor means."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

from tests.deltas.vectors import columns, delta
from tests.deltas.wire import Answer, Deltas, Message, fresh, hlcs
from tests.harness.together import eventually

NODES = 2
"""Calls go to the nodes of a cluster in turn."""
SPREAD_SECONDS = 1.1
"""What a client has confirmed to one node is known to the others within a second; before that it is told again."""


class Peer:
    """One replica; it applies nothing, and remembers only its cursor."""

    def __init__(self, deltas: Deltas, gateway: str, name: str, stamps: Iterator[int]) -> None:
        self.deltas = deltas
        self.gateway = gateway
        self.name = name
        self.cursor = 0
        self._stamps = stamps

    def change(self, op: str, row: str, at: int | None = None, **cells: Any) -> Message:
        """A delta of its own; later than all before it, unless it is told otherwise."""
        hlc = next(self._stamps) if at is None else at
        return delta(op, columns(**cells), row=row, client=self.name, hlc=hlc)

    def push(self, *changes: Message) -> int:
        """Push; the cursor in the answer, which becomes its own."""
        self.cursor = self.deltas.push(self.gateway, changes, client=self.name).hlc
        return self.cursor

    def insert(self, *rows: str) -> int:
        """Push new rows in one batch."""
        return self.push(*(self.change("INSERT", row, title=f"{row} of {self.name}") for row in rows))

    def look(self, since: int | None = None, **parameters: Any) -> Answer:
        """Pull from a cursor, or its own, and do not move."""
        return self.deltas.pull(self.gateway, self.cursor if since is None else since, client=self.name, **parameters)

    def pull(self, **parameters: Any) -> list[Message]:
        """Pull and move on."""
        page = self.look(**parameters)
        if page["deltas"]:
            self.cursor = page.hlc
        entries: list[Message] = page["deltas"]
        return entries

    def settle(self) -> None:
        """Pull until it is known, on every node, that it has been told everything."""
        pauses = itertools.chain([0.0], itertools.repeat(SPREAD_SECONDS))

        def is_settled() -> bool:
            return all(self._is_settled(pause) for pause in (next(pauses), *[0.0] * (NODES - 1)))

        eventually(is_settled, "nothing is outstanding")

    def _is_settled(self, pause_seconds: float = 0) -> bool:
        """Whether an empty push has nothing to say of others; each call may go to another node."""
        while self.pull():
            pass
        time.sleep(pause_seconds)
        self.push()
        return not self.look()["deltas"]


class Peers:
    """Peers whose stamps rise in the order in which they are made."""

    def __init__(self, deltas: Deltas, gateway: str) -> None:
        self.deltas = deltas
        self.gateway = gateway
        self.stamps = hlcs()

    def peer(self, name: str = "") -> Peer:
        return Peer(self.deltas, self.gateway, name or fresh("peer"), self.stamps)

    def some(self, count: int) -> list[Peer]:
        return [self.peer() for _ in range(count)]


def once(entries: Sequence[Message]) -> list[Message]:
    """The entries, without a DELETE of a row that may be there and is told anew by the entry behind it."""
    is_last = len(entries) - 1
    return [one for place, one in enumerate(entries) if place == is_last or not _is_anew(one, entries[place + 1])]


def _is_anew(one: Message, other: Message) -> bool:
    is_same = (one["deltaId"], one["rowId"]) == (other["deltaId"], other["rowId"])
    return is_same and (one["op"], other["op"]) == ("DELETE", "INSERT")


def rows_in(page: Answer | list[Message]) -> list[str]:
    """The rows that the entries are about, in order; a row that is taken away and told anew is one of them once."""
    entries = page["deltas"] if isinstance(page, Answer) else page
    return [entry["rowId"] for entry in once(entries)]


def walk(peer: Peer, since: int, limit: int) -> list[str]:
    """All rows from a cursor on, in pages, each of which is asked for twice: an answer may be lost."""
    found: list[str] = []
    while True:
        page = peer.look(since, limit=limit)
        again = peer.look(since, limit=limit)
        assert again["deltas"] == page["deltas"], "a page that is asked for again is the same"
        found += rows_in(page)
        if not page["hasMore"]:
            return found
        since = page.hlc
