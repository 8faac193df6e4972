"""The errors of `semel.once`: each is one sentence that a person can act on.

| error | nothing happened | what to do |
|---|---|---|
| `KeyMismatch` | yes | send the first arguments again, or use another key |
| `InFlight` | yes, by this call | try again later: another call with this key is running |
| `OutcomeUnknown` | unknown | find out, then `resolve` or `forget` the key |
| `RunAgain` | yes | run the whole transaction again |
| `SecondBlock` | yes, by this block | give the block a name: `step="shipment"` |
| `ResultError` | in a transaction: yes | return what the codec can store |
| `Fenced` | no: it may have happened twice | use a longer lease, or `on_crash="refuse"` |
| `StoreUnavailable` | yes, unless the message says otherwise | restore the store, and try again |
| `StoreBusy` | yes | try again; find out which transaction holds the table |
| `NotInTransaction`, `TransactionEnded` | see each | open a transaction around the block, and commit after it |
| `TableMissing`, `TableMismatch` | yes | run `semel once init URL` |
| `OutboxFull` | yes | deliver the messages of the outbox, or drop some |
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class OnceError(Exception):
    """Base class of all errors of this package. It can be pickled, whatever its constructor takes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (type(self), self.args, self.__dict__)


def _unpickle(kind: type[OnceError], args: tuple[Any, ...], facts: dict[str, Any]) -> OnceError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


class InvalidKey(OnceError, ValueError):
    """The key, the scope or an option is not valid."""


class KeyMismatch(OnceError):
    """The key was used before with other arguments; nothing was run."""

    def __init__(self, key: str) -> None:
        super().__init__(f"The key {key!r} was used with other arguments: nothing was run. Use a new key.")
        self.key = key


class InFlight(OnceError):
    """Another call with this key is running; this one did nothing."""

    def __init__(self, key: str, retry_after: float = 1.0) -> None:
        super().__init__(f"Another call with the key {key!r} is running: try again in {retry_after:g} s.")
        self.key = key
        self.retry_after = retry_after
        """Seconds after which to retry."""


class OutcomeUnknown(OnceError):
    """An earlier call with this key ended without a receipt: whether it took effect is not known."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"An earlier call with the key {key!r} ended without a receipt: find out whether it took effect, then "
            "resolve or forget the key."
        )
        self.key = key


class RunAgain(OnceError):
    """A serialization failure: roll the transaction back and run it again from its start."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"Another transaction with the key {key!r} came first: roll this one back, and run it again from its start."
        )
        self.key = key


class ResultError(OnceError, TypeError):
    """The result cannot be stored."""


class SecondBlock(OnceError):
    """A handler has two blocks without a key in one request: they would share one receipt. This one did nothing."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"A second once.transaction() without a key in the request with the key {key!r}: name it, as "
            'step="shipment", or put both effects into one block.'
        )
        self.key = key


class NotInTransaction(OnceError):
    """The connection is in autocommit mode: effect and receipt would be two commits. Nothing was run."""

    def __init__(self) -> None:
        super().__init__("The connection is in autocommit mode and no transaction is open: begin one around this call.")


class TransactionEnded(OnceError):
    """The block committed or rolled back the transaction in which it ran.

    After a commit inside the block, the work before it is stored with a receipt that has no result: a retry raises
    `OutcomeUnknown`. After a rollback there is neither effect nor receipt, and a retry runs.
    """

    def __init__(self, key: str) -> None:
        super().__init__(
            f"The transaction of the key {key!r} was ended inside once.transaction(): commit after the block."
        )
        self.key = key


class Fenced(OnceError):
    """This call finished after its lease had ended and another call had taken over; its result was not stored."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"The call with the key {key!r} finished after its lease had ended and another call had taken its place: "
            "its effect may have happened twice. Use a longer lease."
        )
        self.key = key


class RememberedError(OnceError):
    """An earlier call with this key raised an exception whose class cannot be found any more."""

    def __init__(self, kind: str, arguments: list[object]) -> None:
        super().__init__(f"An earlier call with this key raised {kind}: {arguments}.")
        self.kind = kind
        self.arguments = arguments


class StoreUnavailable(OnceError):
    """The store of receipts does not answer. Nothing was run, unless the message says so."""


class StoreBusy(StoreUnavailable):
    """The store is locked, or its connections are in use, for longer than this call waits. Nothing was run."""


class TableMismatch(OnceError):
    """The table has another form than this version reads and writes. Nothing was read or changed."""

    def __init__(self, table: str, missing: Iterable[str] = (), unknown: Iterable[str] = ()) -> None:
        facts = [
            f"{about} {', '.join(sorted(names))}"
            for about, names in (("it lacks", missing), ("it also has", unknown))
            if names
        ]
        super().__init__(
            f"The table {table} has the form of another version ({'; '.join(facts) or 'a column is missing'}): "
            "use another name, or drop it and create it anew."
        )
        self.table = table


class TableMissing(OnceError):
    """The table of receipts, or of the outbox, does not exist. Nothing was run."""

    def __init__(
        self, table: str, advice: str = "run `semel once init URL`, or add once.ddl() to your migrations"
    ) -> None:
        super().__init__(f"There is no table {table}: {advice}.")
        self.table = table


class OutboxFull(OnceError):
    """The outbox has reached `max_messages` undelivered messages. Nothing was stored."""

    def __init__(self, max_messages: int) -> None:
        super().__init__(
            f"The outbox holds {max_messages} undelivered messages, its limit: deliver them, or drop some."
        )
        self.max_messages = max_messages


class UnsupportedConnection(OnceError, TypeError):
    """The object is not a supported connection or session."""
