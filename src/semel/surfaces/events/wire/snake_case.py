"""The snake_case dialect ("seed dialect" in the contract): `partitions` and `event`, profiles, heartbeats.

A client has one connection at a time, or one for each instance that it names.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from semel.kernel.errors import Refused
from semel.kernel.json.fragment import JsonObject, dump
from semel.kernel.json.members import SOME_STRING_RULE, STRING_RULE, any_string
from semel.surfaces.events.commands import (
    EventCommitted,
    EventItem,
    EventRejection,
    EventResult,
    EventSubmit,
    EventSubmitted,
)
from semel.surfaces.events.limits import PAGE_LEAST, PAGE_MOST
from semel.surfaces.events.reading import EventPage
from semel.surfaces.events.tables import EventRow
from semel.surfaces.events.wire.dialect import Envelope, EventDialect, EventPolicy, Welcome
from semel.surfaces.events.wire.fields import (
    NUMBER_RULE,
    STRINGS_RULE,
    Payload,
    cursor,
    envelope_members,
    event_types,
    instance,
    log_epoch,
    names,
    number,
    page_size,
    payload_members,
    refuse_unreadable,
    refuse_version,
    short_text,
    strings,
    text,
    utf8_text,
)
from semel.surfaces.events.wire.items import (
    ItemError,
    committed_payload,
    event_type,
    flawed,
    invalid,
    item_of,
    raw_items,
    refuse_item_marks,
    watermark_of,
)
from semel.surfaces.events.wire.messages import (
    ACCEPTED_TYPES,
    RETIRED_TYPE,
    Connect,
    EventIdentity,
    Sync,
    bad_request,
    capabilities,
    negotiate,
)

COMMITTED = b'{"id":%b,"status":"committed","committed_id":%d,"status_updated_at":%d}'
"""The result of a committed item."""


class SnakeCaseDialect(EventDialect):
    """The seed dialect of one connection; holds the negotiated profile."""

    version_key = "protocol_version"
    name_key = "msg_id"
    types = frozenset({"connect", "submit_events", "sync", "heartbeat", "disconnect"})
    holds_while_paging = False
    is_watched = True
    is_exclusive = True
    knows_reset = True
    echoes_names = False

    def __init__(self, profile: str = "canonical") -> None:
        self.profile = profile

    @property
    def audience(self) -> Hashable:
        return "seed"

    def head(self, message: JsonObject) -> Envelope:
        refuse_version(message.get("protocol_version"), "protocol_version")
        members = envelope_members(message)
        kind = members.required("type", any_string, STRING_RULE)
        members.required("msg_id", utf8_text, SOME_STRING_RULE)
        members.required("timestamp", number, NUMBER_RULE)
        return Envelope(kind, members.nested("payload"))

    def connect(self, payload: JsonObject) -> Connect:
        token, client_id = text(payload, "token"), short_text(payload, "client_id")
        named = instance(payload)
        self.profile = negotiate(payload)
        return Connect(token, client_id, instance=named)

    def submit(self, payload: Payload, who: EventIdentity, policy: EventPolicy, origin: bytes) -> EventSubmit:
        accepted = ACCEPTED_TYPES[self.profile] if policy.strict_types else None
        items = submitted_items(payload, who, policy.limits.batch_items, accepted)
        return EventSubmit(items, who.client_id, origin)

    def sync(self, payload: JsonObject, who: EventIdentity) -> Sync:
        if "partition" in payload:
            raise bad_request("payload.partition is not used any more; send partitions")
        wanted = names(payload, "partitions")
        subscription = None
        if "subscription_partitions" in payload:
            subscription = names(payload, "subscription_partitions", may_be_empty=True)
        since, limit = cursor(payload, "since_committed_id"), page_size(payload)
        epoch = log_epoch(payload)
        types, live_types = event_types(payload, "types"), event_types(payload, "subscription_types")
        if live_types is not None and subscription is None:
            raise bad_request("payload.subscription_types needs payload.subscription_partitions beside it")
        refuse_unreadable((*wanted, *(subscription or ())), who)
        return Sync(wanted, since, limit, subscription, epoch, types, live_types)

    def message(self, kind: str, payload: bytes, msg_id: str, reply_to: str | None, now_ms: int) -> bytes:
        reply = b"" if reply_to is None else b'"reply_to":%s,' % dump(reply_to)
        return b'{"type":"%s","msg_id":"%s","timestamp":%d,"protocol_version":"1.0",%s"payload":%s}' % (
            kind.encode(),
            msg_id.encode(),
            now_ms,
            reply,
            payload,
        )

    def connected(self, welcome: Welcome, policy: EventPolicy) -> bytes:
        limits = policy.limits
        told: dict[str, Any] = {
            "client_id": welcome.client_id,
            "server_time": welcome.now_ms,
            "server_last_committed_id": welcome.last_id,
            "global_last_committed_id": welcome.last_id,
            "log_epoch": welcome.log_epoch,
            "capabilities": capabilities(self.profile),
            "limits": {
                "max_batch_size": limits.batch_items,
                "sync_limit_min": PAGE_LEAST,
                "sync_limit_max": PAGE_MOST,
                "max_message_bytes": limits.message_bytes,
                "max_in_flight_drafts": limits.in_flight_items,
            },
        }
        if policy.model_version:
            told["model_version"] = policy.model_version
        return dump(told)

    def submitted(self, command: EventSubmit, answer: EventSubmitted) -> bytes:
        return result_payload(command, answer)

    def committed(self, command: EventSubmit, answer: EventSubmitted) -> bytes:
        return committed_payload(command, answer, COMMITTED)

    def page(self, asked: Sync, page: EventPage, subscribed: Sequence[str], policy: EventPolicy) -> bytes:
        return page_payload(asked.names, page, policy, subscribed)

    def event(self, row: EventRow) -> bytes:
        return event_payload(row)

    def spelled(self, code: str) -> str:
        return code


def submitted_items(
    payload: Payload, who: EventIdentity, most: int, accepted: Sequence[str] | None = None
) -> tuple[EventItem, ...]:
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
    members = payload_members(item, f"payload.events.{place}")
    if "partition" in members:
        raise members.refuse("partition", "is not used any more; send partitions")
    members.required("partitions", strings, STRINGS_RULE)
    members.nested("event")


def _refuse_foreign(members: JsonObject, who: EventIdentity, where: str) -> None:
    sent = members.get("client_id", who.client_id)
    if not isinstance(sent, str):
        raise bad_request(f"{where}.client_id must be a string")
    if sent != who.client_id:
        message = f"{where}.client_id is not the identity of this connection."
        raise Refused("auth_failed", message, own_status=403, closes=True)


def _item(item: JsonObject, who: EventIdentity, accepted: Sequence[str] | None, is_proved: bool) -> EventItem:
    sent_id: str = item["id"]
    try:
        if not is_proved:
            refuse_item_marks(item)
        _refuse_type(event_type(item["event"]), accepted)
        expected = watermark_of(item, "if_watermark")
        return item_of(sent_id, item["partitions"], item["event"], who, is_proved, expected)
    except ItemError as flaw:
        return flawed(sent_id, flaw)


def _refuse_type(kind: str, accepted: Sequence[str] | None) -> None:
    if kind == RETIRED_TYPE or (accepted is not None and kind not in accepted):
        raise invalid("event.type", "is not accepted here")


def result_payload(command: EventSubmit, answer: EventSubmitted) -> bytes:
    """The results of a submission, in the order of its items."""
    pairs = zip(command.items, answer.results, strict=True)
    return dump({"results": [_result(item, result, answer.decided_at) for item, result in pairs]})


def _result(item: EventItem, result: EventResult, decided_at: int) -> dict[str, Any]:
    if isinstance(result, EventCommitted):
        return {
            "id": item.id,
            "status": "committed",
            "committed_id": result.committed_id,
            "status_updated_at": result.committed_at,
        }
    assert isinstance(result, EventRejection)
    shown: dict[str, Any] = {
        "id": item.id,
        "status": "rejected",
        "reason": result.reason,
        "errors": [{"field": field, "message": message} for field, message in result.errors],
        "status_updated_at": decided_at,
    }
    return shown if result.watermark is None else shown | {"watermark": result.watermark}


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


def page_payload(
    asked: Sequence[str], page: EventPage, policy: EventPolicy, subscribed: Sequence[str] | None = None
) -> bytes:
    """One page of a cycle; `subscribed` is absent over HTTP."""
    facts: dict[str, Any] = {"partitions": list(asked)}
    if subscribed is not None:
        facts["effective_subscriptions"] = list(subscribed)
    facts["next_since_committed_id"] = page.next_since
    facts["sync_to_committed_id"] = page.sync_to
    facts["has_more"] = page.has_more
    if page.next_before is not None:
        facts["next_before_committed_id"] = page.next_before
    facts["log_epoch"] = page.log_epoch
    if page.pruned_to:
        facts["pruned_to_committed_id"] = page.pruned_to
    if policy.model_version:
        facts["model_version"] = policy.model_version
    return b'%s,"events":[%s]}' % (dump(facts)[:-1], b",".join(page.texts))
