"""The dialect of the published 1.3 clients: an array of partitions, the event's fields in the item, one item a request.

A sync also names what the connection is sent live.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import orjson

from semel.contracts.events.commands import Item, Submit
from semel.contracts.events.rules.partitions import normalized
from semel.contracts.events.tables import EventRow
from semel.contracts.events.wire.camel import Camel, kind_of, meta_of, meta_shown, stored_event, user_of
from semel.contracts.events.wire.dialect import Terms, Welcome
from semel.contracts.events.wire.fields import Payload, cursor, names, page_size, refuse_unreadable
from semel.contracts.events.wire.items import FlawError, flawed, invalid, item_of, raw_items, refuse_marks
from semel.contracts.events.wire.messages import Identity, Sync, bad_request
from semel.kernel.json_fragment import JsonObject
from semel.kernel.json_print import dump


class CamelV1(Camel):
    """The 1.3 dialect; stateless."""

    time_key = "created"

    @property
    def audience(self) -> Hashable:
        return "1.3"

    def submit(self, payload: Payload, who: Identity, terms: Terms, origin: bytes) -> Submit:
        items = raw_items(payload.members, terms.limits.batch_items)
        if len(items) != 1:
            raise bad_request("payload.events must have exactly one item")
        return Submit((_item(items[0], who, payload.is_proved),), who.client_id, origin)

    def sync(self, payload: JsonObject, who: Identity) -> Sync:
        wanted = names(payload, "partitions")
        since, limit = cursor(payload, "sinceCommittedId"), page_size(payload)
        refuse_unreadable(wanted, who)
        return Sync(wanted, since, limit, wanted)

    def connected(self, welcome: Welcome, terms: Terms) -> bytes:
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


def _item(item: JsonObject, who: Identity, is_proved: bool) -> Item:
    sent_id: str = item["id"]
    try:
        if not is_proved:
            refuse_marks(item)
        partitions = _partitions(item)
        event: dict[str, Any] = {"type": kind_of(item)}
        if "payload" in item:
            event["payload"] = item["payload"]
        event |= {"meta": meta_of(item, who), **user_of(item, who)}
        if "projectId" in item:
            event["projectId"] = _project(item)
        return item_of(sent_id, partitions, event, who, is_proved)
    except FlawError as flaw:
        return flawed(sent_id, flaw)


def _partitions(item: JsonObject) -> list[str]:
    """Names as sent: this client compares answers with its own names, without normalization."""
    sent = item.get("partitions")
    if not isinstance(sent, list) or not all(isinstance(name, str) for name in sent):
        raise invalid("partitions", "must be an array of strings")
    if normalized(sent) != tuple(sorted(set(sent))):
        raise invalid("partitions", "must be in Unicode normalization form C")
    return sent


def _project(item: JsonObject) -> str:
    project = item["projectId"]
    if not isinstance(project, str):
        raise invalid("projectId", "must be a string")
    return project
