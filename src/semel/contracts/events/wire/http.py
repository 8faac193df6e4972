"""Events over HTTP: the seed dialect without envelopes; bytes and strings in, requests and bytes out."""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from semel.contracts.events.commands import Submit
from semel.contracts.events.limits import MAX_COMMITTED_ID, PAGE_DEFAULT, PAGE_LEAST, PAGE_MOST
from semel.contracts.events.rules.partitions import PartitionError, checked
from semel.contracts.events.tables import EventRow
from semel.contracts.events.wire.dialect import Terms
from semel.contracts.events.wire.fields import Payload, parsed, refuse_marks, short_text
from semel.contracts.events.wire.frame_size import measured
from semel.contracts.events.wire.messages import Identity, bad_request
from semel.contracts.events.wire.profiles import ACCEPTED
from semel.contracts.events.wire.seed import event_payload, submitted_items

COMMENT = b":\n\n"
_DIGITS = re.compile(r"[0-9]{1,20}")
_NUMBER = re.compile(r"-?[0-9]{1,20}")
_MAX_FIELDS = 256


class Tail(NamedTuple):
    """The query of a GET; `to` is the limit of a cycle that it continues."""

    names: tuple[str, ...]
    since: int
    limit: int
    to: int | None
    log_epoch: int | None = None
    """The epoch that `since` is of, if the client says."""


class Query:
    """The query fields, in order."""

    def __init__(self, raw: bytes) -> None:
        try:
            pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
        except ValueError:
            raise bad_request(f"the query must be percent-encoded UTF-8 with at most {_MAX_FIELDS} fields") from None
        self._pairs = pairs

    def one(self, name: str) -> str | None:
        """A field that may be given once."""
        found = self.all(name)
        if len(found) > 1:
            raise bad_request(f"{name} may be given once")
        return found[0] if found else None

    def all(self, name: str) -> list[str]:
        """Every value of a field."""
        return [value for key, value in self._pairs if key == name]

    def tail(self, last_event_id: str | None = None) -> Tail:
        """The query of a GET; `Last-Event-ID` of a broken stream wins over `since`."""
        try:
            names = checked(tuple(self.all("partition"))).names
        except PartitionError as error:
            raise bad_request(f"partition: {error}") from None
        since = self._position("since", last_event_id or self.one("since") or "0")
        to = self.one("to")
        # An id of an event stream names no epoch: its URL may be older than it.
        epoch = None if last_event_id else self.one("log_epoch")
        log_epoch = None if epoch is None else self._position("log_epoch", epoch)
        return Tail(names, since, self._limit(), None if to is None else self._position("to", to), log_epoch)

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
"""An event is nested in a body, the list of items and its item."""


def parse_body(body: bytes) -> Payload:
    """A body is one JSON object."""
    payload = parsed(body, EVENT_LEVEL)
    if not payload.is_proved:
        refuse_marks(payload.members, but="events")
    return payload


def named_client(value: Any) -> str | None:
    """The client that a request names, if any."""
    if value is None:
        return None
    return short_text({"client_id": value}, "client_id")


def submission(payload: Payload, who: Identity, terms: Terms, origin: bytes) -> Submit:
    """The items of a POST."""
    accepted = ACCEPTED["canonical"] if terms.strict_types else None
    items = submitted_items(payload, who, terms.limits.batch_items, accepted)
    return measured(Submit(items, who.client_id, origin), terms.limits)


def pruned_frame(pruned_to: int) -> bytes:
    """The event that says that events up to this position were removed. It has no id: a client resumes from its own."""
    return b'event: pruned\ndata: {"pruned_to_committed_id":%d}\n\n' % pruned_to


def event_frame(row: EventRow) -> bytes:
    """One event of an event stream."""
    return b"id: %d\nevent: event\ndata: %s\n\n" % (row.committed_id, event_payload(row))
