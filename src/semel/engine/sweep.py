"""The sweeper: frees expired data in small writes through the engine.

No promise depends on a sweep: expiry is decided by comparing stored times. A sweep that fails is retried in the next
round. With several nodes only the leader sweeps, because two sweepers would wait for each other's locks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Any

from semel.engine.contract import Contract, EngineError, Write
from semel.engine.engine import Engine
from semel.engine.loop_queue import LIGHT_COST

MAX_ROUNDS = 64
"""Limit on consecutive rounds of one contract before the sweeper pauses."""
CHORE_COST = LIGHT_COST + 1
"""A chore may change hundreds of rows: it runs in the writer's thread, not on the event loop."""


class Sweeper:
    """Sweeps in one task on the event loop until it is cancelled."""

    def __init__(self, engine: Engine, contracts: Sequence[Contract], interval_seconds: float) -> None:
        self._engine = engine
        self._contracts = contracts
        self.interval = interval_seconds
        """Seconds between two sweeps; it may be changed."""
        self._free_at: dict[Contract, float] = {}
        """When each contract last had nothing to free, in seconds of the monotonic clock; empty on other nodes than the
        leader.
        """

    @property
    def lag_seconds(self) -> float | None:
        """Time since every contract had nothing to free: the oldest expired row is at most this old. None on a node
        that does not sweep.
        """
        return monotonic() - min(self._free_at.values()) if self._free_at else None

    async def run(self) -> None:
        """Sweep and pause in turn; a failure is reported and retried in the next round."""
        while True:
            try:
                if await self._engine.leads():
                    if not self._free_at:
                        self._free_at = dict.fromkeys(self._contracts, monotonic())
                    await self._sweep_all()
                else:
                    self._free_at.clear()
            except Exception as error:  # noqa: BLE001 - a failed sweep is retried; no promise depends on it
                self._engine.observer.store_failure(error)
            await asyncio.sleep(self.interval)

    async def _sweep_all(self) -> None:
        for contract in self._contracts:
            try:
                await self.sweep(contract)
            except Exception as error:  # noqa: BLE001 - one contract's error must not stop the other sweeps
                self._engine.observer.store_failure(error)

    async def sweep(self, contract: Contract) -> int:
        """Run the chores of one contract until there are none left, or some fail; returns the number that succeeded."""
        done = 0
        for _ in range(MAX_ROUNDS):
            began = monotonic()
            chores = await self._engine.read(contract.chores)
            if not chores and contract in self._free_at:
                self._free_at[contract] = began
            carried_out = [await self._carry_out(contract, command) for command in chores]
            done += sum(carried_out)
            if not chores or not all(carried_out):
                break
        return done

    async def _carry_out(self, contract: Contract, command: Any) -> bool:
        try:
            await self._engine.submit(Write(contract, command, cost=CHORE_COST))
        except EngineError:
            return False
        return True
