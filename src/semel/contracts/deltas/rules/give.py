"""Delivery of a page: the progress of a replica is on disk before the page is sent."""

from __future__ import annotations

from collections.abc import Generator

from semel.contracts.deltas.commands import Give, Given, Rest
from semel.contracts.deltas.limits import Policy
from semel.contracts.deltas.rules.gateways import gateway_of
from semel.contracts.deltas.rules.replicas import is_new, load_progress, progress_key, save_progress, too_many
from semel.contracts.deltas.tables import DELTA_GATEWAY, DELTA_REPLICA, gateway_key
from semel.contracts.epoch import EPOCH, EPOCH_KEY
from semel.engine.contract import Outcome, Stage, View
from semel.kernel.clock import Now
from semel.kernel.hlc import tick


def give_needs(command: Give | Rest) -> Generator[Stage, View, None]:
    """The gateway and the replica."""
    gateway = gateway_key(command.replica.gateway)
    replica = (DELTA_REPLICA, progress_key(command.replica))
    yield Stage(keys=[(DELTA_GATEWAY, (gateway,)), replica, (EPOCH, EPOCH_KEY)])


def give(view: View, command: Give, policy: Policy, now: Now) -> Outcome:
    """Remember the end of a page.

    A cursor that already stands for something else is no use: the client could not say which of the two it means. Then
    a fresh number takes its place, unless something was committed behind the page, which that number would pass over.
    A page that was overtaken by another answer to the same client does not count: it would set the client back.
    """
    gateway = gateway_of(view, command.replica.gateway)
    assert gateway is not None, "a page comes from somewhere"
    progress = load_progress(view.get(DELTA_REPLICA, progress_key(command.replica)), gateway)
    if progress.mark != command.mark:
        return Outcome(Given(None))
    cursor = command.cursor
    if is_new(view, command.replica):
        refusal = too_many(gateway, policy)
        if refusal is not None:
            return Outcome(refusal)
        gateway = gateway._replace(replicas=gateway.replicas + 1)
    if command.is_taken:
        if gateway.high_water != cursor:
            return Outcome(Given(None))
        cursor = tick(cursor, now.wall_ms)
        cursor += cursor % 2
        gateway = gateway._replace(high_water=cursor)
    view.put(DELTA_GATEWAY, gateway)
    if command.gone_back_at is not None:
        progress = progress.gone_back(command.shown, command.gone_back_at)
    save_progress(view, command.replica, progress.noted(command.shown, cursor, command.rest), now)
    return Outcome(Given(cursor))


def rest(view: View, command: Rest, now: Now) -> Outcome:
    """Make a cursor an alias of a later one, because there is nothing for its client in between."""
    row = view.get(DELTA_REPLICA, progress_key(command.replica))
    if row is not None:
        progress = load_progress(row)
        if progress.mark == command.mark:
            save_progress(view, command.replica, progress.rested(command.since, command.cursor), now)
    return Outcome(Given(command.cursor))
