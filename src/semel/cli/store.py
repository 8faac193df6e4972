"""Commands that open a store themselves: `semel migrate`, `semel copy` and `semel epoch`.

Invalid arguments are refused before anything is opened, created or migrated. `held_store` opens a store as a server
would and holds it until the command ends. A server migrates at startup too. The missing migrations are one transaction:
a crash leaves the schema at its old version. A crash of a copy leaves the target without rows, and the command can be
run again.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import click

from semel.cli.command import DryRun, Json, Opt, Yes, command, group
from semel.cli.output import row_progress, say, shown_time, table
from semel.engine.clock import SystemWorld
from semel.engine.contract import EngineError, OutcomeUnknownError, Write
from semel.engine.engine import Engine
from semel.server.settings import ServerSettings
from semel.server.settings_loader import SettingsError, load_settings
from semel.store import copy as copying
from semel.store.copy import CopyReport, TablePart, TargetNotEmptyError
from semel.store.migrations import pending
from semel.store.open import inspect_store, open_read_only, open_store, place_of, shown
from semel.store.protocol import CommitUnknownError, Store, StoreError
from semel.surfaces.epoch import EPOCH, EPOCH_KEY, FIRST_EPOCH, earlier_epochs
from semel.surfaces.epoch_raise import EpochPlan, EpochRefused, Epochs, RaiseEpoch, plan_raise
from semel.surfaces.schema import MIGRATIONS, TABLES


@contextmanager
def held_store(url: str, *, in_vain: str) -> Iterator[Store]:
    """The store, opened exclusively; `in_vain` is why a memory store is refused."""
    _refuse_unusable(url, in_vain)
    with closing(open_store(url, TABLES, MIGRATIONS, SystemWorld().wall_ms)) as store:
        _refuse_company(store, url)
        yield store


def _refuse_unusable(url: str, in_vain: str) -> None:
    """Refuse an unusable store before it is opened, because opening creates and migrates it."""
    if url.startswith("memory:"):
        raise StoreError(f"A memory store is empty at every start: {in_vain}.")
    version = inspect_store(url, ()).version
    if version == 0:
        raise StoreError(f"There is no data in {shown(url)}: create a store with `semel migrate`.")
    if pending(MIGRATIONS, version):
        raise StoreError(f"{shown(url)} is of the older schema version {version}: run `semel migrate` on it first.")


def _refuse_company(store: Store, url: str) -> None:
    """Refuse a store that a server uses: a folder has a lock, and the nodes of a database have a leader."""
    if not store.leads():
        raise StoreError(f"A server is using {shown(url)}: stop all of its nodes first.")


ConfigFile = Annotated[Path | None, Opt("TOML file with settings.", envvar="SEMEL_CONFIG")]
StoreUrl = Annotated[str | None, Opt("Store URL: sqlite:FOLDER or postgresql://...  [SEMEL_STORE]", metavar="URL")]
DataFolder = Annotated[
    str | None, Opt("Folder of the embedded database, without --store.  [SEMEL_DATA; data]", metavar="FOLDER")
]


def settings_from(config: Path | None, store: str | None, data: str | None) -> ServerSettings:
    """The settings of a server that would use this store."""
    try:
        # These commands do not listen, so settings that only a listening server needs are not required.
        return load_settings({"store": store, "data": data, "host": "127.0.0.1"}, os.environ, config)
    except SettingsError as error:
        raise click.ClickException(str(error)) from error


@command()
def migrate(
    config: ConfigFile = None, store: StoreUrl = None, data: DataFolder = None, dry_run: DryRun = False
) -> None:
    """Bring the schema of a store up to date.

    The store is the one that `semel serve` would use. A server does the same at startup. With PostgreSQL, running nodes
    of the previous version continue, but cannot be started again.
    """
    try:
        _migrate(settings_from(config, store, data).store_url, dry_run)
    except StoreError as error:
        raise click.ClickException(str(error)) from error


def _migrate(url: str, dry_run: bool) -> None:
    if url.startswith("memory:"):
        raise click.ClickException("A memory store is empty at every start: there is nothing to migrate.")
    missing = pending(MIGRATIONS, inspect_store(url, ()).version)
    click.echo(f"Store: {shown(url)}")
    if not missing:
        click.echo(f"up to date: version {len(MIGRATIONS)}")
        return
    if not dry_run:
        open_store(url, TABLES, MIGRATIONS, SystemWorld().wall_ms).close()
    would = "would change " if dry_run else ""
    for migration in missing:
        click.echo(f"{would}schema version {migration.number - 1} -> {migration.number}: {migration.about}")


DIGITS = 16
"""Characters of a digest that are shown; the whole digest is compared."""


@command()
def copy(
    source: Annotated[str, Opt("Store to read: sqlite:FOLDER or postgresql://...", "--from", "URL")],
    target: Annotated[str, Opt("Store to write, which must be empty.", "--to", "URL")],
    dry_run: Annotated[bool, Opt("Print what would be copied, and change nothing in the target.")] = False,
) -> None:
    """Copy all data of one store into another, which must be empty.

    Rows are copied unchanged, so that retries get their first answers from the new store too. The copy is one
    transaction, and is verified by reading both stores again. Stop the server first. If the source is PostgreSQL, stop
    all of its nodes: writes after the start of the copy are not copied, and nothing prevents them.
    """
    try:
        _check_copy(source, target)
        with closing(_open(source)) as read:
            counts = copying.count(read, TABLES)
            if dry_run:
                _show_plan(counts, source, target)
                return
            with closing(_open(target)) as written:
                report = _copy(read, written, sum(counts.values()))
    except StoreError as error:
        raise click.ClickException(str(error)) from error
    except CommitUnknownError as error:
        unsure = "It is unknown whether the copy was stored: run this again; it is refused if it was."
        raise click.ClickException(f"{error} {unsure}") from error
    _show_copy(report, source, target)


def _check_copy(source: str, target: str) -> None:
    """Refuse invalid stores before they are opened, because opening creates and migrates them."""
    for url in (source, target):
        if url.startswith("memory:"):
            raise click.UsageError("A memory store cannot be copied: it is empty at every start.")
    if place_of(source) == place_of(target):
        raise click.UsageError(f"Both stores are the same: {shown(source)}")
    version = inspect_store(source, ()).version
    if version == 0:
        raise StoreError(f"There is no data in {shown(source)}.")
    if pending(MIGRATIONS, version):
        raise StoreError(f"{shown(source)} is of the older schema version {version}: run `semel migrate` on it first.")
    there = inspect_store(target, TABLES)
    pending(MIGRATIONS, there.version)
    if there.occupied is not None:
        raise TargetNotEmptyError(there.occupied)


def _open(url: str) -> Store:
    return open_store(url, TABLES, MIGRATIONS, SystemWorld().wall_ms)


def _copy(source: Store, target: Store, rows: int) -> CopyReport:
    with row_progress("Copying", rows) as tell:
        copying.copy(source, target, TABLES, tell)
    with row_progress("Checking both sides", 2 * rows) as tell:
        return copying.compare(source, target, TABLES, tell)


def _show_plan(counts: Mapping[TablePart, int], source: str, target: str) -> None:
    for line in table(("table", "rows"), [(part.name, f"{rows:,}") for part, rows in counts.items()]):
        click.echo(line)
    click.echo(f"Would copy {sum(counts.values()):,} rows from {shown(source)} to {shown(target)}.")


def _show_copy(report: CopyReport, source: str, target: str) -> None:
    head = ("table", "rows", "rows copied", "SHA-256", "SHA-256 of the copy", "")
    lines: list[tuple[str, ...]] = [
        (
            line.part.name,
            f"{line.source.rows:,}",
            f"{line.target.rows:,}",
            line.source.sha256[:DIGITS],
            line.target.sha256[:DIGITS],
            "same" if line.agrees else "DIFFERENT",
        )
        for line in report.lines
    ]
    for text in table(head, lines):
        click.echo(text)
    if report.differing:
        raise click.ClickException(
            f"The copy differs in {', '.join(report.differing)}: do not use it. Check that no server used them."
        )
    rows = sum(line.source.rows for line in report.lines)
    click.echo(f"Copied {rows:,} rows from {shown(source)} to {shown(target)}; both stores are equal.")


epoch = group("epoch", "The epoch of all logs of a store.")


@command(epoch)
def show(config: ConfigFile = None, store: StoreUrl = None, data: DataFolder = None, as_json: Json = False) -> None:
    """Show the epoch of a store, and when it was raised. A server may be running."""
    url = settings_from(config, store, data).store_url
    try:
        with open_read_only(url, TABLES, MIGRATIONS, SystemWorld().wall_ms) as snapshot:
            row = snapshot.get(EPOCH, EPOCH_KEY) or FIRST_EPOCH
    except StoreError as error:
        raise click.ClickException(str(error)) from error
    raises = [*earlier_epochs(row), *([row.number] if row.number else [])]
    facts = {
        "store": shown(url),
        "epoch": row.number,
        "raises": [{"epoch": number, "raised_at": shown_time(number)} for number in raises],
    }
    times = "; ".join(f"{number} at {shown_time(number)}" for number in raises)
    say(as_json, facts, f"{shown(url)}: epoch {row.number}, " + (f"raised to {times}." if raises else "never raised."))


@command(epoch, "raise")
def raise_(
    config: ConfigFile = None,
    store: StoreUrl = None,
    data: DataFolder = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Start a new epoch after an older backup was restored.

    Clients may hold offsets, ids and cursors that the backup does not have. In a new epoch the server recognizes them,
    and reuses no id or position. Stop the server first, and start it afterwards.
    """
    if not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("Raising the epoch cannot be undone: give --yes if standard input is not a terminal.")
    url = settings_from(config, store, data).store_url
    try:
        with held_store(url, in_vain="it cannot be restored from a backup") as held:
            plan = _checked_plan(_look_at_epoch(held))
            if dry_run:
                say(
                    as_json,
                    _epoch_facts(url, plan, dry_run=True),
                    f"{_about_epoch(url, plan)} Would raise it to {plan.number}.",
                )
                return
            if not yes:
                click.echo(_about_epoch(url, plan), err=True)
                click.confirm("Start a new epoch?", abort=True, err=True)
            done = _checked_plan(asyncio.run(_raise_epoch(held)))
    except StoreError as error:
        raise click.ClickException(str(error)) from error
    except OutcomeUnknownError as error:
        unsure = "It is unknown whether the epoch was raised: run this again; raising it twice does no harm."
        raise click.ClickException(f"{error} {unsure}") from error
    except EngineError as error:
        raise click.ClickException(f"{error} The epoch was not raised.") from error
    say(as_json, _epoch_facts(url, done, dry_run=False), f"{_about_epoch(url, done)} Raised to {done.number}.")


def _look_at_epoch(store: Store) -> EpochPlan | EpochRefused:
    with store.read() as snapshot:
        return plan_raise(snapshot, snapshot.now_ms)


async def _raise_epoch(store: Store) -> EpochPlan | EpochRefused:
    engine = Engine(store, SystemWorld())
    try:
        done: EpochPlan | EpochRefused = await engine.submit(Write(Epochs(), RaiseEpoch()))
        return done
    finally:
        await engine.stop()


def _checked_plan(plan: EpochPlan | EpochRefused) -> EpochPlan:
    if isinstance(plan, EpochRefused):
        raise click.ClickException(plan.sentence)
    return plan


def _about_epoch(url: str, plan: EpochPlan) -> str:
    return f"{shown(url)}: epoch {plan.before}, the last committed_id of events is {plan.events.agreed_id}."


def _epoch_facts(url: str, plan: EpochPlan, *, dry_run: bool) -> dict[str, Any]:
    return {
        "store": shown(url),
        "epoch_before": plan.before,
        "epoch": plan.number,
        "last_committed_id": plan.events.agreed_id,
        "new_last_committed_id": plan.events.next_last_id,
        "ledger_term": plan.term,
        "raised": not dry_run,
        "dry_run": dry_run,
    }
