"""The connection pool of one node: connections that write, each with the mark of its commits, and some that read.

A connection is opened when it is first used, and again after it was lost. The one that was used last is given out
first, because it is known to work. A caller waits while all of them are in use.
"""

from __future__ import annotations

import queue

from semel.store.postgres.address import Address
from semel.store.postgres.line import Line, Trust
from semel.store.postgres.marks import Mark
from semel.store.protocol import StoreError


class WriterConnection:
    """Carries out one transaction at a time: a connection, and the mark of its present session."""

    def __init__(self, address: Address, trust: Trust, node: Mark, own: set[int]) -> None:
        self.line = Line(address, trust, self._greet)
        self.mark = Mark()
        self._node = node
        self._own = own

    def _greet(self, line: Line) -> None:
        """A new session has a mark of its own, because the old one's transaction may not have ended yet.

        The old mark is then treated like the mark of another node.
        """
        line.confirm(self._node.write())
        mark = Mark()
        self._own.add(mark.id)
        self.disown(self.mark)
        self.mark = mark

    def disown(self, mark: Mark) -> None:
        """This node sends no notice of the mark's last commit; if it is stored, now or later, the readers look."""
        self._own.discard(mark.id)


class ConnectionPool:
    """Used from every thread. `own` holds the marks of this node's sessions."""

    def __init__(self, address: Address, trust: Trust, own: set[int]) -> None:
        self._address = address
        self._trust = trust
        self._is_closed = False
        self._node = Mark()
        """Not a session's: what every connection commits when it is opened."""
        writers = [WriterConnection(address, trust, self._node, own) for _ in range(address.lanes)]
        readers = [self.confirming_line() for _ in range(address.readers)]
        self._writers: queue.LifoQueue[WriterConnection] = queue.LifoQueue()
        self._readers: queue.LifoQueue[Line] = queue.LifoQueue()
        for writer in writers:
            self._writers.put(writer)
        for line in readers:
            self._readers.put(line)
        self.lines = [*(writer.line for writer in writers), *readers]
        """All connections of the pool, free or in use; those that write come first."""

    def confirming_line(self) -> Line:
        """A connection outside the pool that begins with a commit, so that it shows only what is confirmed."""
        return Line(self._address, self._trust, lambda line: line.confirm(self._node.write()))

    def writer(self) -> WriterConnection:
        """The next free connection that writes."""
        self._check_open()
        return self._writers.get()

    def free_writer(self, writer: WriterConnection) -> None:
        """Its transaction has ended."""
        if self._is_closed:
            writer.line.drop()
        self._writers.put(writer)

    def reader(self) -> Line:
        """The next free connection that reads."""
        self._check_open()
        return self._readers.get()

    def free_reader(self, line: Line) -> None:
        """Its snapshot has ended."""
        if self._is_closed:
            line.drop()
        self._readers.put(line)

    def shut(self) -> None:
        """Give out no more connections."""
        self._is_closed = True

    def close(self) -> None:
        """Close every connection; what is committed stays."""
        self.shut()
        for line in self.lines:
            line.drop()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreError("The store is closed.")
