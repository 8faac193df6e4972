"""`semel ledger`: transactions that execute once, and proofs of them that need no server."""

from __future__ import annotations

import click

from semel.cli.lazy import LazyGroup

__all__ = ["ledger"]

_NAMES = ("block", "org", "proof", "read", "state", "vault", "verify", "write")


@click.group(cls=LazyGroup, homes={name: f"{__name__}.{name}" for name in _NAMES})
def ledger() -> None:
    """Ledger: transactions that execute once, in a chain of blocks with proofs."""
