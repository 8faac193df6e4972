"""The common part of the two camelCase dialects: the envelope, results, and the fields of an event."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from semel.kernel.json.canonical import Integers, Surrogates, parse
from semel.kernel.json.fragment import JsonFragment, JsonObject, JsonOutline, dump, is_object
from semel.kernel.json.members import (
    SOME_STRING_RULE,
    STRING_RULE,
    MemberReader,
    any_string,
    some_string,
)
from semel.kernel.json.outline import OutlinePlan, is_heavy, outline
from semel.surfaces.events.commands import (
    EventCommitted,
    EventItem,
    EventNotProcessed,
    EventRejection,
    EventResult,
    EventSubmit,
    EventSubmitted,
)
from semel.surfaces.events.limits import EVENT_LEVELS
from semel.surfaces.events.reading import EventPage
from semel.surfaces.events.tables import EventRow
from semel.surfaces.events.wire.dialect import Envelope, EventDialect, EventPolicy
from semel.surfaces.events.wire.fields import (
    NUMBER_RULE,
    envelope_members,
    is_number,
    number,
    refuse_version,
    short_text,
    text,
)
from semel.surfaces.events.wire.items import ItemError, committed_payload, invalid
from semel.surfaces.events.wire.messages import Connect, EventIdentity, Sync


class CamelCaseDialect(EventDialect):
    """The envelope of published clients: `msgId` is optional, and answers echo it."""

    version_key = "protocolVersion"
    name_key = "msgId"
    types = frozenset({"connect", "submit_events", "sync"})
    holds_while_paging = True
    is_watched = False
    is_exclusive = False
    knows_reset = False
    echoes_names = True
    time_key: str
    """The name of the member that holds the commit time."""
    committed_result: bytes
    """The result of a committed item."""

    def head(self, message: JsonObject) -> Envelope:
        refuse_version(message.get("protocolVersion"), "protocolVersion")
        members = envelope_members(message)
        kind = members.required("type", any_string, STRING_RULE)
        if "msgId" in members:
            members.required("msgId", any_string, STRING_RULE)
        return Envelope(kind, members.nested("payload"))

    def connect(self, payload: JsonObject) -> Connect:
        return Connect(text(payload, "token"), short_text(payload, "clientId"))

    def message(self, kind: str, payload: bytes, msg_id: str, reply_to: str | None, now_ms: int) -> bytes:
        return b'{"type":"%s","protocolVersion":"1.0","msgId":%s,"payload":%s}' % (
            kind.encode(),
            dump(msg_id if reply_to is None else reply_to),
            payload,
        )

    def submitted(self, command: EventSubmit, answer: EventSubmitted) -> bytes:
        pairs = zip(command.items, answer.results, strict=True)
        return dump({"results": [self._result(item, result, answer.decided_at) for item, result in pairs]})

    def committed(self, command: EventSubmit, answer: EventSubmitted) -> bytes:
        return committed_payload(command, answer, self.committed_result)

    def page(self, asked: Sync, page: EventPage, subscribed: Sequence[str], policy: EventPolicy) -> bytes:
        facts = {
            **self.scope(asked),
            "nextSinceCommittedId": page.next_since,
            "syncToCommittedId": page.sync_to,
            "hasMore": page.has_more,
        }
        return b'%s,"events":[%s]}' % (dump(facts)[:-1], b",".join(page.texts))

    @abstractmethod
    def scope(self, asked: Sync) -> dict[str, Any]:
        """The members of a page that name its partitions."""

    def spelled(self, code: str) -> str:
        # The published clients stop only for this spelling.
        return "protocolVersion_unsupported" if code == "protocol_version_unsupported" else code

    def _result(self, item: EventItem, result: EventResult, decided_at: int) -> dict[str, Any]:
        shown: dict[str, Any] = {"id": item.id}
        if isinstance(result, EventCommitted):
            shown |= {"status": "committed", "committedId": result.committed_id, self.time_key: result.committed_at}
        elif isinstance(result, EventNotProcessed):
            shown |= {"status": "not_processed", "reason": "prior_item_failed", "blockedById": result.blocked_by}
            shown["created"] = decided_at
        else:
            shown |= {"status": "rejected", "reason": result.reason, "errors": _errors(result)}
            shown["created"] = decided_at
            if result.watermark is not None:
                shown["watermark"] = result.watermark
        return shown


def _errors(rejection: EventRejection) -> list[dict[str, str]]:
    return [{"field": field, "message": message} for field, message in rejection.errors]


_OUTLINE = OutlinePlan(
    levels=EVENT_LEVELS,
    kept=2,
    names=frozenset(["type", "schemaVersion", "payload", "partition", "meta", "userId", "projectId", "clientTs"]),
    lists=frozenset(),
    integers=Integers.EXACT,
    surrogates=Surrogates.ESCAPE,
    has_canonical=False,
    left_out={"meta": frozenset({"clientTs", "clientId"})},
)
"""How to read a stored event as text, if its parsed values would take too much memory."""


def stored_event(row: EventRow) -> JsonObject:
    """The event of a row, with every number as it was sent."""
    event = outline(row.event, _OUTLINE) if is_heavy(row.event) else parse(row.event)
    assert is_object(event)
    return event


def meta_shown(row: EventRow, event: JsonObject) -> dict[str, Any] | JsonFragment:
    """The `meta` of an event for readers. `clientTs` defaults to the commit time."""
    sent = event.get("meta")
    if isinstance(sent, JsonOutline):
        return _with_members(sent, meta_shown(row, {"meta": {"clientTs": sent.get("clientTs")}}))
    meta = dict(sent) if isinstance(sent, dict) else {}
    if not is_number(meta.get("clientTs")):
        meta["clientTs"] = row.committed_at
    return {**meta, "clientId": row.client_id.decode()}


def _with_members(outlined: JsonOutline, members: Any) -> JsonFragment:
    """A JSON object as text, with more members appended."""
    assert outlined.fragment is not None
    text = outlined.fragment.text
    return JsonFragment(b"%s%s%s" % (text[:-1], b"" if text == b"{}" else b",", dump(members)[1:]), b"")


def meta_of(item: JsonObject, who: EventIdentity) -> dict[str, Any] | JsonOutline:
    """The `meta` of an item without `clientId`, which must be that of the connection."""
    meta = item_members(item).nested("meta")
    MemberReader(meta, invalid, "meta").required("clientTs", number, NUMBER_RULE)
    if meta.get("clientId", who.client_id) != who.client_id:
        raise ItemError("forbidden", "meta.clientId", "is not the identity of this connection")
    if isinstance(meta, JsonOutline):
        return meta  # the outline already leaves `clientId` out
    return {name: value for name, value in meta.items() if name != "clientId"}


def user_of(item: JsonObject, who: EventIdentity) -> dict[str, str]:
    """The user an item names, if any."""
    if "userId" not in item:
        return {}
    user = item_members(item).required("userId", some_string, SOME_STRING_RULE)
    if who.users is not None and user not in who.users:
        raise ItemError("forbidden", "userId", "is not a user of this credential")
    return {"userId": user}


def kind_of(item: JsonObject) -> str:
    """The type of an item."""
    return item_members(item).required("type", some_string, SOME_STRING_RULE)


def item_members(item: JsonObject) -> MemberReader[ItemError]:
    """A reader of an item's members; an invalid member is an error of the item."""
    return MemberReader(item, invalid)
