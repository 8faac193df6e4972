"""Enumerations of the wire, by the full names of their values."""

from __future__ import annotations

from semel.contracts.ledger.commands import Code
from semel.contracts.ledger.model import ORG_STATUSES, VAULT_STATUSES, Side, Status

ERROR_CODES = {code: f"WRITE_ERROR_CODE_{code.name}" for code in Code}
DIRECTIONS = {Side.LEFT: "DIRECTION_LEFT", Side.RIGHT: "DIRECTION_RIGHT"}
CONSISTENCIES = {
    "READ_CONSISTENCY_UNSPECIFIED": 0,
    "READ_CONSISTENCY_EVENTUAL": 1,
    "READ_CONSISTENCY_LINEARIZABLE": 2,
}
RETENTION_MODES = {
    "BLOCK_RETENTION_MODE_UNSPECIFIED": 0,
    "BLOCK_RETENTION_MODE_FULL": 1,
    "BLOCK_RETENTION_MODE_COMPACTED": 2,
}


def _numbered(prefix: str, statuses: tuple[Status, ...]) -> dict[str, int]:
    names = ("UNSPECIFIED", *(status.name for status in statuses))
    return {f"{prefix}_{name}": place for place, name in enumerate(names)}


ORG_STATUS_NAMES = _numbered("ORGANIZATION_STATUS", ORG_STATUSES)
VAULT_STATUS_NAMES = _numbered("VAULT_STATUS", VAULT_STATUSES)
