"""The dialect of the published 2.x clients: one project a connection, batches, and a partition inside the project.

A project is a partition of the log; the client's own `partition` is kept inside the event. This client compares what
comes back with its draft and fails hard on any difference, so nothing inside an item is normalized, and it drops a
rejected draft for good, so only what can never succeed is rejected. An error for a whole request would leave its outbox
stuck: whatever can be said of an item is said of the item.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from semel.contracts.events.commands import BAD_REQUEST, FORBIDDEN, Item, Submit
from semel.contracts.events.rules.partitions import is_usable
from semel.contracts.events.tables import EventRow
from semel.contracts.events.wire.camel import Camel, kind_of, meta_of, meta_shown, stored_event, user_of
from semel.contracts.events.wire.dialect import Terms, Welcome
from semel.contracts.events.wire.fields import Payload, cursor, is_text, page_size, text
from semel.contracts.events.wire.items import FlawError, flawed, invalid, item_of, raw_items, refuse_marks
from semel.contracts.events.wire.messages import Connect, Identity, Sync, WireError, bad_request
from semel.kernel.json_fragment import JsonObject, is_object
from semel.kernel.json_print import dump


class CamelV2(Camel):
    """One connection's dialect; it remembers the project."""

    time_key = "serverTs"

    def __init__(self, project: str = "") -> None:
        self._project = project

    @property
    def audience(self) -> Hashable:
        return ("2.x", self._project)

    def connect(self, payload: JsonObject) -> Connect:
        project = text(payload, "projectId")
        if not is_usable(project):
            raise bad_request("payload.projectId must be in Unicode normalization form C and at most 128 bytes")
        self._project = project
        return super().connect(payload)._replace(project=project)

    def submit(self, payload: Payload, who: Identity, terms: Terms, origin: bytes) -> Submit:
        items = raw_items(payload.members, terms.limits.batch_items)
        read = [self._item(item, who, payload.is_proved) for item in items]
        return Submit(tuple(read), who.client_id, origin, stops=True)

    def sync(self, payload: JsonObject, who: Identity) -> Sync:
        project = text(payload, "projectId")
        since, limit = cursor(payload, "sinceCommittedId"), page_size(payload)
        if project != self._project or not who.may_read(project):
            raise WireError("forbidden", "This connection may not read that project.", {"projectId": project[:128]})
        return Sync((project,), since, limit, (project,))

    def connected(self, welcome: Welcome, terms: Terms) -> bytes:
        return dump(
            {
                "clientId": welcome.client_id,
                "projectId": self._project,
                "projectLastCommittedId": welcome.project_last_id,
            }
        )

    def scope(self, asked: Sync) -> dict[str, Any]:
        return {"projectId": self._project}

    def event(self, row: EventRow) -> bytes:
        event = stored_event(row)
        version, payload, partition = (event.get(name) for name in ("schemaVersion", "payload", "partition"))
        shown: dict[str, Any] = {
            "committedId": row.committed_id,
            "id": row.id.decode(),
            "projectId": self._project,
            "partition": partition if is_text(partition) else self._project,
            "type": event.get("type"),
            "schemaVersion": version if is_version(version) else 1,
            "payload": payload if is_object(payload) else {"value": payload},
            "meta": meta_shown(row, event),
            "serverTs": row.committed_at,
        }
        if isinstance(event.get("userId"), str):
            shown["userId"] = event["userId"]
        return dump(shown)

    def _item(self, item: JsonObject, who: Identity, is_proved: bool) -> Item:
        sent_id: str = item["id"]
        try:
            if not is_proved:
                refuse_marks(item)
            kind, version, payload = kind_of(item), _version(item), _payload(item)
            partition = _partition(item)
            meta, user = meta_of(item, who), user_of(item, who)
            self._refuse_project(item)
            event = {"type": kind, "schemaVersion": version, "payload": payload, "partition": partition, "meta": meta}
            return item_of(sent_id, (self._project,), event | user if user else event, who, is_proved)
        except FlawError as flaw:
            return flawed(sent_id, flaw)

    def _refuse_project(self, item: JsonObject) -> None:
        project = item.get("projectId")
        if not isinstance(project, str) or not project:
            raise invalid("projectId", "must be a non-empty string")
        if project != self._project:
            raise FlawError(FORBIDDEN, "projectId", "is not the project of this connection")


def is_version(value: Any) -> bool:
    """Whether a value is a positive integer."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _version(item: JsonObject) -> Any:
    version = item.get("schemaVersion")
    if not is_version(version):
        raise invalid("schemaVersion", "must be an integer of at least 1")
    return version


def _payload(item: JsonObject) -> Any:
    payload = item.get("payload")
    if not is_object(payload):
        raise invalid("payload", "must be an object")
    return payload


def _partition(item: JsonObject) -> str:
    partition = item.get("partition")
    if not isinstance(partition, str) or not is_text(partition):
        raise FlawError(BAD_REQUEST, "partition", "must be a non-empty string")
    return partition
