"""`semel jobs`: submit, list, show, wait for and requeue jobs, from a terminal or a script."""

from __future__ import annotations

import click

from semel.cli.help import HelpGroup
from semel.cli.jobs.admin import cancel, dead, release, requeue
from semel.cli.jobs.queues import queue, schedule
from semel.cli.jobs.read import list_jobs, result, show, wait
from semel.cli.jobs.submit import submit

__all__ = ["jobs"]


@click.group(cls=HelpGroup)
def jobs() -> None:
    """Job queue: submit, list, cancel and requeue jobs."""


for _command in (cancel, dead, list_jobs, queue, release, requeue, result, schedule, show, submit, wait):
    jobs.add_command(_command)
