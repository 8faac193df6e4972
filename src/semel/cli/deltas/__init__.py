"""`semel deltas`: show, follow, set up and export gateways from a terminal or a script."""

from __future__ import annotations

import click

from semel.cli.lazy import LazyGroup

__all__ = ["deltas"]

_NAMES = ("clients", "export", "flush", "gateways", "pull", "rules", "schema", "stats")


@click.group(cls=LazyGroup, homes={name: f"{__name__}.{name}" for name in _NAMES})
def deltas() -> None:
    """Row changes (deltas) for replicas: merged by column, last writer wins."""
