"""The rules of deltas through the engine, in memory, asked as a server asks them; and plain clients of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial, wraps
from inspect import signature
from types import TracebackType
from typing import Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar

from semel.engine.contract import Write
from semel.engine.engine import Engine
from semel.engine.reading import Reading
from semel.engine.sweep import Sweeper
from semel.kernel.errors import Refusal, Refused
from semel.kernel.hashes import json_text
from semel.kernel.hlc import join
from semel.store.memory import MemoryStore
from semel.store.protocol import AnyTable, Changes, Range, Row, Touch
from semel.store.table import Key
from semel.surfaces.deltas import reading
from semel.surfaces.deltas.commands import (
    AdvanceCursor,
    DeliveryRecorded,
    DeltaCommand,
    DeltasPushed,
    PushDeltas,
    RecordDelivery,
    SaveSyncRules,
)
from semel.surfaces.deltas.contract import DeltaContract
from semel.surfaces.deltas.limits import PAGE_BYTES, DeltaPolicy
from semel.surfaces.deltas.model import Delta, DeltaEntry, DeltaOp, DeltaReplica
from semel.surfaces.deltas.rules.cursors import ReplicaProgress, UnsavedCursors
from semel.surfaces.deltas.rules.last_writer_wins import RowState, load_state
from semel.surfaces.deltas.rules.replicas import load_progress, progress_key
from semel.surfaces.deltas.tables import (
    DELTA_GATEWAY,
    DELTA_ID,
    DELTA_LOG,
    DELTA_REPLICA,
    DeltaGatewayRow,
    DeltaLogRow,
    find_row,
    gateway_key,
    text_key,
)
from semel.surfaces.schema import TABLES
from tests.deltas.model.replicas import TABLE, PlainReplica
from tests.deltas.model.requests import make_column, make_delta
from tests.deltas.model.rig import BEGIN_MS, Pulled
from tests.engine.toy import ToyWorld

P = ParamSpec("P")
T = TypeVar("T")
Claims = Mapping[str, tuple[str, ...]]
Rows = dict[str, dict[str, Any]]
"""Rows by their ids, without columns that are null."""

GATEWAY = "gw"
ANYBODY = "default"
"""The name of whoever calls a server that asks for no credentials."""
WHOLE = 1_000
"""Entries in a page of a client that is not short of anything."""
NOBODY: Claims = {}
BY_ORG = json.dumps(
    {
        "version": 1,
        "buckets": [{"name": "b", "tables": [], "filters": [{"column": "org", "op": "eq", "value": "jwt:org"}]}],
    }
).encode()
"""Rules under which everyone sees the rows of its own organisation."""


def of_org(name: str) -> Claims:
    """What somebody of an organisation brings."""
    return {"org": (name,)}


def change(op: DeltaOp, row: str, client: str, hlc: int, **cells: Any) -> Delta:
    """A delta with its right id."""
    columns = [make_column(name, value) for name, value in cells.items()]
    return make_delta(op, TABLE, json_text(row), json_text(client), hlc, columns)


class Rig:
    """A gateway; time stands still but for `stamp`. A context manager, since an engine is to be stopped."""

    def __init__(self, policy: DeltaPolicy | None = None) -> None:
        self.world = ToyWorld(BEGIN_MS)
        self._contract = DeltaContract(policy)
        self._shown = UnsavedCursors()
        self._store = MemoryStore(TABLES, self.world.wall_ms)
        self._engine = Engine(self._store, self.world)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._engine.stop()

    def stamp(self, ago_ms: int = 0) -> int:
        """The time, a millisecond later than the last time; or so long before it."""
        self.world.pass_ms(1)
        return join(self.world.wall - ago_ms, 0)

    def believe_ids(self) -> None:
        """The operator has changed the policy."""
        self.rule(DeltaPolicy(checks_ids=False))

    def rule(self, policy: DeltaPolicy) -> None:
        """So has it been started with other settings."""
        self._contract = DeltaContract(policy)

    async def send(self, command: DeltaCommand) -> Any:
        """The answer; a refusal is raised."""
        answer = await self._engine.submit(Write(self._contract, command))
        if isinstance(answer, Refusal):
            raise Refused.of(answer)
        return answer

    async def push(self, replica: DeltaReplica, *deltas: Delta, is_named: bool = True) -> DeltasPushed:
        """The answer to a push."""
        answer = await self.send(PushDeltas(replica, deltas, is_named, self._shown.of(replica)))
        assert isinstance(answer, DeltasPushed)
        return answer

    async def pull(
        self, replica: DeltaReplica, since: int, limit: int = WHOLE, claims: Claims = NOBODY, *, is_guest: bool = False
    ) -> reading.DeltaPage:
        """A page as it leaves: what a promise rests on is stored before."""
        turn = 0 if is_guest else self._shown.begin(replica)
        while True:
            page, looks = await self.read_page(replica, since, limit, claims, is_guest=is_guest)
            if looks > 1 and not page.entries and since and not is_guest:
                await self.rest(replica, since, page)
            if is_guest:
                return page
            if not page.must_note:
                self._engine.touch(page.touches)
                if not page.is_known:
                    self._shown.note(replica, turn, page.shown)
                return page
            given = await self.send(note_of(replica, page))
            assert isinstance(given, DeliveryRecorded)
            if given.cursor is not None:
                return page._replace(cursor=given.cursor)

    async def read_page(
        self, replica: DeltaReplica, since: int, limit: int = WHOLE, claims: Claims = NOBODY, *, is_guest: bool = False
    ) -> tuple[reading.DeltaPage, int]:
        """A page that has not left yet, and how many looks it took."""
        begun: reading.PartialPage | None = None
        looks = 0
        while True:
            looks += 1
            look = partial(
                reading.pull,
                replica=replica,
                claims=claims,
                since=since,
                limit=limit,
                budget=PAGE_BYTES,
                begun=begun,
                is_guest=is_guest,
            )
            found = await self.look(look)
            if isinstance(found, reading.DeltaPage):
                return found, looks
            begun = found

    async def rest(self, replica: DeltaReplica, since: int, page: reading.DeltaPage) -> None:
        """A page was long to make, and is empty."""
        await self.send(AdvanceCursor(replica, since, page.cursor, page.mark))

    def write(self, table: AnyTable, row: Row) -> None:
        """A row as another version has left it."""
        tx = self._store.begin(())
        tx.flush(Changes({}, {table: [row]}, {}))
        tx.commit()

    async def sweep(self) -> int:
        """Do all chores; how many there were."""
        return await Sweeper(self._engine, [self._contract], 1).sweep(self._contract)

    def touch(self, touches: Sequence[Touch]) -> None:
        """Soft changes."""
        self._engine.touch(touches)

    async def save_rules(self, rules: bytes = BY_ORG) -> None:
        """From now on these say who sees what."""
        await self.send(SaveSyncRules(GATEWAY, rules))

    async def look(self, function: Callable[[Reading], T]) -> T:
        """Read something."""
        return await self._engine.read(function)

    async def rows(self) -> Rows:
        """The merged rows that are there."""
        found, _ = await self.look(lambda look: reading.merged_rows(look, GATEWAY, None, 10_000))
        return {json.loads(row.row): _values(dict(row.columns)) for row in found if row.is_live}

    async def state(self, row: str) -> RowState:
        """What is stored of one row."""
        key = (gateway_key(GATEWAY), TABLE.encode(), text_key(json_text(row)))
        found = await self.look(lambda look: find_row(look, key))
        assert found is not None
        return load_state(json_text(row), found.state)

    def ids(self) -> list[Key]:
        """The keys of every stored id."""
        with self._store.read() as snapshot:
            return list(snapshot.page_keys(DELTA_ID, 0, None, 10_000))

    async def log(self, after: int = 0) -> Sequence[DeltaLogRow]:
        """Everything in the log behind a position, repairs too."""
        wanted = Range(DELTA_LOG, "", (gateway_key(GATEWAY),), 10_000, start=(after + 1,))
        return await self.look(lambda look: look.range(wanted))

    async def repairs(self, after: int = 0) -> list[tuple[DeltaOp, dict[str, Any]]]:
        """Operation and columns of each repair behind a position."""
        return [(DeltaOp(row.op), cells_of(row.columns or b"")) for row in await self.log(after) if row.addressee]

    async def gateway(self) -> DeltaGatewayRow:
        """The end of the log, and what is counted."""
        found = await self.look(lambda look: look.get(DELTA_GATEWAY, (gateway_key(GATEWAY),)))
        assert found is not None
        return found

    async def progress(self, replica: DeltaReplica) -> ReplicaProgress:
        """How far a replica was told."""
        return await self.look(lambda look: load_progress(look.get(DELTA_REPLICA, progress_key(replica))))


class Told(NamedTuple):
    """An entry in few words."""

    op: DeltaOp
    row: str
    cells: dict[str, Any]


class Plain(PlainReplica):
    """A client that applies what it is told blindly; an INSERT of a row that it has is a `DoubledRowError`."""

    def __init__(
        self, rig: Rig, name: str, claims: Claims = NOBODY, subject: str = ANYBODY, *, shows: bool = True
    ) -> None:
        """`shows` is whether it asks again when it has all: only then is it known that the last page has arrived."""
        super().__init__(name, hears=False)
        self._shows = shows
        self.plain_name = name
        self.claims = claims
        self.replica = DeltaReplica(GATEWAY, self.name, subject)
        self._rig = rig

    def change(self, op: DeltaOp, row: str, hlc: int = 0, **cells: Any) -> Delta:
        """Change its own database, and have that in the queue; now unless a time is given."""
        delta = change(op, row, self.plain_name, hlc or self._rig.stamp(), **cells)
        if op is DeltaOp.DELETE:
            self.rows.pop(delta.row, None)
        else:
            self.rows.setdefault(delta.row, {}).update({column.name: column.value for column in delta.columns})
        self.pending.append(delta)
        return delta

    async def push(self, *, is_lost: bool = False) -> DeltasPushed:
        """Everything in the queue; of an answer that is lost it knows nothing."""
        sent = tuple(self.pending)
        answer = await self._rig.push(self.replica, *sent)
        if not is_lost:
            self.pushed(sent, answer.server_hlc)
        return answer

    async def say(self, op: DeltaOp, row: str, hlc: int = 0, **cells: Any) -> DeltasPushed:
        """Change something and push it."""
        self.change(op, row, hlc, **cells)
        return await self.push()

    async def pull(self, limit: int = WHOLE, *, is_lost: bool = False) -> list[Told]:
        """The next page, applied; unless it is lost on its way."""
        page = await self._rig.pull(self.replica, self.cursor, limit, self.claims)
        if not is_lost:
            self.apply(Pulled(tuple(page.entries), page.cursor, page.has_more), BEGIN_MS)
            if self._shows and page.entries and not page.has_more:
                assert not (await self._rig.pull(self.replica, self.cursor, 1, self.claims)).entries
        return told(page.entries)

    def held(self) -> Rows:
        """What it has."""
        return {json.loads(row): _values(columns) for row, columns in self.rows.items()}


def told(entries: Sequence[DeltaEntry]) -> list[Told]:
    """Entries in few words."""
    return [Told(entry.op, json.loads(entry.row), cells_of(entry.columns)) for entry in entries]


def cells_of(columns: str | bytes) -> dict[str, Any]:
    """Columns by name."""
    return {column["column"]: column["value"] for column in json.loads(columns)}


def note_of(replica: DeltaReplica, page: reading.DeltaPage) -> RecordDelivery:
    """What is stored before a page leaves."""
    return RecordDelivery(replica, page.cursor, page.shown, page.rest, page.gone_back_at, page.is_taken, page.mark)


def scene(function: Callable[Concatenate[Rig, P], Awaitable[None]]) -> Callable[P, None]:
    """A test of what happens in a gateway from its beginning; its first argument is a rig."""

    @wraps(function)
    def test(*arguments: P.args, **named: P.kwargs) -> None:
        async def whole() -> None:
            async with Rig() as rig:
                await function(rig, *arguments, **named)

        asyncio.run(whole())

    asked = signature(function)
    test.__signature__ = asked.replace(parameters=list(asked.parameters.values())[1:])  # type: ignore[attr-defined]
    return test


def _values(columns: Mapping[str, str]) -> dict[str, Any]:
    return {name: json.loads(text) for name, text in columns.items() if text != "null"}
