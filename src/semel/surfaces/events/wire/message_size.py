"""Message sizes: keeps every message to a client within `max_message_bytes`.

A client accepts no larger message than the server does. A request that would need a larger message is refused before
anything is committed or read: an event that does not fit into a page, a request whose answer would be too long, a
`sync` whose names leave no room for events. A page is filled up to the exact byte limit. An event that was committed
under a larger limit is still sent, alone in its page, so a lower limit never hides an event.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from semel.kernel.json.fragment import dump
from semel.surfaces.events.commands import (
    PAYLOAD_TOO_LARGE,
    EventItem,
    EventRejection,
    EventResult,
    EventSubmit,
    EventSubmitted,
)
from semel.surfaces.events.limits import MAX_COMMITTED_ID, MAX_ID_BYTES, EventLimits
from semel.surfaces.events.tables import EventRow
from semel.surfaces.events.wire.camel_case_versions import CamelCaseV1, CamelCaseV2
from semel.surfaces.events.wire.messages import bad_request
from semel.surfaces.events.wire.snake_case import SnakeCaseDialect

ENVELOPE_BYTES = 256
"""Upper bound of an envelope without the name of the request, in bytes."""
RESULT_BYTES = 160
"""Upper bound of a result without its id and the reason of a rejection, in bytes."""
REASON_BYTES = 160
"""A longer reason from the application's validator may be shortened."""
FIELDS_BYTES = 512
"""Upper bound of an event in any dialect without its text, its names and its ids, in bytes."""
PRINTED_BYTES = 6
"""The most JSON bytes for one byte of a name, including each place where a dialect repeats the name."""

FLAW_BYTES = 1_024
"""Upper bound of a reason that the parser gives, in bytes."""
ESCAPED_BYTES = 12
"""The most bytes that one character takes in JSON."""

_SHORTENED = EventRejection("", (("event", "is rejected; the reasons are too long for one answer"),))


def measured(command: EventSubmit, limits: EventLimits) -> EventSubmit:
    """The submission, with each item that is too large for a page marked as not to be committed."""
    refuse_long_answer(command, limits)
    return command._replace(items=tuple([_measured(item, command.client_id, limits) for item in command.items]))


def _measured(item: EventItem, client_id: str, limits: EventLimits) -> EventItem:
    most = limits.message_bytes - limits.head_bytes
    if item.flaw is not None or shown_at_most(item, client_id) <= most:
        return item
    size = len(item.text)
    if size <= most and (size := shown_bytes(item, client_id)) <= most:
        return item
    reason = f"takes {size} bytes in a page of events, and {most} is the most"
    return item._replace(excess=EventRejection(PAYLOAD_TOO_LARGE, (("event", reason),)))


def shown_at_most(item: EventItem, client_id: str) -> int:
    """An upper bound of `shown_bytes`, computed without serializing the event."""
    return shown_bound(item, len(client_id.encode()))


def shown_bound(item: EventItem, client_bytes: int) -> int:
    """As `shown_at_most`, for a client id of this many bytes."""
    return len(item.text) + PRINTED_BYTES * (len(item.name) + client_bytes + len(item.partitions.text)) + FIELDS_BYTES


def shown_bytes(item: EventItem, client_id: str) -> int:
    """The size of the event in the dialect where it is largest, in bytes."""
    names = item.partitions.names
    row = EventRow(
        MAX_COMMITTED_ID, item.name, client_id.encode(), b"", MAX_COMMITTED_ID, item.partitions.text, item.text
    )
    # Some numbers need the slow serializer, which escapes names to ASCII: so try the longest name of each form.
    projects = {max(names, key=lambda name: len(dump(name))), max(names, key=_ascii_bytes)}
    return max(len(dialect.event(row)) for dialect in (SnakeCaseDialect(), CamelCaseV1(), *map(CamelCaseV2, projects)))


def refuse_long_answer(command: EventSubmit, limits: EventLimits) -> None:
    """Refuse a submission whose results may not fit into one message."""
    if answer_bound(len(command.items), sum(len(item.id) for item in command.items)) <= answer_budget(limits):
        return
    widest = max(_ascii_bytes(item.id[:MAX_ID_BYTES]) for item in command.items) if command.stops else 0
    size = sum(_result_at_most(item, widest) for item in command.items)
    if size > answer_budget(limits):
        raise bad_request(
            f"the answer to these items could be larger than {limits.message_bytes} bytes; send fewer of them at once",
            max_message_bytes=limits.message_bytes,
        )


def answer_bound(items: int, id_characters: int) -> int:
    """An upper bound of the results of this many items, in bytes, whose ids have this many characters together."""
    return items * (RESULT_BYTES + REASON_BYTES + FLAW_BYTES) + 2 * ESCAPED_BYTES * id_characters


def _result_at_most(item: EventItem, widest: int) -> int:
    reason = REASON_BYTES + _ascii_bytes(item.id[:MAX_ID_BYTES])
    if item.flaw is not None:
        reason = max(REASON_BYTES, len(json.dumps(item.flaw.errors)) + REASON_BYTES)
    return RESULT_BYTES + _ascii_bytes(item.id) + max(reason, widest)


def answer_budget(limits: EventLimits) -> int:
    """The bytes that the results of one answer may take."""
    return limits.message_bytes - ENVELOPE_BYTES - limits.reply_bytes


def answer_within(show: Callable[[EventSubmitted], bytes], answer: EventSubmitted, limits: EventLimits) -> bytes:
    """The results as JSON; long reasons of the application's validator are shortened if they do not fit."""
    text = show(answer)
    if len(text) <= answer_budget(limits):
        return text
    return show(answer._replace(results=tuple([_shortened(result) for result in answer.results])))


def _shortened(result: EventResult) -> EventResult:
    if not isinstance(result, EventRejection) or len(json.dumps(result.errors)) <= REASON_BYTES:
        return result
    return _SHORTENED._replace(reason=result.reason)


def page_budget(head: int, limits: EventLimits) -> int:
    """The bytes left for events in a page whose other members take `head` bytes."""
    if head > limits.head_bytes:
        raise bad_request(
            f"the names in this request take {head} bytes of a page, and {limits.head_bytes} is the most",
            max_message_bytes=limits.message_bytes,
        )
    return limits.message_bytes - head


def is_short(name: str, most: int) -> bool:
    """Whether a name takes at most `most` bytes in JSON."""
    return len(name) <= most and len(dump(name)) <= most


def _ascii_bytes(text: str) -> int:
    return len(json.dumps(text))
