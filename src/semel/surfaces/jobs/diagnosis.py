"""The jobs part of a diagnosis: counts, the oldest ready and leased jobs, and a check of the stored counts."""

from __future__ import annotations

from typing import Any

from semel.engine.reading import Reading
from semel.kernel.clock import utc_text
from semel.surfaces.jobs.ids import job_name
from semel.surfaces.jobs.reading import JobCensus, JobGauges, census, gauges
from semel.surfaces.jobs.tables import JobRow

OLDEST_JOBS = 20


class JobsDiagnosis:
    """The jobs part of a diagnosis, read from one snapshot."""

    name = "jobs"

    def __init__(self, reading: Reading) -> None:
        self.census: JobCensus = census(reading, OLDEST_JOBS)
        self.gauges: JobGauges = gauges(reading)

    def facts(self) -> dict[str, Any]:
        """Counts and the oldest jobs, without params, keys and results."""
        found = self.census
        return {
            "by_state": found.by_state,
            "by_queue": found.by_queue,
            "by_kind": found.by_kind,
            "is_complete": found.is_complete,
            "waiting": self.gauges.waiting,
            "leased": self.gauges.leased,
            "dead": self.gauges.dead,
            "oldest_ready": [_job(job, found.now_ms) for job in found.oldest_ready],
            "oldest_leased": [_job(job, found.now_ms) for job in found.oldest_leased],
        }

    def store_facts(self) -> dict[str, Any]:
        """The number of stored keys, and the time of the oldest."""
        oldest = self.census.oldest_record_at
        told = None if oldest is None else utc_text(oldest)
        return {"idempotency_records": self.census.records, "oldest_record_utc": told}

    def check(self) -> dict[str, Any]:
        """Whether the stored counts equal the counted rows; both are written in the same commits."""
        states = self.census.by_state
        counted = (states.get("scheduled", 0) + states.get("queued", 0), states.get("leased", 0))
        kept = (self.gauges.waiting, self.gauges.leased)
        if not self.census.is_complete:
            return {"name": "jobs", "ok": True, "found": "too many to be counted one by one"}
        said = f"waiting and leased: {kept[0]} and {kept[1]} by the counts, {counted[0]} and {counted[1]} by the rows"
        return {"name": "jobs", "ok": counted == kept, "found": said}


def _job(job: JobRow, now_ms: int) -> dict[str, Any]:
    return {
        "job_id": job_name(job.id),
        "age_ms": now_ms - job.created_at,
        "ready_ms": now_ms - job.ready_at,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "epoch": job.epoch,
        "priority": job.priority,
    }
