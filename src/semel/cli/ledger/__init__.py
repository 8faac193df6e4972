"""`semel ledger`: transactions that execute once, and proofs that are verified offline."""

from __future__ import annotations

from semel.cli.lazy import LazyGroup

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
ledger = LazyGroup(
    "ledger", help="Ledger: transactions that execute once, in a chain of blocks with proofs.", homes=_HOMES
)
