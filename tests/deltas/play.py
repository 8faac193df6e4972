"""A random run: clients with clocks that differ write, push and pull, and things go wrong on the way."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.deltas.cast import Cast
from tests.deltas.client import PAGE, TABLES, Scripted
from tests.deltas.wire import fresh

AHEAD_MS = (-3_000, 0, 3_000)
"""How wrong the clocks are; no further ahead than a server believes."""
OPERATIONS = 50
LOST_PAGES = 0.5
SMALL = 3
"""Entries in a page of a client that is short of memory."""


class Play:
    """One run. With `troubles`, answers are lost, copies of old pushes arrive, and pages are small.

    A client pushes before it pulls, and repeats pushes that were not answered: the order that keeps replicas equal. A
    row is inserted by one client, and again only by one who has just deleted it: more a plain INSERT does not bear.
    """

    def __init__(self, cast: Cast, seed: int, *, troubles: bool = False) -> None:
        self.cast = cast
        self.chance = random.Random(seed)
        self._troubles = troubles
        self._made = 0
        for ahead in AHEAD_MS:
            cast.client(fresh("client"), ahead_ms=ahead)

    def run(self, meanwhile: Callable[[Play], None] = lambda play: None) -> None:
        """Write and sync at random, then settle."""
        for _ in range(OPERATIONS):
            client = self.chance.choice(self.cast.clients)
            self.write(client)
            meanwhile(self)
            client = self.chance.choice(self.cast.clients)
            roll = self.chance.random()
            if roll < 0.4:
                self.sync(client)
            elif roll < 0.6:
                client.push()
        for client in self.cast.clients:
            self.sync(client)
        self.cast.settle()

    def write(self, client: Scripted) -> None:
        """A random operation of the application on what it sees."""
        rows = sorted(client.rows())
        kind = self.chance.choice(["insert", "update", "update", "update", "delete"]) if rows else "insert"
        if kind == "insert":
            table = self.chance.choice(sorted(TABLES))
            self._made += 1
            client.insert(f"row {self._made}", table, **self._cells(table))
            return
        table, row = self.chance.choice(rows)
        if kind == "delete":
            client.delete(row, table)
            if self.chance.random() < 0.3:  # and changes its mind, before anybody has seen it
                client.insert(row, table, **self._cells(table))
        else:
            client.update(row, table, **self._cells(table))

    def _cells(self, table: str) -> dict[str, object]:
        names = self.chance.sample(TABLES[table], self.chance.randint(1, len(TABLES[table])))
        return {name: self.chance.choice([None, 0, 1, "x", "y", "z"]) for name in names}

    def sync(self, client: Scripted) -> None:
        """Push, then pull; what was pushed and not heard of is pushed again, and any page may be lost."""
        if not self._troubles:
            client.cycle()
            return
        self._copy_arrives(client)
        for _ in range(self.chance.randrange(3)):
            client.push(lose=True)
        client.push_all()
        for _ in range(self.chance.randrange(3)):
            client.pull(lose=self.chance.random() < LOST_PAGES, limit=self._limit())

    def _copy_arrives(self, client: Scripted) -> None:
        """A push that the network has kept for a while; nobody waits for its answer any more."""
        if client.acknowledged and self.chance.random() < 0.3:
            copies = self.chance.choices(client.acknowledged, k=3)
            answer = self.cast.deltas.push(self.cast.gateway, copies, client=client.name)
            assert answer["duplicates"] == len(copies)

    def _limit(self) -> int:
        return self.chance.choice([PAGE, SMALL])
