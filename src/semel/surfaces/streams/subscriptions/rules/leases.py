"""Claim, acknowledge and release, with fencing by generation.

A lease belongs to one wake: its id and its generation. A call that shows another wake, or comes after the end of the
lease, is fenced and changes nothing. The acks of a call are applied together or not at all.
"""

from __future__ import annotations

from semel.engine.contract import DecisionResult, View
from semel.kernel.clock import Now
from semel.kernel.errors import Refusal
from semel.kernel.verdict import NEVER
from semel.surfaces.streams.rules.expiry import living
from semel.surfaces.streams.rules.offsets import BEGINNING, epoch_at
from semel.surfaces.streams.subscriptions.commands import (
    LeaseProof,
    StreamAck,
    WakeAck,
    WakeAcked,
    WakeClaim,
    WakeClaimed,
    WakeRelease,
)
from semel.surfaces.streams.subscriptions.rules.configuration import MISSING
from semel.surfaces.streams.subscriptions.rules.links import has_work, position
from semel.surfaces.streams.subscriptions.rules.phases import FIRST_BACKOFF_MS, ended, is_due, is_held, leased, sent
from semel.surfaces.streams.subscriptions.rules.wakes import FoundWork, pending_range
from semel.surfaces.streams.subscriptions.tables import (
    LEASED,
    LINK,
    PULL_WAKE,
    SUBSCRIPTION,
    TOPIC,
    WAKING,
    WEBHOOK,
    LinkRow,
    SubscriptionRow,
)
from semel.surfaces.streams.tables import STREAM

FENCED = Refusal("FENCED", "This wake is over, or another has taken its place; wait for the next one.")
NO_WORK = Refusal("NO_PENDING_WORK", "There is nothing to process; wait for the next wake.")
OTHER_KIND = Refusal("INVALID_REQUEST", "This call is not for a subscription of this type.")
OTHER_TOKEN = Refusal(
    "TOKEN_INVALID", "The token is not of this subscription.", headers=((b"www-authenticate", b"Bearer"),)
)


def claim(view: View, command: WakeClaim, now: Now) -> DecisionResult:
    """Give a worker the lease of the work that is pending: under the wake that was sent, or under a new one."""
    row = view.get(SUBSCRIPTION, (command.name,))
    if row is None or row.life != command.life:
        return DecisionResult(MISSING)
    if row.kind != PULL_WAKE:
        return DecisionResult(OTHER_KIND)
    if is_held(row, now):
        facts = {"current_holder": row.holder.decode("utf-8", "replace"), "generation": row.generation}
        return DecisionResult(Refusal("ALREADY_CLAIMED", "Another worker holds the lease; try later.", facts))
    work = FoundWork(view, row.life, now)
    if not work.links:
        view.put(SUBSCRIPTION, ended(row, now.steady_ms if work.may_be_more else NEVER))
        return DecisionResult(NO_WORK, signals=(TOPIC,) if work.may_be_more else ())
    if row.phase != WAKING:
        row = sent(row, command.wake_id, b"", NEVER)
    held = leased(row, now, command.worker)
    items = work.snapshot(view, held.generation)
    view.put(SUBSCRIPTION, held)
    return DecisionResult(WakeClaimed(held, items), signals=(TOPIC,))


def ack(view: View, command: WakeAck, now: Now) -> DecisionResult:
    """Apply acks; then extend the lease, or end it."""
    row, refusal = _proved(view, command.proof, command.kind, now)
    if row is None:
        return DecisionResult(refusal)
    changed: dict[bytes, LinkRow] = {}
    for one in command.acks:
        link = changed.get(one.scope) or view.get(LINK, (row.life, one.scope))
        applied = None if link is None else _applied(view, link, one, now)
        if applied is None:
            path = one.path.decode("utf-8", "replace")
            detail = f"The offset of {path} must be one of that stream, at or after the last one acknowledged."
            return DecisionResult(Refusal("INVALID_OFFSET", detail, {"stream": path}, own_status=409))
        changed[one.scope] = applied
    for link in changed.values():
        view.put(LINK, link)
    if not command.done:
        view.put(SUBSCRIPTION, leased(row, now))
        return DecisionResult(WakeAcked(False), signals=(TOPIC,))
    is_more = bool(view.range(pending_range(row.life, 1)))
    # A receiver that ends its wakes without an ack must not be called in a tight loop.
    pause_ms = FIRST_BACKOFF_MS if row.kind == WEBHOOK and not changed else 0
    view.put(SUBSCRIPTION, ended(row, now.steady_ms + pause_ms if is_more else NEVER))
    return DecisionResult(WakeAcked(is_more), signals=(TOPIC,) if is_more else ())


def release(view: View, command: WakeRelease, now: Now) -> DecisionResult:
    """End the lease without acks; pending work wakes again."""
    row, refusal = _proved(view, command.proof, PULL_WAKE, now)
    if row is None:
        return DecisionResult(refusal)
    is_more = bool(view.range(pending_range(row.life, 1)))
    view.put(SUBSCRIPTION, ended(row, now.steady_ms if is_more else NEVER))
    return DecisionResult(True, signals=(TOPIC,) if is_more else ())


def _proved(view: View, proof: LeaseProof, kind: int, now: Now) -> tuple[SubscriptionRow | None, Refusal | None]:
    """The subscription whose lease the caller has; None with the refusal if it has none."""
    row = view.get(SUBSCRIPTION, (proof.name,))
    if row is None:
        return None, MISSING
    if row.life != proof.life or proof.token_generation != proof.generation:
        return None, OTHER_TOKEN
    if row.kind != kind:
        return None, OTHER_KIND
    if (row.generation, row.wake_id) != (proof.generation, proof.wake_id) or not row.wake_id:
        return None, FENCED
    if row.phase == LEASED and is_due(row, now):
        return None, FENCED
    if row.phase == WAKING and row.kind == PULL_WAKE:  # no worker has claimed it
        return None, FENCED
    return row, None


def _applied(view: View, link: LinkRow, one: StreamAck, now: Now) -> LinkRow | None:
    """The link after an ack; None if the offset is not one of its stream, or is before the cursor."""
    stream = living(view.get(STREAM, (link.scope,)), now)
    if stream is None or one.offset is None:
        return None
    epoch, place = one.offset
    is_known = one.offset == BEGINNING or epoch_at(stream, place) == epoch
    if not is_known or not position(link, stream) <= place <= stream.tail:
        return None
    acked = link._replace(stream_id=stream.id, acked=place)
    return acked._replace(quiet=0 if has_work(acked, stream) else 1)
