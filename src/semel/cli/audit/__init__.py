"""`semel audit`: commands for the audit log of a server."""

from __future__ import annotations

import click

from semel.cli.audit.watch import watch

__all__ = ["audit"]


@click.group()
def audit() -> None:
    """The audit log of a server."""


audit.add_command(watch)
