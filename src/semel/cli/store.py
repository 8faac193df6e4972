"""Commands that open a store themselves: `semel migrate`, `semel copy` and `semel epoch`.

Invalid arguments are refused before anything is opened, created or migrated. A server migrates at startup too. The
missing migrations are one transaction: a crash leaves the schema at its old version. A crash of a copy leaves the
target without rows, and the command can be run again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Annotated, Any

import click

from semel.cli.command import DryRun, Opt, Sure, command, group
from semel.cli.output import Said, row_progress, shown_time, table
from semel.cli.store_options import StoreOptions
from semel.engine.contract import EngineError, OutcomeUnknownError
from semel.kernel.namespace import DEFAULT, NamespaceNameError, url_within
from semel.server import offline_store
from semel.store import copy as copying
from semel.store.copy import CopyLine, CopyReport, TablePart
from semel.store.open import place_of, shown
from semel.store.protocol import CommitUnknownError, StoreError
from semel.surfaces.epoch import EPOCH, EPOCH_KEY, FIRST_EPOCH, earlier_epochs
from semel.surfaces.epoch_raise import EpochPlan, EpochRefused, plan_raise
from semel.surfaces.schema import MIGRATIONS, TABLES

DIGITS = 16
"""Characters of a digest that are shown; the whole digest is compared."""


@command(errors=(StoreError,))
def migrate(store: StoreOptions, dry_run: DryRun = False) -> None:
    """Bring the schema of a store up to date.

    The store is the one that `semel serve` would use. A server does the same at startup. With PostgreSQL, running nodes
    of the previous version continue, but cannot be started again.
    """
    url = store.settings().store_url
    if url.startswith("memory:"):
        raise click.ClickException("A memory store is empty at every start: there is nothing to migrate.")
    missing = offline_store.missing_migrations(url)
    click.echo(f"Store: {shown(url)}")
    if not missing:
        click.echo(f"up to date: version {len(MIGRATIONS)}")
        return
    if not dry_run:
        offline_store.opened(url).close()
    would = "would change " if dry_run else ""
    for migration in missing:
        click.echo(f"{would}schema version {migration.number - 1} -> {migration.number}: {migration.about}")


@command(errors=(StoreError,))
def copy(
    source: Annotated[str, Opt("Store to read: sqlite:FOLDER or postgresql://...", "--from", "URL")],
    target: Annotated[str, Opt("Store to write, which must be empty.", "--to", "URL")],
    from_namespace: Annotated[str, Opt("Namespace to read.", "", "NAME", show_default=True)] = DEFAULT,
    to_namespace: Annotated[str, Opt("Namespace to write.", "", "NAME", show_default=True)] = DEFAULT,
    dry_run: Annotated[bool, Opt("Print what would be copied, and change nothing in the target.")] = False,
) -> None:
    """Copy all data of one store, or of one namespace of it, into another, which must be empty.

    Rows are copied unchanged, so that retries get their first answers from the new store too. The copy is one
    transaction, and is verified by reading both stores again. Stop the server first. If the source is PostgreSQL, stop
    all of its nodes: writes after the start of the copy are not copied, and nothing prevents them.
    """
    if source.startswith("memory:") or target.startswith("memory:"):
        raise click.UsageError("A memory store cannot be copied: it is empty at every start.")
    try:
        source, target = url_within(source, from_namespace), url_within(target, to_namespace)
    except NamespaceNameError as error:
        raise click.UsageError(str(error)) from error
    if place_of(source) == place_of(target):
        raise click.UsageError(f"Both stores are the same: {shown(source)}")
    offline_store.refuse_unready(source)
    offline_store.refuse_occupied(target)
    try:
        with closing(offline_store.opened(source)) as read:
            counts = copying.count(read, TABLES)
            if dry_run:
                _show_plan(counts, source, target)
                return
            with closing(offline_store.opened(target)) as written:
                with row_progress("Copying", sum(counts.values())) as tell:
                    copying.copy(read, written, TABLES, tell)
                with row_progress("Checking both sides", 2 * sum(counts.values())) as tell:
                    report = copying.compare(read, written, TABLES, tell)
    except CommitUnknownError as error:
        unsure = "It is unknown whether the copy was stored: run this again; it is refused if it was."
        raise click.ClickException(f"{error} {unsure}") from error
    _show_copy(report, source, target)


def _show_plan(counts: Mapping[TablePart, int], source: str, target: str) -> None:
    for line in table(("table", "rows"), [(part.name, f"{rows:,}") for part, rows in counts.items()]):
        click.echo(line)
    click.echo(f"Would copy {sum(counts.values()):,} rows from {shown(source)} to {shown(target)}.")


def _copy_row(line: CopyLine) -> tuple[str, ...]:
    sides = line.source, line.target
    rows, digests = (f"{one.rows:,}" for one in sides), (one.sha256[:DIGITS] for one in sides)
    return line.part.name, *rows, *digests, "same" if line.agrees else "DIFFERENT"


def _show_copy(report: CopyReport, source: str, target: str) -> None:
    head = ("table", "rows", "rows copied", "SHA-256", "SHA-256 of the copy", "")
    for text in table(head, list(map(_copy_row, report.lines))):
        click.echo(text)
    if report.differing:
        raise click.ClickException(
            f"The copy differs in {', '.join(report.differing)}: do not use it. Check that no server used them."
        )
    rows = sum(line.source.rows for line in report.lines)
    click.echo(f"Copied {rows:,} rows from {shown(source)} to {shown(target)}; both stores are equal.")


epoch = group("epoch", "The epoch of all logs of a store.")


@command(epoch)
def show(store: StoreOptions) -> Said:
    """Show the epoch of a store, and when it was raised. A server may be running."""
    place = shown(store.settings().store_url)
    with store.reading() as reading:
        row = reading.get(EPOCH, EPOCH_KEY) or FIRST_EPOCH
    raises = [*earlier_epochs(row), *([row.number] if row.number else [])]
    times = [{"epoch": number, "raised_at": shown_time(number)} for number in raises]
    words = "; ".join(f"{number} at {shown_time(number)}" for number in raises)
    told = f"raised to {words}." if raises else "never raised."
    return Said({"store": place, "epoch": row.number, "raises": times}, f"{place}: epoch {row.number}, {told}")


@command(epoch, "raise", errors=(StoreError,))
def raise_(store: StoreOptions, sure: Sure) -> Said:
    """Start a new epoch after an older backup was restored.

    Clients may hold offsets, ids and cursors that the backup does not have. In a new epoch the server recognizes them,
    and reuses no id or position. Stop the server first, and start it afterwards.
    """
    sure.refuse_silence("Raising the epoch cannot be undone")
    url = store.settings().store_url
    try:
        with offline_store.held_store(url, in_vain="it cannot be restored from a backup") as held:
            with held.read() as snapshot:
                plan = _accepted(plan_raise(snapshot, snapshot.now_ms))
            about = _about_epoch(url, plan)
            if sure.dry_run:
                return Said(_epoch_facts(url, plan, dry_run=True), f"{about} Would raise it to {plan.number}.")
            sure.ask("Start a new epoch?", about)
            done = _accepted(offline_store.raise_epoch(held))
    except OutcomeUnknownError as error:
        unsure = "It is unknown whether the epoch was raised: run this again; raising it twice does no harm."
        raise click.ClickException(f"{error} {unsure}") from error
    except EngineError as error:
        raise click.ClickException(f"{error} The epoch was not raised.") from error
    return Said(_epoch_facts(url, done, dry_run=False), f"{_about_epoch(url, done)} Raised to {done.number}.")


def _accepted(plan: EpochPlan | EpochRefused) -> EpochPlan:
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
