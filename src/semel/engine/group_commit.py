"""Group commit: the writes of a batch, the result of each, and the report to observers.

Many writes share one transaction and one sync. `lane` collects them, `batch` decides and commits them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from time import perf_counter
from typing import Any, NamedTuple, Protocol, TypeVar

from semel.engine.caller import WaitingCaller
from semel.engine.contract import DecisionResult, EngineError, Order, Write
from semel.store.protocol import Changes, Lock

T = TypeVar("T")

CommitSteps = Generator[Callable[[], Any], Any, T]
"""The work of a batch, which leaves each commit to its driver: the driver calls what is yielded, in any thread, and
sends the result back, or throws the exception in.
"""


def drive(steps: CommitSteps[T]) -> T:
    """Do the work of a batch in this thread, commits included."""
    try:
        commit = next(steps)
        while True:
            try:
                done = commit()
            except BaseException as error:  # noqa: BLE001 - the batch handles it
                commit = steps.throw(error)
            else:
                commit = steps.send(done)
    except StopIteration as end:
        result: T = end.value
        return result


class Commit(Enum):
    """How the transaction of a batch ended."""

    DURABLE = "durable"
    SOFT = "soft"
    NOTHING = "nothing"
    """Every write was a replay or a refusal: nothing was written, and there was no sync."""
    ROLLED_BACK = "rolled_back"
    UNKNOWN = "unknown"


class BatchReport(NamedTuple):
    """The metrics of one batch."""

    commit: Commit
    writes: int
    faults: int
    reruns: int
    deferred: int
    dropped: int
    seconds: float
    commit_seconds: float = 0.0
    """The part of `seconds` in which the store committed: the sync of the disk, or the trip to the database."""


class Observer(Protocol):
    """Receives engine events. Called from the lane threads; must return quickly and must not raise."""

    def batch(self, report: BatchReport) -> None:
        """A batch has ended."""

    def fault(self, error_id: str, error: BaseException, callers: Sequence[WaitingCaller] = ()) -> None:
        """A decision raised an error; only its write was rolled back, and `callers` are told of it."""

    def store_failure(self, error: BaseException, callers: Sequence[WaitingCaller] = ()) -> None:
        """The store failed while a batch ran; `callers` are told of it, and writes that are tried again have none."""

    def clock_jump(self, ahead_ms: int) -> None:
        """The wall clock jumped ahead; rows do not expire until the jump is accepted."""


class SilentObserver:
    """Ignores all events."""

    def batch(self, report: BatchReport) -> None:
        """Ignored."""

    def fault(self, error_id: str, error: BaseException, callers: Sequence[WaitingCaller] = ()) -> None:
        """Ignored."""

    def store_failure(self, error: BaseException, callers: Sequence[WaitingCaller] = ()) -> None:
        """Ignored."""

    def clock_jump(self, ahead_ms: int) -> None:
        """Ignored."""


class QueuedWrite:
    """A write on its way through the engine, with the data by which its sender recognises it."""

    __slots__ = ("deferrals", "locks", "order", "sender", "write")

    def __init__(self, write: Write, sender: Any = None) -> None:
        self.write = write
        self.sender = sender
        self.locks: Sequence[Lock] = write.contract.locks(write.command)
        self.order: Order | None = write.contract.order(write.command)
        self.deferrals = 0

    def part(self, command: Any) -> QueuedWrite:
        """A part of this write, under the same locks."""
        part = QueuedWrite(self.write._replace(command=command), self.sender)
        part.locks, part.deferrals = self.locks, self.deferrals
        return part


def callers_of(batch: Sequence[QueuedWrite]) -> list[WaitingCaller]:
    """The callers of these writes; a part of a write has none."""
    return [one.sender for one in batch if isinstance(one.sender, WaitingCaller)]


@dataclass(slots=True)
class BatchResult:
    """The outcome of each write; writes in neither list go into the next batch."""

    commit: Commit
    decided: list[tuple[QueuedWrite, DecisionResult]] = field(default_factory=list)
    failed: list[tuple[QueuedWrite, EngineError]] = field(default_factory=list)
    deferred: list[QueuedWrite] = field(default_factory=list)
    reruns: int = 0
    left: Sequence[QueuedWrite] = ()
    """Writes that were not decided; they begin the next batch."""
    is_late: bool = False
    """Whether the time for decisions was used up before the last write."""
    plain: Sequence[tuple[Any, Any]] = ()
    """Plain writes and their answers."""
    plain_topics: Sequence[bytes] = ()
    changes: Changes | None = None
    """The committed changes; None if there are none, or if they were flushed in parts."""
    commit_seconds: float = 0.0
    """The duration of the COMMIT, in the thread that made it; 0 if there was none."""

    def timed(self, commit: Callable[[], T]) -> Callable[[], T]:
        """The same commit, which notes its duration here."""

        def run() -> T:
            began = perf_counter()
            done = commit()
            self.commit_seconds = perf_counter() - began
            return done

        return run
