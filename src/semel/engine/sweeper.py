"""Frees what the rules have already forgotten, in small writes through the engine.

Nothing depends on a sweep having run: expiry is decided by comparing stored times. A sweep that fails is tried again at
the next round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from semel.engine.contract import Contract, EngineError, Write
from semel.engine.engine import Engine

MAX_ROUNDS = 64
"""So many times in a row a contract may ask for more before the sweeper rests."""


class Sweeper:
    """Runs as one task on the event loop until it is cancelled."""

    def __init__(self, engine: Engine, contracts: Sequence[Contract], interval_seconds: float) -> None:
        self._engine = engine
        self._contracts = contracts
        self._interval = interval_seconds

    async def run(self) -> None:
        """Sweep, rest, sweep again."""
        while True:
            for contract in self._contracts:
                await self.sweep(contract)
            await asyncio.sleep(self._interval)

    async def sweep(self, contract: Contract) -> int:
        """One contract's chores until it has none left; how many were done."""
        done = 0
        for _ in range(MAX_ROUNDS):
            chores = await self._engine.read(contract.chores)
            if not chores:
                break
            for command in chores:
                try:
                    await self._engine.submit(Write(contract, command))
                except EngineError:
                    return done
                done += 1
        return done
