"""The real rules through the real engine on a store in memory, with a clock moved by hand and crashes to order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from semel.engine.contract import EngineError, Write
from semel.engine.reading import Reading
from semel.store.memory import MemoryStore
from semel.surfaces.deltas import reading
from semel.surfaces.deltas.commands import DeliveryRecorded, DeltaCommand, PushDeltas, RecordDelivery
from semel.surfaces.deltas.contract import DeltaContract
from semel.surfaces.deltas.limits import PAGE_BYTES, DeltaPolicy
from semel.surfaces.deltas.model import Delta, DeltaEntry, DeltaReplica
from semel.surfaces.deltas.rules.cursors import UnsavedCursors
from semel.surfaces.schema import TABLES
from tests.engine.toy import ToyWorld
from tests.harness.simulation import Processes

T = TypeVar("T")

BEGIN_MS = 1_770_000_000_000


class Pulled(NamedTuple):
    """A page as it leaves."""

    entries: tuple[DeltaEntry, ...]
    cursor: int
    has_more: bool


class Rig(Processes):
    """One store and, one after the other, the processes on it."""

    def __init__(self, policy: DeltaPolicy | None = None) -> None:
        world = ToyWorld(BEGIN_MS)
        super().__init__(MemoryStore(TABLES, world.wall_ms), world)
        self._contract = DeltaContract(policy)

    def start(self) -> None:
        """A process."""
        self.shown = UnsavedCursors()
        super().start()

    @property
    def physical_ms(self) -> int:
        """What the server's clock shows, which may have been set back."""
        return self.world.wall

    async def send(self, command: DeltaCommand) -> Any:
        """The answer to a command, or why there is none."""
        return await self.submit(Write(self._contract, command))

    async def send_at_once(self, commands: list[DeltaCommand]) -> list[Any]:
        """Several, which the engine may judge in one batch; they are judged in this order."""
        return await self.submit_all(Write(self._contract, command) for command in commands)

    async def push(self, replica: DeltaReplica, deltas: tuple[Delta, ...], *, is_named: bool = True) -> Any:
        """The answer to a push."""
        return await self.send(self.push_of(replica, deltas, is_named=is_named))

    def push_of(self, replica: DeltaReplica, deltas: tuple[Delta, ...], *, is_named: bool = True) -> PushDeltas:
        """A push as the host makes it."""
        return PushDeltas(replica, deltas, is_named, self.shown.of(replica))

    async def pull(self, replica: DeltaReplica, since: int, limit: int) -> Pulled | EngineError:
        """A page, as the host makes it: read, then note what a promise rests on, then let it go."""
        turn = self.shown.begin(replica)
        while True:
            page = await self.read_page(replica, since, limit)
            assert isinstance(page, reading.DeltaPage), "a short log takes one look"
            if not page.must_note:
                self.engine.touch(page.touches)
                if not page.is_known:
                    self.shown.note(replica, turn, page.shown)
                return Pulled(tuple(page.entries), page.cursor, page.has_more)
            given = await self.send(note_of(replica, page))
            if isinstance(given, EngineError):
                return given
            assert isinstance(given, DeliveryRecorded)
            if given.cursor is not None:
                return Pulled(tuple(page.entries), given.cursor, page.has_more)

    async def read_page(self, replica: DeltaReplica, since: int, limit: int) -> reading.DeltaPage:
        """In as many looks as it takes."""
        found: reading.DeltaPage | reading.PartialPage | None = None
        while not isinstance(found, reading.DeltaPage):
            found = await self.look(partial(_pull, replica=replica, since=since, limit=limit, begun=found))
        return found

    async def look(self, function: Callable[[Reading], T]) -> T:
        """Read something."""
        return await self.engine.read(function)


def _pull(
    look: Reading, replica: DeltaReplica, since: int, limit: int, begun: reading.PartialPage | None
) -> reading.DeltaPage | reading.PartialPage:
    return reading.pull(look, replica, {}, since, limit, PAGE_BYTES, begun)


def note_of(replica: DeltaReplica, page: reading.DeltaPage) -> RecordDelivery:
    """What is to be on disk before a page leaves: whatever a page and its note have in common."""
    common = {name: getattr(page, name) for name in RecordDelivery._fields if name in page._fields}
    return RecordDelivery(replica, **common)
