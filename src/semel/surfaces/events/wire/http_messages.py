"""Events over HTTP: the seed dialect without envelopes; bytes and strings in, requests and bytes out."""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from semel.surfaces.events.commands import EventSubmit
from semel.surfaces.events.limits import MAX_COMMITTED_ID, PAGE_DEFAULT, PAGE_LEAST, PAGE_MOST
from semel.surfaces.events.rules.partitions import PartitionError, checked
from semel.surfaces.events.tables import EventRow
from semel.surfaces.events.wire.dialect import EventPolicy
from semel.surfaces.events.wire.fields import Payload, parsed, refuse_marks, short_text
from semel.surfaces.events.wire.message_size import measured
from semel.surfaces.events.wire.messages import ACCEPTED_TYPES, EventIdentity, bad_request
from semel.surfaces.events.wire.snake_case import event_payload, submitted_items

COMMENT = b":\n\n"
_DIGITS = re.compile(r"[0-9]{1,20}")
_NUMBER = re.compile(r"-?[0-9]{1,20}")
_MAX_FIELDS = 256


class EventReadRequest(NamedTuple):
    """The query of a GET; `to` is the last position of the cycle of pages that the request continues."""

    names: tuple[str, ...]
    since: int
    limit: int
    to: int | None
    log_epoch: int | None = None
    """The epoch of `since`, if the client sent it."""


class EventQueryString:
    """The query fields, in order."""

    def __init__(self, raw: bytes) -> None:
        try:
            pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
        except ValueError:
            raise bad_request(f"the query must be percent-encoded UTF-8 with at most {_MAX_FIELDS} fields") from None
        self._pairs = pairs

    def one(self, name: str) -> str | None:
        """The value of a field that may be given only once."""
        found = self.all(name)
        if len(found) > 1:
            raise bad_request(f"{name} may be given once")
        return found[0] if found else None

    def all(self, name: str) -> list[str]:
        """Every value of a field."""
        return [value for key, value in self._pairs if key == name]

    def tail(self, last_event_id: str | None = None) -> EventReadRequest:
        """The query of a GET; `Last-Event-ID` of an interrupted stream overrides `since`."""
        try:
            names = checked(tuple(self.all("partition"))).names
        except PartitionError as error:
            raise bad_request(f"partition: {error}") from None
        since = self._position("since", last_event_id or self.one("since") or "0")
        to = self.one("to")
        # Last-Event-ID has no epoch, and the `log_epoch` in the URL may be older than the id.
        epoch = None if last_event_id else self.one("log_epoch")
        log_epoch = None if epoch is None else self._position("log_epoch", epoch)
        return EventReadRequest(
            names, since, self._limit(), None if to is None else self._position("to", to), log_epoch
        )

    def _position(self, name: str, text: str) -> int:
        if _DIGITS.fullmatch(text) is None:
            raise bad_request(f"{name} must be an integer of at least 0")
        return min(int(text), MAX_COMMITTED_ID)

    def _limit(self) -> int:
        text = self.one("limit")
        if text is None:
            return PAGE_DEFAULT
        if _NUMBER.fullmatch(text) is None:
            raise bad_request("limit must be an integer")
        return max(PAGE_LEAST, min(int(text), PAGE_MOST))


EVENT_LEVEL = 3
"""Three levels surround an event: the body, the list of items and the item."""


def parse_body(body: bytes) -> Payload:
    """Parse a body, which must be one JSON object."""
    payload = parsed(body, EVENT_LEVEL)
    if not payload.is_proved:
        refuse_marks(payload.members, but="events")
    return payload


def named_client(value: Any) -> str | None:
    """The client that a request names, if any."""
    if value is None:
        return None
    return short_text({"client_id": value}, "client_id")


def submission(payload: Payload, who: EventIdentity, policy: EventPolicy, origin: bytes) -> EventSubmit:
    """The items of a POST."""
    accepted = ACCEPTED_TYPES["canonical"] if policy.strict_types else None
    items = submitted_items(payload, who, policy.limits.batch_items, accepted)
    return measured(EventSubmit(items, who.client_id, origin), policy.limits)


def pruned_frame(pruned_to: int) -> bytes:
    """The event that reports pruning up to this position. It has no id: a client resumes from its last id."""
    return b'event: pruned\ndata: {"pruned_to_committed_id":%d}\n\n' % pruned_to


def event_frame(row: EventRow) -> bytes:
    """One event of an event stream."""
    return b"id: %d\nevent: event\ndata: %s\n\n" % (row.committed_id, event_payload(row))
