"""Raises the epoch of a store: one write through the engine, for all logs at once.

A crash leaves the epoch raised or as it was. Running it again does no harm: it is one epoch more, in which nothing was
appended. What one transaction cannot hold, because there is no bound to the number of streams and gateways, each of
them does itself at its first change in the new epoch.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

from semel.contracts.epoch import EPOCH, EPOCH_KEY, FIRST_EPOCH, Rows, earlier_epochs, raised
from semel.contracts.events.contract import LOG
from semel.contracts.events.rules.epochs import Jumped, jump, jump_flaw, jump_of
from semel.contracts.events.tables import EVENT_HEAD, HEAD_KEY
from semel.contracts.ledger.rules.term import TERM_LOCK, raise_term, raised_term
from semel.contracts.ledger.tables import ALONE, LEDGER_TERM
from semel.engine.contract import Order, Outcome, Stage, View
from semel.engine.reading import Reading
from semel.kernel.clock import Now
from semel.store.protocol import Lock

MAX_RAISES = 1_000
"""The history of raises is kept, so it has a bound; a restore a day reaches it in three years."""
EPOCH_LOCK = Lock(b"epoch")


class RaiseEpoch(NamedTuple):
    """Command: begin a new epoch of every log."""


class EpochPlan(NamedTuple):
    """The changes of a raise."""

    before: int
    number: int
    events: Jumped
    term: int
    """The term of the ledger; 0 when it has none yet."""


class EpochRefused(NamedTuple):
    """The raise was refused; nothing was changed."""

    sentence: str


def plan_raise(rows: Rows, now_ms: int) -> EpochPlan | EpochRefused:
    """The changes that a raise would make at that time."""
    row = rows.get(EPOCH, EPOCH_KEY) or FIRST_EPOCH
    if now_ms < row.number:
        return EpochRefused("The clock is behind the time of the last raise: set the clock right first.")
    if len(earlier_epochs(row)) + 1 >= MAX_RAISES:
        return EpochRefused(f"The epoch of this store was raised {MAX_RAISES} times, which is the most.")
    number = raised(row, now_ms).number
    flaw = jump_flaw(rows, number)
    if flaw is not None:
        return EpochRefused(flaw)
    return EpochPlan(row.number, number, jump_of(rows, number), raised_term(rows, number))


class Epochs:
    """The contract of the command `semel epoch raise`; no server runs while it does."""

    name = "epoch"

    def locks(self, command: RaiseEpoch) -> Sequence[Lock]:
        """Those of every log that the raise changes itself."""
        return (EPOCH_LOCK, LOG, TERM_LOCK)

    def needs(self, command: RaiseEpoch) -> Generator[Stage, View, None]:
        """The ends of these logs."""
        yield Stage(keys=[(EPOCH, EPOCH_KEY), (EVENT_HEAD, HEAD_KEY), (LEDGER_TERM, ALONE)])

    def order(self, command: RaiseEpoch) -> Order | None:
        """Arrival is the order."""
        return None

    def decide(self, view: View, command: RaiseEpoch, now: Now) -> Outcome:
        """Raise."""
        plan = plan_raise(view, now.wall_ms)
        if isinstance(plan, EpochPlan):
            jump(view, plan.number, now)
            raise_term(view, plan.number)
            view.put(EPOCH, raised(view.get(EPOCH, EPOCH_KEY) or FIRST_EPOCH, now.wall_ms))
        return Outcome(plan)

    def chores(self, reading: Reading) -> Sequence[RaiseEpoch]:
        """None."""
        return ()
