"""Progress of each replica: its row, by gateway, client and credential; and the record of a page before it is sent.

State on which a later promise depends is on disk before the page is sent.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from functools import lru_cache

from semel.engine.contract import DecisionResult, Stage, View
from semel.kernel.clock import Now
from semel.kernel.errors import Refusal
from semel.kernel.hashes import json_text
from semel.kernel.hlc import tick
from semel.store.protocol import Touch
from semel.store.table import Key
from semel.surfaces.deltas.commands import AdvanceCursor, DeliveryRecorded, PushDeltas, RecordDelivery
from semel.surfaces.deltas.limits import DeltaPolicy
from semel.surfaces.deltas.model import DeltaReplica
from semel.surfaces.deltas.rules.cursors import ReplicaProgress, dump_aliases, load_aliases
from semel.surfaces.deltas.rules.gateways import gateway_of
from semel.surfaces.deltas.tables import (
    DELTA_GATEWAY,
    DELTA_REPLICA,
    DeltaGatewayRow,
    DeltaReplicaRow,
    gateway_key,
    text_key,
)
from semel.surfaces.epoch import EPOCH, EPOCH_KEY

HOUR_MS = 3_600_000
_KEPT_KEYS = 1_024
"""Size of the cache of keys: a push uses the key of its replica many times."""


@lru_cache(_KEPT_KEYS)
def progress_key(replica: DeltaReplica) -> Key:
    """The key of a replica's row."""
    return gateway_key(replica.gateway), text_key(replica.client), text_key(json_text(replica.subject))


def load_progress(
    row: DeltaReplicaRow | None, gateway: DeltaGatewayRow | None = None, shown: int = 0
) -> ReplicaProgress:
    """The progress of a replica.

    For a replica without a row, `shown` is its acknowledged position. It may have been forgotten: then it gets its own
    entries from before like those of others.
    """
    if row is None:
        return ReplicaProgress(shown, 0 if gateway is None else gateway.forgotten_at)
    return ReplicaProgress(row.seen, row.muted, load_aliases(row.aliases), row.life)


def progress_of(view: View, command: PushDeltas, replica: DeltaReplica) -> ReplicaProgress:
    """The progress of the pusher, or of another author whose deltas it forwards."""
    row = view.get(DELTA_REPLICA, progress_key(replica))
    gateway = view.get(DELTA_GATEWAY, (gateway_key(replica.gateway),))
    return load_progress(row, gateway, command.shown if replica == command.replica else 0)


def touches_of(replica: DeltaReplica, row: DeltaReplicaRow | None, shown: int, now_ms: int) -> tuple[Touch, ...]:
    """The soft changes of a pull: if a crash loses them, the replica gets the entries again."""
    if row is None:
        return ()
    key = progress_key(replica)
    touches = []
    if shown > row.seen:
        touches.append(Touch(DELTA_REPLICA, key, "seen", shown, "life", row.life))
    if hour_of(now_ms) > row.used_at:
        touches.append(Touch(DELTA_REPLICA, key, "used_at", hour_of(now_ms)))
    return tuple(touches)


def hour_of(now_ms: int) -> int:
    """The beginning of the hour: an active client is recorded once an hour."""
    return now_ms - now_ms % HOUR_MS


def is_new(view: View, replica: DeltaReplica) -> bool:
    """Whether no progress of the replica is stored."""
    return view.get(DELTA_REPLICA, progress_key(replica)) is None


def too_many(gateway: DeltaGatewayRow, policy: DeltaPolicy) -> Refusal | None:
    """The refusal of one more client at the limit on clients; None below it."""
    if gateway.replicas < policy.max_clients:
        return None
    message = f"This gateway has {policy.max_clients} clients already, which is its limit."
    return Refusal("deltas:RATE_LIMITED", message, retry_after_ms=60_000)


def save_progress(view: View, replica: DeltaReplica, progress: ReplicaProgress, now: Now) -> None:
    """Write the progress."""
    gateway, client, subject = progress_key(replica)
    aliases, used_at = dump_aliases(progress.aliases), hour_of(now.ms)
    row = DeltaReplicaRow(gateway, client, subject, progress.seen, progress.muted, aliases, progress.life, used_at)
    view.put(DELTA_REPLICA, row)


def subject_of(command: PushDeltas, author: str) -> DeltaReplica:
    """The replica of an author: the pusher's own, or that of an author whose deltas it forwards.

    If callers are known by name, an author pulls as itself.
    """
    replica = command.replica
    if author == replica.client:
        return replica
    return replica._replace(client=author, subject=json.loads(author) if command.is_named else replica.subject)


def delivery_needs(command: RecordDelivery | AdvanceCursor) -> Generator[Stage, View, None]:
    """The gateway and the replica."""
    gateway = gateway_key(command.replica.gateway)
    replica = (DELTA_REPLICA, progress_key(command.replica))
    yield Stage(keys=[(DELTA_GATEWAY, (gateway,)), replica, (EPOCH, EPOCH_KEY)])


def record_delivery(view: View, command: RecordDelivery, policy: DeltaPolicy, now: Now) -> DecisionResult:
    """Store the end of a page.

    A cursor that already has another meaning cannot be used, because the client could not say which one it means. A new
    number replaces it, unless entries were committed after the page, which that number would skip. A page that was
    overtaken by another answer to the same client is not stored: it would set the client back.
    """
    gateway = gateway_of(view, command.replica.gateway)
    assert gateway is not None, "a page belongs to a gateway"
    progress = load_progress(view.get(DELTA_REPLICA, progress_key(command.replica)), gateway)
    if progress.mark != command.mark:
        return DecisionResult(DeliveryRecorded(None))
    cursor = command.cursor
    if is_new(view, command.replica):
        refusal = too_many(gateway, policy)
        if refusal is not None:
            return DecisionResult(refusal)
        gateway = gateway._replace(replicas=gateway.replicas + 1)
    if command.is_taken:
        if gateway.high_water != cursor:
            return DecisionResult(DeliveryRecorded(None))
        cursor = tick(cursor, now.wall_ms)
        cursor += cursor % 2
        gateway = gateway._replace(high_water=cursor)
    view.put(DELTA_GATEWAY, gateway)
    if command.gone_back_at is not None:
        progress = progress.gone_back(command.shown, command.gone_back_at)
    save_progress(view, command.replica, progress.noted(command.shown, cursor, command.rest), now)
    return DecisionResult(DeliveryRecorded(cursor))


def advance_cursor(view: View, command: AdvanceCursor, now: Now) -> DecisionResult:
    """Make a cursor an alias of a later one, because there are no entries for its client in between."""
    row = view.get(DELTA_REPLICA, progress_key(command.replica))
    if row is not None:
        progress = load_progress(row)
        if progress.mark == command.mark:
            save_progress(view, command.replica, progress.rested(command.since, command.cursor), now)
    return DecisionResult(DeliveryRecorded(command.cursor))
