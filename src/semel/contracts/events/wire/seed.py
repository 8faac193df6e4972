"""The seed dialect: snake_case, `partitions` and `event`, profiles, heartbeats, one connection a client."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from semel.contracts.events.commands import Committed, Item, Rejection, Result, Submit, Submitted
from semel.contracts.events.limits import PAGE_LEAST, PAGE_MOST
from semel.contracts.events.reading import Page
from semel.contracts.events.tables import EventRow
from semel.contracts.events.wire.dialect import Dialect, Head, Terms, Welcome
from semel.contracts.events.wire.fields import (
    Payload,
    cursor,
    instance,
    is_number,
    is_text,
    names,
    page_size,
    refuse_unreadable,
    refuse_version,
    short_text,
    text,
)
from semel.contracts.events.wire.items import FlawError, event_type, flawed, invalid, item_of, raw_items, refuse_marks
from semel.contracts.events.wire.messages import Connect, Identity, Sync, WireError, bad_request
from semel.contracts.events.wire.profiles import ACCEPTED, RETIRED_TYPE, capabilities, negotiate
from semel.contracts.events.wire.reset import named_epoch
from semel.kernel.json_fragment import JsonObject, is_object
from semel.kernel.json_print import dump


class Seed(Dialect):
    """One connection's seed dialect; it remembers the profile."""

    version_key = "protocol_version"
    name_key = "msg_id"
    types = frozenset({"connect", "submit_events", "sync", "heartbeat", "disconnect"})
    holds_while_paging = False
    is_watched = True
    is_exclusive = True
    knows_reset = True
    echoes_names = False

    def __init__(self, profile: str = "canonical") -> None:
        self._profile = profile

    @property
    def audience(self) -> Hashable:
        return "seed"

    def head(self, message: JsonObject) -> Head:
        refuse_version(message.get("protocol_version"), "protocol_version")
        kind, msg_id, payload = (message.get(name) for name in ("type", "msg_id", "payload"))
        if not isinstance(kind, str):
            raise bad_request("type must be a string")
        if not is_text(msg_id):
            raise bad_request("msg_id must be a non-empty string")
        if not is_number(message.get("timestamp")):
            raise bad_request("timestamp must be a number")
        if not is_object(payload):
            raise bad_request("payload must be an object")
        return Head(kind, payload)

    def connect(self, payload: JsonObject) -> Connect:
        token, client_id = text(payload, "token"), short_text(payload, "client_id")
        named = instance(payload)
        self._profile = negotiate(payload)
        return Connect(token, client_id, instance=named)

    def submit(self, payload: Payload, who: Identity, terms: Terms, origin: bytes) -> Submit:
        accepted = ACCEPTED[self._profile] if terms.strict_types else None
        items = submitted_items(payload, who, terms.limits.batch_items, accepted)
        return Submit(items, who.client_id, origin)

    def sync(self, payload: JsonObject, who: Identity) -> Sync:
        if "partition" in payload:
            raise bad_request("payload.partition is not used any more; send partitions")
        wanted = names(payload, "partitions")
        subscription = None
        if "subscription_partitions" in payload:
            subscription = names(payload, "subscription_partitions", may_be_empty=True)
        since, limit = cursor(payload, "since_committed_id"), page_size(payload)
        epoch = named_epoch(payload.get("log_epoch"), "payload.log_epoch")
        refuse_unreadable((*wanted, *(subscription or ())), who)
        return Sync(wanted, since, limit, subscription, epoch)

    def message(self, kind: str, payload: bytes, msg_id: str, reply_to: str | None, now_ms: int) -> bytes:
        reply = b"" if reply_to is None else b'"reply_to":%s,' % dump(reply_to)
        return b'{"type":"%s","msg_id":"%s","timestamp":%d,"protocol_version":"1.0",%s"payload":%s}' % (
            kind.encode(),
            msg_id.encode(),
            now_ms,
            reply,
            payload,
        )

    def connected(self, welcome: Welcome, terms: Terms) -> bytes:
        limits = terms.limits
        told: dict[str, Any] = {
            "client_id": welcome.client_id,
            "server_time": welcome.now_ms,
            "server_last_committed_id": welcome.last_id,
            "global_last_committed_id": welcome.last_id,
            "log_epoch": welcome.log_epoch,
            "capabilities": capabilities(self._profile),
            "limits": {
                "max_batch_size": limits.batch_items,
                "sync_limit_min": PAGE_LEAST,
                "sync_limit_max": PAGE_MOST,
                "max_message_bytes": limits.message_bytes,
                "max_in_flight_drafts": limits.in_flight_items,
            },
        }
        if terms.model_version:
            told["model_version"] = terms.model_version
        return dump(told)

    def submitted(self, command: Submit, answer: Submitted) -> bytes:
        return result_payload(command, answer)

    def page(self, asked: Sync, page: Page, subscribed: Sequence[str], terms: Terms) -> bytes:
        return page_payload(asked.names, page, terms, subscribed)

    def event(self, row: EventRow) -> bytes:
        return event_payload(row)

    def spelled(self, code: str) -> str:
        return code


