"""The connection pool of one node: writer connections, each with its commit mark, and reader connections.

A connection is opened at its first use, and reopened after it was lost. The most recently used one is given out first,
because it is most likely to work. A caller waits while all connections are in use.
"""

from __future__ import annotations

import queue

from semel.store.postgres.address import PgAddress
from semel.store.postgres.commit_fate import CommitMark
from semel.store.postgres.connection import PgConnection, Trust
from semel.store.protocol import StoreError


class WriterConnection:
    """A connection that runs one transaction at a time, and the commit mark of its present session."""

    def __init__(self, address: PgAddress, trust: Trust, node: CommitMark, own: set[int]) -> None:
        self.line = PgConnection(address, trust, node.write(), self._greet)
        self.mark = CommitMark()
        self._own = own

    def _greet(self) -> None:
        """Give a new session its own mark, because the transaction of the old session may not have ended yet.

        The old mark is then treated like the mark of another node.
        """
        mark = CommitMark()
        self._own.add(mark.id)
        self.disown(self.mark)
        self.mark = mark

    def disown(self, mark: CommitMark) -> None:
        """Treat the mark as that of another node: this node sends no notification for its last commit, but polls for
        it.
        """
        self._own.discard(mark.id)


class ConnectionPool:
    """Thread-safe. `own` holds the marks of this node's sessions."""

    def __init__(self, address: PgAddress, trust: Trust, own: set[int]) -> None:
        self._address = address
        self._trust = trust
        self._is_closed = False
        self._node = CommitMark()
        """The mark that every connection commits when it is opened; it belongs to no session."""
        writers = [WriterConnection(address, trust, self._node, own) for _ in range(address.lanes)]
        readers = [self.confirming_line() for _ in range(address.readers)]
        self._writers: queue.LifoQueue[WriterConnection] = queue.LifoQueue()
        self._readers: queue.LifoQueue[PgConnection] = queue.LifoQueue()
        for writer in writers:
            self._writers.put(writer)
        for line in readers:
            self._readers.put(line)
        self.lines = [*(writer.line for writer in writers), *readers]
        """All connections of the pool, free or in use; the writers come first."""

    def confirming_line(self) -> PgConnection:
        """A connection outside the pool that begins with a commit, so that it shows only confirmed rows."""
        return PgConnection(self._address, self._trust, self._node.write())

    def writer(self) -> WriterConnection:
        """Take a free writer connection; waits while all are in use."""
        self._check_open()
        return self._writers.get()

    def free_writer(self, writer: WriterConnection) -> None:
        """Return a writer connection after its transaction."""
        if self._is_closed:
            writer.line.drop()
        self._writers.put(writer)

    def reader(self) -> PgConnection:
        """Take a free reader connection; waits while all are in use."""
        self._check_open()
        return self._readers.get()

    def free_reader(self, line: PgConnection) -> None:
        """Return a reader connection after its snapshot."""
        if self._is_closed:
            line.drop()
        self._readers.put(line)

    def shut(self) -> None:
        """Give out no more connections."""
        self._is_closed = True

    def close(self) -> None:
        """Close every connection."""
        self.shut()
        for line in self.lines:
            line.drop()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreError("The store is closed.")
