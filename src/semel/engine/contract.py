"""The interface between a surface and the engine: what a contract declares, and what the engine passes to it.

A contract is pure: it names the locks and rows that a command needs, and decides over loaded rows at a given time. It
opens no transaction and no socket, and it may be run twice for one command.
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
    """A decision needs further locks; its write goes to the next batch with them named."""

    def __init__(self, locks: Sequence[Lock]) -> None:
        super().__init__("locks were not held")
        self.locks = tuple(locks)


class Order(NamedTuple):
    """The place of a write in a sequence made by its client, so that a batch can put them in order."""

    sequence: bytes
    number: int


class View(Protocol):
    """The rows of a batch as a decision sees them: loaded ones under the changes of earlier decisions."""

    def get(self, table: Table[R], key: Key) -> R | None:
        """One row by its key."""

    def range(self, wanted: Range) -> Sequence[Row]:
        """The first rows of a range."""

    def insert(self, table: Table[R], row: R) -> None:
        """A row that is new by construction; meeting another one is a fault."""

    def put(self, table: Table[R], row: R) -> None:
        """A row that may be there already; its key must have been loaded."""

    def delete(self, table: AnyTable, key: Key) -> None:
        """Remove a row; its key must have been loaded."""

    def forget(self, table: AnyTable, key: Key) -> None:
        """Remove a row without reading it: one that no other write can be reading."""

    def rotate(self, table: AnyTable) -> None:
        """Drop the older generation of a generational table."""

    def holds(self, lock: Lock) -> bool:
        """Whether this lock is held; a decision that needs another one raises `MissingLocksError`."""

    def is_admitted(self, order: Order) -> bool:
        """Whether that write of a sequence has been admitted and not yet been decided."""


class Outcome(NamedTuple):
    """The result of a decision. It is sent to the caller, and readers are woken, only after the commit is on disk."""

    answer: Any
    signals: Sequence[bytes] = ()
    touches: Sequence[Touch] = ()
    follow_ups: Sequence[Write] = ()
    later: bool = False
    """Not decided: the predecessor in its sequence is admitted, so try again with the next batch."""


class Contract(Protocol):
    """The rules of one surface."""

    @property
    def name(self) -> str:
        """For metrics and logs."""

    def locks(self, command: Any) -> Sequence[Lock]:
        """The locks that guard the rows of the command."""

    def needs(self, command: Any) -> Generator[Stage, View, None]:
        """The rows that the command needs, stage by stage; a stage may depend on the rows of earlier ones."""

    def order(self, command: Any) -> Order | None:
        """The command's place in a sequence, if it has one."""

    def decide(self, view: View, command: Any, now: Now) -> Outcome:
        """Judge the command and change the view; pure."""

    def chores(self, reading: Reading) -> Sequence[Any]:
        """Commands that free expired data; a limited number, repeated while there is more."""


class LastWord(NamedTuple):
    """The outcome of a write that was decided in parts."""

    outcome: Outcome
    is_refused: bool = False
    """Whether nothing of it may be stored, whatever its parts have changed."""


Parts = Callable[[], Generator[Any, "Outcome | None", LastWord]]
"""Gives the commands that a large write is made of, one by one, and is told what became of each.

All of them are one transaction. What a part changes is handed to the store before the next part is asked for, so that
no more is held at once than one part needs. None instead of an outcome means that the part has to look at too much:
then smaller ones are to be given in its place, or the same once more if there are none.
"""


class Write(NamedTuple):
    """A request to change something."""

    contract: Contract
    command: Any
    size: int = 0
    """Bytes that it holds in memory while it waits."""
    cost: int = 1
    """Roughly how many rows it will touch."""
    parts: Parts | None = None
    """The parts in which it is decided, if its command would load too much at once."""
    is_large: bool = False
    """Whether it is decided in parts from the beginning."""


class EngineError(Exception):
    """The engine could not carry out a write."""


class OverloadedError(EngineError):
    """The queue is full; nothing was stored."""


class NotStoredError(EngineError):
    """The store failed before the commit, or stopped before this write's turn: nothing was stored."""


class UnavailableError(EngineError):
    """The store could not be read."""


class OutcomeUnknownError(EngineError):
    """The commit failed; the write may or may not be on disk."""


class FaultError(EngineError):
    """A fault in the server: this write was rolled back, and the log has the details under this id."""

    def __init__(self, error_id: str) -> None:
        super().__init__(f"internal fault {error_id}")
        self.error_id = error_id
