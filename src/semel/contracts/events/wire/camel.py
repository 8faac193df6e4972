"""The common part of the two camelCase dialects: the envelope, results, and the fields of an event."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from semel.contracts.events.commands import Committed, Item, NotProcessed, Rejection, Result, Submit, Submitted
from semel.contracts.events.limits import EVENT_LEVELS
from semel.contracts.events.reading import Page
from semel.contracts.events.tables import EventRow
from semel.contracts.events.wire.dialect import Dialect, Head, Terms
from semel.contracts.events.wire.fields import is_number, refuse_version, short_text, text
from semel.contracts.events.wire.items import FlawError, invalid
from semel.contracts.events.wire.messages import Connect, Identity, Sync, bad_request
from semel.kernel.canonical import Integers, Surrogates, parse
from semel.kernel.json_fragment import JsonFragment, JsonObject, JsonOutline, is_object
from semel.kernel.json_outline import OutlinePlan, is_heavy, outline
from semel.kernel.json_print import dump


class Camel(Dialect):
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
    """The name of the commit's time."""

    def head(self, message: JsonObject) -> Head:
        refuse_version(message.get("protocolVersion"), "protocolVersion")
        kind, msg_id, payload = (message.get(name) for name in ("type", "msgId", "payload"))
        if not isinstance(kind, str):
            raise bad_request("type must be a string")
        if "msgId" in message and not isinstance(msg_id, str):
            raise bad_request("msgId must be a string")
        if not is_object(payload):
            raise bad_request("payload must be an object")
        return Head(kind, payload)

    def connect(self, payload: JsonObject) -> Connect:
        return Connect(text(payload, "token"), short_text(payload, "clientId"))

    def message(self, kind: str, payload: bytes, msg_id: str, reply_to: str | None, now_ms: int) -> bytes:
        return b'{"type":"%s","protocolVersion":"1.0","msgId":%s,"payload":%s}' % (
            kind.encode(),
            dump(msg_id if reply_to is None else reply_to),
            payload,
        )

    def submitted(self, command: Submit, answer: Submitted) -> bytes:
        pairs = zip(command.items, answer.results, strict=True)
        return dump({"results": [self._result(item, result, answer.decided_at) for item, result in pairs]})

    def page(self, asked: Sync, page: Page, subscribed: Sequence[str], terms: Terms) -> bytes:
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
        # The published clients stop for this spelling alone.
        return "protocolVersion_unsupported" if code == "protocol_version_unsupported" else code

    def _result(self, item: Item, result: Result, decided_at: int) -> dict[str, Any]:
        shown: dict[str, Any] = {"id": item.id}
        if isinstance(result, Committed):
            shown |= {"status": "committed", "committedId": result.committed_id, self.time_key: result.committed_at}
        elif isinstance(result, NotProcessed):
            shown |= {"status": "not_processed", "reason": "prior_item_failed", "blockedById": result.blocked_by}
            shown["created"] = decided_at
        else:
            shown |= {"status": "rejected", "reason": result.reason, "errors": _errors(result)}
            shown["created"] = decided_at
        return shown


def _errors(rejection: Rejection) -> list[dict[str, str]]:
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
"""The members of an event that are shown; as text, if its values would take much memory."""


def stored_event(row: EventRow) -> JsonObject:
    """The event behind a row, every number as it was sent."""
    event = outline(row.event, _OUTLINE) if is_heavy(row.event) else parse(row.event)
    assert is_object(event)
    return event


def meta_shown(row: EventRow, event: JsonObject) -> dict[str, Any] | JsonFragment:
    """Where and when an event was made; without a time of its own, the time of its commit."""
    sent = event.get("meta")
    if isinstance(sent, JsonOutline):
        return _with_members(sent, meta_shown(row, {"meta": {"clientTs": sent.get("clientTs")}}))
    meta = dict(sent) if isinstance(sent, dict) else {}
    if not is_number(meta.get("clientTs")):
        meta["clientTs"] = row.committed_at
    return {**meta, "clientId": row.client_id.decode()}


def _with_members(outlined: JsonOutline, members: Any) -> JsonFragment:
    """An object in print with some more members behind those that it has."""
    assert outlined.fragment is not None
    text = outlined.fragment.text
    return JsonFragment(b"%s%s%s" % (text[:-1], b"" if text == b"{}" else b",", dump(members)[1:]), b"")


def meta_of(item: JsonObject, who: Identity) -> dict[str, Any] | JsonOutline:
    """The meta of an item without its client, which is the connection's."""
    meta = item.get("meta")
    if not is_object(meta):
        raise invalid("meta", "must be an object")
    if not is_number(meta.get("clientTs")):
        raise invalid("meta.clientTs", "must be a number")
    if meta.get("clientId", who.client_id) != who.client_id:
        raise FlawError("forbidden", "meta.clientId", "is not the identity of this connection")
    if isinstance(meta, JsonOutline):
        return meta  # its text is without that member
    return {name: value for name, value in meta.items() if name != "clientId"}


def user_of(item: JsonObject, who: Identity) -> dict[str, str]:
    """The user an item names, if any."""
    if "userId" not in item:
        return {}
    user = item["userId"]
    if not isinstance(user, str) or not user:
        raise invalid("userId", "must be a non-empty string")
    if who.users is not None and user not in who.users:
        raise FlawError("forbidden", "userId", "is not a user of this credential")
    return {"userId": user}


def kind_of(item: JsonObject) -> str:
    """The type of an item."""
    kind = item.get("type")
    if not isinstance(kind, str) or not kind:
        raise invalid("type", "must be a non-empty string")
    return kind
