"""Changes of the log: submissions, deduplicated by id and content digest, and pruning.

The items of a submission are decided one by one, in list order:

| step | checks | result |
|---|---|---|
| 1, 2 | the form of the item, and whether its sender may write there | rejected; found before the transaction |
| 3 | the row of its id | the recorded commit, or rejected because the id is taken |
| 4 | whether it can be sent to every reader; the watermark that it expects of its partitions | rejected |
| 5 | the application's validator, with the items accepted before | rejected |
| 6 | - | committed: the next position, the event, its places, the ends of its partitions and the row of its id |

The watermark of partitions is the position of the last event in any of them, pruned or not; 0 if they never had one.
All submissions are decided one after another under the one lock, so of two items that expect the same watermark of a
partition at most one is committed.

A rejected item undoes nothing, stops nothing (unless the request says so), is not stored and uses no position.

Two submissions under one id are the same if the RFC 8785 bytes of {"event": ..., "partitions": ...} are equal. The
client, the connection and the time do not count. The digest is stored with the id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from semel.engine.contract import DecisionResult, View
from semel.kernel.clock import Now
from semel.kernel.hashes import fingerprint
from semel.kernel.json.canonical import Integers, Surrogates, canonical_outlined
from semel.kernel.json.fragment import dump
from semel.kernel.json.parse import parse
from semel.kernel.json.text import refuse_deep
from semel.surfaces.events.commands import (
    VALIDATION_FAILED,
    WATERMARK_MISMATCH,
    Candidate,
    EventCommitted,
    EventItem,
    EventNotProcessed,
    EventPrune,
    EventRejection,
    EventResult,
    EventSubmit,
    EventSubmitted,
    Validator,
)
from semel.surfaces.events.limits import MAX_COMMITTED_ID, MAX_ID_BYTES
from semel.surfaces.events.tables import (
    EMPTY_LOG,
    EVENT,
    EVENT_HEAD,
    EVENT_ID,
    EVENT_PARTITION,
    EVENT_PLACE,
    HEAD_KEY,
    EventHeadRow,
    EventIdRow,
    EventPartitionRow,
    EventPlaceRow,
    EventRow,
)

TOPIC = b"events"
"""The topic of live readers of the log."""


class _SubmitRequest(NamedTuple):
    """The common data of the items of one submission."""

    view: View
    sender: bytes
    origin: bytes
    now_ms: int


def submit(view: View, command: EventSubmit, now: Now, validator: Validator | None) -> DecisionResult:
    """Decide every item in order."""
    head = view.get(EVENT_HEAD, HEAD_KEY) or EMPTY_LOG
    now = now.not_before(head.updated_at)
    request = _SubmitRequest(view, command.client_id.encode(), command.origin, now.ms)
    last = head.last_id
    results: list[EventResult] = []
    accepted: list[Candidate] = []
    blocked_by: str | None = None
    for item in command.items:
        if blocked_by is not None:
            results.append(EventNotProcessed(blocked_by))
            continue
        said = item.flaw or _known(view, item) or item.excess or _mismatch(view, item)
        said = said or _complaints(item, command.client_id, accepted, validator)
        if said is None:
            last += 1
            said = _commit(request, item, last)
        elif command.stops and isinstance(said, EventRejection):
            blocked_by = item.id[:MAX_ID_BYTES]  # the item may have been rejected because its id is longer
        results.append(said)
    answer = EventSubmitted(tuple(results), now.ms)
    if last == head.last_id:
        return DecisionResult(answer)
    assert last <= MAX_COMMITTED_ID
    view.put(EVENT_HEAD, EventHeadRow(b"", last, now.ms, head.pruned_to))
    return DecisionResult(answer, (TOPIC,))


def _known(view: View, item: EventItem) -> EventCommitted | EventRejection | None:
    row = view.get(EVENT_ID, (item.key,))
    if row is None:
        return None
    if row.digest == item.digest:
        return EventCommitted(row.committed_id, row.committed_at, False)
    return EventRejection(VALIDATION_FAILED, (("event", f"id {item.id} is already committed with other content"),))


def _mismatch(view: View, item: EventItem) -> EventRejection | None:
    """The rejection of an item that expects another watermark of its partitions."""
    if item.if_watermark is None:
        return None
    ends = [view.get(EVENT_PARTITION, (key,)) for key in item.partitions.keys]
    last = max([end.last_id for end in ends if end is not None], default=0)
    if last == item.if_watermark:
        return None
    message = f"is {item.if_watermark}, and the watermark of these partitions is {last}"
    return EventRejection(WATERMARK_MISMATCH, (("if_watermark", message),), last)


def _complaints(
    item: EventItem, client_id: str, accepted: list[Candidate], validator: Validator | None
) -> EventRejection | None:
    if validator is None:
        return None
    event = parse(item.text) if item.event is None else item.event
    candidate = Candidate(item.id, item.partitions.names, event, client_id)
    complaints = tuple((str(field), str(message)) for field, message in validator(candidate, tuple(accepted)) or ())
    if complaints:
        return EventRejection(VALIDATION_FAILED, complaints)
    accepted.append(candidate)
    return None


def _commit(request: _SubmitRequest, item: EventItem, committed_id: int) -> EventCommitted:
    view, sender, origin, now_ms = request
    partitions = item.partitions
    view.insert(EVENT, EventRow(committed_id, item.name, sender, origin, now_ms, partitions.text, item.text))
    view.insert(EVENT_ID, EventIdRow(item.key, committed_id, now_ms, item.digest))
    for key in partitions.keys:
        view.insert(EVENT_PLACE, EventPlaceRow(key, committed_id))
        end = view.get(EVENT_PARTITION, (key,))
        view.put(EVENT_PARTITION, EventPartitionRow(key, committed_id, 1 if end is None else end.kept + 1))
    return EventCommitted(committed_id, now_ms, True)


def digest(partitions: Sequence[str], event: Any) -> bytes:
    """SHA-256 over normalized partitions and an event that a strict parser made."""
    return digest_of(dump(partitions), event, is_proved=False)


def digest_of(partitions: bytes, event: Any, *, is_proved: bool) -> bytes:
    """As `digest`, for partitions that are already printed, and an event that may be proved to print canonically."""
    printed = orjson.dumps(event, option=orjson.OPT_SORT_KEYS) if is_proved else _canonical(event)
    return fingerprint(b'{"event":%s,"partitions":%s}' % (printed, partitions))


def _canonical(event: Any) -> bytes:
    text = canonical_outlined(event, Integers.REFUSE, Surrogates.REFUSE)
    refuse_deep(text)  # the message around the event may be nested deeper than an event may be
    return text


def prune(view: View, command: EventPrune) -> DecisionResult:
    """Delete bodies and places; the rows of ids and of partitions are kept."""
    head = view.get(EVENT_HEAD, HEAD_KEY)
    if head is None or not command.places:
        return DecisionResult(0)
    counts: Counter[bytes] = Counter()
    for committed_id, names in command.places:
        view.forget(EVENT, (committed_id,))
        for name in names:
            view.forget(EVENT_PLACE, (name, committed_id))
            counts[name] += 1
    for name, count in counts.items():
        end = view.get(EVENT_PARTITION, (name,))
        assert end is not None
        view.put(EVENT_PARTITION, end._replace(kept=end.kept - count))
    pruned_to = max(head.pruned_to, command.places[-1][0])
    view.put(EVENT_HEAD, head._replace(pruned_to=pruned_to))
    return DecisionResult(len(command.places))
