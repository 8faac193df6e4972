"""The PostgreSQL store: one database, shared by any number of nodes, each with its connection pool.

Format: a schema with one SQL table for each declared table (three for a generational one), `semel_schema` with the
version, `semel_generation` with the generation that takes new rows, and `semel_mark` with the last commit of each
connection. Locks are advisory, the clock is the server's, and snapshots are read from the primary.

A node holds no state that must survive it: if it is killed at any point, each of its transactions is either completely
in the database or not at all. When the database is unreachable, the node waits; when it is back, on this server or on a
promoted standby, the node continues, and reads from its marks whether the commits in progress took effect.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing

import psycopg

from semel.store.migrations import Migration
from semel.store.postgres.address import PgAddress
from semel.store.postgres.commit_fate import CommitMark
from semel.store.postgres.connection import SHARED_SESSION, PgConnection, Trust, UnfitServerError, connect
from semel.store.postgres.connection_pool import ConnectionPool
from semel.store.postgres.leader import Leader
from semel.store.postgres.notify import NotifyListener, NotifySender
from semel.store.postgres.pipeline import BROKEN, sentence
from semel.store.postgres.schema import bring_up_to_date, is_moved, version_of
from semel.store.postgres.snapshot import PgSnapshot
from semel.store.postgres.standby import StandbyWatch
from semel.store.postgres.statements import DIALECT, PgStatements
from semel.store.postgres.transaction import PgTransaction
from semel.store.protocol import (
    AnyTable,
    CommitUnknownError,
    Hear,
    Lock,
    StoreError,
    StoreHealth,
    StoreMovedError,
    turn_lock,
)
from semel.store.usage import StoreUsage

_TIDY_SECONDS = 1.0


class PgStore:
    """The store for many nodes: connection pool, notifications, leader election."""

    def __init__(
        self,
        address: PgAddress,
        tables: Sequence[AnyTable],
        migrations: Sequence[Migration],
        *,
        may_be_moved: bool = False,
    ) -> None:
        self.address = address
        self.lanes = address.lanes
        self.statements = {table: [PgStatements(table, name) for name in DIALECT.names_of(table)] for table in tables}
        self.generational = [table for table in tables if table.generational]
        self.generations: Mapping[str, int] = {}
        """The generation of each table that takes new rows, as last read."""
        self._retired = set(self.generational)
        """Tables whose oldest generation may have to be truncated: at start all, because a node may have died before it
        did so.
        """
        self._tidied_at = time.monotonic()
        self._is_closed = False
        self.unsafe = ""
        """Why a commit would not reach the disk; empty if it would."""
        self.may_be_moved = may_be_moved
        """Whether transactions go on in a store that is marked as moved."""
        _prepare(address, migrations, may_be_moved)
        self.readers = address.readers
        self.trust = Trust(address.patience, address.trust)
        self._speaker = NotifySender(PgConnection(address, self.trust), f"semel_{address.schema}")
        self._listener: NotifyListener | None = None
        self._leader = Leader(PgConnection(address, self.trust), address.schema)
        self._standby = StandbyWatch(PgConnection(address, self.trust))
        self.pool = ConnectionPool(address, self.trust, self._speaker.own)
        self._speaker.start()

    @property
    def is_shared(self) -> bool:
        """Always true: any number of nodes may use one database."""
        return True

    @property
    def is_away(self) -> bool:
        """Whether the database has not answered for some seconds."""
        return self._listener is not None and self._listener.is_away

    def begin(self, locks: Sequence[Lock], *, durable: bool = True, wait: bool = True) -> PgTransaction:
        """Begin a transaction on a free connection; nothing is sent before it is needed. Soft changes do not wait for
        the disk.
        """
        return self._begin(locks, durable, self.address.patience if durable else 0.0)

    def _begin(self, locks: Sequence[Lock], durable: bool, patience_seconds: float) -> PgTransaction:
        writer = self.pool.writer()
        try:
            writer.line.open(time.monotonic() + patience_seconds)
            return PgTransaction(self, writer, locks, durable)
        except BaseException:
            self.pool.free_writer(writer)
            raise

    def read(self) -> PgSnapshot:
        """A snapshot of the last committed state, on a reader connection."""
        return PgSnapshot(self)

    def reader(self) -> PgConnection:
        """Take a free reader connection."""
        return self.pool.reader()

    def free_reader(self, line: PgConnection) -> None:
        """Return a reader connection after its snapshot."""
        self.pool.free_reader(line)

    def follow(self, hear: Hear) -> None:
        """Listen for the commits of other nodes."""
        # This connection begins with a commit too: it finds out first that the database is back, and readiness follows
        # it.
        line = self.pool.confirming_line()
        self._listener = NotifyListener(line, f"semel_{self.address.schema}", self._speaker.own, hear)
        self._listener.start()

    def leads(self) -> bool:
        """Whether this node is the leader and runs the chores."""
        return self._leader.leads()

    def era(self) -> bytes:
        """The identity of the cluster, its timeline and our tables; it changes when a standby is promoted or a backup
        restored.
        """
        with self.read() as snapshot:
            return snapshot.era()

    def usage(self) -> StoreUsage:
        """The size of the database and the lag of its replicas, as far as the role may see them."""
        return self._standby.usage(self.statements)

    def committed(self, mark: CommitMark, topics: Sequence[bytes]) -> None:
        """Notify the other nodes after a durable commit."""
        self._speaker.say(mark.id, mark.number, topics)

    def know_generations(self, numbers: Mapping[str, int]) -> None:
        """Record which generations take new rows; the node that rotated may have died before it truncated the
        oldest.
        """
        if numbers != self.generations:
            self._retired.update(self.generational)
            self.generations = numbers

    def scannable(self, table: AnyTable) -> PgStatements:
        """The statements for ranges of a table; a generational table cannot be read by range."""
        if table.generational:
            raise StoreError(f"{table.name} can be read by key only")
        return self.statements[table][0]

    def checkpoint_beside(self) -> None:
        """None: the database makes its own checkpoints."""

    def is_tidy_long(self) -> bool:
        """Never: a batch runs in a thread of its own anyway."""
        return False

    def health(self) -> StoreHealth:
        """The clock of the database, whether its commits reach the disk, and its standbys. Commits go by it from now
        on.
        """
        health = self._standby.health()
        self.unsafe = health.unsafe
        return health

    def tidy(self) -> None:
        """Truncate retired generations; one that a snapshot still reads is truncated later."""
        now = time.monotonic()
        if not self._retired or now - self._tidied_at < _TIDY_SECONDS:
            return
        self._tidied_at = now
        for table in list(self._retired):
            if self._empty_retired(table):
                self._retired.discard(table)

    def _empty_retired(self, table: AnyTable) -> bool:
        try:
            tx = self._begin((), True, 0.0)
        except StoreError:
            return False
        try:
            oldest = tx.oldest(table)
            # Take the strongest lock first: two nodes that read and then upgrade their locks would deadlock.
            if tx.send([(oldest.lock, ()), (oldest.some, ())])[1]:
                tx.send([(oldest.truncate, ())])
                tx.commit()
        except (StoreError, CommitUnknownError):
            return False
        finally:
            tx.rollback()
        return True

    def mark_moved(self, is_moved: bool) -> None:
        """Store that the data was moved, or take that mark away; waits for the open transactions of every node.

        Those that begin afterwards read the mark under their locks, and are refused.
        """
        tx = self._begin(sorted(map(turn_lock, self.generational)), True, self.address.patience)
        try:
            tx.mark_moved(is_moved)
            tx.commit()
        finally:
            tx.rollback()

    def close(self) -> None:
        """Close every connection."""
        if self._is_closed:
            return
        self._is_closed = True
        self.pool.shut()
        self._speaker.stop()
        if self._listener is not None:
            self._listener.stop()
            self._listener.join(self.address.patience)
        self._speaker.join(self.address.patience)
        self._leader.close()
        self._standby.close()
        self.pool.close()


def _prepare(address: PgAddress, migrations: Sequence[Migration], may_be_moved: bool) -> None:
    """Open the first connections, check the server and create or migrate the schema."""
    try:
        with closing(connect(address)) as wire:
            with closing(connect(address)) as other:
                if (wire.server, wire.session) == (other.server, other.session):
                    raise UnfitServerError(SHARED_SESSION)
            is_there = version_of(wire.connection, address.schema) is not None
            if is_there and not may_be_moved and is_moved(wire.connection):
                raise StoreMovedError(f"schema {address.schema}")
            bring_up_to_date(wire.connection, address.schema, migrations)
    except (psycopg.Error, *BROKEN) as error:
        raise StoreError(sentence(error)) from error
