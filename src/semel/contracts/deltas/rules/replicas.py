"""How far each replica was told: its row, by gateway, client and whose credential it came with."""

from __future__ import annotations

import json
from functools import lru_cache

from semel.contracts.deltas.commands import Push
from semel.contracts.deltas.limits import MAX_REPLICAS
from semel.contracts.deltas.model import Replica
from semel.contracts.deltas.refusals import Refusal
from semel.contracts.deltas.rules.cursors import Progress, dump_aliases, load_aliases
from semel.contracts.deltas.tables import DELTA_REPLICA, DeltaGatewayRow, DeltaReplicaRow, gateway_key, text_key
from semel.engine.contract import View
from semel.kernel.delta_id import json_text
from semel.store.table import Key

_KEPT_KEYS = 1_024
"""A push asks for the key of its replica again and again."""


@lru_cache(_KEPT_KEYS)
def progress_key(replica: Replica) -> Key:
    """The key of a replica's row."""
    return gateway_key(replica.gateway), text_key(replica.client), text_key(json_text(replica.subject))


def load_progress(row: DeltaReplicaRow | None) -> Progress:
    """How far a replica was told; one that is not known was told nothing."""
    return Progress() if row is None else Progress(row.seen, row.muted, load_aliases(row.aliases))


def is_new(view: View, replica: Replica) -> bool:
    """Whether nothing is remembered of a replica."""
    return view.get(DELTA_REPLICA, progress_key(replica)) is None


def too_many(gateway: DeltaGatewayRow) -> Refusal | None:
    """The refusal of one more client, if there are as many as there may be."""
    if gateway.replicas < MAX_REPLICAS:
        return None
    message = f"This gateway has {MAX_REPLICAS} clients already, which is as many as it takes."
    return Refusal("RATE_LIMITED", message, retry_after=60)


def save_progress(view: View, replica: Replica, progress: Progress) -> None:
    """Write it."""
    gateway, client, subject = progress_key(replica)
    aliases = dump_aliases(progress.aliases)
    view.put(DELTA_REPLICA, DeltaReplicaRow(gateway, client, subject, progress.seen, progress.muted, aliases))


def subject_of(command: Push, author: str) -> Replica:
    """The replica of an author: the pusher's own, or that of one whose deltas it passes on.

    Where callers are known by name, an author pulls as itself.
    """
    replica = command.replica
    if author == replica.client:
        return replica
    return replica._replace(client=author, subject=json.loads(author) if command.is_named else replica.subject)
