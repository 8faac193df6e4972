"""A connection to the database: opened on demand, checked, and closed when its state is in doubt.

TCP waits for ever for a silent peer, so a database that hangs would make its clients hang. Every exchange therefore has
a deadline, after which the connection counts as lost. The requirements on the PostgreSQL server are checked at every
new connection, because a failover changes the server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import psycopg

from semel.store.postgres.address import PgAddress
from semel.store.postgres.pipeline import Filled, LostError, PgPipeline, PgRefusedError, Rows, SilenceError, sentence
from semel.store.protocol import StoreAwayError, StoreError

OLDEST_SERVER = 15

ASK_FACTS = """
SELECT current_setting('server_version_num')::int4, pg_is_in_recovery(),
    current_setting('transaction_read_only') = 'on',
    current_setting('fsync'), current_setting('server_encoding'), pg_postmaster_start_time()::text, pg_backend_pid()
"""


class UnfitServerError(StoreError):
    """The configuration of this server breaks a guarantee of the store; the message says what to change."""


class ServerFacts(NamedTuple):
    """The properties of a server that are checked."""

    version: int
    is_standby: bool
    is_read_only: bool
    fsync: str
    encoding: str
    started: str = ""
    """The start time of the server, to the microsecond: tells one server from another behind the same address."""
    process: int = 0
    """The process of the server that serves this session."""


SHARED_SESSION = (
    "Between Semel and PostgreSQL is a pooler that gives one session to several clients: "
    "set pool_mode = session in PgBouncer, with server_reset_query = DISCARD ALL."
)
UNSYNCED = "PostgreSQL runs with fsync = off and would lose confirmed writes in a crash: set it to on."
_EXISTS = "42P05"
"""A prepared statement of this name exists, in a session that has just begun."""


def check(facts: ServerFacts) -> None:
    """Refuse a server that would lose or refuse writes."""
    reason = refusal(facts)
    if reason is not None:
        raise UnfitServerError(reason)


def refusal(facts: ServerFacts) -> str | None:
    """The reason why a server cannot be used; None if it can."""
    if facts.version < OLDEST_SERVER * 10_000:
        return f"PostgreSQL {facts.version // 10_000} is too old: version {OLDEST_SERVER} or newer is needed."
    if facts.is_standby:
        return (
            "This PostgreSQL server is a standby and accepts no writes: name the primary, "
            "or all servers with ?target_session_attrs=read-write."
        )
    if facts.is_read_only:
        return (
            "This PostgreSQL server accepts no writes: default_transaction_read_only is on for this user or database."
        )
    if facts.fsync != "on":
        return UNSYNCED
    if facts.encoding != "UTF8":
        return f"The database has the encoding {facts.encoding}: create one with ENCODING 'UTF8'."
    return None


BUSY_SHARE = 0.5
"""The share of `patience_ms` that one exchange with the database may take; the limit for locks is a little lower."""
LOCK_SHARE = 0.4
_PAUSES = (0.05, 0.1, 0.2, 0.5)
_PROBE_SECONDS = 1.0
_MOVED = frozenset(
    {
        "25006",  # this server has become a standby
        "57P01",  # the server is being shut down
        "57P02",  # the server has crashed
        "57P03",  # the server is starting
    }
)


def settings_of(address: PgAddress) -> dict[str, str]:
    """The session settings of every connection, independent of the server's defaults.

    One statement may take many locks, so there is a time limit on the statement and on each lock. A commit has no
    limit: one that is cancelled while it waits for a standby is reported as a success (`commit_fate` lifts the limit).
    Every query is written for an index; the planner must not choose a scan because it assumes that a table is empty.
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


def connect(address: PgAddress) -> PgPipeline:
    """Open a session, configure it and check the server."""
    wire = PgPipeline(psycopg.connect(address.conninfo, autocommit=True, client_encoding="utf8"))
    try:
        settings = settings_of(address)
        asked = ", ".join(f"set_config(${place}, ${place + 1}, false)" for place in range(1, 2 * len(settings), 2))
        values = [part.encode() for pair in settings.items() for part in pair]
        answers = wire.exchange([(f"SELECT {asked}", values), (ASK_FACTS, ())], time.monotonic() + address.patience)
        facts = ServerFacts(*answers[1][0])
        check(facts)
        wire.server = facts.started
        wire.session = facts.process
    except BaseException as error:
        wire.close()
        if isinstance(error, PgRefusedError) and error.sqlstate == _EXISTS:
            raise UnfitServerError(SHARED_SESSION) from error
        raise
    return wire


