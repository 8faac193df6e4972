"""Queries over subscriptions: a record with its links, and what the dispatcher has to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from semel.engine.reading import Reading
from semel.kernel.verdict import NEVER
from semel.store.protocol import Range
from semel.surfaces.streams.rules.expiry import living
from semel.surfaces.streams.rules.offsets import offset_at
from semel.surfaces.streams.subscriptions.commands import WAKE_STREAMS
from semel.surfaces.streams.subscriptions.rules.configuration import KEY_RANGE, explicit_range, prefix_range
from semel.surfaces.streams.subscriptions.rules.links import acked_offset
from semel.surfaces.streams.subscriptions.rules.phases import HORIZON_MS, wait_ms
from semel.surfaces.streams.subscriptions.rules.wakes import pending_range
from semel.surfaces.streams.subscriptions.tables import (
    ENDED,
    EXPLICIT,
    LINK,
    MOVED,
    NEW,
    PULL_WAKE,
    SUBSCRIPTION,
    WEBHOOK,
    EndedRow,
    LinkRow,
    MovedRow,
    SigningKeyRow,
    SubscriptionRow,
)
from semel.surfaces.streams.tables import STREAM

SHOWN_LINKS = 10_000
"""Limit on the streams in a record."""
PAGE = 256
"""Limit on the rows of one kind that the dispatcher looks at in one pass."""
FOUND_AT_ONCE = 500
FIRST_PATHS, MORE_PATHS = 16, 256
"""Explicit streams that are read at once: at first, and then."""


class ShownLink(NamedTuple):
    """One stream of a record."""

    path: bytes
    is_explicit: bool
    acked: bytes
    tail: bytes | None
    """None if the stream does not exist."""


class SubscriptionRecord(NamedTuple):
    """A subscription as it is shown."""

    row: SubscriptionRow
    links: Sequence[ShownLink]
    is_truncated: bool
    wait_ms: int | None = None
    """Milliseconds until its next action; None if there is none."""


def find(reading: Reading, name: bytes) -> SubscriptionRow | None:
    """The subscription of a packed id."""
    return reading.get(SUBSCRIPTION, (name,))


def record(reading: Reading, name: bytes) -> SubscriptionRecord | None:
    """A subscription with its links; None if there is none."""
    row = find(reading, name)
    if row is None:
        return None
    links: Sequence[LinkRow] = reading.range(Range(LINK, "", (row.life,), SHOWN_LINKS + 1))
    shown: list[ShownLink] = []
    for start in range(0, min(len(links), SHOWN_LINKS), FOUND_AT_ONCE):
        some = links[start : min(start + FOUND_AT_ONCE, SHOWN_LINKS)]
        streams = reading.find(STREAM, [(link.scope,) for link in some])
        for link in some:
            stream = living(streams.get((link.scope,)), reading.now)
            tail = None if stream is None else offset_at(stream, stream.tail)
            shown.append(ShownLink(link.path, bool(link.kind & EXPLICIT), acked_offset(link, stream), tail))
    return SubscriptionRecord(row, shown, len(links) > SHOWN_LINKS, wait_ms(row, reading.now))


def page_of(reading: Reading, after: bytes, limit: int) -> Sequence[SubscriptionRow]:
    """Subscriptions in stored order, after a packed id; all of them if it is empty."""
    start = (after + b"\x00",) if after else ()
    return reading.range(Range(SUBSCRIPTION, "", (), limit, start=start))


def explicit_paths(reading: Reading, life: bytes, limit: int) -> list[bytes]:
    """The names of the explicit streams of a subscription."""
    return [link.path for link in reading.range(explicit_range(life, limit))]


def each_explicit_path(reading: Reading, life: bytes, limit: int) -> Iterator[bytes]:
    """As `explicit_paths`, with few of them read at first: a caller that may not use one of these asks for no other."""
    at_once, start = FIRST_PATHS, tuple[bytes, ...]()
    while limit > 0:
        rows = reading.range(explicit_range(life, min(at_once, limit))._replace(start=start))
        yield from (link.path for link in rows)
        if len(rows) < at_once:
            return
        limit, start, at_once = limit - len(rows), (rows[-1].scope + b"\0",), MORE_PATHS


def matched_count(reading: Reading, pattern: bytes) -> int:
    """The number of streams under the literal prefix of a pattern, up to the limit."""
    return len(reading.keys(prefix_range(pattern)))


def signing_keys(reading: Reading) -> Sequence[SigningKeyRow]:
    """All signing keys."""
    return reading.range(KEY_RANGE)


COUNTED_LINKS = 32


def wake_cost(reading: Reading, life: bytes) -> int:
    """The approximate number of rows that a wake or claim of a subscription reads and changes."""
    hints = len(reading.keys(pending_range(life, COUNTED_LINKS)))
    return 2 + 3 * (hints if hints < COUNTED_LINKS else WAKE_STREAMS)


class Backlog(NamedTuple):
    """What the dispatcher has to do: at most PAGE rows of each kind."""

    graves: Sequence[EndedRow]
    webhooks: Sequence[SubscriptionRow]
    pulls: Sequence[SubscriptionRow]
    costs: Mapping[bytes, int]
    """The cost of the wake of each of these subscriptions, by its life."""
    next_ms: int | None
    """Milliseconds until the next subscription is due; None if none is."""


def backlog(reading: Reading) -> Backlog:
    """Read what is due now."""
    now_ms = reading.now.steady_ms
    graves = reading.range(Range(ENDED, "", (), PAGE))
    due: list[list[SubscriptionRow]] = []
    later: list[int] = []
    for kind in (WEBHOOK, PULL_WAKE):
        found = list(reading.range(Range(SUBSCRIPTION, "due", (kind,), PAGE, stop=(now_ms + 1,))))
        far = Range(SUBSCRIPTION, "due", (kind,), PAGE, start=(now_ms + HORIZON_MS + 1,), stop=(NEVER,))
        due.append([*found, *reading.range(far)])
        coming = Range(SUBSCRIPTION, "due", (kind,), 1, start=(now_ms + 1,), stop=(NEVER,))
        later += [row.due_at - now_ms for row in reading.range(coming)]
    costs = {row.life: wake_cost(reading, row.life) for rows in due for row in rows}
    return Backlog(graves, due[0], due[1], costs, min(later, default=None))


def new_links(reading: Reading) -> Sequence[LinkRow]:
    """Links that are not adopted yet."""
    return reading.range(Range(LINK, "state", (NEW,), PAGE))


def marks(reading: Reading, behind: bytes | None) -> Sequence[MovedRow]:
    """The next marks by scope."""
    start = () if behind is None else (behind + b"\x00",)
    return reading.range(Range(MOVED, "", (), PAGE, start=start))


class MarkedStream(NamedTuple):
    """The links of a stream that has moved: a page of them."""

    links: Sequence[LinkRow]
    is_present: bool


def marked(reading: Reading, scope: bytes, behind: bytes | None, limit: int) -> MarkedStream:
    """A page of the links of a stream, by the lives of their subscriptions."""
    start = () if behind is None else (behind + b"\x00",)
    links = reading.range(Range(LINK, "scope", (scope,), limit, start=start))
    return MarkedStream(links, living(reading.get(STREAM, (scope,)), reading.now) is not None)


def grave_scopes(reading: Reading, life: bytes, limit: int) -> list[bytes]:
    """The streams of some links of a deleted subscription."""
    return [scope for _, scope in reading.keys(Range(LINK, "", (life,), limit))]


def orphans(reading: Reading, behind: bytes | None, limit: int) -> Sequence[SubscriptionRow]:
    """A page of all subscriptions, to find attempts of dead nodes."""
    start = () if behind is None else (behind + b"\x00",)
    return reading.range(Range(SUBSCRIPTION, "", (), limit, start=start))


def pending_count(reading: Reading, limit: int) -> int:
    """The number of subscriptions with a next action, up to a limit."""
    return sum(
        len(reading.keys(Range(SUBSCRIPTION, "due", (kind,), limit, stop=(NEVER,)))) for kind in (WEBHOOK, PULL_WAKE)
    )
