"""A line to the database: one connection, opened when it is needed and thrown away when it is in doubt.

A database that hangs would hang its clients, because TCP waits for ever on a peer that is silent. So every exchange has
a deadline, after which the connection counts as lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from semel.store.postgres.address import Address
from semel.store.postgres.failures import sentence
from semel.store.postgres.requirements import ASK, Facts, UnfitServerError, check
from semel.store.postgres.wire import Filled, LostError, RefusedError, Rows, Wire
from semel.store.protocol import StoreAwayError

BUSY_SHARE = 0.5
"""The share of our patience that one exchange with the database may take; locks are waited for a little less."""
LOCK_SHARE = 0.4
_PAUSES = (0.05, 0.1, 0.2, 0.5)

Greeting = Callable[["Line"], None]


def settings_of(address: Address) -> dict[str, str]:
    """What every session of ours is set to, whatever the server's defaults are.

    Statements have no time limit, because a commit that is cancelled while it waits for a standby is reported as a
    success. Locks have one. Every query goes through an index by construction; the planner must not think otherwise of
    tables that it believes to be empty.
    """
    return {
        "search_path": address.schema,
        "statement_timeout": "0",
        "lock_timeout": str(int(address.patience_ms * LOCK_SHARE)),
        "idle_in_transaction_session_timeout": str(address.patience_ms),
        "idle_session_timeout": "0",
        "client_min_messages": "warning",
        "tcp_keepalives_idle": "5",
        "tcp_keepalives_interval": "2",
        "tcp_keepalives_count": "3",
        "plan_cache_mode": "force_generic_plan",
        "enable_seqscan": "off",
        "enable_bitmapscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
        "enable_sort": "off",
        "jit": "off",
    }


def connect(address: Address) -> Wire:
    """A session, set up and checked."""
    wire = Wire(psycopg.connect(address.conninfo, autocommit=True, client_encoding="utf8"))
    try:
        settings = settings_of(address)
        asked = ", ".join(f"set_config(${place}, ${place + 1}, false)" for place in range(1, 2 * len(settings), 2))
        values = [part.encode() for pair in settings.items() for part in pair]
        facts = wire.exchange([(f"SELECT {asked}", values), (ASK, ())], time.monotonic() + address.patience)[1][0]
        check(Facts(*facts))
    except BaseException:
        wire.close()
        raise
    return wire


class Trust:
    """Shared by the lines of one node: once one of them is lost, those that were opened before it are not trusted.

    A server that has died or hangs has done so for all of them, and each would have to find out by itself.
    """

    def __init__(self) -> None:
        self.era = 0


class Line:
    """Used by one thread at a time. `greet` is what is done first on a new connection."""

    def __init__(self, address: Address, trust: Trust, greet: Greeting = lambda line: None) -> None:
        self._address = address
        self._trust = trust
        self._greet = greet
        self._wire: Wire | None = None
        self._era = 0
        self.was_warned = False
        """Whether the server has sent a warning since this was last set to False."""

    @property
    def is_open(self) -> bool:
        """Whether there is a connection that is not known to be lost."""
        return self._wire is not None and not self._wire.is_lost and self._era == self._trust.era

    def open(self, deadline: float) -> None:
        """Make the connection if there is none; try again and again until the deadline, at least once."""
        attempt = 0
        while not self.is_open:
            self.drop()
            try:
                self._connect()
            except (psycopg.Error, UnfitServerError, LostError, RefusedError) as error:
                self.drop()
                pause = _PAUSES[min(attempt, len(_PAUSES) - 1)]
                if time.monotonic() + pause >= deadline:
                    raise StoreAwayError(sentence(error)) from error
                time.sleep(pause)
                attempt += 1

    def _connect(self) -> None:
        self._era = self._trust.era
        self._wire = connect(self._address)
        self._wire.connection.add_notice_handler(self._warn)
        self._greet(self)

    def exchange(self, statements: Sequence[Filled]) -> list[Rows]:
        """Send all of these, then read all answers: one round trip."""
        if self._wire is None:
            raise LostError("the connection is closed")
        try:
            return self._wire.exchange(statements, time.monotonic() + self._address.patience * BUSY_SHARE)
        except LostError:
            if self._era == self._trust.era:
                self._trust.era += 1
            raise

    def notifications(self, seconds: float) -> list[str]:
        """What others have sent on the channels that this line listens to."""
        if self._wire is None:
            raise LostError("the connection is closed")
        return self._wire.notifications(seconds)

    def drop(self) -> None:
        """Close the connection; the next use opens another."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    def _warn(self, diagnostic: Any) -> None:
        self.was_warned = True
