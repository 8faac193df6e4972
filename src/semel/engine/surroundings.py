"""The dependencies of the batches of one engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from semel.engine.clock import DecisionClock
from semel.engine.contract import Order
from semel.engine.group_commit import Observer
from semel.engine.soft_changes import SoftChanges
from semel.engine.storage_meter import StorageMeter
from semel.store.protocol import Store


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
    storage: StorageMeter = field(default_factory=StorageMeter)
