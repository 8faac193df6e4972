"""Raises the epoch of a store: one write through the engine, for all logs at once.

After a crash the epoch is either raised or unchanged. A second raise is harmless: it adds an epoch without appends.
The number of streams and gateways has no bound, so one transaction cannot change them all: each stream and gateway
adopts the new epoch at its first change.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

from semel.engine.contract import DecisionResult, Order, Stage, View
from semel.engine.reading import Reading
from semel.kernel.clock import Now
from semel.store.protocol import Lock
from semel.surfaces.epoch import EPOCH, EPOCH_KEY, FIRST_EPOCH, Rows, earlier_epochs, raised
from semel.surfaces.events.rules.epochs import EpochJump, jump, jump_flaw, jump_of
from semel.surfaces.events.tables import EVENT_HEAD, HEAD_KEY, LOG
from semel.surfaces.jobs.contract import JOBS_LOCK
from semel.surfaces.jobs.rules.leases import SEAL_KEY, renew_seal
from semel.surfaces.jobs.tables import JOB_SEAL
from semel.surfaces.ledger.rules.maintenance import TERM_LOCK, raise_term, raised_term
from semel.surfaces.ledger.tables import ALONE, LEDGER_TERM

MAX_RAISES = 1_000
"""Limit of raises, because all of them are stored; one restore a day reaches the limit after almost three years."""
EPOCH_LOCK = Lock(b"epoch")


class RaiseEpoch(NamedTuple):
    """Command: begin a new epoch of every log."""


class EpochPlan(NamedTuple):
    """The changes of a raise."""

    before: int
    number: int
    events: EpochJump
    term: int
    """The term of the ledger; 0 when it has none yet."""


class EpochRefused(NamedTuple):
    """The raise was refused; nothing was changed."""

    sentence: str


def plan_raise(rows: Rows, now_ms: int) -> EpochPlan | EpochRefused:
    """The changes of a raise at this time, or why it is refused."""
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
    """The contract of the command `semel epoch raise`, which runs without a server."""

    name = "epoch"

    def locks(self, command: RaiseEpoch) -> Sequence[Lock]:
        """The locks of the epoch, the event log, jobs and the term of the ledger."""
        return (EPOCH_LOCK, LOG, JOBS_LOCK, TERM_LOCK)

    def needs(self, command: RaiseEpoch) -> Generator[Stage, View, None]:
        """The epoch, the head of the event log, the secret of lease tokens and the term of the ledger."""
        yield Stage(keys=[(EPOCH, EPOCH_KEY), (EVENT_HEAD, HEAD_KEY), (JOB_SEAL, SEAL_KEY), (LEDGER_TERM, ALONE)])

    def order(self, command: RaiseEpoch) -> Order | None:
        """No order but that of arrival."""
        return None

    def decide(self, view: View, command: RaiseEpoch, now: Now) -> DecisionResult:
        """Raise the epoch, or refuse."""
        plan = plan_raise(view, now.wall_ms)
        if isinstance(plan, EpochPlan):
            jump(view, plan.number, now)
            raise_term(view, plan.number)
            renew_seal(view, plan.number)
            view.put(EPOCH, raised(view.get(EPOCH, EPOCH_KEY) or FIRST_EPOCH, now.wall_ms))
        return DecisionResult(plan)

    def chores(self, reading: Reading) -> Sequence[RaiseEpoch]:
        """No chores."""
        return ()
