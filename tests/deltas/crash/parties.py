"""Those who use the server while it dies: writers of batches, readers that never stop, and clients with a database.

Each is one thread. Nobody gives up, except a writer that abandons a batch of which it never heard: such a batch must
then be there whole, or not at all.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from semel.kernel.hashes import json_text
from semel.kernel.hlc import join, tick, wall_of
from semel.surfaces.deltas.model import Delta, DeltaEntry, DeltaOp
from tests.deltas.crash.caller import DeltaLine, Given
from tests.deltas.model.replicas import PUSHED_AT_ONCE, DoubledRowError, PlainReplica
from tests.deltas.model.requests import make_column, make_delta
from tests.harness.caller import Told

LOST_PAGES = 0.3
"""Of the pages that clients ask for, these do not reach them."""
LOAD, FLEET = "load", "fleet"
"""Gateways: batches of many writers on few rows, and clients that keep databases."""
PAUSE_SECONDS = (0.0, 0.08)
TABLES = ("todos", "notes")
SHARED_ROWS, OWN_ROWS = 4, 6
PAGES = (1, 3, 50, 1_000)
FIRST_LATE = 1_000
"""Counters of late deltas are above it."""


@dataclass(slots=True)
class Batch:
    """Deltas that were pushed together, and what became of them."""

    deltas: tuple[Delta, ...]
    is_poisoned: bool = False
    """One of them has an id that is not its own, or comes from the future: none may be taken."""
    answers: list[Told] = field(default_factory=list)
    unknown: int = 0
    """How often nobody answered."""


class Party:
    """What they have in common."""

    def __init__(self, name: str, ports: Sequence[int], seed: int) -> None:
        self.client = json_text(name)
        self._chance = random.Random(f"{seed} {name}")
        self._line = DeltaLine(ports, self._chance)
        self.faults: list[str] = []

    @property
    def given(self) -> list[Given]:
        """Every number that it was given."""
        return self._line.given

    @property
    def lost(self) -> int:
        """How many requests went without an answer."""
        return self._line.lost

    def work(self, stop: threading.Event) -> None:
        """Go on until told to stop."""
        while not stop.is_set():
            self.act()
            stop.wait(self._chance.uniform(*PAUSE_SECONDS))
        self._line.close()

    def act(self) -> None:
        """Do one thing."""
        raise NotImplementedError


class Writer(Party):
    """Pushes batches to rows of its own and of everyone; repeats, abandons and poisons some."""

    def __init__(self, name: str, ports: Sequence[int], seed: int) -> None:
        super().__init__(name, ports, seed)
        self._hlc = 0
        self._made = 0
        self.batches: list[Batch] = []

    def act(self) -> None:
        """A new batch, or an old one again."""
        draw = self._chance.random()
        if draw < 0.15 and self.batches:
            again = self._chance.choice(self.batches)
            if again.answers and not again.is_poisoned:
                self._push(again)
            return
        batch = Batch(tuple(self._delta() for _ in range(self._chance.randrange(1, 7))))
        if draw < 0.3:
            batch = Batch(self._poisoned(batch.deltas), is_poisoned=True)
        self.batches.append(batch)
        self._push(batch, may_abandon=self._chance.random() < 0.3)

    def repeat_all(self) -> None:
        """Everything that was acknowledged once more, to a server that has seen nobody but the log."""
        for batch in self.batches:
            if batch.answers and not batch.is_poisoned:
                batch.answers.append(self._line.insist(LOAD, self.client, batch.deltas))
        self._line.close()

    def _delta(self) -> Delta:
        chance = self._chance
        self._hlc = tick(self._hlc, time.time_ns() // 1_000_000)
        self._made += 1
        hlc = self._hlc
        if chance.random() < 0.15:  # late, with a counter that no other one has: equal times could be equal deltas
            hlc = join(wall_of(hlc) - chance.randrange(1, 3_000), FIRST_LATE + self._made)
        is_shared = chance.random() < 0.4
        row = f"shared-{chance.randrange(SHARED_ROWS)}" if is_shared else f"{self.client}-{chance.randrange(OWN_ROWS)}"
        op = chance.choice((DeltaOp.INSERT, DeltaOp.UPDATE, DeltaOp.UPDATE, DeltaOp.DELETE))
        names = () if op is DeltaOp.DELETE else chance.sample("abc", chance.randrange(1, 4))
        columns = [make_column(name, chance.randrange(10**9)) for name in names]
        return make_delta(op, chance.choice(TABLES), json_text(row), self.client, hlc, columns)

    def _poisoned(self, deltas: tuple[Delta, ...]) -> tuple[Delta, ...]:
        """With one more, at any place, which nobody may take."""
        bad = self._delta()
        if self._chance.random() < 0.5:
            bad = bad._replace(id=bytes(reversed(bad.id)))
        else:
            bad = make_delta(bad.op, bad.table, bad.row, bad.client, bad.hlc + join(3_600_000, 0), bad.columns)
        place = self._chance.randrange(len(deltas) + 1)
        return (*deltas[:place], bad, *deltas[place:])

    def _push(self, batch: Batch, *, may_abandon: bool = False) -> None:
        """Until it is answered, or abandoned."""
        told = self._line.push(LOAD, self.client, batch.deltas)
        if told is None:
            batch.unknown += 1
            if may_abandon:
                return
            told = self._line.insist(LOAD, self.client, batch.deltas)
        batch.answers.append(told)


class Reader(Party):
    """Never writes: follows a gateway page by page, and keeps all that it is told."""

    def __init__(self, name: str, gateway: str, ports: Sequence[int], seed: int) -> None:
        super().__init__(name, ports, seed)
        self._gateway = gateway
        self._cursor = 0
        self.entries: list[DeltaEntry] = []

    def act(self) -> None:
        """One page."""
        self.pull(self._chance.choice(PAGES))

    def pull(self, limit: int) -> bool:
        """One page; whether there is more."""
        page = self._line.pull(self._gateway, self.client, self._cursor, limit)
        if page.cursor < self._cursor:
            self.faults.append(f"{self.client}: the cursor falls from {self._cursor} to {page.cursor}")
        if len(page.entries) > limit or (page.has_more and not page.entries):
            self.faults.append(f"{self.client}: {len(page.entries)} entries for {limit}, more: {page.has_more}")
        self.entries += page.entries
        self._cursor = page.cursor
        return page.has_more

    def catch_up(self) -> None:
        """Everything that there is."""
        while self.pull(1_000):
            pass
        self._line.close()


class Client(Party):
    """Has a database and believes what it is sent; pushes until it is acknowledged, and then pulls."""

    def __init__(self, name: str, ports: Sequence[int], seed: int) -> None:
        super().__init__(name, ports, seed)
        self.replica = PlainReplica(name, hears=True)
        self.written: list[Delta] = []
        self._rows = 0

    def act(self) -> None:
        """Some changes, and a cycle."""
        for _ in range(self._chance.randrange(3)):
            self._rows += 1
            fresh = json_text(f"{self.client} {self._rows}")
            delta = self.replica.write(self._chance, fresh, time.time_ns() // 1_000_000)
            if delta is not None:
                self.written.append(delta)
        self._push()
        limit = self._chance.choice(PAGES)
        if self._chance.random() < LOST_PAGES:
            self._line.pull(FLEET, self.client, self.replica.cursor, limit)
        else:
            self._pull(limit)

    def come_to_rest(self) -> None:
        """Push what is left, and pull all there is."""
        self._push()
        while self._pull(1_000):
            pass
        self._line.close()

    def _push(self) -> None:
        while self.replica.pending:
            sent = tuple(self.replica.pending[:PUSHED_AT_ONCE])
            told = self._line.insist(FLEET, self.client, sent)
            if told.status != 200 or told.body["accepted"] != len(sent):
                self.faults.append(f"{self.client}: a push was answered {told}")
                return
            self.replica.pushed(sent, int(told.body["serverHlc"]))

    def _pull(self, limit: int) -> bool:
        page = self._line.pull(FLEET, self.client, self.replica.cursor, limit)
        try:
            self.replica.apply(page, time.time_ns() // 1_000_000)
        except DoubledRowError as error:
            self.faults.append(f"{self.client}: {error}")
            return False
        return page.has_more
