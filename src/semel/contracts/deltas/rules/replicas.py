"""Progress of each replica: its row, by gateway, client and credential."""

from __future__ import annotations

import json
from functools import lru_cache

from semel.contracts.deltas.commands import Push
from semel.contracts.deltas.limits import Policy
from semel.contracts.deltas.model import Replica
from semel.contracts.deltas.refusals import Refusal
from semel.contracts.deltas.rules.cursors import Progress, dump_aliases, load_aliases
from semel.contracts.deltas.tables import (
    DELTA_GATEWAY,
    DELTA_REPLICA,
    DeltaGatewayRow,
    DeltaReplicaRow,
    gateway_key,
    text_key,
)
from semel.engine.contract import View
from semel.kernel.clock import Now
from semel.kernel.delta_id import json_text
from semel.store.protocol import Touch
from semel.store.table import Key

HOUR_MS = 3_600_000
_KEPT_KEYS = 1_024
"""Size of the cache of keys: a push uses the key of its replica many times."""


@lru_cache(_KEPT_KEYS)
def progress_key(replica: Replica) -> Key:
    """The key of a replica's row."""
    return gateway_key(replica.gateway), text_key(replica.client), text_key(json_text(replica.subject))


def load_progress(row: DeltaReplicaRow | None, gateway: DeltaGatewayRow | None = None, shown: int = 0) -> Progress:
    """The progress of a replica.

    One that is not known has been told what it has shown. It may be one that was forgotten, and then it has a past: it
    is told of its own entries from before that as of those of others.
    """
    if row is None:
        return Progress(shown, 0 if gateway is None else gateway.forgotten_at)
    return Progress(row.seen, row.muted, load_aliases(row.aliases), row.life)


def progress_of(view: View, command: Push, replica: Replica) -> Progress:
    """The progress of the pusher, or of another author whose deltas it forwards."""
    row = view.get(DELTA_REPLICA, progress_key(replica))
    gateway = view.get(DELTA_GATEWAY, (gateway_key(replica.gateway),))
    return load_progress(row, gateway, command.shown if replica == command.replica else 0)


def touches_of(replica: Replica, row: DeltaReplicaRow | None, shown: int, now_ms: int) -> tuple[Touch, ...]:
    """The soft changes of a pull: a crash may forget them, and then the replica gets the entries again."""
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


def is_new(view: View, replica: Replica) -> bool:
    """Whether nothing is remembered of a replica."""
    return view.get(DELTA_REPLICA, progress_key(replica)) is None


def too_many(gateway: DeltaGatewayRow, policy: Policy) -> Refusal | None:
    """The refusal of one more client, if there are as many as there may be."""
    if gateway.replicas < policy.max_clients:
        return None
    message = f"This gateway has {policy.max_clients} clients already, which is as many as it takes."
    return Refusal("RATE_LIMITED", message, retry_after=60)


def save_progress(view: View, replica: Replica, progress: Progress, now: Now) -> None:
    """Write it."""
    gateway, client, subject = progress_key(replica)
    aliases, used_at = dump_aliases(progress.aliases), hour_of(now.ms)
    row = DeltaReplicaRow(gateway, client, subject, progress.seen, progress.muted, aliases, progress.life, used_at)
    view.put(DELTA_REPLICA, row)


def subject_of(command: Push, author: str) -> Replica:
    """The replica of an author: the pusher's own, or that of an author whose deltas it forwards.

    Where callers are known by name, an author pulls as itself.
    """
    replica = command.replica
    if author == replica.client:
        return replica
    return replica._replace(client=author, subject=json.loads(author) if command.is_named else replica.subject)
