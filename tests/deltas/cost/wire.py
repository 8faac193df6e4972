"""Deltas as a load generator knows them: authors who make new ones, and the ones that a prepared store holds.

Ids are hashed here without the server's own code. A delta on a new row has about 200 bytes of columns, an edit one
short column. Each stored delta is a function of its number, so any of them can be pushed again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from hashlib import blake2b, sha256

from bench.jobs_load import HOST, post
from bench.load_keys import uuid_text

GATEWAY = "bench"
PUSH = f"/v1/sync/{GATEWAY}/push"
FILLERS = 4
"""So many clients, in turn, are the authors of what is stored."""
STORED_SINCE_MS = 1_700_000_000_000
"""The first stored delta was made then, and another one each millisecond."""
HOT_ROWS = 100

_NEW_ROW = (
    b'[{"column":"title","value":"Task %d"},{"column":"note","value":"' + b"x" * 80 + b'"},'
    b'{"column":"is_done","value":false},{"column":"place","value":%d}]'
)
_EDIT = b'[{"column":"title","value":"Task %d"}]'
_HASHED = b'{"clientId":"%s","columns":%s,"hlc":"%d","rowId":"%s","table":"todos"}'
_SENT = b'{"op":"%s","table":"todos","rowId":"%s","clientId":"%s","columns":%s,"hlc":"%d","deltaId":"%s"}'


def delta(op: bytes, client: bytes, row: bytes, hlc: int, columns: bytes) -> bytes:
    """One delta as it is sent."""
    name = sha256(_HASHED % (client, columns, hlc, row)).hexdigest().encode()
    return _SENT % (op, row, client, columns, hlc, name)


def push(client: bytes, deltas: Sequence[bytes]) -> bytes:
    """A whole request."""
    return post(PUSH, b'{"clientId":"%s","deltas":[%s],"lastSeenHlc":"0"}' % (client, b",".join(deltas)))


def pull(client: str, since: bytes, limit: int) -> bytes:
    """A whole request."""
    path = f"/v1/sync/{GATEWAY}/pull?since={since.decode()}&clientId={client}&limit={limit}"
    return f"GET {path} HTTP/1.1\r\nhost: {HOST}\r\n\r\n".encode()


def filler(number: int) -> bytes:
    """The author of a stored delta."""
    return b"filler-%d" % (number % FILLERS)


def stored_row(number: int) -> bytes:
    """The row that a stored delta made."""
    return uuid_text(int.from_bytes(blake2b(b"%d" % number, digest_size=16).digest()))


def stored(number: int) -> bytes:
    """A stored delta: each made a row of its own."""
    return delta(b"INSERT", filler(number), stored_row(number), stored_hlc(number), _NEW_ROW % (number, number))


def stored_hlc(number: int) -> int:
    """When it was made."""
    return STORED_SINCE_MS + number << 16


class Author:
    """A client with a clock of its own."""

    def __init__(self, client: bytes) -> None:
        self.client = client
        self.chance = random.Random()
        self._hlc = time.time_ns() // 1_000_000 << 16

    def new_row(self) -> bytes:
        """A row that nobody has seen."""
        return self._made_at(self._tick())

    def late_row(self, stored_deltas: int) -> bytes:
        """The same, made while the stored deltas were made: what a client brings that was offline."""
        return self._made_at(stored_hlc(self.chance.randrange(stored_deltas)) + 1 + self.chance.randrange(60_000))

    def edit(self, row: bytes) -> bytes:
        """One column of a row."""
        hlc = self._tick()
        return delta(b"UPDATE", self.client, row, hlc, _EDIT % (hlc & 0xFFFF_FFFF))

    def _made_at(self, hlc: int) -> bytes:
        columns = _NEW_ROW % (hlc & 0xFFFF_FFFF, hlc & 0xFFFF)
        return delta(b"INSERT", self.client, uuid_text(self.chance.getrandbits(128)), hlc, columns)

    def _tick(self) -> int:
        self._hlc += 1
        return self._hlc


def new_rows(author: Author, _: int) -> Iterator[bytes]:
    """Each on a row of its own."""
    while True:
        yield author.new_row()


def late_rows(author: Author, stored_deltas: int) -> Iterator[bytes]:
    """The same, each from any time of the past."""
    while True:
        yield author.late_row(stored_deltas)


def own_rows(author: Author, _: int) -> Iterator[bytes]:
    """Edits of a hundred rows that nobody else writes to."""
    rows = [uuid_text(author.chance.getrandbits(128)) for _ in range(HOT_ROWS)]
    while True:
        yield author.edit(author.chance.choice(rows))


def shared_rows(author: Author, _: int) -> Iterator[bytes]:
    """Edits of a hundred stored rows that all others edit too."""
    rows = [stored_row(number) for number in range(HOT_ROWS)]
    while True:
        yield author.edit(author.chance.choice(rows))


def known(author: Author, stored_deltas: int) -> Iterator[bytes]:
    """Deltas that are stored already."""
    while True:
        yield stored(author.chance.randrange(stored_deltas))
