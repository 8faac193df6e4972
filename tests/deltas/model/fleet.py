"""Three clients with databases of their own, whatever happens on the way; at the end all of them hold the same rows.

Requests get lost before they are heard and answers before they arrive, processes die at named points of the commit
path, clocks differ and are set. At the end there are some quiet rounds; then every client and a reader who comes new
must hold exactly the fold of all deltas that were ever acknowledged.

| told of the clients | because |
|---|---|
| plain ones push until everything is acknowledged, and then pull | that is the order in which they converge |
| plain ones that have lost their database ask for a page before they write | nobody else can know that they have |
| rows have ids of their own, or with `reuses_rows` few for all | a row that two have made is the hardest one to tell |
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import NamedTuple

from semel.engine.contract import EngineError
from semel.engine.engine import POINTS
from semel.kernel.errors import Refusal
from semel.kernel.hashes import json_text
from semel.surfaces.deltas.commands import DeltasPushed
from semel.surfaces.deltas.model import Delta, DeltaEntry, DeltaOp
from semel.surfaces.deltas.model import DeltaReplica as Caller
from tests.deltas.model.fold import fold
from tests.deltas.model.replicas import (
    PUSHED_AT_ONCE,
    TABLE,
    PlainReplica,
    Replica,
    Row,
    UpsertReplica,
)
from tests.deltas.model.rig import Pulled, Rig
from tests.deltas.model.shown import shown
from tests.harness.simulation import Simulation

GATEWAY = "gw"
STEPS = 80
QUIET_ROUNDS = 3
NAMES = ("ann", "bob", "b\ue000", "b\U0001f389", 'b"')


class Trouble(NamedTuple):
    """How likely a request is lost on its way, an answer on its way back, and a process to die."""

    lost_requests: float
    lost_answers: float
    deaths: float


class Fleet(Simulation):
    """One run; `only` are the numbers of the steps that happen."""

    def __init__(
        self, seed: int, steps: int = STEPS, only: Collection[int] | None = None, *, reuses_rows: bool = False
    ) -> None:
        super().__init__(seed, steps, only)
        chance = self._chance
        self._reuses_rows = reuses_rows
        self._trouble = chance.choice((Trouble(0, 0, 0), Trouble(0.1, 0.1, 0.05), Trouble(0.3, 0.3, 0.1)))
        self._page = chance.choice((1, 2, 5, 1_000))
        self._rig = Rig()
        makers = [chance.choice((_plain, _plain, _deaf, UpsertReplica)) for _ in range(3)]
        names = chance.sample(NAMES, 3)
        self._replicas: list[Replica] = [make(name) for make, name in zip(makers, names, strict=True)]
        self._ahead_ms = {replica.name: chance.choice((-3_000, 0, 0, 4_000)) for replica in self._replicas}
        self._must_pull: set[str] = set()
        self._written: list[Delta] = []

    async def _start(self) -> None:
        self._rig.start()

    async def _stop(self) -> None:
        await self._rig.stop()

    async def _step(self, number: int) -> None:
        replica = self._chance.choice(self._replicas)
        draw = self._chance.random()
        if draw < 0.08:
            self._rig.world.pass_ms(self._chance.choice((1, 50, 2_000)))
        elif draw < 0.12:
            self._ahead_ms[replica.name] = self._chance.choice((-20_000, -3_000, -1, 0, 4_000))
        elif draw < 0.14:
            self._rig.world.wall += self._chance.choice((-30_000, -100, 3_000))
        elif draw < 0.16:
            if isinstance(replica, PlainReplica) and not replica.pending:
                self._tell(f"{_shown_name(replica)} has lost its database")
                replica.begin_again()
                self._must_pull.add(replica.name)
        elif draw < 0.6:
            if replica.name not in self._must_pull:
                self._write(replica, number)
        else:
            await self._sync(replica, self._trouble)

    def _write(self, replica: Replica, number: int) -> None:
        fresh = json_text(f"shared-{number % 3}" if self._reuses_rows else f"r{number}")
        delta = replica.write(self._chance, fresh, self._physical(replica))
        if delta is not None:
            self._written.append(delta)
            self._tell(f"{_shown_name(replica)} writes {shown(delta)}")

    def _physical(self, replica: Replica) -> int:
        return self._rig.world.wall + self._ahead_ms.get(replica.name, 0)

    # -- Between a client and the server ------------------------------------------------------------------------------

    async def _sync(self, replica: Replica, trouble: Trouble) -> None:
        """A cycle: push, then pull; it ends where something goes wrong."""
        is_plain = isinstance(replica, PlainReplica)
        if replica.name in self._must_pull:
            await self._pull(replica, trouble)
            return
        if not is_plain and self._chance.random() < 0.3:
            await self._pull(replica, trouble)
        while replica.pending:
            if not await self._push(replica, trouble):
                if not is_plain:
                    break
                return
        for _ in range(self._chance.choice((0, 1, 1, 3))):
            if not await self._pull(replica, trouble):
                return

    async def _push(self, replica: Replica, trouble: Trouble) -> bool:
        """The oldest few; whether they were acknowledged."""
        sent = tuple(replica.pending[:PUSHED_AT_ONCE])
        if self._chance.random() < trouble.lost_requests:
            return False
        will_die = self._arm(trouble)
        answer = await self._rig.push(self._caller(replica), sent)
        await self._restart(will_die)
        is_lost = isinstance(answer, EngineError) or self._chance.random() < trouble.lost_answers
        self._tell(f"{_shown_name(replica)} pushes {shown(sent)} -> {shown(answer)}{' (lost)' if is_lost else ''}")
        if isinstance(answer, Refusal):
            self._require(answer.name == "CLOCK_DRIFT", f"refused {answer}")
            return False
        if is_lost:
            return False
        assert isinstance(answer, DeltasPushed)
        self._require(answer.accepted == len(sent), f"{answer} for {len(sent)}")
        replica.pushed(sent, answer.server_hlc)
        return True

    async def _pull(self, replica: Replica, trouble: Trouble) -> bool:
        """A page; whether there may be more."""
        if self._chance.random() < trouble.lost_requests:
            return False
        since = replica.cursor
        will_die = self._arm(trouble)
        answer = await self._rig.pull(self._caller(replica), since, self._page)
        await self._restart(will_die)
        is_lost = isinstance(answer, EngineError) or self._chance.random() < trouble.lost_answers
        self._tell(f"{_shown_name(replica)} pulls from {shown(since)} -> {shown(answer)}{' (lost)' if is_lost else ''}")
        if not isinstance(answer, EngineError):
            self._must_pull.discard(replica.name)
        if is_lost:
            return False
        assert isinstance(answer, Pulled)
        self._require_order(answer)
        replica.apply(answer, self._physical(replica))
        self._verdict.seen["entries"] += len(answer.entries)
        return answer.has_more

    def _require_order(self, page: Pulled) -> None:
        """Positions rise; only the two halves of a row that is told anew have one together."""
        positions = [entry.position for entry in page.entries]
        is_rising = all(one.position < other.position or _is_anew(one, other) for one, other in pairwise(page.entries))
        is_behind = not positions or (positions[-1] == page.cursor if page.has_more else positions[-1] <= page.cursor)
        self._require(is_rising and is_behind, f"positions {shown(page)}")
        self._require(bool(positions) or not page.has_more, "an empty page with more behind it")

    @staticmethod
    def _caller(replica: Replica) -> Caller:
        return Caller(GATEWAY, replica.name, "default")

    def _arm(self, trouble: Trouble) -> bool:
        will_die = self._chance.random() < trouble.deaths
        if will_die:
            self._rig.arm(self._chance.choice(POINTS))
        return will_die

    async def _restart(self, will_die: bool) -> None:
        """A process that was to die is followed by another, whether it came to its point or not."""
        if will_die:
            self._verdict.crashes += await self._rig.stop()
            self._rig.world.wall -= self._chance.choice((0, 0, 500))
            self._rig.start()

    # -- The end ------------------------------------------------------------------------------------------------------

    async def _end(self) -> None:
        """No trouble any more, and time enough for whoever was ahead."""
        self._rig.world.pass_ms(200_000)
        self._ahead_ms.clear()
        calm = Trouble(0, 0, 0)
        for number in range(QUIET_ROUNDS):
            for replica in self._replicas:
                self._where = f"round {number}"
                if replica.name in self._must_pull:
                    await self._pull(replica, calm)
                while replica.pending:
                    assert await self._push(replica, calm)
                while await self._pull(replica, calm):
                    pass
        reader = PlainReplica("reader", hears=False)
        while await self._pull(reader, calm):
            pass
        expected = self._expected()
        for replica in (*self._replicas, reader):
            found = _without_nulls(replica.rows)
            kind = type(replica).__name__
            self._verdict.require(found == expected, f"{kind} {replica.name}: {_first(found, expected)}")

    def _expected(self) -> dict[str, Row]:
        deltas: dict[str, list[Delta]] = {}
        for delta in self._written:
            deltas.setdefault(delta.row, []).append(delta)
        folded = {row: fold(some) for row, some in deltas.items()}
        return _without_nulls({row: state.columns for row, state in folded.items() if state.is_live})


def _shown_name(replica: Replica) -> str:
    return f"{type(replica).__name__} {replica.name}"


def _is_anew(one: DeltaEntry, other: DeltaEntry) -> bool:
    same = (one.position, one.table, one.row) == (other.position, other.table, other.row)
    return same and (one.op, other.op) == (DeltaOp.DELETE, DeltaOp.INSERT)


def _plain(name: str) -> PlainReplica:
    return PlainReplica(name, hears=True)


def _deaf(name: str) -> PlainReplica:
    return PlainReplica(name, hears=False)


def _without_nulls(rows: dict[str, Row]) -> dict[str, Row]:
    """As a database has it, in which a column that was never set is null."""
    return {name: {column: value for column, value in row.items() if value != "null"} for name, row in rows.items()}


def _first(found: dict[str, Row], expected: dict[str, Row]) -> str:
    """One row that differs."""
    for row in sorted({*found, *expected}):
        if found.get(row) != expected.get(row):
            return f"{TABLE}.{row} is {found.get(row)}, expected {expected.get(row)}"
    return "equal"
