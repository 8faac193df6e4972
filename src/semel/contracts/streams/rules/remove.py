"""Delete (DELETE), expiry, and the freeing of a stream's rows."""

from __future__ import annotations

from semel.contracts.streams.commands import Bury, Delete, Deleted, Expire
from semel.contracts.streams.rules.append import NOT_FOUND
from semel.contracts.streams.rules.life import SWEEP_GRACE_MS, bury, living
from semel.contracts.streams.tables import CHUNK, GRAVE, PRODUCER, STREAM
from semel.engine.contract import Outcome, View
from semel.kernel.clock import Now


def delete(view: View, command: Delete, now: Now) -> Outcome:
    """Remove a living stream; its name is free at once."""
    stream = living(view.get(STREAM, (command.scope,)), now)
    if stream is None:
        return Outcome(NOT_FOUND)
    bury(view, stream, now)
    view.delete(STREAM, (command.scope,))
    return Outcome(Deleted(), signals=(stream.id,))


def expire(view: View, command: Expire, now: Now) -> Outcome:
    """Remove an expired stream, long enough after its end that no lost soft change could have moved it."""
    stream = view.get(STREAM, (command.scope,))
    if stream is None or now.expiry_ms < stream.deadline + SWEEP_GRACE_MS:
        return Outcome(None)
    bury(view, stream, now)
    view.delete(STREAM, (command.scope,))
    return Outcome(None, signals=(stream.id,))


def free(view: View, command: Bury) -> Outcome:
    """Free rows of an ended life. A producer's row may belong to a newer life by now, and then stays."""
    for key in command.chunks:
        view.forget(CHUNK, key)
    for key in command.producers:
        row = view.get(PRODUCER, key)
        if row is not None and row.id == command.id:
            view.delete(PRODUCER, key)
    if command.is_last and view.get(GRAVE, (command.id,)) is not None:
        view.delete(GRAVE, (command.id,))
    return Outcome(None)
