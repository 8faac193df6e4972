"""Events over HTTP: the seed dialect without envelopes; bytes and strings in, requests and bytes out."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, NamedTuple
from unicodedata import normalize
from urllib.parse import parse_qsl

from semel.kernel.json.fragment import dump
from semel.surfaces.events.commands import EventSubmit
from semel.surfaces.events.limits import (
    MAX_COMMITTED_ID,
    MAX_NAME_BYTES,
    PAGE_DEFAULT,
    PAGE_LEAST,
    PAGE_MOST,
    EventLimits,
)
from semel.surfaces.events.lookups import PartitionPage
from semel.surfaces.events.rules.event_types import EventTypes, TypeFilterError, checked_types
from semel.surfaces.events.rules.partitions import SHRINKS_AT_MOST, PartitionError, checked
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


class ReadOrder(Enum):
    """The order of a page."""

    FORWARDS = "asc"
    BACKWARDS = "desc"
    LAST = "last"
    """Read backwards, and given in ascending order."""


class EventReadRequest(NamedTuple):
    """The query of a page; `to` is the last position of the cycle of pages that the request continues."""

    names: tuple[str, ...]
    since: int
    limit: int
    to: int | None
    log_epoch: int | None = None
    """The epoch of `since`, or of `before`, if the client sent it."""
    types: EventTypes = None
    order: ReadOrder = ReadOrder.FORWARDS
    before: int | None = None
    """The position from which to read backwards, exclusive; None for the end of the log."""


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
        # Last-Event-ID has no epoch, and the `log_epoch` in the URL may be older than the id.
        epoch = None if last_event_id else self.optional_position("log_epoch")
        order = self._order()
        to, before = self.optional_position("to"), self.optional_position("before")
        if order is ReadOrder.FORWARDS and before is not None:
            raise bad_request("before needs order=desc or last")
        if order is not ReadOrder.FORWARDS and to is not None:
            raise bad_request("to is for pages in ascending order; to read backwards, give before")
        limit = self.page_size("last" if order is ReadOrder.LAST else "limit")
        return EventReadRequest(names, since, limit, to, epoch, self._types(), order, before)

    def _order(self) -> ReadOrder:
        order, last = self.one("order"), self.one("last")
        if last is not None:
            if order is not None or self.one("limit") is not None:
                raise bad_request("last cannot be combined with order or limit")
            return ReadOrder.LAST
        if order not in (None, "asc", "desc"):
            raise bad_request("order must be asc or desc")
        return ReadOrder(order or "asc")

    def _types(self) -> EventTypes:
        types = self.all("type")
        if not types:
            return None
        try:
            return checked_types(types)
        except TypeFilterError as error:
            raise bad_request(f"type: {error}") from None

    def name(self, name: str) -> bytes:
        """The name of a partition, or the beginning of one, in NFC; empty if it is not given."""
        text = normalize("NFC", (self.one(name) or "")[: SHRINKS_AT_MOST * MAX_NAME_BYTES + 1]).encode()
        if len(text) > MAX_NAME_BYTES:
            raise bad_request(f"{name} has more than {MAX_NAME_BYTES} bytes")
        return text

    def optional_position(self, name: str) -> int | None:
        """A position; None if it is not given."""
        text = self.one(name)
        return None if text is None else self._position(name, text)

    def _position(self, name: str, text: str) -> int:
        if _DIGITS.fullmatch(text) is None:
            raise bad_request(f"{name} must be an integer of at least 0")
        return min(int(text), MAX_COMMITTED_ID)

    def page_size(self, name: str = "limit") -> int:
        """The size of a page, brought into its limits."""
        text = self.one(name)
        if text is None:
            return PAGE_DEFAULT
        if _NUMBER.fullmatch(text) is None:
            raise bad_request(f"{name} must be an integer")
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


def partitions_payload(page: PartitionPage, limits: EventLimits) -> bytes:
    """One page of the list of partitions, cut where it would be too large for one message."""
    texts: list[bytes] = []
    budget = limits.message_bytes - limits.head_bytes
    for one in page.partitions:
        first = b"null" if one.first_id is None else b"%d" % one.first_id
        text = b'{"partition":%s,"watermark":%d,"first_committed_id":%s,"events":%d}' % (
            dump(one.name.decode()),
            one.watermark,
            first,
            one.kept,
        )
        budget -= len(text) + 1
        if texts and budget < 0:
            break
        texts.append(text)
    facts: dict[str, Any] = {"has_more": page.has_more or len(texts) < len(page.partitions)}
    facts["next_after"] = page.partitions[len(texts) - 1].name.decode() if texts else None
    facts |= {"server_last_committed_id": page.last_id, "log_epoch": page.log_epoch}
    return b'%s,"partitions":[%s]}' % (dump(facts)[:-1], b",".join(texts))


def pruned_frame(pruned_to: int) -> bytes:
    """The event that reports pruning up to this position. It has no id: a client resumes from its last id."""
    return b"event: pruned\ndata: %s\n\n" % dump({"pruned_to_committed_id": pruned_to})


def position_frame(position: int) -> bytes:
    """A frame without data: the position from which a client that reconnects continues."""
    return b"id: %d\n\n" % position


def event_frame(row: EventRow) -> bytes:
    """One event of an event stream."""
    return b"id: %d\nevent: event\ndata: %s\n\n" % (row.committed_id, event_payload(row))
