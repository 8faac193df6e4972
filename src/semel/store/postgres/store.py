"""The PostgreSQL store: one database, shared by any number of nodes, each with its connection pool.

Format: a schema with one table for each declared one (three for a generational one), `semel_schema` with the version,
`semel_generation` with the generation that takes new rows, and `semel_mark` with the last commit of each line. Locks
are advisory, the clock is the server's, and what is read in order is read from the server that takes the writes.

A node keeps nothing that it could not lose: kill it at any point, and each of its transactions is either whole in the
database or not there. A database that is away is waited for; when it comes back, on this server or on a standby that
took over, the node goes on, and learns from its marks what became of the commits that were under way.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing

import psycopg

from semel.store.migrations import Migration
from semel.store.postgres.address import Address
from semel.store.postgres.connection_pool import ConnectionPool
from semel.store.postgres.failures import BROKEN, sentence
from semel.store.postgres.hints import Listener, Speaker
from semel.store.postgres.leader import Leader
from semel.store.postgres.line import Line, Trust, connect
from semel.store.postgres.marks import Mark
from semel.store.postgres.schema import bring_up_to_date
from semel.store.postgres.snapshot import PostgresSnapshot
from semel.store.postgres.statements import DIALECT, Statements
from semel.store.postgres.transaction import PostgresTx
from semel.store.protocol import AnyTable, CommitUnknownError, Hear, Lock, StoreError

_TIDY_SECONDS = 1.0


class PostgresStore:
    """The store for many nodes: connections for writers, a pool of reader connections, notifications, leadership."""

    def __init__(self, address: Address, tables: Sequence[AnyTable], migrations: Sequence[Migration]) -> None:
        self.address = address
        self.lanes = address.lanes
        self.statements = {table: [Statements(table, name) for name in DIALECT.names_of(table)] for table in tables}
        self.generational = [table for table in tables if table.generational]
        self.generations: Mapping[str, int] = {}
        """The generation of each table that takes new rows, as last read."""
        self._retired = set(self.generational)
        """Tables whose generation before last may have to be emptied: at first all, because a node may have died."""
        self._tidied_at = time.monotonic()
        self._is_closed = False
        _prepare(address, migrations)
        self.readers = address.readers
        self._trust = Trust(address.patience)
        self._speaker = Speaker(Line(address, self._trust), f"semel_{address.schema}")
        self._listener: Listener | None = None
        self._leader = Leader(Line(address, self._trust), address.schema)
        self.pool = ConnectionPool(address, self._trust, self._speaker.own)
        self._speaker.start()

    @property
    def is_shared(self) -> bool:
        """Any number of nodes may use one database."""
        return True

    @property
    def is_away(self) -> bool:
        """Whether the database has not answered for some seconds."""
        return self._listener is not None and self._listener.is_away

    def begin(self, locks: Sequence[Lock], *, durable: bool = True) -> PostgresTx:
        """A transaction on the next free connection; nothing is sent before it is needed. Soft changes do not wait."""
        return self._begin(locks, durable, self.address.patience if durable else 0.0)

    def _begin(self, locks: Sequence[Lock], durable: bool, patience_seconds: float) -> PostgresTx:
        writer = self.pool.writer()
        try:
            writer.line.open(time.monotonic() + patience_seconds)
            return PostgresTx(self, writer, locks, durable)
        except BaseException:
            self.pool.free_writer(writer)
            raise

    def read(self) -> PostgresSnapshot:
        """The last committed state, on a connection of the reader's own."""
        return PostgresSnapshot(self)

    def reader(self) -> Line:
        """The next free connection that reads."""
        return self.pool.reader()

    def free_reader(self, line: Line) -> None:
        """Its snapshot has ended."""
        self.pool.free_reader(line)

    def follow(self, hear: Hear) -> None:
        """Listen to the other nodes."""
        # It asks for a commit too, so that it finds out for all others that the database is back, and we are ready.
        line = self.pool.confirming_line()
        self._listener = Listener(line, f"semel_{self.address.schema}", self._speaker.own, hear)
        self._listener.start()

    def leads(self) -> bool:
        """Whether this node does the chores."""
        return self._leader.leads()

    def era(self) -> bytes:
        """The cluster, its timeline and our tables: a standby that takes over, or a restore, begins another one."""
        with self.read() as snapshot:
            return snapshot.era()

    def committed(self, mark: Mark, topics: Sequence[bytes]) -> None:
        """After a durable commit: notify the other nodes."""
        self._speaker.say(mark.id, mark.number, topics)

    def know_generations(self, numbers: Mapping[str, int]) -> None:
        """Which generations take new rows; the process that turned one may be gone before it has emptied the oldest."""
        if numbers != self.generations:
            self._retired.update(self.generational)
            self.generations = numbers

    def scannable(self, table: AnyTable) -> Statements:
        """The statements for ranges of a table; a generational one has none."""
        if table.generational:
            raise StoreError(f"{table.name} is found by its key alone")
        return self.statements[table][0]

    def tidy(self) -> None:
        """Empty retired generations; one that a snapshot reads waits for its end."""
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
            # The strongest lock first: two nodes that look and then ask for more would wait for each other.
            if tx.send([(oldest.lock, ()), (oldest.some, ())])[1]:
                tx.send([(oldest.truncate, ())])
                tx.commit()
        except (StoreError, CommitUnknownError):
            return False
        finally:
            tx.rollback()
        return True

    def close(self) -> None:
        """Close every connection; what is committed stays."""
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
        self.pool.close()


def _prepare(address: Address, migrations: Sequence[Migration]) -> None:
    """The first connection: is this a server that we can use, and has it our tables?"""
    try:
        with closing(connect(address)) as wire:
            bring_up_to_date(wire.connection, address.schema, migrations)
    except (psycopg.Error, *BROKEN) as error:
        raise StoreError(sentence(error)) from error
