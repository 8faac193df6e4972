"""The import of key records: all records are validated before the first write, then written in batches by the engine.

An existing key is not changed. A record is skipped if its job id belongs to another job here, or to the same job with
another outcome: an id names one job forever. A job that has run here since its import is still the same job. After a
crash the committed batches stay. Each record gives the same row in every run, so the same command continues where it
stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from semel.engine.clock import SystemWorld
from semel.engine.contract import Write
from semel.engine.engine import Engine
from semel.kernel.keys import pack
from semel.store.protocol import Snapshot, Store, StoreError
from semel.surfaces.jobs.contract import JobContract
from semel.surfaces.jobs.ids import REQUEST_BYTES, job_name, parse_foreign, parse_job
from semel.surfaces.jobs.limits import JobPolicy
from semel.surfaces.jobs.maintenance_commands import ImportedJobRecord, ImportJobRecords
from semel.surfaces.jobs.reading import of_request
from semel.surfaces.jobs.rules.completion import digest_of
from semel.surfaces.jobs.settings import JobsSettings
from semel.surfaces.jobs.tables import (
    ALONE,
    IMPORTED,
    JOB,
    JOB_NAME,
    JOB_RECORD,
    JOB_TOTALS,
    NO_TOTALS,
    JobRecordRow,
    JobRow,
)
from semel.surfaces.jobs.wire.imported_records import (
    ImportLimits,
    ImportRecord,
    ImportRecordError,
    entries,
    is_expired,
    read_record,
)

BATCH_RECORDS = 200
BATCH_BYTES = 1024 * 1024
LOOKED_UP_AT_ONCE = 500


class ImportPlan(NamedTuple):
    """What an import will do."""

    new: list[ImportedJobRecord]
    unfinished: int
    """New records whose jobs had not ended."""
    new_ids: int
    """New records whose job ids cannot be kept."""
    known: int
    taken: list[int]
    """Lines of keys that were used here for another payload."""
    ids_taken: list[int]
    """Lines of job ids that belong here to another job or another outcome."""


class _StoredRecords(NamedTuple):
    """The rows of a store for some records."""

    records: Mapping[bytes, JobRecordRow]
    """Unexpired receipts of keys."""
    jobs: Mapping[str, JobRow]
    """Jobs by id: those that the records name, and those of their keys."""
    requests: frozenset[bytes]
    """Request ids in use, as bytes."""


def plan_of(snapshot: Snapshot, records: list[ImportRecord], principal: str) -> ImportPlan:
    """Classify every record of a file."""
    planner = _ImportPlanner(principal)
    for start in range(0, len(records), LOOKED_UP_AT_ONCE):
        some = records[start : start + LOOKED_UP_AT_ONCE]
        here = _look(snapshot, some, principal.encode())
        for record in some:
            planner.judge(record, here)
    return planner.plan


class _ImportPlanner:
    """Builds the plan record by record."""

    def __init__(self, principal: str) -> None:
        self._principal = principal
        self._names: set[str] = set()
        self._requests: set[bytes] = set()
        self._plan = ImportPlan([], 0, 0, 0, [], [])

    @property
    def plan(self) -> ImportPlan:
        """The plan so far."""
        return self._plan

    def judge(self, record: ImportRecord, here: _StoredRecords) -> None:
        """Classify a record as new, known or in conflict."""
        row = here.records.get(pack(record.key.encode()))
        job = None if record.job is None else here.jobs.get(record.job)
        if row is not None and row.fingerprint != record.payload_hash:
            self._plan.taken.append(record.line)
        elif record.job in self._names or (job is not None and not self._is_same(record, job)):
            self._plan.ids_taken.append(record.line)
        elif row is not None or job is not None:
            self._plan = self._plan._replace(known=self._plan.known + 1)
        else:
            self._take(record, here)

    def _is_same(self, record: ImportRecord, job: JobRow) -> bool:
        """Whether this is the record's job: with the same key, and the same outcome unless it has run here."""
        if (job.principal, job.key) != (self._principal.encode(), pack(record.key.encode())):
            return False
        return job.kind != IMPORTED or job.report == digest_of(job.id, record.ok, record.value)

    def _take(self, record: ImportRecord, here: _StoredRecords) -> None:
        request = record.request
        if request in here.requests or request in self._requests or self._is_name_taken(record, here):
            record = record._replace(request=None)
        made = _imported(record, self._principal)
        self._names.add(job_name(made.id))
        self._requests.add(made.id[:REQUEST_BYTES])
        self._plan.new.append(made)
        self._plan = self._plan._replace(
            unfinished=self._plan.unfinished + record.is_unfinished, new_ids=self._plan.new_ids + record.has_odd_job
        )

    def _is_name_taken(self, record: ImportRecord, here: _StoredRecords) -> bool:
        """Whether the id that the job would get from its request id belongs to another job."""
        if record.job is not None or record.request is None:
            return False
        name = job_name(record.request)
        return name in here.jobs or name in self._names


