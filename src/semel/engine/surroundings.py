"""The dependencies of the batches of one engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from semel.engine.clock import DecisionClock
from semel.engine.contract import Order, Write
from semel.engine.group_commit import Observer, QueuedWrite
from semel.engine.soft_changes import SoftChanges
from semel.store.protocol import Store, StoreUnfitError


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The dependencies of a batch: store, soft changes, clock and observer."""

    store: Store
    soft: SoftChanges
    timekeeper: DecisionClock
    observer: Observer
    error_id: Callable[[], str]
    is_admitted: Callable[[Order], bool]
    reach: Callable[[str], None]
    """Called with the name of each crash point; a crash test ends the process there."""
    openings: list[Write] = field(default_factory=list)
    """Writes of the start that are not stored yet."""

    def check_open(self, changing: Iterable[QueuedWrite]) -> None:
        """Raise if other writes than those of the start are about to change rows before these have."""
        if self.openings and not all(any(one.write is first for first in self.openings) for one in changing):
            raise StoreUnfitError("The server has not stored what belongs to its start.")
