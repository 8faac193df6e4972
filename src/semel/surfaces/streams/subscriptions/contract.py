"""Subscriptions as a contract of the engine: locks, rows and decisions.

| lock | protects |
|---|---|
| `globs` | patterns and the set of links; stream creation and `MarkSettle` share it |
| `subscription:<id>` | the row of a subscription, and the cursors of its links |
| `stream:<name>` | the row and the mark of a stream |
| `subscription-keys` | signing keys and the token secret |

The tails of streams are read without the locks of the streams: an append that is not seen has left a mark, which sets
the hint again.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from semel.engine.contract import DecisionResult, Order, Stage, View
from semel.engine.reading import Reading
from semel.kernel.clock import Now
from semel.store.protocol import AnyTable, Lock
from semel.store.table import Key
from semel.surfaces.epoch import EPOCH, EPOCH_KEY
from semel.surfaces.streams.subscriptions.commands import (
    AttemptResult,
    KeysEnsure,
    LinksAdopt,
    LinksFree,
    MarkSettle,
    PendingMark,
    StreamLinksFree,
    StreamsLink,
    StreamUnlink,
    SubscriptionCommand,
    SubscriptionDelete,
    SubscriptionLimits,
    SubscriptionPut,
    WakeAck,
    WakeClaim,
    WakeOutcome,
    WakeRelease,
    WakeStart,
)
from semel.surfaces.streams.subscriptions.rules import configuration, leases, wakes
from semel.surfaces.streams.subscriptions.rules.globs import first_segment
from semel.surfaces.streams.subscriptions.rules.links import GLOBS, GLOBS_SHARED, linked_range
from semel.surfaces.streams.subscriptions.tables import (
    COUNT_KEY,
    ENDED,
    FACT,
    GLOB,
    LINK,
    MOVED,
    SECRET_KEY,
    SUBSCRIPTION,
    own_count_key,
)
from semel.surfaces.streams.tables import STREAM

KEYS_LOCK = Lock(b"subscription-keys")
Keys = list[tuple[AnyTable, Key]]


def stream_lock(scope: bytes) -> Lock:
    """The lock of a stream."""
    return Lock(b"stream:" + scope)


def subscription_lock(name: bytes) -> Lock:
    """The lock of a subscription."""
    return Lock(b"subscription:" + name)


class SubscriptionContract:
    """The contract of subscriptions."""

    name = "streams"

    def __init__(self, limits: SubscriptionLimits) -> None:
        self._limits = limits

    def locks(self, command: SubscriptionCommand) -> Sequence[Lock]:
        """The locks of the table above."""
        if isinstance(command, KeysEnsure):
            return (KEYS_LOCK,)
        if isinstance(command, MarkSettle):
            return GLOBS_SHARED, stream_lock(command.scope)
        if isinstance(command, StreamLinksFree):
            names = {name for name, _ in command.links}
            return (GLOBS, stream_lock(command.scope), *map(subscription_lock, names))
        if isinstance(command, WakeAck | WakeRelease):
            return (subscription_lock(command.proof.name),)
        own = subscription_lock(command.name)
        if isinstance(command, SubscriptionPut | SubscriptionDelete | StreamsLink | StreamUnlink):
            return GLOBS, own
        if isinstance(command, LinksAdopt):
            return (own, *map(stream_lock, command.scopes))
        if isinstance(command, WakeStart) and command.wake_scope is not None:
            return own, stream_lock(command.wake_scope)
        return (own,)

    def needs(self, command: SubscriptionCommand) -> Generator[Stage, View, None]:
        """The rows of a command, in one stage or two."""
        if isinstance(command, SubscriptionPut | SubscriptionDelete):
            yield from _put_or_delete_needs(command)
        elif isinstance(command, StreamsLink):
            linked: Keys = [(LINK, (command.life, one.scope)) for one in command.streams]
            streams: Keys = [(STREAM, (one.scope,)) for one in command.streams]
            held = configuration.explicit_range(command.life, self._limits.explicit_streams + 1)
            yield Stage([(SUBSCRIPTION, (command.name,)), *linked, *streams], [held])
        elif isinstance(command, WakeStart | WakeClaim):
            yield from _wake_needs(command)
        elif isinstance(command, WakeOutcome):
            yield from _outcome_needs(command)
        elif isinstance(command, WakeAck):
            life = command.proof.life
            linked = [(LINK, (life, one.scope)) for one in command.acks]
            streams = [(STREAM, (one.scope,)) for one in command.acks]
            ranges = [wakes.pending_range(life, 1 + len(command.acks))] if command.done else []
            yield Stage([(SUBSCRIPTION, (command.proof.name,)), *linked, *streams], ranges)
        elif isinstance(command, WakeRelease):
            yield Stage([(SUBSCRIPTION, (command.proof.name,))], [wakes.pending_range(command.proof.life, 1)])
        else:
            yield _background_needs(command)

    def order(self, command: SubscriptionCommand) -> Order | None:
        """No command is part of a sequence."""
        return None

    def decide(self, view: View, command: SubscriptionCommand, now: Now) -> DecisionResult:
        """Decide one command."""
        limits = self._limits
        match command:
            case SubscriptionPut():
                return configuration.put(view, command, now, limits)
            case SubscriptionDelete():
                return configuration.delete(view, command)
            case StreamsLink():
                return configuration.link(view, command, now, limits)
            case StreamUnlink():
                return configuration.unlink(view, command, now)
            case WakeStart():
                return wakes.start(view, command, now, limits)
            case WakeOutcome():
                return wakes.outcome(view, command, now)
            case WakeClaim():
                return leases.claim(view, command, now)
            case WakeAck():
                return leases.ack(view, command, now)
            case WakeRelease():
                return leases.release(view, command, now)
            case _:
                return _decide_background(view, command, now)

    def chores(self, reading: Reading) -> Sequence[SubscriptionCommand]:
        """None: the dispatcher frees what has ended."""
        return ()


def _put_or_delete_needs(command: SubscriptionPut | SubscriptionDelete) -> Generator[Stage, View, None]:
    keys: Keys = [(SUBSCRIPTION, (command.name,)), (FACT, COUNT_KEY)]
    if isinstance(command, SubscriptionPut):
        keys += [(FACT, own_count_key(command.creator)), *((STREAM, (one.scope,)) for one in command.streams)]
    view = yield Stage(keys)
    row = view.get(SUBSCRIPTION, (command.name,))
    if isinstance(command, SubscriptionPut):
        if row is None and command.pattern is not None:
            yield Stage(ranges=[configuration.prefix_range(command.pattern)])
    elif row is not None:
        globs: Keys = [] if row.pattern is None else [(GLOB, (first_segment(row.pattern), row.life))]
        yield Stage([(FACT, own_count_key(row.creator)), *globs])


def _wake_needs(command: WakeStart | WakeClaim) -> Generator[Stage, View, None]:
    keys: Keys = [(SUBSCRIPTION, (command.name,))]
    scope = command.wake_scope if isinstance(command, WakeStart) else None
    if scope is not None:
        keys += [(STREAM, (scope,)), (EPOCH, EPOCH_KEY)]
    view = yield Stage(keys, [wakes.pending_range(command.life)])
    rows = view.range(wakes.pending_range(command.life))
    streams: Keys = [(STREAM, (link.scope,)) for link in rows]
    subscribed = None if scope is None else view.get(STREAM, (scope,))
    if scope is not None and subscribed is not None and subscribed.subscribed:
        streams.append((MOVED, (scope,)))
    ranges = []
    row = view.get(SUBSCRIPTION, (command.name,))
    if row is not None and row.wake_id:
        ranges.append(wakes.snapshot_range(command.life, row.generation))
    if streams or ranges:
        view = yield Stage(streams, ranges)
    more = [link for wanted in ranges for link in view.range(wanted)]
    if more:
        yield Stage([(STREAM, (link.scope,)) for link in more])


def _outcome_needs(command: WakeOutcome) -> Generator[Stage, View, None]:
    key = (SUBSCRIPTION, (command.name,))
    if command.result is not AttemptResult.DONE:
        yield Stage([key])
        return
    snapshot = wakes.snapshot_range(command.life, command.generation)
    view = yield Stage([key], [snapshot, wakes.pending_range(command.life)])
    yield Stage([(STREAM, (link.scope,)) for link in view.range(snapshot)])


def _background_needs(command: SubscriptionCommand) -> Stage:
    match command:
        case StreamUnlink(name, life, stream):
            return Stage([(SUBSCRIPTION, (name,)), (LINK, (life, stream.scope)), (STREAM, (stream.scope,))])
        case LinksAdopt(name, life, scopes):
            linked: Keys = [(LINK, (life, scope)) for scope in scopes]
            return Stage([(SUBSCRIPTION, (name,)), *linked, *((STREAM, (scope,)) for scope in scopes)])
        case PendingMark(name, life, scopes):
            return Stage([(SUBSCRIPTION, (name,)), *((LINK, (life, scope)) for scope in scopes)])
        case LinksFree(name, life, scopes):
            linked = [(LINK, (life, scope)) for scope in scopes]
            return Stage([(SUBSCRIPTION, (name,)), (ENDED, (life,)), *linked])
        case StreamLinksFree(scope, links):
            return Stage([(STREAM, (scope,)), *((LINK, (life, scope)) for _, life in links)])
        case MarkSettle(scope):
            return Stage([(MOVED, (scope,)), (STREAM, (scope,))], [linked_range(scope)])
        case KeysEnsure():
            return Stage([(FACT, SECRET_KEY)], [configuration.KEY_RANGE])
        case _:
            raise TypeError(f"{type(command).__name__} is no command of subscriptions")


def _decide_background(view: View, command: SubscriptionCommand, now: Now) -> DecisionResult:
    match command:
        case LinksAdopt():
            return configuration.adopt(view, command, now)
        case LinksFree():
            return configuration.free(view, command)
        case StreamLinksFree():
            return configuration.free_of_stream(view, command, now)
        case PendingMark():
            return wakes.mark_pending(view, command, now)
        case MarkSettle():
            return wakes.settle(view, command)
        case KeysEnsure():
            return configuration.ensure_keys(view, command, now)
        case _:
            raise TypeError(f"{type(command).__name__} is no command of subscriptions")
