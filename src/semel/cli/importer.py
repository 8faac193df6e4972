"""`semel import sheratan`: imports the keys of a Sheratan idempotency store, so that this server honours them.

The store is opened as a server would open it, and held, so that no server can start meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, NamedTuple

import click

from semel.cli.command import DryRun, Json, Opt, Positional, command, group
from semel.cli.output import printable, progress, say
from semel.cli.source import read_whole
from semel.cli.store import ConfigFile, DataFolder, StoreUrl, held_store, settings_from
from semel.engine.contract import EngineError, OutcomeUnknownError
from semel.server.settings import settings_of
from semel.store.open import shown
from semel.store.protocol import StoreError
from semel.surfaces.jobs.key_import import ImportFile, ImportPlan, import_records, judged, plan_of, refuse_too_many
from semel.surfaces.jobs.settings import JobsSettings
from semel.surfaces.jobs.wire.imported_records import ImportLimits, LayoutError

importer = group("import", "Import the data of another program.")

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


@command(importer)
def sheratan(
    file: Annotated[str, Positional(type=click.Path(allow_dash=True))],
    config: ConfigFile = None,
    store: StoreUrl = None,
    data: DataFolder = None,
    principal: Annotated[
        str, Opt("Caller that the keys will belong to.", metavar="NAME", show_default=True)
    ] = "default",
    skip_bad: Annotated[bool, Opt("Skip invalid records; by default an invalid record stops the import.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Import the keys in FILE, an idempotency_store.json or .jsonl; - is standard input.

    A retry with an imported key gets the result of its completed job, or an answer that the outcome is unknown if the
    job had not ended. Jobs keep their ids. Expired keys are skipped and existing keys are not changed, so the import
    can be run again. Stop the server first, and start it afterwards.
    """
    server = settings_from(config, store, data)
    settings = settings_of(server, JobsSettings)
    manner = ImportOptions(principal, skip_bad, dry_run, as_json)
    raw = _content(file)
    try:
        found, plan = _import(raw, server.store_url, settings, manner)
    except LayoutError as error:
        raise click.ClickException(f"The file cannot be imported: {error}.") from None
    except StoreError as error:
        raise click.ClickException(str(error)) from error
    except OutcomeUnknownError as error:
        unsure = "It is unknown whether all keys were stored: run this again; no key is imported twice."
        raise click.ClickException(f"{error} {unsure}") from error
    except EngineError as error:
        raise click.ClickException(f"{error} Not all keys were stored: run this again.") from error
    _report(server.store_url, found, plan, manner)


def _import(raw: bytes, url: str, settings: JobsSettings, manner: ImportOptions) -> tuple[ImportFile, ImportPlan]:
    with held_store(url, in_vain="it cannot keep imported keys") as store:
        with store.read() as snapshot:
            ttl_ms = settings.jobs_idempotency_ttl_sec * 1_000
            found = judged(raw, ImportLimits(snapshot.now_ms, ttl_ms, settings.jobs_max_result_bytes))
            _tell_faults(found.faults, manner)
            plan = plan_of(snapshot, found.records, manner.principal)
            refuse_too_many(snapshot, plan, settings)
        if plan.new and not manner.dry_run:
            with progress(len(plan.new), "Importing") as advance:
                asyncio.run(import_records(store, settings, plan.new, advance))
    return found, plan


def _content(file: str) -> bytes:
    try:
        with click.open_file(file, "rb") as source:
            return read_whole(source)
    except OSError as error:
        raise click.ClickException(f"The file {printable(file)} cannot be read: {error.strerror}.") from None


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


def _report(url: str, file: ImportFile, plan: ImportPlan, manner: ImportOptions) -> None:
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
