"""Cron schedules beside the code of their jobs: `@worker.cron("*/5 * * * *")`.

The server keeps the schedules and submits the jobs: each instant once, with any number of workers, and also while no
worker runs. A worker only stores their definitions when it starts; the same definition again changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from semel.client.errors import AccessError, ConfigurationError
from semel.client.jobs.calls import AsyncJobs
from semel.client.jobs.values import CatchUp, ScheduleInfo
from semel.client.worker.options import Priority

log = logging.getLogger("semel.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class CronSchedule:
    """A schedule that a worker stores at the server."""

    name: str
    cron: str
    kind: str
    params: Mapping[str, Any] = field(default_factory=dict)
    time_zone: str | None = None
    queue: str | None = None
    priority: Priority | None = None
    attempts: int | None = None
    catch_up: CatchUp | None = None
    paused: bool = False


async def store_schedules(jobs: AsyncJobs, schedules: Iterable[CronSchedule]) -> list[ScheduleInfo]:
    """Store schedules; those of other names stay as they are. Needs a token with the role `admin`."""
    try:
        return [
            await jobs.set_schedule(
                one.name,
                one.cron,
                one.kind,
                one.params,
                time_zone=one.time_zone,
                queue=one.queue,
                priority=one.priority,
                max_attempts=one.attempts,
                catch_up=one.catch_up,
                paused=one.paused,
            )
            for one in schedules
        ]
    except AccessError as error:
        raise ConfigurationError(
            f"The schedules were not stored: {error} Store them with a token of the role admin"
            " (worker.store_schedules()), and give the worker store_schedules=False."
        ) from None
