"""Jobs at a glance: what waits and for how long, dead letters with the last error, and queues at their limit."""

from __future__ import annotations

from collections.abc import Iterator

from semel.engine.reading import Reading
from semel.server.ops.surface_outlook import MOST, SurfaceOutlook, Trouble, amount, near, span
from semel.server.settings import ServerSettings, settings_of
from semel.store.protocol import Range
from semel.surfaces.jobs.ids import job_name
from semel.surfaces.jobs.reading import JobGauges, dead_letters, gauges
from semel.surfaces.jobs.settings import JobsSettings
from semel.surfaces.jobs.tables import JOB_QUEUE, JobQueueRow

WAITED_MS = 600_000
SHOWN = 3
MAX_ERROR = 120


def outlook(reading: Reading, settings: ServerSettings) -> SurfaceOutlook:
    """Counts, and what does not move."""
    now = gauges(reading)
    counts = f"{now.queued:,} ready, {now.scheduled:,} scheduled, {now.leased:,} leased, {now.dead:,} dead"
    if now.queued:
        counts += f"; the oldest is ready for {span(now.oldest_ready_ms)}"
    limits = settings_of(settings, JobsSettings)
    keys = near(now.records, limits.jobs_idempotency_store_max_items, "keys", "SEMEL_JOBS_IDEMPOTENCY_STORE_MAX_ITEMS")
    waiting = near(now.waiting, limits.jobs_max_queue_depth, "places in the queue", "SEMEL_JOBS_MAX_QUEUE_DEPTH")
    return SurfaceOutlook(counts, [*_troubles(reading, now), *keys, *waiting])


def _troubles(reading: Reading, now: JobGauges) -> Iterator[Trouble]:
    if now.queued and now.oldest_ready_ms >= WAITED_MS:
        found = f"a job is ready for {span(now.oldest_ready_ms)}, and {amount(now.leased, 'job')} leased"
        yield Trouble(found, "Start workers for its queue; `semel jobs queue list` has the queues and their limits.")
    if now.dead:
        last = "".join(
            f"; the last is {job_name(letter.job.id)}{_error(letter.error)}"
            for letter in dead_letters(reading, None, 1)
        )
        advice = "Look at them with `semel jobs dead`, and run them again with `semel jobs requeue`."
        yield Trouble(f"{amount(now.dead, 'dead letter')}{last}", advice)
    rows = [JobQueueRow(*row) for row in reading.range(Range(JOB_QUEUE, "", (), MOST // 10))]
    full = [row for row in rows if 0 < row.max_inflight <= row.leased and row.queued]
    for row in full[:SHOWN]:
        yield Trouble(
            f"queue {row.queue.decode(errors='replace')}: all {row.max_inflight} leases are out, {row.queued} wait",
            "Raise its limit with `semel jobs queue set`, or look for workers that do not finish.",
        )


def _error(error: bytes | None) -> str:
    return f": {error.decode(errors='replace')[:MAX_ERROR]}" if error else ""
