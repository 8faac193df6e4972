"""Message sizes: keeps every message to a client within `max_message_bytes`.

A client takes no larger message than the server does, so whatever would have to be sent in one is refused before it is
committed or begun: an event that no page could hold, a request whose answer would be too long, a `sync` whose names
leave no room for events. A page is then filled up to the byte. An event that was committed under a larger limit is
still given, alone in its page: nothing is withheld because a setting has changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from semel.contracts.events.commands import PAYLOAD_TOO_LARGE, Item, Rejection, Result, Submit, Submitted
from semel.contracts.events.limits import MAX_COMMITTED_ID, MAX_ID_BYTES, Limits
from semel.contracts.events.tables import EventRow
from semel.contracts.events.wire.camel_v1 import CamelV1
from semel.contracts.events.wire.camel_v2 import CamelV2
from semel.contracts.events.wire.messages import bad_request
from semel.contracts.events.wire.seed import Seed
from semel.kernel.json_print import dump

ENVELOPE_BYTES = 256
"""More than any envelope has beside the name of the request."""
RESULT_BYTES = 160
"""More than a result has beside its id and the reason of a rejection."""
REASON_BYTES = 160
"""A longer reason that the server itself does not give may be cut short."""
FIELDS_BYTES = 512
"""More than an event has in any dialect beside its text, its names and its ids."""
PRINTED_BYTES = 6
"""The most that one byte of a name becomes in print, in all the places where a dialect repeats it."""

FLAW_BYTES = 1_024
"""More than any reason that the wire gives."""
ESCAPED_BYTES = 12
"""The most that one character becomes in print."""

_CUT = Rejection("", (("event", "is rejected; the reasons are too long for one answer"),))


def measured(command: Submit, limits: Limits) -> Submit:
    """The same submission; an item that could not be sent to every reader will not be committed."""
    refuse_long_answer(command, limits)
    return command._replace(items=tuple([_measured(item, command.client_id, limits) for item in command.items]))


def _measured(item: Item, client_id: str, limits: Limits) -> Item:
    most = limits.message_bytes - limits.head_bytes
    if item.flaw is not None or shown_at_most(item, client_id) <= most:
        return item
    size = len(item.text)
    if size <= most and (size := shown_bytes(item, client_id)) <= most:
        return item
    reason = f"takes {size} bytes in a page of events, and {most} is the most"
    return item._replace(excess=Rejection(PAYLOAD_TOO_LARGE, (("event", reason),)))


def shown_at_most(item: Item, client_id: str) -> int:
    """At least `shown_bytes`, and found without printing anything."""
    names = len(item.name) + len(client_id.encode()) + len(item.partitions.text)
    return len(item.text) + PRINTED_BYTES * names + FIELDS_BYTES


def shown_bytes(item: Item, client_id: str) -> int:
    """The most bytes that the event can have in any dialect."""
    names = item.partitions.names
    row = EventRow(
        MAX_COMMITTED_ID, item.name, client_id.encode(), b"", MAX_COMMITTED_ID, item.partitions.text, item.text
    )
    # An event with a number that only slow printing can carry has its names in print as ASCII.
    projects = {max(names, key=lambda name: len(dump(name))), max(names, key=_ascii_bytes)}
    return max(len(dialect.event(row)) for dialect in (Seed(), CamelV1(), *map(CamelV2, projects)))


def refuse_long_answer(command: Submit, limits: Limits) -> None:
    """Refuse a submission whose results may not fit into one message."""
    each = RESULT_BYTES + REASON_BYTES + FLAW_BYTES
    if sum(each + 2 * ESCAPED_BYTES * len(item.id) for item in command.items) <= _answer_room(limits):
        return
    widest = max(_ascii_bytes(item.id[:MAX_ID_BYTES]) for item in command.items) if command.stops else 0
    size = sum(_result_at_most(item, widest) for item in command.items)
    if size > _answer_room(limits):
        raise bad_request(
            f"the answer to these items could be larger than {limits.message_bytes} bytes; send fewer of them at once",
            max_message_bytes=limits.message_bytes,
        )


def _result_at_most(item: Item, widest: int) -> int:
    reason = REASON_BYTES + _ascii_bytes(item.id[:MAX_ID_BYTES])
    if item.flaw is not None:
        reason = max(REASON_BYTES, len(json.dumps(item.flaw.errors)) + REASON_BYTES)
    return RESULT_BYTES + _ascii_bytes(item.id) + max(reason, widest)


def _answer_room(limits: Limits) -> int:
    return limits.message_bytes - ENVELOPE_BYTES - limits.reply_bytes


def answer_within(show: Callable[[Submitted], bytes], answer: Submitted, limits: Limits) -> bytes:
    """The results in print; long complaints of the application's validator are cut short if they do not fit."""
    text = show(answer)
    if len(text) <= _answer_room(limits):
        return text
    return show(answer._replace(results=tuple([_cut(result) for result in answer.results])))


def _cut(result: Result) -> Result:
    if not isinstance(result, Rejection) or len(json.dumps(result.errors)) <= REASON_BYTES:
        return result
    return _CUT._replace(reason=result.reason)


def page_room(head: int, limits: Limits) -> int:
    """The bytes for the events of a page, whose other members take `head`."""
    if head > limits.head_bytes:
        raise bad_request(
            f"the names in this request take {head} bytes of a page, and {limits.head_bytes} is the most",
            max_message_bytes=limits.message_bytes,
        )
    return limits.message_bytes - head


def is_short(name: str, most: int) -> bool:
    """Whether a name has at most `most` bytes in print."""
    return len(name) <= most and len(dump(name)) <= most


def _ascii_bytes(text: str) -> int:
    return len(json.dumps(text))
