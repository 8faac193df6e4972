"""PostgreSQL's pipeline mode: many statements in one round trip, binary values, and the classification of errors.

The driver's cursors are not used for three reasons: they lose prepared statements at every rollback, they have no
deadline, and they cost more than the statements. Values and answers are binary, which the server need not parse; a
statement is prepared the first time it is sent. An exchange that is not answered in time leaves the connection in the
middle of a message, so the connection is lost. `meaning` reports an outcome as definite only if it is known.
"""

from __future__ import annotations

import contextlib
import selectors
import struct
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus
from psycopg.pq.abc import PGresult

from semel.store.protocol import StoreError, StoreHeldError, TryAgainError

Filled = tuple[str, Sequence[bytes | None]]
"""A statement with $1, $2, ... and its encoded values."""

Rows = list[tuple[Any, ...]]

_CANCEL_SECONDS = 2.0
_FAILED = (ExecStatus.FATAL_ERROR, ExecStatus.BAD_RESPONSE)


class PgRefusedError(Exception):
    """The server has rejected a statement; the transaction has ended."""

    def __init__(self, sqlstate: str, text: str) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


class LostError(Exception):
    """The connection was lost: it is not known what the server did last."""


class SilenceError(LostError):
    """No answer came before the deadline, though the connection may still work."""


class _Step(NamedTuple):
    """The request that a result answers: a query, or the preparation of one under a name."""

    prepared: tuple[str, bytes] | None


class PgPipeline:
    """One connection. Used by one thread at a time."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self.connection = connection
        self._pg = connection.pgconn
        self._pg.nonblocking = 1
        self._transformer = Transformer(connection)
        self._names: dict[str, bytes] = {}
        self._numbered = 0
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._pg.socket, selectors.EVENT_READ)
        self.is_lost = False
        self.server = ""
        """The identity of the server process; set by the caller after it has read it."""
        self.session = 0
        """The server's process for this session alone; set by the caller too."""

    def exchange(self, statements: Sequence[Filled], deadline: float) -> list[Rows]:
        """Send all of these statements, then read all answers; raises for the first that is refused."""
        if self.is_lost:
            raise LostError("the connection is closed")
        self.is_lost = True  # until every answer has been read
        try:
            self._pg.enter_pipeline_mode()
            results, refusal = self._results(self._send(statements), deadline)
            self._pg.exit_pipeline_mode()
        except psycopg.Error as error:
            raise LostError(str(error)) from error
        self.is_lost = False
        if refusal is not None:
            raise refusal
        return [self._rows(result) for result in results]

    def notifications(self, seconds: float) -> list[str]:
        """Notifications, as soon as one arrives or the time is up."""
        try:
            found = self._heard()  # notifications that arrived with the last answers
            if not found:
                self._wait(selectors.EVENT_READ, seconds)
                self._pg.consume_input()
                found = self._heard()
        except psycopg.Error as error:
            self.is_lost = True
            raise LostError(str(error)) from error
        return found

    def _heard(self) -> list[str]:
        found = []
        while (notification := self._pg.notifies()) is not None:
            found.append(notification.extra.decode("utf-8", "replace"))
        return found

    def cancel(self) -> None:
        """Ask the server to cancel the statement that this connection waits for."""
        with contextlib.suppress(psycopg.Error):
            self.connection.cancel_safe(timeout=_CANCEL_SECONDS)

    def close(self) -> None:
        """Close the connection; the server rolls back an open transaction."""
        self.is_lost = True
        self._selector.close()
        self.connection.close()

    def _send(self, statements: Sequence[Filled]) -> list[_Step]:
        pg, steps, fresh = self._pg, list[_Step](), dict[str, bytes]()
        for sql, values in statements:
            name = self._names.get(sql) or fresh.get(sql)
            if name is None:
                self._numbered += 1
                name = fresh[sql] = b"semel_%d" % self._numbered
                pg.send_prepare(name, sql.encode())
                steps.append(_Step((sql, name)))
            pg.send_query_prepared(name, values, [1] * len(values), result_format=1)
            steps.append(_Step(None))
        pg.pipeline_sync()
        return steps

    def _results(self, steps: Sequence[_Step], deadline: float) -> tuple[list[PGresult], PgRefusedError | None]:
        """The results of the queries among these steps, and the first refusal, after all results have been read."""
        results: list[PGresult] = []
        refusal: PgRefusedError | None = None
        place = 0
        while (result := self._next(deadline)).status != ExecStatus.PIPELINE_SYNC:
            if result.status in _FAILED:
                refusal = refusal or _refusal(result)
            elif result.status != ExecStatus.PIPELINE_ABORTED:
                prepared = steps[place].prepared
                if prepared is None:
                    results.append(result)
                else:
                    self._names[prepared[0]] = prepared[1]
            place += 1
        return results, refusal

    def _next(self, deadline: float) -> PGresult:
        pg = self._pg
        is_flushed = False
        while True:
            if not is_flushed:
                is_flushed = pg.flush() == 0
            if pg.is_busy():
                events = selectors.EVENT_READ | (0 if is_flushed else selectors.EVENT_WRITE)
                if not self._wait(events, deadline - time.monotonic()):
                    raise SilenceError("the server did not answer in time")
                pg.consume_input()
                continue
            result = pg.get_result()
            if result is not None:
                if pg.status == ConnStatus.BAD:
                    raise LostError(_text(result))
                return result

    def _wait(self, events: int, seconds: float) -> bool:
        self._selector.modify(self._pg.socket, events)
        return bool(self._selector.select(max(0.0, seconds)))

    def _rows(self, result: PGresult) -> Rows:
        if result.status != ExecStatus.TUPLES_OK or not result.ntuples:
            return []
        self._transformer.set_pgresult(result)
        rows: Rows = self._transformer.load_rows(0, result.ntuples, tuple)
        return rows


