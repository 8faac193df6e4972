"""Wakes: marks become pending links, pending links become a wake, and the result of an attempt ends it or leases it.

A wake is stored before it is sent: a crash after the commit repeats it, with the same id and generation, when its time
is up. The event of a pull-wake is appended to the wake stream in the commit that starts the wake.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from semel.engine.contract import DecisionResult, View, demand
from semel.kernel.clock import Now, utc_text
from semel.kernel.verdict import NEVER, Window
from semel.store.protocol import Range
from semel.surfaces.streams.commands import Append, Appended, Content
from semel.surfaces.streams.rules.append import append
from semel.surfaces.streams.rules.expiry import living
from semel.surfaces.streams.rules.offsets import offset_at
from semel.surfaces.streams.subscriptions.commands import (
    WAKE_STREAMS,
    AttemptResult,
    MarkSettle,
    PendingMark,
    SubscriptionLimits,
    WakeItem,
    WakeOutcome,
    WakeStart,
    WakeStarted,
)
from semel.surfaces.streams.subscriptions.rules.links import acked_offset, has_work, linked_range, position
from semel.surfaces.streams.subscriptions.rules.phases import (
    ATTEMPT_MARGIN_MS,
    attempt_failed,
    ended,
    is_due,
    leased,
    repeat_ms,
    sent,
    tried_again,
)
from semel.surfaces.streams.subscriptions.tables import (
    EXPLICIT,
    IDLE,
    LEASED,
    LINK,
    MOVED,
    SUBSCRIPTION,
    TOPIC,
    WAKING,
    WEBHOOK,
    LinkRow,
    SubscriptionRow,
)
from semel.surfaces.streams.tables import STREAM, StreamRow

_NOTHING = DecisionResult(None)
_NO_KEYS = Window(0)
"""A wake event has no idempotency key."""


def pending_range(life: bytes, limit: int = WAKE_STREAMS) -> Range:
    """The links of a subscription with possible work."""
    return Range(LINK, "pending", (life, 0), limit)


def snapshot_range(life: bytes, generation: int) -> Range:
    """The links in the snapshot of a wake that were not acknowledged up to their tails since."""
    return Range(LINK, "pending", (life, 0, generation), WAKE_STREAMS)


def mark_pending(view: View, command: PendingMark, now: Now) -> DecisionResult:
    """Set the hints of links whose streams have moved; an idle subscription becomes due."""
    row = view.get(SUBSCRIPTION, (command.name,))
    if row is None or row.life != command.life:
        return DecisionResult(False)
    has_found = False
    for scope in command.scopes:
        link = view.get(LINK, (command.life, scope))
        if link is None:
            continue
        has_found = True
        if link.quiet:
            view.put(LINK, link._replace(quiet=0))
    if has_found and row.phase == IDLE and row.due_at == NEVER:
        view.put(SUBSCRIPTION, row._replace(due_at=now.steady_ms))
    return DecisionResult(True)


def settle(view: View, command: MarkSettle) -> DecisionResult:
    """Delete a mark that has been carried to all links, unless the stream has moved again.

    A stream without links leaves no more marks: new links are made under the lock of globs, and adopt it again.
    """
    mark = view.get(MOVED, (command.scope,))
    if mark is None or (mark.stream_id, mark.tail) != (command.stream_id, command.tail):
        return DecisionResult(False)
    view.delete(MOVED, (command.scope,))
    stream = view.get(STREAM, (command.scope,))
    if stream is not None and stream.subscribed and not view.range(linked_range(command.scope)):
        view.put(STREAM, stream._replace(subscribed=0))
    return DecisionResult(True)


def _demand_streams(view: View, links: Sequence[LinkRow]) -> None:
    """Load all streams of these links at once, if an earlier write of the batch has changed the links."""
    demand(view, [(STREAM, (link.scope,)) for link in links])


class FoundWork:
    """The links with work, among the first ones that may have some; hints that were wrong are cleared."""

    def __init__(self, view: View, life: bytes, now: Now) -> None:
        hinted: Sequence[LinkRow] = view.range(pending_range(life))
        self.links: list[tuple[LinkRow, StreamRow]] = []
        _demand_streams(view, hinted)
        for link in hinted:
            stream = living(view.get(STREAM, (link.scope,)), now)
            if stream is not None and has_work(link, stream):
                self.links.append((link, stream))
            else:
                view.put(LINK, link._replace(quiet=1))
        self.may_be_more = len(hinted) >= WAKE_STREAMS

    def snapshot(self, view: View, generation: int) -> tuple[WakeItem, ...]:
        """Store the snapshot of a wake, and return its streams."""
        items = []
        for link, stream in self.links:
            start = position(link, stream)
            view.put(
                LINK,
                link._replace(stream_id=stream.id, acked=start, wake=generation, snapshot=stream.tail),
            )
            items.append(item_of(link, stream, stream.tail))
        return tuple(items)


def item_of(link: LinkRow, stream: StreamRow, tail: int) -> WakeItem:
    """One stream of a wake, as it is told."""
    is_explicit = bool(link.kind & EXPLICIT)
    return WakeItem(link.path, is_explicit, acked_offset(link, stream), offset_at(stream, tail))


def start(view: View, command: WakeStart, now: Now, limits: SubscriptionLimits) -> DecisionResult:
    """Start the wake that is due: a new one, the next attempt of one, or a new one because a lease has ended."""
    row = view.get(SUBSCRIPTION, (command.name,))
    if row is None or row.life != command.life:
        return _NOTHING
    is_orphan = command.takes_over and row.owner not in (b"", command.node)
    if not is_due(row, now) and not is_orphan:
        return _NOTHING
    if row.phase == WAKING and row.kind == WEBHOOK:
        return _retry(view, row, command, now, limits)
    work = FoundWork(view, row.life, now)
    if not work.links:
        view.put(SUBSCRIPTION, ended(row, now.steady_ms if work.may_be_more else NEVER))
        return DecisionResult(None, signals=(TOPIC,) if work.may_be_more else ())
    if row.kind == WEBHOOK:
        return _send(view, row, command, now, limits, work)
    return _append_event(view, row, command, now, work)


def _send(
    view: View, row: SubscriptionRow, command: WakeStart, now: Now, limits: SubscriptionLimits, work: FoundWork
) -> DecisionResult:
    woken = sent(row, command.wake_id, command.node, _attempt_end(now, limits))
    items = work.snapshot(view, woken.generation)
    view.put(SUBSCRIPTION, woken)
    return DecisionResult(WakeStarted(woken, items, True))


def _attempt_end(now: Now, limits: SubscriptionLimits) -> int:
    return now.steady_ms + limits.attempt_ms + ATTEMPT_MARGIN_MS


def _retry(
    view: View, row: SubscriptionRow, command: WakeStart, now: Now, limits: SubscriptionLimits
) -> DecisionResult:
    """The same wake again: same id, generation and snapshot."""
    again = tried_again(row, command.node, _attempt_end(now, limits))
    view.put(SUBSCRIPTION, again)
    items = []
    links: Sequence[LinkRow] = view.range(snapshot_range(row.life, row.generation))
    _demand_streams(view, links)
    for link in links:
        stream = living(view.get(STREAM, (link.scope,)), now)
        if stream is not None and stream.id == link.stream_id:
            items.append(item_of(link, stream, min(link.snapshot, stream.tail)))
    return DecisionResult(WakeStarted(again, tuple(items), False))


def _append_event(view: View, row: SubscriptionRow, command: WakeStart, now: Now, work: FoundWork) -> DecisionResult:
    """Append the event of a pull-wake; if the wake stream does not accept it, try again after a pause.

    An event that no worker has claimed is repeated, with the same generation: the wake stream may have been created
    again since, or the worker that read it may have died.
    """
    assert command.wake_scope is not None
    is_new = row.phase != WAKING
    generation = row.generation + 1 if is_new else row.generation
    event = {
        "type": "wake",
        "subscription_id": row.id.decode(),
        "stream": work.links[0][0].path.decode(),
        "generation": generation,
        "ts": utc_text(now.wall_ms),
    }
    content = Content(orjson.dumps(event), 1)
    appended = append(
        view,
        Append(command.wake_scope, None, b"", b"application/json", content, False, None, None, None),
        now,
        _NO_KEYS,
    )
    if not isinstance(appended.answer, Appended):
        idle = row._replace(phase=IDLE, wake_id=b"", holder=b"")
        view.put(SUBSCRIPTION, attempt_failed(idle, now, command.chance))
        return _NOTHING
    woken = sent(row, command.wake_id, b"", NEVER) if is_new else row._replace(attempts=row.attempts + 1)
    woken = woken._replace(failed=0, due_at=now.steady_ms + repeat_ms(woken))
    items = work.snapshot(view, generation)
    view.put(SUBSCRIPTION, woken)
    return DecisionResult(WakeStarted(woken, items, is_new), appended.signals, appended.touches)


def outcome(view: View, command: WakeOutcome, now: Now) -> DecisionResult:
    """Record how an attempt ended. A late answer to an earlier attempt of the same wake counts, unless it failed."""
    row = view.get(SUBSCRIPTION, (command.name,))
    if row is None or row.life != command.life or row.generation != command.generation or row.phase == IDLE:
        return DecisionResult(False)
    if command.result is AttemptResult.DONE:
        is_more = _ack_snapshot(view, row, now)
        view.put(SUBSCRIPTION, ended(row, now.steady_ms if is_more else NEVER))
        return DecisionResult(True, signals=(TOPIC,) if is_more else ())
    if row.phase == LEASED:  # a callback was first
        return DecisionResult(False)
    if command.result is AttemptResult.ACCEPTED:
        view.put(SUBSCRIPTION, leased(row, now))
        return DecisionResult(True, signals=(TOPIC,))
    if (row.attempts, row.owner) != (command.attempt, command.node):
        return DecisionResult(False)
    view.put(SUBSCRIPTION, attempt_failed(row, now, command.chance))
    return DecisionResult(True, signals=(TOPIC,))


def _ack_snapshot(view: View, row: SubscriptionRow, now: Now) -> bool:
    """Acknowledge the snapshot of the wake; returns whether there is more work."""
    links: Sequence[LinkRow] = view.range(snapshot_range(row.life, row.generation))
    _demand_streams(view, links)
    for link in links:
        stream = living(view.get(STREAM, (link.scope,)), now)
        acked = link._replace(acked=max(link.acked, link.snapshot))
        view.put(LINK, acked._replace(quiet=0 if has_work(acked, stream) else 1))
    return bool(view.range(pending_range(row.life, 1)))
