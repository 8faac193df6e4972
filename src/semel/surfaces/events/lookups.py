"""Look-ups in the log besides pages: one event by its id, and the list of partitions.

Both tell a caller nothing of partitions that it may not read. An event that it may not read is answered like one that
does not exist. The list reads only the names within the caller's scopes, in the order of their bytes; each of its pages
is a few look-ups by key and ranges over the table of partitions, and never reads the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from typing import NamedTuple

from semel.engine.reading import Reading
from semel.kernel.keys import pack
from semel.store.protocol import Range
from semel.surfaces.epoch import epoch_of
from semel.surfaces.events.reading import head_of
from semel.surfaces.events.tables import EVENT, EVENT_ID, EVENT_PARTITION, EVENT_PLACE, EventPartitionRow, EventRow

Reach = Sequence[tuple[bytes, bool]]
"""The names that a caller may read: pairs of a name and whether it is a prefix."""

EVERYTHING: Reach = ((b"", True),)
NAMES_AT_ONCE = 500
"""Number of single names that are looked up in one query."""


class PrunedEvent(NamedTuple):
    """An event whose id is known and whose content was removed."""

    committed_id: int
    committed_at: int


def event_by_id(reading: Reading, name: bytes) -> EventRow | PrunedEvent | None:
    """The committed event of an id, or what is left of it; None if the id was never used."""
    known = reading.get(EVENT_ID, (pack(name),))
    if known is None:
        return None
    row = reading.get(EVENT, (known.committed_id,))
    return PrunedEvent(known.committed_id, known.committed_at) if row is None else row


class PartitionQuery(NamedTuple):
    """Partitions whose names begin with `prefix` and come after `after`, out of those that the caller may read."""

    reach: Reach
    prefix: bytes
    after: bytes
    """An empty name is before all others."""
    limit: int


class ListedPartition(NamedTuple):
    """One partition: its name, the position of its last event, the first event that is kept, and how many are."""

    name: bytes
    watermark: int
    first_id: int | None
    kept: int


class PartitionPage(NamedTuple):
    """Partitions in the order of the bytes of their names."""

    partitions: Sequence[ListedPartition]
    has_more: bool
    last_id: int
    """The watermark of the log."""
    log_epoch: int


def listed_partitions(reading: Reading, asked: PartitionQuery) -> PartitionPage:
    """One page of the list."""
    rows = list(islice(_rows(reading, asked), asked.limit + 1))
    shown = rows[: asked.limit]
    first = reading.earliest(EVENT_PLACE, [(row.name,) for row in shown if row.kept], 0)
    found = []
    for row in shown:
        place = first.get((row.name,))
        found.append(ListedPartition(row.name, row.last_id, None if place is None else place.committed_id, row.kept))
    return PartitionPage(found, len(rows) > asked.limit, head_of(reading).last_id, epoch_of(reading))


def _rows(reading: Reading, asked: PartitionQuery) -> Iterator[EventPartitionRow]:
    """The rows of all partitions that are asked for, in order."""
    for is_prefix, group in groupby(_spans(asked), key=lambda span: span[1]):
        names = [name for name, _ in group]
        if is_prefix:
            for name in names:
                yield from _range(reading, name, asked)
            continue
        for start in range(0, len(names), NAMES_AT_ONCE):
            some = names[start : start + NAMES_AT_ONCE]
            found = reading.find(EVENT_PARTITION, [(name,) for name in some])
            yield from (found[name,] for name in some if (name,) in found)


def _range(reading: Reading, prefix: bytes, asked: PartitionQuery) -> Sequence[EventPartitionRow]:
    start = max(prefix, asked.after + b"\0" if asked.after else b"")
    stop = _end(prefix)
    if stop and start >= stop:
        return ()
    bounds = (stop,) if stop else ()
    rows: Sequence[EventPartitionRow] = reading.range(
        Range(EVENT_PARTITION, "", (), asked.limit + 1, start=(start,), stop=bounds)
    )
    return rows


def _spans(asked: PartitionQuery) -> list[tuple[bytes, bool]]:
    """The names and prefixes to read, in order, without a name that another one covers."""
    wanted: set[tuple[bytes, bool]] = set()
    for name, is_prefix in asked.reach:
        if name.startswith(asked.prefix):
            wanted.add((name, is_prefix))
        elif is_prefix and asked.prefix.startswith(name):
            wanted.add((asked.prefix, True))
    spans: list[tuple[bytes, bool]] = []
    cover: bytes | None = None
    for name, is_prefix in sorted(wanted, key=lambda span: (span[0], not span[1])):
        if cover is not None and name.startswith(cover):
            continue
        if is_prefix:
            cover = name
        elif name <= asked.after:
            continue
        spans.append((name, is_prefix))
    return spans


def _end(prefix: bytes) -> bytes:
    """The first name behind all names with a prefix; empty if there is none."""
    cut = prefix.rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else b""
