"""The interface between a surface and the engine: a surface implements `Contract`, the engine passes it a `View`.

A decision that finds out, in rare cases, that it needs more rows requests all of them at once (`demand`), so that it
runs again only once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from semel.kernel.clock import Now
from semel.store.protocol import AnyTable, Lock, Range, Row, Touch
from semel.store.table import Key, Table

if TYPE_CHECKING:
    from semel.engine.reading import Reading

R = TypeVar("R", bound=tuple[Any, ...])


class Stage(NamedTuple):
    """Rows that a command needs, loaded for the whole batch at once."""

    keys: Iterable[tuple[AnyTable, Key]] = ()
    ranges: Iterable[Range] = ()


class MissingRowsError(Exception):
    """A decision read rows that were not loaded; it is undone, the rows are loaded, and it runs again."""

    def __init__(self, stage: Stage) -> None:
        super().__init__("rows were not loaded")
        self.stage = stage


class MissingLocksError(Exception):
    """A decision needs further locks; its write goes into the next batch, which takes them."""

    def __init__(self, locks: Sequence[Lock]) -> None:
        super().__init__("locks were not held")
        self.locks = tuple(locks)


class Order(NamedTuple):
    """The position of a write in a sequence made by its client, by which a batch sorts the writes of the sequence."""

    sequence: bytes
    number: int


class View(Protocol):
    """The rows of a batch as a decision sees them: loaded rows under the changes of earlier decisions."""

    def get(self, table: Table[R], key: Key) -> R | None:
        """One row by its key."""

    def range(self, wanted: Range) -> Sequence[Row]:
        """The first rows of a range."""

    def insert(self, table: Table[R], row: R) -> None:
        """Insert a row that must be new; an existing row is an error of the contract."""

    def insert_all(self, table: Table[R], rows: Iterable[R]) -> None:
        """As `insert`, for many rows."""

    def put(self, table: Table[R], row: R) -> None:
        """Insert or replace a row; its key must have been loaded."""

    def delete(self, table: AnyTable, key: Key) -> None:
        """Delete a row; its key must have been loaded."""

    def forget(self, table: AnyTable, key: Key) -> None:
        """Delete a row without loading it; only for rows that no other write can be reading."""

    def rotate(self, table: AnyTable) -> None:
        """Drop the older generation of a generational table."""

    def holds(self, lock: Lock) -> bool:
        """Whether this lock is held; a decision that needs another lock raises `MissingLocksError`."""

    def is_admitted(self, order: Order) -> bool:
        """Whether that write of a sequence has been admitted and not been decided."""


class DecisionResult(NamedTuple):
    """The result of a decision. The answer is sent, and readers are woken, only after the commit is on disk."""

    answer: Any
    signals: Sequence[bytes] = ()
    touches: Sequence[Touch] = ()
    follow_ups: Sequence[Write] = ()
    later: bool = False
    """Not decided, because the predecessor in its sequence is still in the queue: retry in the next batch."""


class Contract(Protocol):
    """The rules of one surface."""

    @property
    def name(self) -> str:
        """The name in metrics and logs."""

    def locks(self, command: Any) -> Sequence[Lock]:
        """The locks that protect the rows of the command."""

    def needs(self, command: Any) -> Generator[Stage, View, None]:
        """The rows that the command needs, stage by stage; a stage may depend on the rows of earlier stages."""

    def order(self, command: Any) -> Order | None:
        """The position of the command in a sequence; None without one."""

    def decide(self, view: View, command: Any, now: Now) -> DecisionResult:
        """Decide the command and change the view; pure."""

    def chores(self, reading: Reading) -> Sequence[Any]:
        """Commands that free expired rows: a limited number for each call. The sweeper calls again while there are
        more.
        """


class LastWord(NamedTuple):
    """The outcome of a write that was decided in parts."""

    outcome: DecisionResult
    is_refused: bool = False
    """Whether nothing of the write may be stored, although its parts have changed rows."""


Parts = Callable[[], Generator[Any, "DecisionResult | None", LastWord]]
"""Yields the commands of a large write one by one, and receives the outcome of each.

All of them are one transaction. The changes of a part are flushed to the store before the next part is requested, so
that memory holds only one part at a time. If None is received instead of an outcome, the part would load too many rows:
the generator then yields smaller parts in its place, or the same part again if it cannot be split.
"""


class Write(NamedTuple):
    """A request to change something."""

    contract: Contract
    command: Any
    size: int = 0
    """Bytes that the write holds in memory while it waits."""
    cost: int = 1
    """The approximate number of rows that the write changes or reads."""
    parts: Parts | None = None
    """The parts in which the write is decided if its command would load too much at once."""
    is_large: bool = False
    """Whether it is decided in parts from the start."""
    is_soft: bool = False
    """Whether a crash may lose it: a batch of such writes alone does not wait for the disk. No promise rests on one."""


class EngineError(Exception):
    """The engine could not execute a write."""


class OverloadedError(EngineError):
    """The queue is full; nothing was stored."""


class NotStoredError(EngineError):
    """The store failed before the commit, or the server stopped before this write ran: nothing was stored."""


class NoWritesError(NotStoredError):
    """The store takes no writes at the moment: nothing was stored."""


class UnavailableError(EngineError):
    """The store could not be read."""


class OutcomeUnknownError(EngineError):
    """The commit failed; the write may or may not be on disk."""


class FaultError(EngineError):
    """An internal error: this write was rolled back, and the log has the details under this id."""

    def __init__(self, error_id: str) -> None:
        super().__init__(f"internal fault {error_id}")
        self.error_id = error_id


def demand(view: View, keys: Iterable[tuple[AnyTable, Key]]) -> None:
    """Raise `MissingRowsError` unless all of these rows have been loaded."""
    missing = []
    for table, key in keys:
        try:
            view.get(table, key)
        except MissingRowsError:
            missing.append((table, key))
    if missing:
        raise MissingRowsError(Stage(keys=missing))


def demand_ranges(view: View, ranges: Iterable[Range]) -> None:
    """As `demand`, for ranges."""
    missing = []
    for wanted in ranges:
        try:
            view.range(wanted)
        except MissingRowsError:
            missing.append(wanted)
    if missing:
        raise MissingRowsError(Stage(ranges=missing))