def _refusal(result: PGresult) -> PgRefusedError:
    state = result.error_field(DiagnosticField.SQLSTATE)
    return PgRefusedError("" if state is None else state.decode(), _text(result))


def _text(result: PGresult) -> str:
    primary = result.error_field(DiagnosticField.MESSAGE_PRIMARY)
    text = primary if primary is not None else result.error_message
    return " ".join(text.decode("utf-8", "replace").split())


_BYTEA, _INT8 = 17, 20
_HEADER = struct.Struct(">iiIii")
_LENGTH = struct.Struct(">i").pack
_NUMBER = struct.Struct(">q").pack
_EIGHT = struct.Struct(">iq").pack
_NOTHING = _LENGTH(-1)


def number(value: int) -> bytes:
    """One int8."""
    return _NUMBER(value)


def bytes_array(values: Sequence[bytes | None]) -> bytes:
    """A bytea[]; None is NULL."""
    header = _HEADER.pack(1, None in values, _BYTEA, len(values), 1)
    sizes = {-1 if value is None else len(value) for value in values}
    if len(sizes) == 1 and None not in values:
        # Ids, keys and hashes of one column mostly have the same size: then the same length prefix joins them.
        length = _LENGTH(sizes.pop())
        return b"".join((header, length, length.join(values)))  # type: ignore[arg-type]
    return header + b"".join([_NOTHING if value is None else _LENGTH(len(value)) + value for value in values])


def number_array(values: Sequence[int | None]) -> bytes:
    """An int8[]; None is NULL."""
    count = len(values)
    header = _HEADER.pack(1, None in values, _INT8, count, 1)
    if count and values.count(values[0]) == count:
        return header + _item(values[0]) * count
    return header + b"".join(map(_item, values))


def _item(value: int | None) -> bytes:
    return _NOTHING if value is None else _EIGHT(8, value)


UNFIT = (struct.error, OverflowError, TypeError, AttributeError)
"""The errors of encoding a value that does not fit its column."""

BROKEN = (LostError, PgRefusedError)
"""The errors of a failed exchange."""

_AGAIN = frozenset(
    {
        "40001",  # serialization failure
        "40P01",  # deadlock
        "22012",  # a row to be deleted has just changed; see statements
    }
)
_HELD = frozenset(
    {
        "55P03",  # one lock was held for longer than the time limit
        "57014",  # several locks together were
    }
)


def meaning(error: Exception) -> StoreError:
    """The error of a transaction whose commit was not sent, or was refused: nothing was stored."""
    if isinstance(error, LostError):
        return TryAgainError(sentence(error))
    if isinstance(error, PgRefusedError):
        if error.sqlstate in _HELD:
            return StoreHeldError("PostgreSQL: other transactions held the locks for too long.")
        return (TryAgainError if error.sqlstate in _AGAIN else StoreError)(sentence(error))
    return StoreError(f"A value does not fit its column: {error}")


def sentence(error: Exception) -> str:
    """The error as one line; it contains no password."""
    return f"PostgreSQL: {' '.join(str(error).split()) or type(error).__name__}"
