"""Random histories against the model: every answer, every page, every row and the whole log are compared.

Each step has a chance of its own, made from the seed and the step's number, and nothing else decides. So a history can
be repeated, and also without some of its steps: that is how one that fails is made short (`shrink`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from copy import deepcopy
from functools import partial
from typing import Any

from semel.engine.contract import EngineError
from semel.engine.engine import POINTS
from semel.engine.reading import Reading
from semel.kernel.errors import Refusal
from semel.surfaces.deltas import reading
from semel.surfaces.deltas.commands import DeliveryRecorded, SaveTableSchema, flaws_of
from semel.surfaces.deltas.limits import KEPT_ALIASES, MAX_COLUMNS, DeltaPolicy
from semel.surfaces.deltas.model import Delta, DeltaEntry, DeltaReplica
from semel.surfaces.deltas.rules.replicas import progress_key
from semel.surfaces.deltas.tables import DELTA_REPLICA, DeltaReplicaRow
from tests.deltas.model.fold import stamp_of
from tests.deltas.model.model import Gateway, Refused, Told
from tests.deltas.model.requests import CLIENTS, COLUMNS, NEIGHBOURS, TABLES, Drawing
from tests.deltas.model.rig import Pulled, Rig, note_of
from tests.deltas.model.shown import name, shown
from tests.deltas.pushed_log import LoggedDelta, delta_log
from tests.harness import simulation as harness
from tests.harness.simulation import STORED_AFTER

GATEWAYS = ("gw1", "gw2")
STEPS = 120


class Simulation(harness.Simulation):
    """One history."""

    def __init__(
        self, seed: int, steps: int = STEPS, only: Collection[int] | None = None, *, max_columns: int = MAX_COLUMNS
    ) -> None:
        super().__init__(seed, steps, only)
        chance = self._chance
        self._policy = DeltaPolicy(checks_ids=chance.random() < 0.7)
        self._is_named = chance.random() < 0.5
        self._clients = list(NEIGHBOURS) if chance.random() < 0.3 else chance.sample(CLIENTS, 3)
        self._rig = Rig(self._policy)
        self._drawing = Drawing(has_forged_ids=not self._policy.checks_ids)
        self._models = {name: Gateway(max_columns) for name in GATEWAYS}
        self._issued: dict[DeltaReplica, list[int]] = {}
        self._forgotten: dict[DeltaReplica, set[int]] = {}
        """Numbers that stood for something else, and of which the server need not know any more."""

    async def _start(self) -> None:
        self._rig.start()

    async def _stop(self) -> None:
        await self._rig.stop()

    async def _step(self, number: int) -> None:
        draw = self._chance.random()
        if draw < 0.12:
            self._pass_time()
        elif draw < 0.15:
            await self._save_schema()
        elif draw < 0.22:
            await self._push_at_once()
        elif draw < 0.27:
            await self._crash(self._push)
        elif draw < 0.31:
            await self._crash(self._pull)
        elif draw < 0.34:
            await self._pull_late()
        elif draw < 0.6:
            await self._push()
        else:
            await self._pull()

    async def _prepare(self) -> None:
        """Now, because what makes a gateway is judged twice: it hears only then that it needs another lock."""
        for gateway in GATEWAYS:
            await self._rig.send(SaveTableSchema(gateway, "unused", (("a", "json"),)))

    # -- Steps --------------------------------------------------------------------------------------------------------

    def _pass_time(self) -> None:
        """A little; sometimes the clock is set, back or ahead."""
        self._rig.world.pass_ms(self._chance.choice((0, 1, 10, 3_000)))
        if self._chance.random() < 0.3:
            self._rig.world.wall += self._chance.choice((-90_000, -5_000, -1, 1_000, 30_000, 90_000))
        self._tell(f"the clock shows {self._rig.world.wall}")

    async def _save_schema(self) -> None:
        """Columns are only ever added, so that it is never refused."""
        gateway, table = self._chance.choice(GATEWAYS), self._chance.choice(TABLES)
        columns = self._models[gateway].schemas.get(table, set()) | set(self._chance.sample(COLUMNS, 3))
        answer = await self._rig.send(
            SaveTableSchema(gateway, table, tuple((name, "json") for name in sorted(columns)))
        )
        self._require(not isinstance(answer, Refusal | EngineError), f"schema {answer}")
        self._models[gateway].schemas[table] = columns
        self._tell(f"{gateway}.{table} has the columns {sorted(columns)}")

    def _replica(self) -> DeltaReplica:
        client = self._chance.choice(self._clients)
        subject: str = json.loads(client) if self._is_named else "default"
        return DeltaReplica(self._chance.choice(GATEWAYS), client, subject)

    def _draw(self, replica: DeltaReplica) -> tuple[Delta, ...]:
        """Mostly of its own; sometimes what others have made is passed on."""
        is_relay = self._chance.random() < 0.12
        authors = self._clients if is_relay else [replica.client]
        count = self._chance.choice((0, 1, 1, 1, 2, 2, 3, 5))
        physical = self._rig.world.wall
        return tuple(self._drawing.delta(self._chance, self._chance.choice(authors), physical) for _ in range(count))

    async def _push(self, point: str = "") -> bool:
        """One push; whether it was answered."""
        replica = self._replica()
        deltas = self._draw(replica)
        answer = await self._rig.push(replica, deltas, is_named=self._is_named)
        if isinstance(answer, EngineError) and point:
            if point in STORED_AFTER:
                self._expect_push(replica, deltas)
            self._tell(f"{name(replica)} pushes {shown(deltas)}; no answer, dead at {point}")
            return False
        self._compare_push(replica, deltas, answer)
        return True

    async def _push_at_once(self) -> None:
        """Several that may be judged in one batch."""
        replicas = [self._replica() for _ in range(self._chance.randrange(2, 6))]
        pushes = [self._rig.push_of(replica, self._draw(replica), is_named=self._is_named) for replica in replicas]
        answers = await self._rig.send_at_once(list(pushes))
        for push, answer in zip(pushes, answers, strict=True):
            self._compare_push(push.replica, push.deltas, answer)

    async def _pull(self, point: str = "") -> bool:
        """One pull, with any cursor that the client may still have; whether it was answered."""
        replica = self._replica()
        since = self._cursor(replica)
        limit = self._chance.choice((1, 2, 3, 5, 100))
        model = self._models[replica.gateway]
        page = model.pull(replica, since, limit)
        answer = await self._rig.pull(replica, since, limit)
        if isinstance(answer, EngineError) and point:
            if point in STORED_AFTER:
                self._note_cursor(replica, model.give(replica, page))
            self._tell(f"{name(replica)} pulls from {shown(since)}; no answer, dead at {point}")
            return False
        expected = Pulled(page.entries, model.give(replica, page), page.has_more)
        self._tell(f"{name(replica)} pulls {limit} from {shown(since)}\n      -> {shown(answer)}")
        self._require_same(f"{name(replica)} pulled {limit} from {shown(since)}", answer, expected)
        if page.entries:  # the cursor of an empty page is no better than the one it was asked with
            self._note_cursor(replica, expected.cursor)
        self._count_page(expected)
        return True

    async def _pull_late(self) -> None:
        """A page that leaves when something else has happened meanwhile; whoever asked for it has gone.

        If the replica was told anything in between, the page is forgotten: it would take that back.
        """
        replica = self._replica()
        since, model = self._cursor(replica), self._models[replica.gateway]
        expected = model.pull(replica, since, 2)
        page = await self._rig.read_page(replica, since, 2)
        before = deepcopy(model.told.get(replica, Told()))
        await (self._push() if self._chance.random() < 0.5 else self._pull())
        self._tell(f"{name(replica)} is given the page from {shown(since)} late")
        if not page.must_note:
            return
        answer = await self._rig.send(note_of(replica, page))
        after = model.told.get(replica, Told())
        is_late = after != before or list(after.aliases) != list(before.aliases)
        cursor = None if is_late else model.give(replica, expected)
        self._require_same("a page left late", answer, DeliveryRecorded(cursor))
        if cursor is not None:
            self._note_cursor(replica, cursor)

    def _cursor(self, replica: DeltaReplica) -> int:
        """0, what it was given last, or something older; of numbers that stand for others only the last few."""
        issued = self._issued.get(replica, [])
        draw = self._chance.random()
        if not issued or draw < 0.1:
            return 0
        if draw < 0.7:
            return issued[-1]
        forgotten = self._forgotten.get(replica, set())
        return self._chance.choice([one for one in issued if one not in forgotten] or [0])

    async def _crash(self, act: Callable[[str], Any]) -> None:
        """Do something while the process is to die at a point; then the next process."""
        point = self._chance.choice(POINTS)
        self._rig.arm(point)
        is_answered = await act(point)
        has_died = await self._rig.stop()
        self._verdict.crashes += has_died
        self._require(is_answered or has_died, "no answer without a crash")
        if self._chance.random() < 0.4:
            self._rig.world.wall -= self._chance.choice((1, 4_000, 90_000))
        self._rig.start()
        for replica in {replica for model in self._models.values() for replica in model.told}:
            await self._forget(replica)

    async def _forget(self, replica: DeltaReplica) -> None:
        """A crash may forget what a replica has shown, but nothing else of it; then it counts as shown no more."""
        told = self._models[replica.gateway].told[replica]
        row = await self._rig.look(partial(_row_of, replica=replica))
        self._require(told.is_known == (row is not None), f"{name(replica)} is {row}")
        seen = 0 if row is None else row.seen
        self._require(seen <= told.seen, f"{name(replica)} is said to have shown {seen}")
        self._verdict.seen["forgotten"] += seen < told.seen
        told.seen = seen

    # -- Comparing ----------------------------------------------------------------------------------------------------

    def _expect_push(self, replica: DeltaReplica, deltas: tuple[Delta, ...]) -> Any:
        model = self._models[replica.gateway]
        expected = model.push(replica, deltas, self._rig.physical_ms, is_named=self._is_named)
        if not isinstance(expected, Refused):
            self._note_cursor(replica, expected.server_hlc)
        return expected

    def _compare_push(self, replica: DeltaReplica, deltas: tuple[Delta, ...], answer: Any) -> None:
        expected = self._expect_push(replica, deltas)
        self._tell(f"{name(replica)} pushes {shown(deltas)}\n      -> {shown(answer)}")
        if isinstance(answer, Refusal):
            answer = Refused(answer.name, tuple(flaw.place for flaw in flaws_of(answer)))
        self._require_same(f"{name(replica)} pushed {shown(deltas)}", answer, expected)
        if isinstance(expected, Refused):
            self._verdict.seen[expected.code] += 1
            return
        self._verdict.seen["duplicates"] += expected.duplicates
        told = self._models[replica.gateway].told[replica]
        self._verdict.seen["aliases"] += expected.server_hlc in told.aliases

    def _require_same(self, what: str, answer: Any, expected: Any) -> None:
        if isinstance(answer, BaseException):
            return self._require(False, f"{what}, which raised {answer!r}")
        if tuple(map(_comparable, answer)) != tuple(map(_comparable, expected)):
            detail = f"    answered {shown(answer)}\n    expected {shown(expected)}"
            self._require(False, f"{what}\n{detail}\n    {self._policy} named {self._is_named}")
        return None

    def _count_page(self, page: Pulled) -> None:
        self._verdict.seen["partial pages"] += page.has_more
        for entry in page.entries:
            self._verdict.seen[f"{entry.op.name}{' resolved' if entry.is_resolved else ''}"] += 1

    def _note_cursor(self, replica: DeltaReplica, cursor: int) -> None:
        issued = self._issued.setdefault(replica, [])
        if cursor not in issued:
            issued.append(cursor)
        told = self._models[replica.gateway].told.get(replica, Told())
        self._forgotten.setdefault(replica, set()).update(list(told.aliases)[:-KEPT_ALIASES])

    async def _compare_all(self) -> None:
        for gateway, model in self._models.items():
            found = await self._rig.look(partial(differences, gateway=gateway, model=model))
            for difference in found:
                self._require(False, f"{gateway}: {difference}")


def _row_of(look: Reading, replica: DeltaReplica) -> DeltaReplicaRow | None:
    return look.get(DELTA_REPLICA, progress_key(replica))


def differences(look: Reading, gateway: str, model: Gateway) -> list[str]:
    """Whatever is read otherwise than the model has it: the log, the merged rows, the end and the counts."""
    found = []
    logged = delta_log(look, gateway, 0, 1_000_000)
    expected = [
        LoggedDelta(
            one.position,
            one.delta.op,
            one.delta.table,
            one.delta.row,
            one.delta.client,
            one.delta.hlc,
            one.delta.id,
            one.delta.columns_text.decode(),
            None if one.entry is None else one.entry.op,
        )
        for one in model.log
    ]
    if logged != expected:
        found.append(f"the log is\n      {shown(logged)}\n    expected\n      {shown(expected)}")
    merged = _merged(look, gateway)
    wanted = model.rows()
    if merged.keys() != wanted.keys():
        found.append(f"there are the rows {sorted(merged)}\n  expected {sorted(wanted)}")
    for place, state in wanted.items():
        row = merged.get(place)
        if row is None:
            continue
        last = max(model.deltas_of(*place), key=stamp_of)
        told = dict(row.columns), row.is_live, row.hlc, row.client, row.id
        if told != (state.columns, state.is_live, last.hlc, last.client, last.id):
            found.append(f"the row {place} is\n      {row}\n    expected\n      {state}, last written by {last}")
    gauges = reading.gauges(look, gateway)
    counts = len(model.items), len(wanted), len(model.log)
    if (gauges.log_size, gauges.index_size, gauges.delta_count) != counts:
        found.append(f"the gauges are {gauges}\n  expected {counts}")
    if reading.high_water(look, gateway) != model.high_water:
        found.append(f"the end of the log is {reading.high_water(look, gateway)}, expected {model.high_water}")
    return found


def _merged(look: Reading, gateway: str) -> dict[tuple[str, str], reading.MergedRow]:
    """All rows, a few at a time."""
    rows, after = reading.merged_rows(look, gateway, None, 3)
    while after is not None:
        more, after = reading.merged_rows(look, gateway, after, 3)
        rows += more
    return {(row.table, row.row): row for row in rows}


def _comparable(value: Any) -> Any:
    """Entries whose columns were put together by the server may have them in any order."""
    if isinstance(value, DeltaEntry):
        columns = json.dumps(sorted(json.loads(value.columns), key=lambda column: str(column["column"]))).encode()
        return value._replace(columns=columns if value.is_resolved else value.columns)
    return tuple(map(_comparable, value)) if isinstance(value, tuple) else value