def _look(snapshot: Snapshot, records: Sequence[ImportRecord], owner: bytes) -> _StoredRecords:
    found = snapshot.find(JOB_RECORD, [(owner, pack(record.key.encode())) for record in records])
    owners = snapshot.find(JOB, [(row.job,) for row in found.values()])
    is_live = {job.id for job in owners.values() if snapshot.now_ms < job.key_until}
    live = {key: row for (_, key), row in found.items() if row.job in is_live}
    names = set(_names(records))
    foreign = [(name,) for name in map(parse_foreign, names) if name is not None]
    ids = {row.id for row in snapshot.find(JOB_NAME, foreign).values()}
    ids |= {job_id for job_id in map(parse_job, names) if job_id is not None}
    jobs = snapshot.find(JOB, [(job_id,) for job_id in ids]).values()
    requests = [record.request for record in records if record.request is not None]
    in_use = [keys[0][0][:REQUEST_BYTES] for keys in snapshot.keys_each(list(map(of_request, requests))) if keys]
    return _StoredRecords(live, {job_name(job.id): job for job in jobs}, frozenset(in_use))


def _names(records: Sequence[ImportRecord]) -> Iterator[str]:
    for record in records:
        if record.job is not None:
            yield record.job
        elif record.request is not None:
            yield job_name(record.request)


def _imported(record: ImportRecord, principal: str) -> ImportedJobRecord:
    job_id = record.id_of(principal)
    return ImportedJobRecord(
        principal.encode(),
        pack(record.key.encode()),
        record.payload_hash,
        job_id,
        record.created_ms,
        record.ended_ms,
        record.ok,
        record.value,
        digest_of(job_id, record.ok, record.value),
    )


class ImportFile(NamedTuple):
    """The validated records of a file."""

    read: int
    records: list[ImportRecord]
    """One record per key, the last one."""
    expired: int
    faults: list[str]


def limits_of(settings: JobsSettings, now_ms: int) -> ImportLimits:
    """The limits of records that are imported now."""
    return ImportLimits(now_ms, settings.jobs_idempotency_ttl_sec * 1_000, settings.jobs_max_result_bytes)


def judged(raw: bytes, limits: ImportLimits) -> ImportFile:
    """The records of a file. Raises LayoutError if it has none."""
    found = entries(raw)
    by_key: dict[str, ImportRecord] = {}
    faults: list[str] = []
    for entry in found:
        try:
            record = read_record(entry, limits)
        except ImportRecordError as error:
            faults.append(f"Line {entry.line}: {error}.")
        else:
            by_key[record.key] = record
    live = [record for record in by_key.values() if not is_expired(record, limits)]
    return ImportFile(len(found), live, len(by_key) - len(live), faults)


def refuse_too_many(snapshot: Snapshot, plan: ImportPlan, settings: JobsSettings) -> None:
    """Refuse an import that exceeds the limit of keys: no key is dropped to make room."""
    most = settings.jobs_idempotency_store_max_items
    there = (snapshot.get(JOB_TOTALS, ALONE) or NO_TOTALS).records
    if most and there + len(plan.new) > most:
        raise StoreError(
            f"There are {there} keys and {len(plan.new)} to come, and the store holds {most}: "
            "raise SEMEL_JOBS_IDEMPOTENCY_STORE_MAX_ITEMS, here and for the server."
        )


async def import_records(
    store: Store, settings: JobsSettings, records: list[ImportedJobRecord], advance: Callable[[int], None]
) -> None:
    """Write new records in batches; `advance` is called with the number of each."""
    engine = Engine(store, SystemWorld())
    contract = JobContract(_policy(settings))
    try:
        for batch in _batches(records):
            size = sum(len(record.value) for record in batch)
            write = Write(contract, ImportJobRecords(tuple(batch)), size, 4 * len(batch))
            await engine.submit(write)
            advance(len(batch))
    finally:
        await engine.stop()


def _policy(settings: JobsSettings) -> JobPolicy:
    """The settings that an import depends on."""
    return JobPolicy(
        key_ttl_ms=settings.jobs_idempotency_ttl_sec * 1_000, retention_ms=settings.jobs_retention_sec * 1_000
    )


def _batches(records: list[ImportedJobRecord]) -> Iterator[list[ImportedJobRecord]]:
    """Batches with a limited number of records and bytes."""
    batch: list[ImportedJobRecord] = []
    size = 0
    for record in records:
        if batch and (len(batch) == BATCH_RECORDS or size + len(record.value) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += len(record.value)
    if batch:
        yield batch
