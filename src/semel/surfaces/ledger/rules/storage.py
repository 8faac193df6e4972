"""What transactions store for the quotas of a principal: one key and the bytes of the operations of each.

A block names its actor, so each is given back exactly, when its body is compacted and its commit forgotten. In a place
that keeps all bodies nothing is given back. A container is a day of one organization: blocks from before the quota was
set are in other containers and give back nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from semel.engine.storage_meter import RowMeter, StorageCharge
from semel.store.protocol import AnyTable
from semel.surfaces.ledger.tables import LEDGER_BLOCK, BlockRow

_DAY_SECONDS = 86_400


def block_items(before: BlockRow | None, after: BlockRow | None, now_ms: int) -> Iterator[StorageCharge]:
    """A transaction that was committed, or whose body and commit were freed."""
    if after is None:
        return
    if before is None:
        yield _charge(after, 1)
    elif before.actor and not after.actor:
        yield _charge(before, -1)


def _charge(row: BlockRow, sign: int) -> StorageCharge:
    day = (row.at_seconds // _DAY_SECONDS).to_bytes(4, "big")
    return StorageCharge(b"lb" + row.org.to_bytes(8, "big") + day, sign, sign * row.size, row.actor.decode())


STORAGE: Mapping[AnyTable, RowMeter] = MappingProxyType({LEDGER_BLOCK: block_items})
