"""Submission of events: the steps for each item, in list order.

| step | looks at | says |
|---|---|---|
| 1, 2 | the item's own shape, and whether its sender may write there | rejected; found before the transaction |
| 3 | the memory of its id | the recorded commit, or rejected because the id is taken |
| 4 | whether every reader could be sent it; the application's rules, with the accepted items before it | rejected |
| 5 | - | committed: the next position, the event, its places and the memory of its id in one commit |

A rejected item undoes nothing, stops nothing (unless the request says so), is not remembered and uses no position.
"""

from __future__ import annotations

from typing import NamedTuple

from semel.contracts.events.commands import (
    VALIDATION_FAILED,
    Committed,
    Item,
    NotProcessed,
    Rejection,
    Result,
    Submit,
    Submitted,
)
from semel.contracts.events.limits import MAX_COMMITTED_ID, MAX_ID_BYTES
from semel.contracts.events.tables import (
    EMPTY_LOG,
    EVENT,
    EVENT_HEAD,
    EVENT_ID,
    EVENT_PLACE,
    HEAD_KEY,
    EventHeadRow,
    EventIdRow,
    EventPlaceRow,
    EventRow,
)
from semel.contracts.events.validation import Candidate, Validator
from semel.engine.contract import Outcome, View
from semel.kernel.clock import Now
from semel.kernel.json_parse import parse

TOPIC = b"events"
"""Live readers of the log listen to this."""


class _Request(NamedTuple):
    """The common data of the items of one submission."""

    view: View
    sender: bytes
    origin: bytes
    now_ms: int


def submit(view: View, command: Submit, now: Now, validator: Validator | None) -> Outcome:
    """Judge every item in its turn."""
    head = view.get(EVENT_HEAD, HEAD_KEY) or EMPTY_LOG
    now = now.not_before(head.updated_at)
    request = _Request(view, command.client_id.encode(), command.origin, now.ms)
    last = head.last_id
    results: list[Result] = []
    accepted: list[Candidate] = []
    blocked_by: str | None = None
    for item in command.items:
        if blocked_by is not None:
            results.append(NotProcessed(blocked_by))
            continue
        said = item.flaw or _known(view, item) or item.excess
        said = said or _complaints(item, command.client_id, accepted, validator)
        if said is None:
            last += 1
            said = _commit(request, item, last)
        elif command.stops and isinstance(said, Rejection):
            blocked_by = item.id[:MAX_ID_BYTES]  # one that is longer is what was wrong with it
        results.append(said)
    answer = Submitted(tuple(results), now.ms)
    if last == head.last_id:
        return Outcome(answer)
    assert last <= MAX_COMMITTED_ID
    view.put(EVENT_HEAD, EventHeadRow(b"", last, now.ms, head.pruned_to))
    return Outcome(answer, (TOPIC,))


def _known(view: View, item: Item) -> Committed | Rejection | None:
    row = view.get(EVENT_ID, (item.key,))
    if row is None:
        return None
    if row.digest == item.digest:
        return Committed(row.committed_id, row.committed_at, False)
    return Rejection(VALIDATION_FAILED, (("event", f"id {item.id} is already committed with other content"),))


def _complaints(item: Item, client_id: str, accepted: list[Candidate], validator: Validator | None) -> Rejection | None:
    if validator is None:
        return None
    event = parse(item.text) if item.event is None else item.event
    candidate = Candidate(item.id, item.partitions.names, event, client_id)
    complaints = tuple((str(field), str(message)) for field, message in validator(candidate, tuple(accepted)) or ())
    if complaints:
        return Rejection(VALIDATION_FAILED, complaints)
    accepted.append(candidate)
    return None


def _commit(request: _Request, item: Item, committed_id: int) -> Committed:
    view, sender, origin, now_ms = request
    partitions = item.partitions
    view.insert(EVENT, EventRow(committed_id, item.name, sender, origin, now_ms, partitions.text, item.text))
    view.insert(EVENT_ID, EventIdRow(item.key, committed_id, now_ms, item.digest))
    for key in partitions.keys:
        view.insert(EVENT_PLACE, EventPlaceRow(key, committed_id))
    return Committed(committed_id, now_ms, True)
