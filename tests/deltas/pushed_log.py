"""The deltas of a gateway as they were pushed, read from its log."""

from __future__ import annotations

from typing import NamedTuple

from semel.engine.reading import Reading
from semel.surfaces.deltas.model import DeltaOp
from semel.surfaces.deltas.reading import log_rows
from semel.surfaces.deltas.tables import gateway_key


class LoggedDelta(NamedTuple):
    """A delta as it was pushed, with its position in the log."""

    position: int
    op: DeltaOp
    table: str
    row: str
    client: str
    hlc: int
    id: bytes
    columns_text: str
    entry_op: DeltaOp | None


def delta_log(reading: Reading, gateway: str, after: int, limit: int) -> list[LoggedDelta]:
    """The deltas as pushed, in commit order."""
    found: list[LoggedDelta] = []
    for row in log_rows(reading, gateway_key(gateway), after):
        if not row.pushed:
            continue
        found.append(
            LoggedDelta(
                row.position,
                DeltaOp(row.pushed),
                row.table_name.decode(),
                row.row_id.decode(),
                row.client.decode(),
                row.hlc,
                row.id,
                row.body.decode(),
                DeltaOp(row.op) if row.op else None,
            )
        )
        if len(found) == limit:
            break
    return found