class Trust:
    """What the connections of one node know together about the availability of the database.

    After one connection is lost, the connections opened before it are not used again: if the server has died, all of
    them are lost, and each would have to wait for its own deadline. If the server was only silent, it is contacted
    first (`PgConnection._connect`). After the database has been unreachable for `patience_ms`, callers no longer wait:
    they get an error at once, and one attempt each second finds out whether it is back. A database that confirms no
    commits counts as unreachable for connections that need a commit.

    A primary that was replaced while it hung still answers reads, but no commit on it is confirmed. So rows are
    believed if a commit on the same server was confirmed that was sent at most `trust_ms` before they were read.
    """

    def __init__(self, patience_seconds: float, trust_seconds: float = 0.0) -> None:
        self.era = 0
        self._patience = patience_seconds
        self._trust_seconds = trust_seconds
        self._confirmed = ("", 0.0)
        """The server of the last confirmed commit, and when that commit was sent."""
        self._away_since: float | None = None
        self._tried_at = 0.0

    def is_worth_a_try(self) -> bool:
        """Whether to try to connect now; otherwise the caller gets an error at once."""
        away_since = self._away_since  # read once: another thread may set it to None
        if away_since is None or time.monotonic() - away_since < self._patience:
            return True
        return time.monotonic() - self._tried_at >= _PROBE_SECONDS

    def give_up_at(self, deadline: float) -> float:
        """The deadline of retries: a call that starts late in an outage waits only for the rest of the time limit."""
        away_since = self._away_since
        return deadline if away_since is None else min(deadline, away_since + self._patience)

    def confirmed(self, server: str, sent_at: float) -> None:
        """Record that a server has confirmed a commit which was sent at this time."""
        self._confirmed = (server, sent_at)

    def is_current(self, server: str, at: float) -> bool:
        """Whether this server was the primary when it answered at this time, as far as its commits tell."""
        known, sent_at = self._confirmed
        return known == server and at - sent_at < self._trust_seconds

    def tried(self, *, found: bool) -> None:
        """Record the result of an attempt to connect."""
        self._tried_at = time.monotonic()
        if found:
            self._away_since = None
        elif self._away_since is None:
            self._away_since = self._tried_at


class PgConnection:
    """A reconnecting connection, used by one thread at a time.

    `proof` is a statement that each new session commits first, and that is committed again when it is in doubt whether
    the server is still the primary; then `greet` runs. Without a proof the connection shows what the server shows.
    """

    def __init__(
        self,
        address: PgAddress,
        trust: Trust,
        proof: Filled | None = None,
        greet: Callable[[], None] = lambda: None,
    ) -> None:
        self._address = address
        self._trust = trust
        self._proof = proof
        self._greet = greet
        self._wire: PgPipeline | None = None
        self._era = 0
        self._silent = ""
        """The identity of a server that did not answer, until the next attempt to connect shows whether it is still
        there.
        """
        self.stopped_waiting = False
        """Whether the server has reported, since this was last set to False, that it stopped waiting for its
        standby.
        """

    @property
    def is_open(self) -> bool:
        """Whether there is a connection that is not known to be lost."""
        return self._wire is not None and not self._wire.is_lost and self._era == self._trust.era

    def open(self, deadline: float) -> None:
        """Connect if there is no connection. Retries until the deadline, but tries at least once."""
        attempt = 0
        while not self.is_open:
            self.drop()
            if self._proof is not None and not self._trust.is_worth_a_try():
                raise StoreAwayError("PostgreSQL has been unreachable for some time.")
            try:
                self._connect()
                if self._proof is not None:
                    self._trust.tried(found=True)
            except (psycopg.Error, UnfitServerError, LostError, PgRefusedError) as error:
                self.drop()
                if self._proof is not None:
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
                self._trust.era += 1  # the server is gone or replaced: the other connections to it hang as well
        self._era = self._trust.era
        self._wire.connection.add_notice_handler(self._notice)
        if self._proof is not None:
            self._confirm(self._proof)
        self._greet()

    def _confirm(self, statement: Filled) -> None:
        """Commit a statement and wait for the confirmation: everything read on this connection before is then confirmed
        too.

        After a timeout the statement is cancelled: otherwise every retry would leave one more waiting session in the
        server.
        """
        assert self._wire is not None
        self.stopped_waiting = False
        sent_at = time.monotonic()
        try:
            self._wire.exchange([statement], sent_at + self._address.patience * BUSY_SHARE)
        except LostError:
            self._wire.cancel()
            raise
        if self.stopped_waiting:
            raise LostError("the server did not wait for its standby")
        self._trust.confirmed(self._wire.server, sent_at)

    def committed(self, sent_at: float) -> None:
        """Record that a durable commit on this connection was confirmed, which was sent at this time."""
        if self._wire is not None:
            self._trust.confirmed(self._wire.server, sent_at)

    def is_current(self, at: float) -> bool:
        """Whether rows that were read at this time are known to be those of the primary; a connection that commits
        nothing is not asked.
        """
        return self._proof is None or (self._wire is not None and self._trust.is_current(self._wire.server, at))

    def verify(self) -> None:
        """Prove by a commit that the rows read before are those of the primary: its standby still follows it."""
        if self._wire is None or self._proof is None:
            raise LostError("the connection was lost before a commit confirmed what was read on it")
        self._silent = self._wire.server  # if this fails, the next connection shows whether it was replaced
        self._confirm(self._proof)
        self._silent = ""

    def exchange(self, statements: Sequence[Filled]) -> list[Rows]:
        """Send all of these statements, then read all answers: one round trip."""
        if self._wire is None:
            raise LostError("the connection is closed")
        try:
            return self._wire.exchange(statements, time.monotonic() + self._address.patience * BUSY_SHARE)
        except PgRefusedError as error:
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
        """Wait up to `seconds` for notifications on the channels that this connection listens to."""
        if self._wire is None:
            raise LostError("the connection is closed")
        return self._wire.notifications(seconds)

    def drop(self) -> None:
        """Close the connection; the next use opens another."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    def _notice(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        # The message is in the server's language and has no code of its own; only the name of the sending function is
        # fixed.
        if diagnostic.source_function == "SyncRepWaitForLSN" or diagnostic.sqlstate == "57P01":
            self.stopped_waiting = True
