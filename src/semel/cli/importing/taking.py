"""The importer: every record is checked before the first is written, then they go through the engine in batches.

A crash leaves the batches that were committed. Each record makes the same row at every run, and one that is there is
left alone, so that the same command goes on where it stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

import click

from semel.cli.holding import held_store
from semel.cli.importing.layout import LayoutError, entries
from semel.cli.importing.plan import ImportPlan, plan_of
from semel.cli.importing.record import Limits, Record, RecordError, is_expired, read_record
from semel.cli.output import printable, say
from semel.cli.progress import progress
from semel.contracts.jobs.commands import Import, ImportedRecord
from semel.contracts.jobs.contract import Jobs
from semel.contracts.jobs.limits import Policy
from semel.contracts.jobs.tables import ALONE, JOB_TOTALS, NO_TOTALS
from semel.engine.contract import EngineError, OutcomeUnknownError, Write
from semel.engine.engine import Engine
from semel.server.settings import ServerSettings, settings_of
from semel.server.world import SystemWorld
from semel.store.open import shown
from semel.store.protocol import Snapshot, Store, StoreError
from semel.surfaces.jobs.settings import JobsSettings

BATCH_RECORDS = 200
BATCH_BYTES = 1024 * 1024
SHOWN_FAULTS = 20
_KEYS_TAKEN = "the key stands for another payload here"
_IDS_TAKEN = "the job id is that of another job or another end here"
_ODD_IDS = "a job_id that is not job_ and 1 to 60 letters or digits: their jobs have new ids here."


class Manner(NamedTuple):
    """How to import."""

    principal: str
    skips_bad: bool
    dry_run: bool
    as_json: bool


class _File(NamedTuple):
    """The records of a file, checked without a store."""

    read: int
    records: list[Record]
    """One a key: the last."""
    expired: int
    faults: list[str]


def import_keys(raw: bytes, server: ServerSettings, manner: Manner) -> None:
    """Look, and take over what is new; every refusal is one sentence."""
    url, settings = server.store_url, settings_of(server, JobsSettings)
    try:
        with held_store(url, in_vain="it cannot keep what is imported") as store:
            with store.read() as snapshot:
                limits = Limits(
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
        unsure = "It is not known whether all was stored: run this again, nothing is taken over twice."
        raise click.ClickException(f"{error} {unsure}") from error
    except EngineError as error:
        raise click.ClickException(f"{error} Not all was stored: run this again.") from error
    _report(url, file, plan, manner)


def _judge(raw: bytes, limits: Limits) -> _File:
    try:
        found = entries(raw)
    except LayoutError as error:
        raise click.ClickException(f"The file cannot be imported: {error}.") from None
    by_key: dict[str, Record] = {}
    faults: list[str] = []
    for entry in found:
        try:
            record = read_record(entry, limits)
        except RecordError as error:
            faults.append(f"Line {entry.line}: {error}.")
        else:
            by_key[record.key] = record
    live = [record for record in by_key.values() if not is_expired(record, limits)]
    return _File(len(found), live, len(by_key) - len(live), faults)


def _tell_faults(faults: list[str], manner: Manner) -> None:
    for fault in faults[:SHOWN_FAULTS]:
        click.echo(fault, err=True)
    if len(faults) > SHOWN_FAULTS:
        click.echo(f"And {len(faults) - SHOWN_FAULTS} more.", err=True)
    if faults and not manner.skips_bad:
        count = "1 record" if len(faults) == 1 else f"{len(faults)} records"
        raise click.ClickException(f"{count} cannot be read, so nothing was imported: mend it, or say --skip-bad.")


def _refuse_too_many(snapshot: Snapshot, plan: ImportPlan, settings: JobsSettings) -> None:
    """Keys are promises: none is dropped to make room, and none is taken over that there is no room for."""
    most = settings.jobs_idempotency_store_max_items
    there = (snapshot.get(JOB_TOTALS, ALONE) or NO_TOTALS).records
    if most and there + len(plan.new) > most:
        raise StoreError(
            f"There are {there} keys and {len(plan.new)} to come, and the store holds {most}: "
            "raise SEMEL_JOBS_IDEMPOTENCY_STORE_MAX_ITEMS, here and for the server."
        )


async def _take_over(store: Store, settings: JobsSettings, records: list[ImportedRecord]) -> None:
    engine = Engine(store, SystemWorld())
    contract = Jobs(_policy(settings))
    try:
        with progress(len(records), "Importing") as advance:
            for batch in _batches(records):
                size = sum(len(record.value) for record in batch)
                write = Write(contract, Import(tuple(batch)), size, 4 * len(batch))
                await engine.submit(write)
                advance(len(batch))
    finally:
        await engine.stop()


def _policy(settings: JobsSettings) -> Policy:
    """Of all that can be set, what an import depends on."""
    return Policy(
        key_ttl_ms=settings.jobs_idempotency_ttl_sec * 1_000, retention_ms=settings.jobs_retention_sec * 1_000
    )


def _batches(records: list[ImportedRecord]) -> Iterator[list[ImportedRecord]]:
    """Portions that are small in number and in bytes."""
    batch: list[ImportedRecord] = []
    size = 0
    for record in records:
        if batch and (len(batch) == BATCH_RECORDS or size + len(record.value) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += len(record.value)
    if batch:
        yield batch


def _report(url: str, file: _File, plan: ImportPlan, manner: Manner) -> None:
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
    left = [f"Left alone, because {reason}: lines {_lines(found)}." for reason, found in reasons if found]
    if left:
        raise click.ClickException(" ".join(left))


def _lines(found: list[int]) -> str:
    return ", ".join(map(str, found[:SHOWN_FAULTS])) + (", ..." if len(found) > SHOWN_FAULTS else "")
