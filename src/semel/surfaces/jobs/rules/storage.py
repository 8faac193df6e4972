"""What submissions store for the quotas of a principal: idempotency keys, and params until the job is deleted.

Rows name their principal, so each is given back exactly. A container is an hour of creation: rows from before the quota
was set are in other containers and give back nothing. Results and steps are written by workers, and are not counted:
a report that is refused would run the job again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from semel.engine.storage_meter import RowMeter, StorageCharge
from semel.store.protocol import AnyTable
from semel.surfaces.jobs.tables import JOB, JOB_RECORD, JobRecordRow, JobRow

_HOUR_MS = 3_600_000


def _container(tag: bytes, created_at: int) -> bytes:
    return tag + (created_at // _HOUR_MS).to_bytes(4, "big")


def _owner(row: JobRow | JobRecordRow) -> str:
    """The principal of a row: rows have the name of a token without its kind."""
    name = row.principal.decode()
    return name if name.startswith("user:") else f"client:{name}"


def job_items(before: JobRow | None, after: JobRow | None, now_ms: int) -> Iterator[StorageCharge]:
    """The params of a job: new, replaced or deleted."""
    row = after or before
    size = (0 if after is None else after.params_bytes) - (0 if before is None else before.params_bytes)
    if row is not None and size:
        yield StorageCharge(_container(b"jb", row.created_at), 0, size, _owner(row))


def record_items(before: JobRecordRow | None, after: JobRecordRow | None, now_ms: int) -> Iterator[StorageCharge]:
    """A key: new, given to another job, or forgotten."""
    for row, keys in ((before, -1), (after, 1)):
        if row is not None:
            yield StorageCharge(_container(b"jk", row.created_at), keys, 0, _owner(row))


STORAGE: Mapping[AnyTable, RowMeter] = MappingProxyType({JOB: job_items, JOB_RECORD: record_items})
