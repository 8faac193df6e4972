"""Streams at a glance: their number, and subscriptions whose receivers fail or are not served."""

from __future__ import annotations

from collections.abc import Iterator

from semel.engine.reading import Reading
from semel.kernel.verdict import NEVER
from semel.server.ops.surface_outlook import MOST, SurfaceOutlook, Trouble, amount, near, span
from semel.server.settings import ServerSettings, settings_of
from semel.store.protocol import Range
from semel.surfaces.streams.settings import StreamsSettings
from semel.surfaces.streams.subscriptions.tables import PULL_WAKE, SUBSCRIPTION, WEBHOOK, SubscriptionRow
from semel.surfaces.streams.tables import STREAM

OVERDUE_MS = 60_000
FAILED_ATTEMPTS = 3
SHOWN = 3


def outlook(reading: Reading, settings: ServerSettings) -> SurfaceOutlook:
    """Counts, and the subscriptions that are stuck."""
    streams = len(reading.keys(Range(STREAM, "", (), MOST)))
    subscriptions = len(reading.keys(Range(SUBSCRIPTION, "", (), MOST)))
    due = [
        SubscriptionRow(*row)
        for kind in (WEBHOOK, PULL_WAKE)
        for row in reading.range(Range(SUBSCRIPTION, "due", (kind,), MOST // 10, stop=(NEVER,)))
    ]
    counts = f"{amount(streams, 'stream')}, {amount(subscriptions, 'subscription')}, {len(due):,} with a pending wake"
    most = settings_of(settings, StreamsSettings).streams_subscriptions
    crowded = near(subscriptions, most, "subscriptions", "SEMEL_STREAMS_SUBSCRIPTIONS")
    return SurfaceOutlook(counts, [*_troubles(due, reading.now.ms), *crowded])


def _troubles(due: list[SubscriptionRow], now_ms: int) -> Iterator[Trouble]:
    failing = [row for row in due if row.failed and row.attempts >= FAILED_ATTEMPTS]
    for row in sorted(failing, key=lambda row: -row.attempts)[:SHOWN]:
        yield Trouble(
            f"the webhook of subscription {row.id.decode(errors='replace')} has failed {row.attempts} times",
            "Look at the receiver and its log; the wake is tried again until it answers.",
        )
    overdue = [row for row in due if row.due_at < now_ms - OVERDUE_MS and not row.failed]
    if overdue:
        oldest = min(row.due_at for row in overdue)
        yield Trouble(
            f"{amount(len(overdue), 'wake')} of subscriptions due for {span(now_ms - oldest)}",
            "Is a server running on this store? Look at its log.",
        )
