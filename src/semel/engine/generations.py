"""Rotates the generations of tables whose rows expire by age, and drops expired generations whole.

A generation that was closed at time T holds only receipts that expire by T plus the longest retention in force while it
took rows. At that time the whole generation is dropped at once: deleting its rows one by one would cost a third of the
throughput. Dropping frees space and changes no verdict, because rules compare each receipt's own expiry.

Several nodes may keep receipts for different times, and the one that rotates knows its own time only. So each node
stores its retention in the row of the table before it takes writes, and looks every second whether a new generation
needs it again (`store_windows`). What it writes before that look is safe: the new generation stays young for as long as
the receipts of the one before, in which the node had stored its retention, and is dropped later still by the retention
of the node that rotates. A crash loses nothing: a row is written before the first receipt that needs it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple

from semel.engine.contract import DecisionResult, Order, Stage, View, Write
from semel.engine.engine import Engine
from semel.engine.reading import Reading
from semel.kernel.clock import Now
from semel.store.protocol import AnyTable, Lock, turn_lock
from semel.store.table import Table


class GenerationRow(NamedTuple):
    """When the younger generation of a table was opened, and the retention of its receipts."""

    table_name: bytes
    opened_at: int
    window_ms: int
    older_window_ms: int
    checksum: int = 0

    def turns_at(self) -> int:
        """When all receipts of the older generation have expired, and the younger one is as old as its retention."""
        return self.opened_at + max(self.window_ms, self.older_window_ms)


GENERATION = Table("generation", GenerationRow, key=1)


class Turn(NamedTuple):
    """Command: rotate the generations of a table if that is due."""

    table: AnyTable
    window_ms: int


class Generations:
    """The engine's own contract for rotation. `windows` is the retention of each table's receipts in milliseconds."""

    name = "generations"

    def __init__(self, windows: Mapping[AnyTable, int]) -> None:
        self._windows = windows

    def locks(self, command: Turn) -> Sequence[Lock]:
        """One lock for each table."""
        return (turn_lock(command.table),)

    def needs(self, command: Turn) -> Generator[Stage, View, None]:
        """The generation row of the table."""
        yield Stage(keys=[(GENERATION, _key(command.table))])

    def order(self, command: Turn) -> Order | None:
        """None: the command belongs to no sequence."""
        return None

    def decide(self, view: View, command: Turn, now: Now) -> DecisionResult:
        """Store the first row, store a longer retention, or rotate if every receipt of the older generation has
        expired.
        """
        known = view.get(GENERATION, _key(command.table))
        if known is None:
            view.put(GENERATION, GenerationRow(command.table.name.encode(), now.ms, command.window_ms, 0))
            return DecisionResult(answer=False)
        window = max(known.window_ms, command.window_ms)
        if now.expiry_ms >= known._replace(window_ms=window).turns_at():
            view.rotate(command.table)
            view.put(GENERATION, GenerationRow(known.table_name, now.ms, command.window_ms, window))
            return DecisionResult(answer=True)
        if window > known.window_ms:
            view.put(GENERATION, known._replace(window_ms=window))
        return DecisionResult(answer=False)

    def chores(self, reading: Reading) -> Sequence[Turn]:
        """Commands for the tables whose rotation is due."""
        return [Turn(table, window) for table, window in self._windows.items() if _is_due(reading, table, window)]


class StoredWindows:
    """Stores the retention of this node where it is the longest so far; at the start before any other change."""

    def __init__(self, engine: Engine, windows: Mapping[AnyTable, int]) -> None:
        self._engine = engine
        contract = Generations(windows)
        self._writes = [Write(contract, Turn(table, window)) for table, window in windows.items()]
        self._has_started = False

    async def store(self) -> None:
        """Raises `EngineError` if that cannot be done now."""
        for write in await self._engine.read(self._unknown):
            await (self._engine.submit if self._has_started else self._engine.open)(write)
        self._has_started = True

    def _unknown(self, reading: Reading) -> list[Write]:
        return [write for write in self._writes if _is_longest(reading, *write.command)]


def _is_longest(reading: Reading, table: AnyTable, window_ms: int) -> bool:
    known = reading.get(GENERATION, _key(table))
    return known is None or known.window_ms < window_ms


def _is_due(reading: Reading, table: AnyTable, window_ms: int) -> bool:
    known = reading.get(GENERATION, _key(table))
    if known is None or known.window_ms < window_ms:
        return True
    return reading.now.expiry_ms >= known.turns_at()


def _key(table: AnyTable) -> tuple[bytes]:
    return (table.name.encode(),)
