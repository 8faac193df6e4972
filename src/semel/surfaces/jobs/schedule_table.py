"""The table of schedules, which submit a job at each instant of a cron expression."""

from __future__ import annotations

from typing import NamedTuple

from semel.store.table import Table


class JobScheduleRow(NamedTuple):
    """A schedule and the last instant that it fired."""

    name: bytes
    owner: bytes
    cron: bytes
    kind: bytes
    params: bytes
    queue: bytes
    priority: int
    max_attempts: int
    catch_up: bytes
    paused: int
    changed_at: int
    last_instant: int
    """Every instant up to this one has been handled."""
    last_fired: int
    next_at: int
    time_zone: bytes = b""
    """The time zone of the schedule; empty for UTC."""
    checksum: int = 0


JOB_SCHEDULE = Table("job_schedule", JobScheduleRow, key=1, indexes={"next": ("next_at",)})
