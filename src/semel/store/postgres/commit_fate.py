"""Commit fate: how a node learns whether a commit took effect whose answer was lost.

Every durable transaction writes its number into the mark row of its connection, and holds the lock of that row from its
first statement. After a lost answer the node takes that lock on another connection, which waits until the old
transaction has ended, and then reads the row: if the row has the number, the commit took effect; otherwise nothing was
stored.

The check also writes the row, and its own commit waits for a standby like any other commit. Because the write-ahead log
is one sequence, the commit that was found has then reached the standby as well. For the same reason every connection
begins with a commit: after a crash the server shows commits that its standby may not have yet, and no caller may be
told of them.
"""

from __future__ import annotations

import secrets

from semel.store.postgres.locks import LockKind, Slot, take
from semel.store.postgres.pipeline import Filled, number

TABLE = (
    "CREATE TABLE semel_mark (id int8 PRIMARY KEY, number int8 NOT NULL, written_at timestamptz NOT NULL) "
    "WITH (fillfactor = 20)"
)
"""Every commit updates a row; the low fillfactor leaves space in the page for its next version."""

NUMBERS = "SELECT id, number FROM semel_mark"
_DURABLY = """
set_config('statement_timeout', '0', true),
set_config('synchronous_commit',
    CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)
"""
"""For the rest of the transaction: no time limit, because a COMMIT that waits for a standby must not be cancelled; and
a COMMIT that waits for the disk and for the standbys, whatever was set for the server, the database, the role or the
session. What is set now counts, so a reload can make it stronger and never weaker.
"""
_WRITE = f"""
INSERT INTO semel_mark (id, number, written_at) VALUES ($1, $2, now())
ON CONFLICT (id) DO UPDATE SET number = excluded.number, written_at = excluded.written_at
RETURNING {_DURABLY}
"""
"""The last statement before COMMIT."""
_READ = f"""
INSERT INTO semel_mark (id, number, written_at) VALUES ($1, 0, now())
ON CONFLICT (id) DO UPDATE SET written_at = excluded.written_at
RETURNING number, {_DURABLY}
"""
FORGET_OLD = "DELETE FROM semel_mark WHERE written_at < now() - interval '7 days'"
"""Delete the marks of connections that have been closed for seven days."""


class CommitMark:
    """The commit mark of one connection."""

    def __init__(self) -> None:
        self.id = secrets.randbits(63)
        self.number = 0

    @property
    def slot(self) -> Slot:
        """The lock that every transaction of this connection holds until it ends."""
        return Slot(LockKind.MARK, self.id & 0x7FFFFFFF)

    def write(self) -> Filled:
        """The statement that every durable transaction contains."""
        return _WRITE, (number(self.id), number(self.number))


def ask_fate(schema: str, mark: CommitMark) -> list[Filled]:
    """Statements that wait until the transaction of the mark has ended; the third answer has the number of the mark."""
    return [
        ("BEGIN ISOLATION LEVEL READ COMMITTED", ()),
        take(schema, [mark.slot]),
        (_READ, (number(mark.id),)),
        ("COMMIT", ()),
    ]
