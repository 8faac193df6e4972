"""The import of key records: all records are validated before the first write, then written in batches by the engine.

An existing key is not changed. A record is skipped if its job id belongs to another job here, or to the same job with
another outcome: an id names one job forever. A job that has run here since its import is still the same job. After a
crash the committed batches stay. Each record gives the same row in every run, so the same command continues where it
stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import click

from semel.cli.importer.records import (
    ImportLimits,
    ImportRecord,
    ImportRecordError,
    LayoutError,
    entries,
    is_expired,
    read_record,
)
from semel.cli.output import printable, progress, say
from semel.cli.store import held_store
from semel.engine.clock import SystemWorld
from semel.engine.contract import EngineError, OutcomeUnknownError, Write
from semel.engine.engine import Engine
from semel.kernel.keys import pack
from semel.server.settings import ServerSettings, settings_of
from semel.store.open import shown
from semel.store.protocol import Snapshot, Store, StoreError
from semel.surfaces.jobs.commands import ImportedJobRecord, ImportJobRecords
from semel.surfaces.jobs.contract import JobContract
from semel.surfaces.jobs.ids import REQUEST_BYTES, job_name, parse_foreign, parse_job
from semel.surfaces.jobs.limits import JobPolicy
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


BATCH_RECORDS = 200
BATCH_BYTES = 1024 * 1024
SHOWN_FAULTS = 20
_KEYS_TAKEN = "the key was used here for another payload"
_IDS_TAKEN = "the job id belongs here to another job or another outcome"
_ODD_IDS = "a job_id that is not job_ and 1 to 60 letters or digits: their jobs get new ids here."


class ImportOptions(NamedTuple):
    """The options of an import."""

    principal: str
    skips_bad: bool
    dry_run: bool
    as_json: bool


class _ImportFile(NamedTuple):
    """The validated records of a file."""

    read: int
    records: list[ImportRecord]
    """One record per key, the last one."""
    expired: int
    faults: list[str]


def import_keys(raw: bytes, server: ServerSettings, manner: ImportOptions) -> None:
    """Validate a file and import its new records."""
    url, settings = server.store_url, settings_of(server, JobsSettings)
    try:
        with held_store(url, in_vain="it cannot keep imported keys") as store:
            with store.read() as snapshot:
                limits = ImportLimits(
                    snapshot.now_ms, settings.jobs_idempotency_ttl_sec * 1_000, settings.jobs_max_result_bytes
                )
                file = _judge(raw, limits)
                _tell_faults(file.faults, manner)
                plan = plan_of(snapshot, file.records, manner.principal)
                _refuse_too_many(snapshot, plan, settings)
            if plan.new and not manner.dry_run:
                asyncio.run(_take_over(store, settings, plan.new))
    except StoreError as error:
        raise click.ClickException(str(error)) from error
    except OutcomeUnknownError as error:
        unsure = "It is unknown whether all keys were stored: run this again; no key is imported twice."
        raise click.ClickException(f"{error} {unsure}") from error
    except EngineError as error:
        raise click.ClickException(f"{error} Not all keys were stored: run this again.") from error
    _report(url, file, plan, manner)


def _judge(raw: bytes, limits: ImportLimits) -> _ImportFile:
    try:
        found = entries(raw)
    except LayoutError as error:
        raise click.ClickException(f"The file cannot be imported: {error}.") from None
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
    return _ImportFile(len(found), live, len(by_key) - len(live), faults)


def _tell_faults(faults: list[str], manner: ImportOptions) -> None:
    for fault in faults[:SHOWN_FAULTS]:
        click.echo(fault, err=True)
    if len(faults) > SHOWN_FAULTS:
        click.echo(f"And {len(faults) - SHOWN_FAULTS} more.", err=True)
    if faults and not manner.skips_bad:
        count = "1 record" if len(faults) == 1 else f"{len(faults)} records"
        raise click.ClickException(
            f"{count} cannot be read, so nothing was imported: correct the file, or give --skip-bad."
        )


def _refuse_too_many(snapshot: Snapshot, plan: ImportPlan, settings: JobsSettings) -> None:
    """Refuse an import that exceeds the limit of keys: no key is dropped to make room."""
    most = settings.jobs_idempotency_store_max_items
    there = (snapshot.get(JOB_TOTALS, ALONE) or NO_TOTALS).records
    if most and there + len(plan.new) > most:
        raise StoreError(
            f"There are {there} keys and {len(plan.new)} to come, and the store holds {most}: "
            "raise SEMEL_JOBS_IDEMPOTENCY_STORE_MAX_ITEMS, here and for the server."
        )


async def _take_over(store: Store, settings: JobsSettings, records: list[ImportedJobRecord]) -> None:
    engine = Engine(store, SystemWorld())
    contract = JobContract(_policy(settings))
    try:
        with progress(len(records), "Importing") as advance:
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


def _report(url: str, file: _ImportFile, plan: ImportPlan, manner: ImportOptions) -> None:
    facts = {
        "store": shown(url),
        "principal": manner.principal,
        "read": file.read,
        "imported": 0 if manner.dry_run else len(plan.new),
        "to_import": len(plan.new) if manner.dry_run else 0,
        "unknown_outcome": plan.unfinished,
        "already_there": plan.known,
        "expired": file.expired,
        "bad": len(file.faults),
        "taken": len(plan.taken),
        "ids_taken": len(plan.ids_taken),
        "new_ids": plan.new_ids,
        "dry_run": manner.dry_run,
    }
    verb = "Would import" if manner.dry_run else "Imported"
    counts = (
        f"{verb} {len(plan.new)} of {file.read} keys into {shown(url)} for {manner.principal} "
        f"({plan.unfinished} with unknown outcome); {plan.known} already there, {file.expired} expired, "
        f"{len(file.faults)} bad."
    )
    say(manner.as_json, facts, printable(counts))
    if plan.new_ids:
        count = "1 record has" if plan.new_ids == 1 else f"{plan.new_ids} records have"
        click.echo(f"{count} {_ODD_IDS}", err=True)
    reasons = [(_KEYS_TAKEN, plan.taken), (_IDS_TAKEN, plan.ids_taken)]
    left = [f"Skipped, because {reason}: lines {_lines(found)}." for reason, found in reasons if found]
    if left:
        raise click.ClickException(" ".join(left))


def _lines(found: list[int]) -> str:
    return ", ".join(map(str, found[:SHOWN_FAULTS])) + (", ..." if len(found) > SHOWN_FAULTS else "")
