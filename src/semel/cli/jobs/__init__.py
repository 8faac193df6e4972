"""`semel jobs`: submit, list, show, wait for and requeue jobs, from a terminal or a script."""

from __future__ import annotations

import click

from semel.cli.jobs.cancel import cancel
from semel.cli.jobs.dead import dead
from semel.cli.jobs.list import list_jobs
from semel.cli.jobs.queue import queue
from semel.cli.jobs.release import release
from semel.cli.jobs.requeue import requeue
from semel.cli.jobs.result import result
from semel.cli.jobs.schedule import schedule
from semel.cli.jobs.show import show
from semel.cli.jobs.submit import submit
from semel.cli.jobs.wait import wait

__all__ = ["jobs"]


@click.group()
def jobs() -> None:
    """Job queue: submit, list, cancel and requeue jobs."""


for _command in (cancel, dead, list_jobs, queue, release, requeue, result, schedule, show, submit, wait):
    jobs.add_command(_command)
