"""The epoch of a store without its server: read beside one, raised while the store is locked."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from semel.cli.events.posting import shown_time
from semel.cli.holding import held_store
from semel.cli.output import say
from semel.contracts.epoch import EPOCH, EPOCH_KEY, FIRST_EPOCH, earlier_epochs
from semel.contracts.epoch_raise import EpochPlan, EpochRefused, Epochs, RaiseEpoch, plan_raise
from semel.contracts.schema import MIGRATIONS, TABLES
from semel.engine.contract import EngineError, OutcomeUnknownError, Write
from semel.engine.engine import Engine
from semel.server.world import SystemWorld
from semel.store.open import read_beside, shown
from semel.store.protocol import Store, StoreError


def show_in(url: str, *, as_json: bool) -> None:
    """Tell the epoch of a store that a server may be using."""
    try:
        with read_beside(url, TABLES, MIGRATIONS, SystemWorld().wall_ms) as snapshot:
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


def raise_in(url: str, *, dry_run: bool, asks: bool, as_json: bool) -> None:
    """Look, ask if that is wanted, and raise; every refusal is one sentence."""
    try:
        with held_store(url, in_vain="it has no history that a backup could bring back") as store:
            plan = _checked(_look(store))
            if dry_run:
                say(as_json, _facts(url, plan, dry_run=True), f"{_about(url, plan)} Would raise it to {plan.number}.")
                return
            if asks:
                click.echo(_about(url, plan), err=True)
                click.confirm("Begin a new epoch?", abort=True, err=True)
            done = _checked(asyncio.run(_raise(store)))
    except StoreError as error:
        raise click.ClickException(str(error)) from error
    except OutcomeUnknownError as error:
        unsure = "It is not known whether the epoch was raised: run this again, a second raise does no harm."
        raise click.ClickException(f"{error} {unsure}") from error
    except EngineError as error:
        raise click.ClickException(f"{error} The epoch was not raised.") from error
    say(as_json, _facts(url, done, dry_run=False), f"{_about(url, done)} Raised to {done.number}.")


def _look(store: Store) -> EpochPlan | EpochRefused:
    with store.read() as snapshot:
        return plan_raise(snapshot, snapshot.now_ms)


async def _raise(store: Store) -> EpochPlan | EpochRefused:
    engine = Engine(store, SystemWorld())
    try:
        done: EpochPlan | EpochRefused = await engine.submit(Write(Epochs(), RaiseEpoch()))
        return done
    finally:
        await engine.stop()


def _checked(plan: EpochPlan | EpochRefused) -> EpochPlan:
    if isinstance(plan, EpochRefused):
        raise click.ClickException(plan.sentence)
    return plan


def _about(url: str, plan: EpochPlan) -> str:
    return f"{shown(url)}: epoch {plan.before}, the last committed_id of events is {plan.events.agreed_id}."


def _facts(url: str, plan: EpochPlan, *, dry_run: bool) -> dict[str, Any]:
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
