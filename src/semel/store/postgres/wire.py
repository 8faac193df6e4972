"""Pipelining: many statements in one round trip of the PostgreSQL protocol.

The driver's cursors have three drawbacks: they forget prepared statements at every rollback, they have no deadline,
and they cost more than the statements. Values and answers are binary; a statement is prepared the first time it is
sent. An exchange that is not answered in time leaves the protocol in an unknown state, so the connection is dropped.
"""

from __future__ import annotations

import contextlib
import selectors
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus
from psycopg.pq.abc import PGresult

Filled = tuple[str, Sequence[bytes | None]]
"""A statement with $1, $2, ... and their values, encoded."""

Rows = list[tuple[Any, ...]]

_CANCEL_SECONDS = 2.0
_FAILED = (ExecStatus.FATAL_ERROR, ExecStatus.BAD_RESPONSE)


class RefusedError(Exception):
    """The server has rejected a statement; its transaction is over."""

    def __init__(self, sqlstate: str, text: str) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


class LostError(Exception):
    """The connection was lost: what the server did last is not known."""


class SilenceError(LostError):
    """No answer came in time, though the connection may still work."""


class _Step(NamedTuple):
    """The request behind one result: a query, or the preparation of one under a name."""

    prepared: tuple[str, bytes] | None


class Wire:
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
        """The identity of the server process; set by the caller that has read it."""

    def exchange(self, statements: Sequence[Filled], deadline: float) -> list[Rows]:
        """Send all of these, then read all answers; raises for the first that is refused."""
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
        """Notifications, once one arrives or the time is up."""
        try:
            found = self._heard()  # what came along with the last answers
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
        """Ask the server to give up what this connection waits for."""
        with contextlib.suppress(psycopg.Error):
            self.connection.cancel_safe(timeout=_CANCEL_SECONDS)

    def close(self) -> None:
        """Say good-bye; the server rolls back whatever is open."""
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

    def _results(self, steps: Sequence[_Step], deadline: float) -> tuple[list[PGresult], RefusedError | None]:
        """The results of the queries among these steps, and the first refusal, after all have been read."""
        results: list[PGresult] = []
        refusal: RefusedError | None = None
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


def _refusal(result: PGresult) -> RefusedError:
    state = result.error_field(DiagnosticField.SQLSTATE)
    return RefusedError("" if state is None else state.decode(), _text(result))


def _text(result: PGresult) -> str:
    primary = result.error_field(DiagnosticField.MESSAGE_PRIMARY)
    text = primary if primary is not None else result.error_message
    return " ".join(text.decode("utf-8", "replace").split())
