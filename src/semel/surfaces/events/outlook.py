"""Events at a glance: the end of the log, and consumer groups with parked events."""

from __future__ import annotations

from semel.engine.reading import Reading
from semel.server.ops.surface_outlook import MOST, SurfaceOutlook, Trouble, amount, near, span
from semel.server.settings import ServerSettings, settings_of
from semel.store.protocol import Range
from semel.surfaces.events.reading import head_of
from semel.surfaces.events.settings import EventsSettings
from semel.surfaces.events.tables import EVENT_GROUP, EVENT_PARKED, EventGroupRow, EventParkedRow

SHOWN = 3


def outlook(reading: Reading, settings: ServerSettings) -> SurfaceOutlook:
    """Counts, and the groups whose events were given up."""
    groups = [EventGroupRow(*row) for row in reading.range(Range(EVENT_GROUP, "", (), MOST // 10))]
    troubles = []
    for group in sorted((group for group in groups if group.parked), key=lambda group: -group.parked)[:SHOWN]:
        first = reading.range(Range(EVENT_PARKED, "", (group.name,), 1))
        since = "".join(f", the first {span(reading.now.ms - EventParkedRow(*row).parked_at)} ago" for row in first)
        troubles.append(
            Trouble(
                f"{amount(group.parked, 'event')} of group {group.name.decode(errors='replace')} parked{since}",
                "Look at them with `semel events groups parked`, then `replay` or `drop` them.",
            )
        )
    counts = f"{head_of(reading).last_id:,} events committed, {amount(len(groups), 'consumer group')}"
    most = settings_of(settings, EventsSettings).events_groups
    return SurfaceOutlook(counts, [*troubles, *near(len(groups), most, "consumer groups", "SEMEL_EVENTS_GROUPS")])
