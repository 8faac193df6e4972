"""`semel import sheratan`: imports the keys of a Sheratan idempotency store, so that this server honours them.

The store is opened as a server would open it, and held, so that no server can start meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import click

from semel.cli.command import DryRun, Json, Opt, Positional, command, group
from semel.cli.output import Said, printable, progress
from semel.cli.source import read_file
from semel.cli.store_options import StoreOptions
from semel.engine.contract import EngineError, OutcomeUnknownError
from semel.server.offline_store import held_store
from semel.server.settings import settings_of
from semel.store.open import shown
from semel.store.protocol import StoreError
from semel.surfaces.jobs import key_import
from semel.surfaces.jobs.settings import JobsSettings
from semel.surfaces.jobs.wire.imported_records import LayoutError

importer = group("import", "Import the data of another program.")

SHOWN_FAULTS = 20
_KEYS_TAKEN = "the key was used here for another payload"
_IDS_TAKEN = "the job id belongs here to another job or another outcome"
_ODD_IDS = "a job_id that is not job_ and 1 to 60 letters or digits: their jobs get new ids here."


@command(importer, errors=(StoreError,))
def sheratan(
    file: Annotated[str, Positional(type=click.Path(allow_dash=True))],
    store: StoreOptions,
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
    server = store.settings()
    settings = settings_of(server, JobsSettings)
    raw = read_file(file, f"The file {printable(file)}")
    try:
        with held_store(server.store_url, in_vain="it cannot keep imported keys") as held:
            with held.read() as snapshot:
                found = key_import.judged(raw, key_import.limits_of(settings, snapshot.now_ms))
                _tell_faults(found.faults, skip_bad)
                plan = key_import.plan_of(snapshot, found.records, principal)
                key_import.refuse_too_many(snapshot, plan, settings)
            if plan.new and not dry_run:
                with progress(len(plan.new), "Importing") as advance:
                    asyncio.run(key_import.import_records(held, settings, plan.new, advance))
    except LayoutError as error:
        raise click.ClickException(f"The file cannot be imported: {error}.") from None
    except OutcomeUnknownError as error:
        unsure = "It is unknown whether all keys were stored: run this again; no key is imported twice."
        raise click.ClickException(f"{error} {unsure}") from error
    except EngineError as error:
        raise click.ClickException(f"{error} Not all keys were stored: run this again.") from error
    _said(server.store_url, found, plan, principal, dry_run).show(as_json)
    if plan.new_ids:
        count = "1 record has" if plan.new_ids == 1 else f"{plan.new_ids} records have"
        click.echo(f"{count} {_ODD_IDS}", err=True)
    reasons = [(_KEYS_TAKEN, plan.taken), (_IDS_TAKEN, plan.ids_taken)]
    left = [f"Skipped, because {reason}: lines {_lines(taken)}." for reason, taken in reasons if taken]
    if left:
        raise click.ClickException(" ".join(left))


def _tell_faults(faults: list[str], skips_bad: bool) -> None:
    for fault in faults[:SHOWN_FAULTS]:
        click.echo(fault, err=True)
    if len(faults) > SHOWN_FAULTS:
        click.echo(f"And {len(faults) - SHOWN_FAULTS} more.", err=True)
    if faults and not skips_bad:
        count = "1 record" if len(faults) == 1 else f"{len(faults)} records"
        raise click.ClickException(
            f"{count} cannot be read, so nothing was imported: correct the file, or give --skip-bad."
        )


def _said(url: str, file: key_import.ImportFile, plan: key_import.ImportPlan, principal: str, dry_run: bool) -> Said:
    facts = {
        "store": shown(url),
        "principal": principal,
        "read": file.read,
        "imported": 0 if dry_run else len(plan.new),
        "to_import": len(plan.new) if dry_run else 0,
        "unknown_outcome": plan.unfinished,
        "already_there": plan.known,
        "expired": file.expired,
        "bad": len(file.faults),
        "taken": len(plan.taken),
        "ids_taken": len(plan.ids_taken),
        "new_ids": plan.new_ids,
        "dry_run": dry_run,
    }
    verb = "Would import" if dry_run else "Imported"
    counts = (
        f"{verb} {len(plan.new)} of {file.read} keys into {shown(url)} for {principal} "
        f"({plan.unfinished} with unknown outcome); {plan.known} already there, {file.expired} expired, "
        f"{len(file.faults)} bad."
    )
    return Said(facts, counts)


def _lines(found: list[int]) -> str:
    return ", ".join(map(str, found[:SHOWN_FAULTS])) + (", ..." if len(found) > SHOWN_FAULTS else "")
