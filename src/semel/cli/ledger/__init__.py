"""`semel ledger`: transactions that execute once, and proofs that are verified offline."""

from __future__ import annotations

import click

from semel.cli.lazy import LazyGroup

__all__ = ["ledger"]

_HOMES = {
    "block": "semel.cli.ledger.read:block",
    "org": "semel.cli.ledger.admin:org",
    "proof": "semel.cli.ledger.proof:proof",
    "read": "semel.cli.ledger.read:read",
    "state": "semel.cli.ledger.admin:state",
    "vault": "semel.cli.ledger.admin:vault",
    "verify": "semel.cli.ledger.verify:verify",
    "write": "semel.cli.ledger.write:write",
}


@click.group(cls=LazyGroup, homes=_HOMES)
def ledger() -> None:
    """Ledger: transactions that execute once, in a chain of blocks with proofs."""
