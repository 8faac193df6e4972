"""The jump itself: one write through the engine, like every other; a crash leaves the log as it was or jumped."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import click

from semel.cli.events.posting import shown_time
from semel.cli.holding import held_store
from semel.cli.output import say
from semel.contracts.events.commands import Jump, Jumped
from semel.contracts.events.contract import Events
from semel.contracts.events.limits import MAX_COMMITTED_ID
from semel.contracts.events.rules.upkeep import jumped_id
from semel.contracts.events.tables import EMPTY_LOG, EVENT_HEAD, HEAD_KEY, EventHeadRow
from semel.engine.contract import EngineError, OutcomeUnknownError, Write
from semel.engine.engine import Engine
from semel.server.world import SystemWorld
from semel.store.open import shown
from semel.store.protocol import Store, StoreError

JUMP = Jump(ids_a_ms=1_000)
"""More ids a millisecond than any server gives out."""


class _Plan(NamedTuple):
    """The end of the log, and the store's clock."""

    head: EventHeadRow
    now_ms: int

    @property
    def new_id(self) -> int:
        return jumped_id(self.head, JUMP, self.now_ms)


def jump_in(url: str, *, dry_run: bool, asks: bool, as_json: bool) -> None:
    """Look, ask if that is wanted, and jump; every refusal is one sentence."""
    try:
        with held_store(url, in_vain="there is nothing to jump over") as store:
            plan = _look(store)
            if plan.head.last_id == 0:
                _say_empty(url, dry_run, as_json)
                return
            _refuse_impossible(plan)
            if dry_run:
                _say_planned(url, plan, as_json)
                return
            if asks:
                click.echo(_about(url, plan), err=True)
                click.confirm(f"Go on above {plan.new_id}?", abort=True, err=True)
            _say_done(url, plan, asyncio.run(_jump(store)), as_json)
    except StoreError as error:
        raise click.ClickException(str(error)) from error
    except OutcomeUnknownError as error:
        unsure = "It is not known whether the log has jumped: run this again, a second jump does no harm."
        raise click.ClickException(f"{error} {unsure}") from error
    except EngineError as error:
        raise click.ClickException(f"{error} The log has not jumped.") from error


def _look(store: Store) -> _Plan:
    with store.read() as snapshot:
        return _Plan(snapshot.get(EVENT_HEAD, HEAD_KEY) or EMPTY_LOG, snapshot.now_ms)


def _refuse_impossible(plan: _Plan) -> None:
    if plan.now_ms < plan.head.updated_at:
        given, now = shown_time(plan.head.updated_at), shown_time(plan.now_ms)
        raise StoreError(f"The last id was given at {given} and the clock says {now}: set the clock right first.")
    if plan.new_id >= MAX_COMMITTED_ID - 1:
        raise StoreError(f"There are not enough ids left above {plan.head.last_id} for a jump.")


async def _jump(store: Store) -> Jumped:
    engine = Engine(store, SystemWorld())
    try:
        done: Jumped = await engine.submit(Write(Events(), JUMP))
        return done
    finally:
        await engine.stop()


def _about(url: str, plan: _Plan) -> str:
    return f"{shown(url)}: the last committed_id is {plan.head.last_id}, given at {shown_time(plan.head.updated_at)}."


def _facts(url: str, plan: _Plan, new_id: int, *, jumped: bool, dry_run: bool) -> dict[str, Any]:
    return {
        "store": shown(url),
        "last_committed_id": plan.head.last_id,
        "given_at": shown_time(plan.head.updated_at) if plan.head.updated_at else None,
        "new_last_committed_id": new_id,
        "jumped": jumped,
        "dry_run": dry_run,
    }


def _say_empty(url: str, dry_run: bool, as_json: bool) -> None:
    sentence = (
        f"There were never events in {shown(url)}, so there is no id to go on from: nothing is changed, and clients "
        "that have seen events must begin anew."
    )
    say(as_json, _facts(url, _Plan(EMPTY_LOG, 0), 0, jumped=False, dry_run=dry_run), sentence)


def _say_planned(url: str, plan: _Plan, as_json: bool) -> None:
    facts = _facts(url, plan, plan.new_id, jumped=False, dry_run=True)
    say(as_json, facts, f"{_about(url, plan)} Would go on above {plan.new_id}.")


def _say_done(url: str, plan: _Plan, done: Jumped, as_json: bool) -> None:
    facts = _facts(url, plan, done.next_last_id, jumped=True, dry_run=False)
    say(as_json, facts, f"{_about(url, plan)} Jumped: the next event gets an id above {done.next_last_id}.")
