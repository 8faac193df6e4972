"""What happens to the log besides new events: old bodies are freed, and an operator may make it jump."""

from __future__ import annotations

from semel.contracts.events.commands import Jump, Jumped, Prune
from semel.contracts.events.limits import MAX_COMMITTED_ID
from semel.contracts.events.tables import EMPTY_LOG, EVENT, EVENT_HEAD, EVENT_PLACE, HEAD_KEY, EventHeadRow
from semel.engine.contract import Outcome, View
from semel.kernel.clock import Now

JUMP_LEAST = 1_000


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


def jump(view: View, command: Jump, now: Now) -> Outcome:
    """After an older backup was restored: no position that the lost future gave out may be given again."""
    head = view.get(EVENT_HEAD, HEAD_KEY) or EMPTY_LOG
    after = jumped_id(head, command, now.ms)
    view.put(EVENT_HEAD, EventHeadRow(b"", after, max(now.ms, head.updated_at), head.pruned_to))
    return Outcome(Jumped(head.last_id, after))


def jumped_id(head: EventHeadRow, command: Jump, now_ms: int) -> int:
    """The last position after a jump: more than can have been given out in the time since the last commit."""
    lost = max(0, now_ms - head.updated_at) * command.ids_a_ms if head.updated_at else 0
    return min(head.last_id + lost + JUMP_LEAST, MAX_COMMITTED_ID - 1)
