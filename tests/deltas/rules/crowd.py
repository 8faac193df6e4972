"""Three clients on few rows who lose answers, read in small pages, and now and then lose their databases.

Either all of them make the same rows, or rules say who sees what, and writes move rows from one view to another. At the
end there are some quiet rounds; then every client, and one who comes new, must hold what all deltas together make, as
far as it may see it.

| told of the clients | because |
|---|---|
| they push until everything is acknowledged, and then pull | that is the order in which they converge |
| under rules rows have ids of their own | a row that two have made, each in a view of its own, nobody can tell |
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, NamedTuple

from semel.kernel.hashes import json_text
from semel.kernel.hlc import join
from semel.surfaces.deltas.model import Delta, DeltaOp
from tests.deltas.model.fold import fold
from tests.deltas.model.shown import shown
from tests.deltas.rules.rig import NOBODY, WHOLE, Claims, Plain, Rig, Rows, of_org
from tests.harness.simulation import Simulation

STEPS = 50
ROWS = 3
"""Rows that all of them make; under rules, there are twice as many, each made by one."""
ORGS = ("a", "a", "b")
COLUMNS = ("a", "b")
QUIET_ROUNDS = 4
LOST_ANSWERS = 0.2


class Member(NamedTuple):
    """A client in one of its lives, and how wrong its clock is."""

    client: Plain
    ahead_ms: int


class Crowd(Simulation):
    """One run; `only` are the numbers of the steps that happen."""

    def __init__(
        self, seed: int, steps: int = STEPS, only: Collection[int] | None = None, *, has_rules: bool = False
    ) -> None:
        super().__init__(seed, steps, only)
        chance = self._chance
        self._has_rules = has_rules
        self._new_lives = chance.choice((0, 0.04, 0.1))
        self._late_ms = chance.choice((0, 60_000))
        self._ahead_ms = [chance.choice((0, 0, -3_000, 2_000)) for _ in ORGS]
        self._written: list[Delta] = []
        self._last: dict[str, int] = {}
        """Of each client, in whatever life: the last time it told."""

    async def _start(self) -> None:
        self._rig = await Rig().__aenter__()

    async def _stop(self) -> None:
        await self._rig.__aexit__(None, None, None)

    async def _prepare(self) -> None:
        if self._has_rules:
            await self._rig.save_rules()
        self._members = [Member(self._client(place), ahead) for place, ahead in enumerate(self._ahead_ms)]

    def _client(self, place: int) -> Plain:
        return Plain(self._rig, f"c{place}", self._claims(place), shows=False)

    def _claims(self, place: int) -> Claims:
        return of_org(ORGS[place]) if self._has_rules else NOBODY

    async def _step(self, number: int) -> None:
        place = self._chance.randrange(len(self._members))
        client, ahead_ms = self._members[place]
        draw = self._chance.random()
        if draw < self._new_lives:
            if not client.pending:
                fresh = self._client(place)
                self._members[place] = Member(fresh, ahead_ms)
                self._tell(f"{fresh.name} begins again")
                await self._pull(fresh, self._chance.choice((1, 2)))
        elif draw < 0.5:
            self._write(client, ahead_ms, number)
        else:
            await self._push_all(client)
            if draw > 0.72:
                await self._pull(client, self._chance.choice((1, 2, 999)))

    def _write(self, client: Plain, ahead_ms: int, number: int) -> None:
        """A change that a user could make who sees these rows."""
        held = sorted(client.rows)
        op = (
            self._chance.choice((DeltaOp.UPDATE, DeltaOp.UPDATE, DeltaOp.DELETE, DeltaOp.INSERT))
            if held
            else DeltaOp.INSERT
        )
        row = self._new_row(client, number) if op is DeltaOp.INSERT else json.loads(self._chance.choice(held))
        if row is None:
            return
        self._rig.world.pass_ms(50)
        now = join(self._rig.world.wall + ahead_ms - self._late_ms, 0)
        hlc = self._last[client.name] = max(now, self._last.get(client.name, 0) + 1)
        delta = client.change(op, row, hlc, **({} if op is DeltaOp.DELETE else self._cells(client, op, number)))
        self._written.append(delta)
        self._tell(f"{client.name} writes {shown(delta)}")

    def _new_row(self, client: Plain, number: int) -> str | None:
        if self._has_rules:
            made = {delta.row for delta in self._written}
            return f"r{number}" if len(made) < 2 * ROWS else None
        free = [row for row in (f"r{place}" for place in range(ROWS)) if json_text(row) not in client.rows]
        return self._chance.choice(free) if free else None

    def _cells(self, client: Plain, op: DeltaOp, number: int) -> dict[str, Any]:
        names = self._chance.sample(COLUMNS, self._chance.randrange(1, len(COLUMNS) + 1))
        cells: dict[str, Any] = dict.fromkeys(names, number)
        if self._has_rules and op is DeltaOp.INSERT:
            cells["org"] = client.claims["org"][0] if self._chance.random() < 0.7 else self._chance.choice(ORGS)
        elif self._has_rules and self._chance.random() < 0.4:
            cells["org"] = self._chance.choice(ORGS)
        return cells

    async def _push_all(self, client: Plain) -> None:
        """Until it is acknowledged."""
        while client.pending:
            is_lost = self._chance.random() < LOST_ANSWERS
            answer = await client.push(is_lost=is_lost)
            self._tell(f"{client.name} pushes -> {shown(answer)}{' (lost)' if is_lost else ''}")

    async def _pull(self, client: Plain, limit: int = WHOLE) -> None:
        since, is_lost = client.cursor, limit != WHOLE and self._chance.random() < LOST_ANSWERS
        entries = await client.pull(limit, is_lost=is_lost)
        self._verdict.seen["entries"] += len(entries)
        outcome = "lost" if is_lost else f"at {shown(client.cursor)} then"
        self._tell(f"{client.name} pulls {limit} from {shown(since)} -> {shown(entries)}, {outcome}")

    async def _end(self) -> None:
        clients = [member.client for member in self._members]
        for client in clients:
            self._where = "the end"
            await self._push_all(client)
        for number in range(QUIET_ROUNDS):
            self._where = f"round {number}"
            for client in clients:
                await self._pull(client)
        newcomer = Plain(self._rig, "newcomer", self._claims(0))
        await self._pull(newcomer)
        for client in (*clients, newcomer):
            expected, found = self._expected(client), client.held()
            self._verdict.require(found == expected, f"{client.name} has {found} for {expected}")

    def _expected(self, client: Plain) -> Rows:
        """What all deltas together make, as far as a client sees it."""
        rows: Rows = {}
        for row in {delta.row for delta in self._written}:
            state = fold(delta for delta in self._written if delta.row == row)
            values = {name: json.loads(text) for name, text in state.columns.items()}
            if state.is_live and (not self._has_rules or values.get("org") in client.claims["org"]):
                rows[json.loads(row)] = values
        return rows