def submitted_items(
    payload: Payload, who: Identity, most: int, accepted: Sequence[str] | None = None
) -> tuple[Item, ...]:
    """The items of a submission in this dialect; an error of shape refuses the whole request."""
    members, is_proved = payload
    if "partition" in members:
        raise bad_request("payload.partition is not used any more; send partitions with each item")
    _refuse_foreign(members, who, "payload")
    items = raw_items(members, most)
    for place, item in enumerate(items):
        _refuse_shape(item, place)
    for place, item in enumerate(items):
        _refuse_foreign(item, who, f"payload.events.{place}")
    return tuple([_item(item, who, accepted, is_proved) for item in items])


def _refuse_shape(item: JsonObject, place: int) -> None:
    where = f"payload.events.{place}"
    if "partition" in item:
        raise bad_request(f"{where}.partition is not used any more; send partitions")
    partitions = item.get("partitions")
    if not isinstance(partitions, list) or not all(isinstance(name, str) for name in partitions):
        raise bad_request(f"{where}.partitions must be an array of strings")
    if not is_object(item.get("event")):
        raise bad_request(f"{where}.event must be an object")


def _refuse_foreign(members: JsonObject, who: Identity, where: str) -> None:
    sent = members.get("client_id", who.client_id)
    if not isinstance(sent, str):
        raise bad_request(f"{where}.client_id must be a string")
    if sent != who.client_id:
        raise WireError("auth_failed", f"{where}.client_id is not the identity of this connection.", closes=True)


def _item(item: JsonObject, who: Identity, accepted: Sequence[str] | None, is_proved: bool) -> Item:
    sent_id: str = item["id"]
    try:
        if not is_proved:
            refuse_marks(item)
        _refuse_type(event_type(item["event"]), accepted)
        return item_of(sent_id, item["partitions"], item["event"], who, is_proved)
    except FlawError as flaw:
        return flawed(sent_id, flaw)


def _refuse_type(kind: str, accepted: Sequence[str] | None) -> None:
    if kind == RETIRED_TYPE or (accepted is not None and kind not in accepted):
        raise invalid("event.type", "is not accepted here")


def result_payload(command: Submit, answer: Submitted) -> bytes:
    """The results of a submission, in the order of its items."""
    pairs = zip(command.items, answer.results, strict=True)
    return dump({"results": [_result(item, result, answer.decided_at) for item, result in pairs]})


def _result(item: Item, result: Result, decided_at: int) -> dict[str, Any]:
    if isinstance(result, Committed):
        return {
            "id": item.id,
            "status": "committed",
            "committed_id": result.committed_id,
            "status_updated_at": result.committed_at,
        }
    assert isinstance(result, Rejection)
    return {
        "id": item.id,
        "status": "rejected",
        "reason": result.reason,
        "errors": [{"field": field, "message": message} for field, message in result.errors],
        "status_updated_at": decided_at,
    }


def event_payload(row: EventRow) -> bytes:
    """One committed event."""
    return b'{"id":%s,"client_id":%s,"partitions":%s,"committed_id":%d,"event":%s,"status_updated_at":%d}' % (
        dump(row.id.decode()),
        dump(row.client_id.decode()),
        row.partitions,
        row.committed_id,
        row.event,
        row.committed_at,
    )


def page_payload(asked: Sequence[str], page: Page, terms: Terms, subscribed: Sequence[str] | None = None) -> bytes:
    """One page of a cycle; `subscribed` is absent over HTTP."""
    facts: dict[str, Any] = {"partitions": list(asked)}
    if subscribed is not None:
        facts["effective_subscriptions"] = list(subscribed)
    facts["next_since_committed_id"] = page.next_since
    facts["sync_to_committed_id"] = page.sync_to
    facts["has_more"] = page.has_more
    facts["log_epoch"] = page.log_epoch
    if page.pruned_to:
        facts["pruned_to_committed_id"] = page.pruned_to
    if terms.model_version:
        facts["model_version"] = terms.model_version
    return b'%s,"events":[%s]}' % (dump(facts)[:-1], b",".join(page.texts))
