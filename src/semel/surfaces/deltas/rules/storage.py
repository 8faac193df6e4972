"""What pushes store for the quotas of a principal: deltas of the log, until the log is cut behind them.

A container is about 17 minutes of the log of one gateway: its positions begin with a time. The row of an id outlives
its delta, and is not counted then; repairs are entries of the server and are not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from types import MappingProxyType

from semel.engine.storage_meter import RowMeter, StorageCharge, StorageRelease
from semel.store.protocol import AnyTable
from semel.surfaces.deltas.tables import DELTA_GATEWAY, DELTA_LOG, DeltaGatewayRow, DeltaLogRow

STEP_BITS = 36
"""A position has a time in milliseconds above its 16 lowest bits: a step is 2**20 ms."""


def _step(gateway: bytes, number: int) -> bytes:
    return b"dl" + sha256(gateway).digest()[:16] + number.to_bytes(8, "big")


def log_items(before: DeltaLogRow | None, after: DeltaLogRow | None, now_ms: int) -> Iterator[StorageCharge]:
    """A delta that was pushed; the row of the gateway tells what was cut."""
    if before is None and after is not None and after.pushed:
        size = len(after.body) + len(after.row_id) + len(after.client)
        yield StorageCharge(_step(after.gateway, after.position >> STEP_BITS), 1, size)


def gateway_items(
    before: DeltaGatewayRow | None, after: DeltaGatewayRow | None, now_ms: int
) -> Iterator[StorageRelease]:
    """Entries of the log that were removed."""
    if before is None or after is None:
        return
    first, end = before.cut >> STEP_BITS, after.cut >> STEP_BITS
    if first < end:
        yield StorageRelease(_step(after.gateway, first), _step(after.gateway, end - 1))


STORAGE: Mapping[AnyTable, RowMeter] = MappingProxyType({DELTA_LOG: log_items, DELTA_GATEWAY: gateway_items})
