"""Plain submissions: the common form of a `submit_events` message, read in one pass.

`PlainReader.read` returns the command that the full reader of the dialect (`session`, `items`) would return, or None;
then the full reader decides. It accepts no message that the full reader would refuse, and no item with a flaw:
`tests/events/rules/plain_messages.py` compares both readers. The proof that orjson lost nothing is that of
`kernel/json/parse.py`, for the whole message at once: each member has one colon outside strings, so a member that was
dropped because its name occurs twice leaves fewer colons than were sent. The reader counts the colons of what it has
read: of the printed events, and of the members around them, which it knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from semel.kernel.hashes import fingerprint
from semel.kernel.json.outline import is_heavy
from semel.kernel.json.parse import print_parsed
from semel.kernel.json.text import trimmed
from semel.kernel.keys import pack
from semel.surfaces.events.commands import EventItem, EventSubmit
from semel.surfaces.events.limits import EVENT_LEVELS, FRAME_LEVELS, MAX_ID_BYTES
from semel.surfaces.events.rules.partitions import PartitionError, PartitionSet, checked
from semel.surfaces.events.wire.dialect import EventPolicy
from semel.surfaces.events.wire.message_size import answer_bound, answer_budget, is_short, shown_bound
from semel.surfaces.events.wire.messages import ACCEPTED_TYPES, RETIRED_TYPE, VERSION, EventIdentity

PLAIN_BYTES = 64 * 1024
"""A larger message is never plain. Reading one of this size takes about 1 ms on the event loop."""
NEVER_HEAVY_BYTES = 24 * 1024
"""No text of up to this size is heavy."""
_LEVELS = EVENT_LEVELS - (FRAME_LEVELS - EVENT_LEVELS)
"""An event with at most this many brackets is accepted at any depth of its message."""
_SNAKE_NAMES = frozenset({"type", "msg_id", "timestamp", "protocol_version", "payload"})
_CAMEL_NAMES = frozenset({"type", "msgId", "timestamp", "protocolVersion", "payload"})


class PlainMessage(NamedTuple):
    """A plain submission, and the name of its message."""

    command: EventSubmit
    reply_to: str | None


class _NotPlainError(Exception):
    """The full reader decides."""


class PlainReader:
    """Reads the plain submissions of one connection, after its client was authenticated."""

    def __init__(self, policy: EventPolicy, who: EventIdentity, origin: bytes) -> None:
        limits = policy.limits
        self._who = who
        self._origin = origin
        self._batch_items = limits.batch_items
        self._name_bytes = limits.reply_bytes
        self._event_bytes = limits.message_bytes - limits.head_bytes
        self._answer_bytes = answer_budget(limits)
        self._client_bytes = len(who.client_id.encode())
        self._client_colons = who.client_id.count(":")

    def read(self, raw: bytes) -> PlainMessage | None:
        """The submission in a message; None if the full reader has to decide."""
        size = len(raw)
        if size > PLAIN_BYTES or b"\\u" in raw or (size > NEVER_HEAVY_BYTES and is_heavy(raw)):
            return None
        try:
            return self._read(raw, orjson.loads(raw))
        except (orjson.JSONDecodeError, _NotPlainError, KeyError, TypeError, AttributeError, UnicodeEncodeError):
            return None

    def _read(self, raw: bytes, message: dict[str, Any]) -> PlainMessage:
        name, colons = self._envelope(message)
        payload = message["payload"]
        drafts: list[dict[str, Any]] = payload["events"]
        count = len(drafts)
        if len(payload) != 1 or type(drafts) is not list or not 0 < count <= self._batch_items:
            raise _NotPlainError
        items: list[EventItem] = []
        characters = 0
        take = self._item
        for sent in drafts:
            item, outside = take(sent)
            items.append(item)
            colons += outside + item.text.count(b":")
            characters += len(item.id)
        if colons != raw.count(b":") or answer_bound(count, characters) > self._answer_bytes:
            raise _NotPlainError
        if count > 1 and len({item.id for item in items}) < count:
            raise _NotPlainError
        return PlainMessage(EventSubmit(tuple(items), self._who.client_id, self._origin, self.stops), name)

    def _printed(self, sent_id: str, partitions: PartitionSet, event: dict[str, Any]) -> EventItem:
        """An item whose event prints canonically and fits into every page."""
        name = sent_id.encode()
        printed = print_parsed(event)
        if printed is None or not 0 < len(name) <= MAX_ID_BYTES:
            raise _NotPlainError
        if printed.count(b"[") + printed.count(b"{") > _LEVELS:
            raise _NotPlainError
        content = fingerprint(b'{"event":%b,"partitions":%b}' % (printed, partitions.text))
        item = EventItem(sent_id, name, pack(name), content, partitions, event, trimmed(orjson.dumps(event)))
        if shown_bound(item, self._client_bytes) > self._event_bytes:
            raise _NotPlainError
        return item

    def _name(self, name: Any) -> str:
        if type(name) is not str or not name or not is_short(name, self._name_bytes):
            raise _NotPlainError
        return name

    def _permitted(self, names: Sequence[str]) -> PartitionSet:
        """The partitions, if the client may write to all of them."""
        try:
            partitions = checked(tuple(names))
        except PartitionError:
            raise _NotPlainError from None
        may_write = self._who.may_write
        for name in partitions.names:
            if not may_write(name):
                raise _NotPlainError
        return partitions

    stops = False
    """Whether a submission stops at its first rejected item."""

    def _envelope(self, message: dict[str, Any]) -> tuple[str | None, int]:
        """The name of a message, and the colons outside its items."""
        raise NotImplementedError

    def _item(self, sent: dict[str, Any]) -> tuple[EventItem, int]:
        """An item, and the number of its colons outside its event."""
        raise NotImplementedError


class PlainSnakeCase(PlainReader):
    """Plain submissions of the snake_case dialect."""

    def __init__(self, policy: EventPolicy, who: EventIdentity, origin: bytes, profile: str) -> None:
        super().__init__(policy, who, origin)
        self._accepted = ACCEPTED_TYPES[profile] if policy.strict_types else None

    def _envelope(self, message: dict[str, Any]) -> tuple[str | None, int]:
        if message.keys() != _SNAKE_NAMES or message["type"] != "submit_events":
            raise _NotPlainError
        if message["protocol_version"] != VERSION or type(message["timestamp"]) is not int:
            raise _NotPlainError
        name = self._name(message["msg_id"])
        return name, 6 + name.count(":")

    def _item(self, sent: dict[str, Any]) -> tuple[EventItem, int]:
        sent_id, names, event = sent["id"], sent["partitions"], sent["event"]
        kind = event["type"]
        if len(sent) != 3 or type(names) is not list or type(kind) is not str or not kind or kind == RETIRED_TYPE:
            raise _NotPlainError
        if self._accepted is not None and kind not in self._accepted:
            raise _NotPlainError
        colons = 3 + sent_id.count(":")
        for name in names:
            colons += name.count(":")
        return self._printed(sent_id, self._permitted(names), event), colons


class PlainCamelCase(PlainReader):
    """Plain submissions of the 2.x dialect, for the project of the connection."""

    stops = True

    def __init__(self, policy: EventPolicy, who: EventIdentity, origin: bytes, project: str) -> None:
        super().__init__(policy, who, origin)
        self._project = project
        self._partitions = checked((project,))
        self._colons = 2 + project.count(":")

    def _envelope(self, message: dict[str, Any]) -> tuple[str | None, int]:
        if message["type"] != "submit_events" or message["protocolVersion"] != VERSION:
            raise _NotPlainError
        if not _CAMEL_NAMES.issuperset(message) or type(message.get("timestamp", 0)) is not int:
            raise _NotPlainError
        if not self._who.may_write(self._project):
            raise _NotPlainError
        if "msgId" not in message:
            return None, len(message) + 1
        name = self._name(message["msgId"])
        return name, len(message) + 1 + name.count(":")

    def _item(self, sent: dict[str, Any]) -> tuple[EventItem, int]:
        sent_id, partition, payload, meta = sent["id"], sent["partition"], sent["payload"], sent["meta"]
        kind, version = sent["type"], sent["schemaVersion"]
        if type(kind) is not str or not kind or type(version) is not int or version < 1 or type(payload) is not dict:
            raise _NotPlainError
        if type(partition) is not str or not partition or type(meta) is not dict or sent["projectId"] != self._project:
            raise _NotPlainError
        if type(meta["clientTs"]) not in (int, float):
            raise _NotPlainError
        colons = self._colons + sent_id.count(":")
        if "clientId" in meta:
            if meta.pop("clientId") != self._who.client_id:
                raise _NotPlainError
            colons += 1 + self._client_colons
        event = {"type": kind, "schemaVersion": version, "payload": payload, "partition": partition, "meta": meta}
        if len(sent) != 7:
            event["userId"] = self._user(sent)
        return self._printed(sent_id, self._partitions, event), colons

    def _user(self, sent: dict[str, Any]) -> str:
        """The user that an item names, if it has no other further member."""
        user = sent["userId"]
        users = self._who.users
        if len(sent) != 8 or type(user) is not str or not user or (users is not None and user not in users):
            raise _NotPlainError
        return user
