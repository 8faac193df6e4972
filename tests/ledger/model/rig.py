"""One organization on a store in memory, with a clock that stands still until it is moved: for single scenes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from semel.engine.contract import Write
from semel.engine.engine import Engine
from semel.engine.generations import GENERATION
from semel.engine.reading import Reading
from semel.engine.sweep import Sweeper
from semel.store.memory import MemoryStore
from semel.store.protocol import Store
from semel.surfaces.ledger import commands as real
from semel.surfaces.ledger import reading
from semel.surfaces.ledger.contract import LedgerContract
from semel.surfaces.ledger.limits import LedgerLimits, LedgerPolicy
from semel.surfaces.ledger.model import LedgerPlace, Operation, SetEntity
from semel.surfaces.ledger.tables import TABLES
from semel.surfaces.ledger.validation import prepare, write_command
from tests.engine.toy import ToyWorld

T = TypeVar("T")

BEGIN = 1_760_000_000
ORG = 7001
OWN = LedgerPlace(ORG)
"""The organization's own scope."""


class Rig:
    """The engine of a scene; times are seconds after the beginning."""

    def __init__(self, policy: LedgerPolicy, store: Store | None = None) -> None:
        self.world = ToyWorld(BEGIN * 1_000)
        self.store = store or MemoryStore((GENERATION, *TABLES), self.world.wall_ms)
        self._ledger = LedgerContract(policy)
        self._drawn = 0

    async def start(self) -> None:
        """A process: another engine on the same rows."""
        self._engine = Engine(self.store, self.world)
        await self.send(real.OpenTerm(b"", b"secret"))

    async def stop(self) -> None:
        """The end of it."""
        await self._engine.stop()

    async def send(self, command: real.LedgerCommand) -> Any:
        """Carry out a command."""
        return await self._engine.submit(Write(self._ledger, command))

    async def make(self) -> None:
        """The organization."""
        await self.send(real.CreateOrg(b"org", (ORG,), b"", b""))

    async def make_vault(self, slug: int, retain: int) -> LedgerPlace:
        """One of its vaults; an entry of the log."""
        await self.send(real.CreateVault(ORG, (slug,), retain, b"", b""))
        return LedgerPlace(ORG, slug)

    def at(self, seconds: float) -> None:
        """Set the clock."""
        ahead = round((BEGIN + seconds) * 1_000) - self.world.wall
        self.world.wall += ahead
        self.world.monotonic += max(0, ahead)

    async def write(
        self,
        client: bytes,
        sequence: int | None = None,
        key: bytes = b"",
        *,
        place: LedgerPlace = OWN,
        operations: tuple[Operation, ...] = (SetEntity(b"k", b"v"),),
    ) -> Any:
        """One transaction."""
        self._drawn += 1
        chance = self._drawn.to_bytes(real.CHANCE_BYTES, "big")
        return await self.send(
            write_command(
                LedgerLimits(),
                prepare(LedgerLimits(), place, client, sequence, key, operations),
                b"client:me",
                b"node",
                chance,
            )
        )

    async def fill(self, client: bytes = b"filler") -> real.Org:
        """One more entry, under a key of its own; the organization after it."""
        self._drawn += 1
        await self.write(client, None, self._drawn.to_bytes(16, "big"))
        return await self._engine.read(lambda look: reading.org(look, ORG))

    async def fill_to_trigger(self) -> None:
        """Entries until one is a multiple of the interval."""
        while True:
            org = await self.fill()
            if org.entries % org.eviction_interval == 0:
                return

    async def last(self, client: bytes, place: LedgerPlace = OWN) -> int:
        """The last sequence of a client, as everyone is told."""
        return (await self._engine.read(lambda look: reading.client_state(look, place, client))).last

    async def look(self, function: Callable[[Reading], T]) -> T:
        """Read something."""
        return await self._engine.read(function)

    async def sweep(self) -> None:
        """Free what may go."""
        await Sweeper(self._engine, [self._ledger], 1).sweep(self._ledger)


def play(policy: LedgerPolicy, scene: Callable[[Rig], Awaitable[None]]) -> Rig:
    """One scene, from an empty store."""
    rig = Rig(policy)

    async def whole() -> None:
        await rig.start()
        try:
            await rig.make()
            await scene(rig)
        finally:
            await rig.stop()

    asyncio.run(whole())
    return rig
