"""`semel jobs`: submit, list, show, wait for and requeue jobs, from a terminal or a script."""

from __future__ import annotations

from semel.cli.jobs import admin, queues, read, submit  # noqa: F401 - each adds its commands to the group
from semel.cli.jobs.options import jobs

__all__ = ["jobs"]
