"""A connection to PostgreSQL: opened on demand, with a deadline for every exchange, and dropped when in doubt.

TCP waits for ever on a silent peer, so a database that hangs would hang its clients. Therefore every exchange has a
deadline, after which the connection counts as lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import psycopg

from semel.store.postgres.address import Address
from semel.store.postgres.failures import sentence
from semel.store.postgres.requirements import ASK, Facts, UnfitServerError, check
from semel.store.postgres.wire import Filled, LostError, RefusedError, Rows, SilenceError, Wire
from semel.store.protocol import StoreAwayError

BUSY_SHARE = 0.5
"""The share of our patience that one exchange with the database may take; locks are waited for a little less."""
LOCK_SHARE = 0.4
_PAUSES = (0.05, 0.1, 0.2, 0.5)
_PROBE_SECONDS = 1.0
_MOVED = frozenset(
    {
        "25006",  # this server has become a standby
        "57P01",  # it is being shut down
        "57P02",  # it has crashed
        "57P03",  # it is starting
    }
)

Greeting = Callable[["Line"], None]


def settings_of(address: Address) -> dict[str, str]:
    """The session settings of every connection, whatever the server's defaults are.

    One statement may take many locks, so it has a time limit as well as each lock; a commit has none, because one that
    is cancelled while it waits for a standby is reported as a success (`marks` lifts it). Every query goes through an
    index by construction; the planner must not think otherwise of tables that it believes to be empty.
    """
    return {
        "search_path": address.schema,
        "statement_timeout": str(int(address.patience_ms * LOCK_SHARE)),
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
        answers = wire.exchange([(f"SELECT {asked}", values), (ASK, ())], time.monotonic() + address.patience)
        facts = Facts(*answers[1][0])
        check(facts)
        wire.server = facts.started
    except BaseException:
        wire.close()
        raise
    return wire


class Trust:
    """Shared knowledge of a node's connections about the availability of the database.

    Once one of them is lost, those that were opened before it are not trusted: a server that has died has done so for
    all of them, and each would have to find out by itself. One that was only silent is asked first
    (`Line._connect`). Once the database has been away for as long as the patience of the address, no
    caller waits for it again: one try a second finds out that it is back. A database that confirms no commits counts as
    away for callers that need one.
    """

    def __init__(self, patience_seconds: float) -> None:
        self.era = 0
        self._patience = patience_seconds
        self._away_since: float | None = None
        self._tried_at = 0.0

    def is_worth_a_try(self) -> bool:
        """Whether to connect now, or to say at once that the database is away."""
        away_since = self._away_since  # once: another thread may set it to None meanwhile
        if away_since is None or time.monotonic() - away_since < self._patience:
            return True
        return time.monotonic() - self._tried_at >= _PROBE_SECONDS

    def give_up_at(self, deadline: float) -> float:
        """The deadline of retries: a call that starts late in an outage waits only for the rest of the time limit."""
        away_since = self._away_since
        return deadline if away_since is None else min(deadline, away_since + self._patience)

    def tried(self, *, found: bool) -> None:
        """How a try to connect has ended."""
        self._tried_at = time.monotonic()
        if found:
            self._away_since = None
        elif self._away_since is None:
            self._away_since = self._tried_at


class Line:
    """A reconnecting connection, used by one thread at a time. `greet` runs first on each new connection."""

    def __init__(self, address: Address, trust: Trust, greet: Greeting | None = None) -> None:
        self._address = address
        self._trust = trust
        self._greet = greet
        self._wire: Wire | None = None
        self._era = 0
        self._silent = ""
        """The server that has not answered, until it is known whether it is there."""
        self.stopped_waiting = False
        """Whether the server has said, since this was last set to False, that it no longer waits for its standby."""

    @property
    def is_open(self) -> bool:
        """Whether there is a connection that is not known to be lost."""
        return self._wire is not None and not self._wire.is_lost and self._era == self._trust.era

    def open(self, deadline: float) -> None:
        """Make the connection if there is none; try again and again until the deadline, at least once."""
        attempt = 0
        while not self.is_open:
            self.drop()
            if self._greet is not None and not self._trust.is_worth_a_try():
                raise StoreAwayError("PostgreSQL: it has been away for some time.")
            try:
                self._connect()
                if self._greet is not None:
                    self._trust.tried(found=True)
            except (psycopg.Error, UnfitServerError, LostError, RefusedError) as error:
                self.drop()
                if self._greet is not None:
                    self._trust.tried(found=False)
                pause = _PAUSES[min(attempt, len(_PAUSES) - 1)]
                if time.monotonic() + pause >= self._trust.give_up_at(deadline):
                    raise StoreAwayError(sentence(error)) from error
                time.sleep(pause)
                attempt += 1

    def _connect(self) -> None:
        silent, self._silent = self._silent, ""
        try:
            self._wire = connect(self._address)
        finally:
            if silent and (self._wire is None or self._wire.server != silent):
                self._trust.era += 1  # it is not there, or another one is in its place: the other lines hang as we did
        self._era = self._trust.era
        self._wire.connection.add_notice_handler(self._notice)
        if self._greet is not None:
            self._greet(self)

    def confirm(self, statement: Filled) -> None:
        """Commit something and wait until it is confirmed, so that everything seen here before it is confirmed too.

        A wait that is given up must not go on in the server: there would be one session more with every try.
        """
        assert self._wire is not None
        self.stopped_waiting = False
        try:
            self._wire.exchange([statement], time.monotonic() + self._address.patience * BUSY_SHARE)
        except LostError:
            self._wire.cancel()
            raise
        if self.stopped_waiting:
            raise LostError("the server did not wait for its standby")

    def exchange(self, statements: Sequence[Filled]) -> list[Rows]:
        """Send all of these, then read all answers: one round trip."""
        if self._wire is None:
            raise LostError("the connection is closed")
        try:
            return self._wire.exchange(statements, time.monotonic() + self._address.patience * BUSY_SHARE)
        except RefusedError as error:
            if error.sqlstate not in _MOVED:
                raise
            self._lose()
            raise LostError(str(error)) from error
        except SilenceError:
            self._silent = self._wire.server
            raise
        except LostError:
            self._lose()
            raise

    def _lose(self) -> None:
        if self._era == self._trust.era:
            self._trust.era += 1

    def notifications(self, seconds: float) -> list[str]:
        """Notifications on the channels that this connection listens to."""
        if self._wire is None:
            raise LostError("the connection is closed")
        return self._wire.notifications(seconds)

    def drop(self) -> None:
        """Close the connection; the next use opens another."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    def _notice(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        # The message is in the server's language and has no code of its own; the function that sends it has a name.
        if diagnostic.source_function == "SyncRepWaitForLSN" or diagnostic.sqlstate == "57P01":
            self.stopped_waiting = True
