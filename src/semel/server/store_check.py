"""The check of a whole store: its files, every table, and what each surface promises of its rows.

All rows are read in one snapshot, so a server may be writing: there is no false alarm between two reads. Nothing is
locked or changed. Before, the database itself checks its files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from semel.server.auth.token_table import HEAD_KEY, TOKEN, TOKEN_HEAD
from semel.server.offline_store import snapshot_of
from semel.store.open import file_flaws
from semel.store.table_check import Check, StoreFault, StoreWalk, check_tables, fault, run_check
from semel.surfaces.epoch import EPOCH
from semel.surfaces.registry import NAMES, SURFACES
from semel.surfaces.schema import TABLES

STORE = "store"
"""The name of what belongs to no surface."""


class StoreSubject(NamedTuple):
    """One check: its surface, what it reads, and the check itself."""

    surface: str
    name: str
    check: Check


def subjects_of(names: Sequence[str] = ()) -> list[StoreSubject]:
    """All checks of these surfaces, and of what all share; without names, of all surfaces."""
    owners = {table.name: row.name for row in SURFACES for table in row.tables}
    wanted = {*(names or NAMES), STORE}
    found = [
        StoreSubject(owners.get(table.name, STORE), table.name, check)
        for table, check in check_tables(TABLES)
        if owners.get(table.name, STORE) in wanted
    ]
    found += [StoreSubject(STORE, EPOCH.name, _epoch), StoreSubject(STORE, TOKEN.name, _tokens)]
    for row in SURFACES:
        if row.name in wanted:
            found += (StoreSubject(row.name, check.__name__.replace("_", " "), check) for check in row.store_checks)
    return found


class StoreCheck:
    """One check of a store; `rows` is the number of rows that were read so far."""

    def __init__(self, url: str, names: Sequence[str] = ()) -> None:
        self._url = url
        self._names = names
        self.rows = 0

    def faults(self, tell: Callable[[int], None] = lambda _: None) -> Iterator[StoreFault]:
        """The faults as they are found; `tell` is called with the rows of each page. Raises `StoreError`."""
        with snapshot_of(self._url):  # a store that cannot be opened is told before its files are read
            for said in file_flaws(self._url, TABLES):
                yield StoreFault(STORE, "", "", f"The database reports damage: {said}")
        yield from self.row_faults(tell)

    def row_faults(self, tell: Callable[[int], None] = lambda _: None) -> Iterator[StoreFault]:
        """The faults of the rows alone."""
        with snapshot_of(self._url) as snapshot:
            walk = StoreWalk(snapshot, tell)
            for subject in subjects_of(self._names):
                yield from run_check(subject.surface, subject.name, subject.check, walk)
                self.rows = walk.rows_read


def _epoch(walk: StoreWalk) -> Iterator[StoreFault]:
    """The epoch is above all earlier ones, and there is only one row."""
    rows = list(walk.rows(EPOCH))
    if len(rows) > 1:
        yield fault(EPOCH, "", f"There are {len(rows)} epochs instead of one.")
    for row in rows:
        past = row.past
        numbers = [int.from_bytes(past[at : at + 8], "big") for at in range(0, len(past), 8)] + [row.number]
        if len(past) % 8 or any(one >= two for one, two in pairwise(numbers)):
            yield fault(EPOCH, "", "The epochs of the store do not rise.")
        if row.number > walk.now_ms:
            yield fault(EPOCH, "", f"The epoch {row.number} is later than the time of the store.")


def _tokens(walk: StoreWalk) -> Iterator[StoreFault]:
    """The head counts the tokens; each hash is there once; an end is not after its expiry or revocation."""
    head, count = walk.get(TOKEN_HEAD, HEAD_KEY), 0
    digests: set[bytes] = set()
    for row in walk.rows(TOKEN):
        count += 1
        if len(row.digest) != 32 or row.digest in digests:
            yield fault(TOKEN, (row.id,), "The hash is not a SHA-256, or another token has the same.")
        digests.add(row.digest)
        if any(end is not None and end < row.ends_at for end in (row.expires_at, row.revoked_at)):
            yield fault(TOKEN, (row.id,), "The token ends after its expiry or its revocation.")
        if not row.roles:
            yield fault(TOKEN, (row.id,), "The token has no role.")
    stored, created = (0, 0) if head is None else (head.stored, head.created)
    if stored != count or created < count:
        yield fault(TOKEN_HEAD, "", f"{count} tokens are stored; the head counts {stored}, of {created} created.")
