"""Maintenance of the event log: frees the bodies of old events."""

from __future__ import annotations

from semel.contracts.events.commands import Prune
from semel.contracts.events.tables import EVENT, EVENT_HEAD, EVENT_PLACE, HEAD_KEY
from semel.engine.contract import Outcome, View


def prune(view: View, command: Prune) -> Outcome:
    """Free bodies and places; the memory of ids stays."""
    head = view.get(EVENT_HEAD, HEAD_KEY)
    if head is None or not command.places:
        return Outcome(0)
    for committed_id, names in command.places:
        view.forget(EVENT, (committed_id,))
        for name in names:
            view.forget(EVENT_PLACE, (name, committed_id))
    pruned_to = max(head.pruned_to, command.places[-1][0])
    view.put(EVENT_HEAD, head._replace(pruned_to=pruned_to))
    return Outcome(len(command.places))
