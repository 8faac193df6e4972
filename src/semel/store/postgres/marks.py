"""Commit fate: how a node learns whether a commit took effect whose answer was lost.

Every durable transaction writes its number into the mark row of its connection, and holds that row's lock from its
first statement on. After a lost answer the node takes that lock on another connection, which waits until the old
transaction has ended one way or the other, and then reads the row: if it has the number, the commit took effect; else
nothing was stored.

The check also writes the row, and that commit waits like any other, as for a standby. What is found has then reached
the standby as well, because the log is one sequence. For the same reason every connection begins with a commit: after a
crash the server shows commits that its standby may not have yet, and no caller may be told of them.
"""

from __future__ import annotations

import secrets

from semel.store.postgres.encoding import number
from semel.store.postgres.locks import Kind, Slot, take
from semel.store.postgres.wire import Filled

TABLE = (
    "CREATE TABLE semel_mark (id int8 PRIMARY KEY, number int8 NOT NULL, written_at timestamptz NOT NULL) "
    "WITH (fillfactor = 20)"
)
"""Rows are rewritten with every commit; the room keeps them where they are."""

NUMBERS = "SELECT id, number FROM semel_mark"
_WRITE = """
INSERT INTO semel_mark (id, number, written_at) VALUES ($1, $2, now())
ON CONFLICT (id) DO UPDATE SET number = excluded.number, written_at = excluded.written_at
RETURNING set_config('statement_timeout', '0', true)
"""
"""The last statement before COMMIT, which must not be cancelled while it waits for a standby."""
_READ = """
INSERT INTO semel_mark (id, number, written_at) VALUES ($1, 0, now())
ON CONFLICT (id) DO UPDATE SET written_at = excluded.written_at
RETURNING number, set_config('statement_timeout', '0', true)
"""
FORGET_OLD = "DELETE FROM semel_mark WHERE written_at < now() - interval '7 days'"
"""The marks of lines that are long gone."""


class Mark:
    """The commit mark of one connection."""

    def __init__(self) -> None:
        self.id = secrets.randbits(63)
        self.number = 0

    @property
    def slot(self) -> Slot:
        """The lock that is held for as long as a transaction of this line is."""
        return Slot(Kind.MARK, self.id & 0x7FFFFFFF)

    def write(self) -> Filled:
        """Part of every durable transaction."""
        return _WRITE, (number(self.id), number(self.number))


def ask_fate(schema: str, mark: Mark) -> list[Filled]:
    """Statements whose last answer but one is the mark's number, once its transaction has ended."""
    return [
        ("BEGIN ISOLATION LEVEL READ COMMITTED", ()),
        take(schema, [mark.slot]),
        (_READ, (number(mark.id),)),
        ("COMMIT", ()),
    ]
