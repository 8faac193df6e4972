"""The camelCase dialects of the published clients 1.3 (CamelCaseV1) and 2.x (CamelCaseV2).

Clients 1.3 send an array of partitions, the event's fields in the item, and one item per request. A sync also names
the partitions of the live subscription.

Clients 2.x have one project per connection, batches, and a partition inside the project. A project is a partition of
the log; the client's own `partition` is kept inside the event. This client compares the answer with its draft and
fails on any difference, so nothing inside an item is normalized. It drops a rejected draft for good, so an item is
rejected only if it can never succeed. An error for a whole request would block the client's outbox, so errors are
reported per item.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Any

import orjson

from semel.kernel.errors import Refused
from semel.kernel.json.fragment import JsonObject, dump, is_object
from semel.kernel.json.members import (
    SOME_STRING_RULE,
    STRING_RULE,
    MemberReader,
    any_string,
    some_string,
)
from semel.surfaces.events.commands import BAD_REQUEST, FORBIDDEN, EventItem, EventSubmit
from semel.surfaces.events.rules.partitions import is_usable, normalized
from semel.surfaces.events.tables import EventRow
from semel.surfaces.events.wire.camel_case import (
    CamelCaseDialect,
    item_members,
    kind_of,
    meta_of,
    meta_shown,
    stored_event,
    user_of,
)
from semel.surfaces.events.wire.dialect import EventPolicy, Welcome
from semel.surfaces.events.wire.fields import (
    STRINGS_RULE,
    Payload,
    cursor,
    is_text,
    names,
    page_size,
    refuse_unreadable,
    strings,
    text,
    utf8_text,
)
from semel.surfaces.events.wire.items import (
    ItemError,
    flawed,
    invalid,
    item_of,
    raw_items,
    refuse_item_marks,
    watermark_of,
)
from semel.surfaces.events.wire.messages import Connect, EventIdentity, Sync, bad_request


class CamelCaseV1(CamelCaseDialect):
    """The 1.3 dialect; stateless."""

    time_key = "created"
    committed_result = b'{"id":%b,"status":"committed","committedId":%d,"created":%d}'

    @property
    def audience(self) -> Hashable:
        return "1.3"

    def submit(self, payload: Payload, who: EventIdentity, policy: EventPolicy, origin: bytes) -> EventSubmit:
        items = raw_items(payload.members, policy.limits.batch_items)
        if len(items) != 1:
            raise bad_request("payload.events must have exactly one item")
        return EventSubmit((_item_v1(items[0], who, payload.is_proved),), who.client_id, origin)

    def sync(self, payload: JsonObject, who: EventIdentity) -> Sync:
        wanted = names(payload, "partitions")
        since, limit = cursor(payload, "sinceCommittedId"), page_size(payload)
        refuse_unreadable(wanted, who)
        return Sync(wanted, since, limit, wanted)

    def connected(self, welcome: Welcome, policy: EventPolicy) -> bytes:
        return dump({"clientId": welcome.client_id, "globalLastCommittedId": welcome.last_id})

    def scope(self, asked: Sync) -> dict[str, Any]:
        return {"partitions": list(asked.names)}

    def event(self, row: EventRow) -> bytes:
        event = stored_event(row)
        shown: dict[str, Any] = {"committedId": row.committed_id, "id": row.id.decode()}
        shown["partitions"] = orjson.loads(row.partitions)
        shown["type"] = event.get("type")
        shown["payload"] = event.get("payload")
        shown["meta"] = meta_shown(row, event)
        shown["created"] = row.committed_at
        shown |= {name: event[name] for name in ("projectId", "userId") if isinstance(event.get(name), str)}
        return dump(shown)


def _item_v1(item: JsonObject, who: EventIdentity, is_proved: bool) -> EventItem:
    sent_id: str = item["id"]
    try:
        if not is_proved:
            refuse_item_marks(item)
        partitions = _partitions_v1(item)
        event: dict[str, Any] = {"type": kind_of(item)}
        if "payload" in item:
            event["payload"] = item["payload"]
        event |= {"meta": meta_of(item, who), **user_of(item, who)}
        if "projectId" in item:
            event["projectId"] = item_members(item).required("projectId", any_string, STRING_RULE)
        return item_of(sent_id, partitions, event, who, is_proved, watermark_of(item, "ifWatermark"))
    except ItemError as flaw:
        return flawed(sent_id, flaw)


def _partitions_v1(item: JsonObject) -> list[str]:
    """The partitions as sent: this client compares answers with its own names, without normalization."""
    sent = item_members(item).required("partitions", strings, STRINGS_RULE)
    if normalized(sent) != tuple(sorted(set(sent))):
        raise invalid("partitions", "must be in Unicode normalization form C")
    return sent


class CamelCaseV2(CamelCaseDialect):
    """The 2.x dialect of one connection; holds the project."""

    time_key = "serverTs"
    committed_result = b'{"id":%b,"status":"committed","committedId":%d,"serverTs":%d}'

    def __init__(self, project: str = "") -> None:
        self.project = project

    @property
    def audience(self) -> Hashable:
        return ("2.x", self.project)

    def connect(self, payload: JsonObject) -> Connect:
        project = text(payload, "projectId")
        if not is_usable(project):
            raise bad_request("payload.projectId must be in Unicode normalization form C and at most 128 bytes")
        self.project = project
        return super().connect(payload)._replace(project=project)

    def submit(self, payload: Payload, who: EventIdentity, policy: EventPolicy, origin: bytes) -> EventSubmit:
        items = raw_items(payload.members, policy.limits.batch_items)
        read = [self._item(item, who, payload.is_proved) for item in items]
        return EventSubmit(tuple(read), who.client_id, origin, stops=True)

    def sync(self, payload: JsonObject, who: EventIdentity) -> Sync:
        project = text(payload, "projectId")
        since, limit = cursor(payload, "sinceCommittedId"), page_size(payload)
        if project != self.project or not who.may_read(project):
            raise Refused("forbidden", "This connection may not read that project.", {"projectId": project[:128]})
        return Sync((project,), since, limit, (project,))

    def connected(self, welcome: Welcome, policy: EventPolicy) -> bytes:
        return dump(
            {
                "clientId": welcome.client_id,
                "projectId": self.project,
                "projectLastCommittedId": welcome.project_last_id,
            }
        )

    def scope(self, asked: Sync) -> dict[str, Any]:
        return {"projectId": self.project}

    def event(self, row: EventRow) -> bytes:
        event = stored_event(row)
        version, payload, partition = (event.get(name) for name in ("schemaVersion", "payload", "partition"))
        shown: dict[str, Any] = {
            "committedId": row.committed_id,
            "id": row.id.decode(),
            "projectId": self.project,
            "partition": partition if is_text(partition) else self.project,
            "type": event.get("type"),
            "schemaVersion": version if is_version(version) else 1,
            "payload": payload if is_object(payload) else {"value": payload},
            "meta": meta_shown(row, event),
            "serverTs": row.committed_at,
        }
        if isinstance(event.get("userId"), str):
            shown["userId"] = event["userId"]
        return dump(shown)

    def _item(self, item: JsonObject, who: EventIdentity, is_proved: bool) -> EventItem:
        sent_id: str = item["id"]
        try:
            if not is_proved:
                refuse_item_marks(item)
            kind, version = kind_of(item), _schema_version(item)
            payload = item_members(item).nested("payload")
            partition = _partition_v2(item)
            meta, user = meta_of(item, who), user_of(item, who)
            self._refuse_project(item)
            event = {"type": kind, "schemaVersion": version, "payload": payload, "partition": partition, "meta": meta}
            expected = watermark_of(item, "ifWatermark")
            return item_of(sent_id, (self.project,), event | user if user else event, who, is_proved, expected)
        except ItemError as flaw:
            return flawed(sent_id, flaw)

    def _refuse_project(self, item: JsonObject) -> None:
        project = item_members(item).required("projectId", some_string, SOME_STRING_RULE)
        if project != self.project:
            raise ItemError(FORBIDDEN, "projectId", "is not the project of this connection")


def is_version(value: Any) -> bool:
    """Whether a value is a positive integer."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _schema_version(item: JsonObject) -> Any:
    version = item.get("schemaVersion")
    if not is_version(version):
        raise invalid("schemaVersion", "must be an integer of at least 1")
    return version


def _partition_v2(item: JsonObject) -> str:
    members = MemberReader(item, partial(ItemError, BAD_REQUEST))
    return members.required("partition", utf8_text, SOME_STRING_RULE)
