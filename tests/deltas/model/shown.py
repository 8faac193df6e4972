"""Commands and answers in few words, for whoever reads of a fault; times as milliseconds since the beginning."""

from __future__ import annotations

from typing import Any

from semel.surfaces.deltas.model import Delta, DeltaEntry, DeltaOp, DeltaReplica
from tests.deltas.model.rig import BEGIN_MS

LONG = 2**40
"""Numbers above it are times."""


def name(replica: DeltaReplica) -> str:
    """A replica."""
    return f"{replica.gateway} {replica.client}"


def shown(value: Any) -> str:
    """Anything that is sent or answered."""
    if isinstance(value, DeltaOp):
        return value.name
    if isinstance(value, bytes):
        return value.hex()[:6]
    if isinstance(value, int) and value > LONG:
        return f"{(value >> 16) - BEGIN_MS}.{value & 0xFFFF}"
    if isinstance(value, Delta):
        return (
            f"{value.op.name} {value.table}.{value.row} {value.client}@{shown(value.hlc)} {value.columns_text.decode()}"
        )
    if isinstance(value, DeltaEntry):
        resolved = " resolved" if value.is_resolved else ""
        origin = f"{value.client}@{shown(value.hlc)}"
        columns = f"{value.columns.decode()}{resolved}"
        return f"#{shown(value.position)} {value.op.name} {value.table}.{value.row} {origin} {columns}"
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return f"{type(value).__name__}({', '.join(map(shown, value))})"
    if isinstance(value, tuple | list):
        return f"[{'; '.join(map(shown, value))}]"
    return str(value)
