"""Commands that open a store themselves: `semel migrate` and `semel epoch`.

A server migrates at startup too. The missing migrations are one transaction: a crash leaves the schema at its old
version.
"""

from __future__ import annotations

from typing import Any

import click

from semel.cli.command import DryRun, Sure, command, group
from semel.cli.output import Said, shown_time
from semel.cli.store_options import StoreOptions
from semel.engine.contract import EngineError, OutcomeUnknownError
from semel.server import offline_store
from semel.store.migrations import last_version
from semel.store.open import shown
from semel.store.protocol import CommitUnknownError, StoreError
from semel.surfaces.epoch import EPOCH, EPOCH_KEY, FIRST_EPOCH, earlier_epochs
from semel.surfaces.epoch_raise import EpochPlan, EpochRefused, plan_raise
from semel.surfaces.schema import MIGRATIONS


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
        click.echo(f"up to date: version {last_version(MIGRATIONS)}")
        return
    if not dry_run:
        offline_store.opened_persistent(url).close()
    would = "would change " if dry_run else ""
    for migration in missing:
        before = migration.number - 1 if migration is not MIGRATIONS[0] else 0
        click.echo(f"{would}schema version {before} -> {migration.number}: {migration.about}")


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
    """Start a new epoch after an older backup was restored, or to use a store again that was marked as moved.

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
    except (OutcomeUnknownError, CommitUnknownError) as error:
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
