"""Consumer groups and snapshots over HTTP: the paths below `/v1/events/groups` and `/v1/events/snapshots`.

| call | roles, on every partition of the group, or on the partition |
|---|---|
| show or list groups, list parked events, read or list snapshots | read |
| fetch, ack, nack, extend | read and work: a reader that only looks must not take events away from the members |
| create, delete or reset a group, replay or drop parked events | read and write |
| store or delete a snapshot | write |
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import NamedTuple, TypeVar
from unicodedata import normalize
from urllib.parse import unquote_to_bytes

from semel.kernel.errors import Refused
from semel.kernel.json.fragment import dump
from semel.server.auth.principals import Principal, Role
from semel.server.context import Context, caller_of
from semel.server.http.answer import CLOSE, JSON, NO_STORE, Answer
from semel.server.http.body import Bodies
from semel.server.http.request import Request
from semel.server.thread_pool import COPIED_BYTES, apart
from semel.surfaces.events.group_calls import SURFACE, GroupCalls
from semel.surfaces.events.group_contract import EventConsumers
from semel.surfaces.events.group_reading import find_snapshot, list_snapshots
from semel.surfaces.events.limits import (
    LIST_DEFAULT,
    MAX_COMMITTED_ID,
    MAX_GROUP_BODY_BYTES,
    MAX_GROUP_NAME_BYTES,
    MAX_MEDIA_TYPE_BYTES,
    SNAPSHOTS_KEPT_MOST,
)
from semel.surfaces.events.rules.group_commands import (
    GroupCreate,
    GroupDelete,
    GroupDeleted,
    GroupExtend,
    GroupExtended,
    GroupReset,
    GroupSettled,
    GroupShown,
    ParkedMoved,
)
from semel.surfaces.events.rules.partitions import PartitionError, refuse_name
from semel.surfaces.events.rules.snapshots import SnapshotDelete, SnapshotDeleted, SnapshotPut, SnapshotStored
from semel.surfaces.events.service import EventService
from semel.surfaces.events.wire.group_messages import (
    extended_payload,
    fetched_payload,
    group_members,
    group_name,
    moved_payload,
    parked_payload,
    parse_definition,
    parse_fetch,
    parse_lease,
    parse_parked,
    parse_reset,
    parse_settle,
    settled_payload,
    snapshot_members,
)
from semel.surfaces.events.wire.http_messages import EventQueryString
from semel.surfaces.events.wire.messages import bad_request

GROUPS, SNAPSHOTS = b"/v1/events/groups", b"/v1/events/snapshots"
GROUPS_DEFAULT, GROUPS_MOST = 50, 100
PARKED_MOST = 100
_NO_PATH = "There is nothing at this path."
_OCTETS = b"application/octet-stream"


class ConsumerCall(NamedTuple):
    """One request: its names in the path, its body, and its caller."""

    principal: Principal
    names: tuple[str, ...]
    request: Request
    query: EventQueryString
    body: bytes


T = TypeVar("T")
Call = Callable[[ConsumerCall], Awaitable[Answer]]
FoundCall = tuple[Call, tuple[str, ...]]
"""The call of a path, and the names in the path."""


def _answer(payload: bytes, status: int = 200) -> Answer:
    return Answer(status, [JSON, NO_STORE], payload)


class ConsumerRoutes:
    """The handler of the paths of groups and snapshots."""

    def __init__(self, context: Context, service: EventService) -> None:
        self._context = context
        self.contract: EventConsumers = service.consumers
        limits = service.policy.limits
        self.calls = GroupCalls(context, self.contract, limits.message_bytes - limits.head_bytes, service.counts)
        self._counts = service.counts
        self._bodies = Bodies(MAX_GROUP_BODY_BYTES, context.settings.max_uploads_bytes)
        self._snapshot_bodies = Bodies(service.settings.events_snapshot_bytes, context.settings.max_uploads_bytes)
        service.metrics.waiting_fetches = lambda: self.calls.waiting
        self._of_groups: dict[tuple[str, ...], dict[str, Call]] = {
            (): {"GET": self._list},
            ("*",): {"PUT": self._create, "GET": self._show, "DELETE": self._delete},
            ("*", "reset"): {"POST": self._reset},
            ("*", "fetch"): {"POST": self._fetch},
            ("*", "ack"): {"POST": self._ack},
            ("*", "nack"): {"POST": self._nack},
            ("*", "extend"): {"POST": self._extend},
            ("*", "parked"): {"GET": self._parked},
            ("*", "parked", "replay"): {"POST": self._replay},
            ("*", "parked", "drop"): {"POST": self._drop},
        }
        self._of_snapshots: dict[tuple[str, ...], dict[str, Call]] = {
            ("*",): {"GET": self._latest_snapshot},
            ("*", "list"): {"GET": self._list_snapshots},
            ("*", "#"): {"GET": self._one_snapshot, "PUT": self._put_snapshot, "DELETE": self._delete_snapshot},
        }

    def route(self, method: str, raw_path: bytes) -> FoundCall:
        """The call of a method and path, and the names in it; refuses an unknown path and an unused method."""
        calls, names = self._find(raw_path)
        call = calls.get(method)
        if call is None:
            allowed = ", ".join(sorted({*calls, "OPTIONS"}))
            headers = ((b"allow", allowed.encode()),)
            raise Refused("bad_request", f"{method} is not used here.", own_status=405, headers=headers)
        return call, names

    def _find(self, raw_path: bytes) -> tuple[dict[str, Call], tuple[str, ...]]:
        for prefix, table in ((GROUPS, self._of_groups), (SNAPSHOTS, self._of_snapshots)):
            if raw_path != prefix and not raw_path.startswith(prefix + b"/"):
                continue
            pieces = raw_path[len(prefix) + 1 :].split(b"/") if raw_path != prefix else []
            try:
                names = tuple(unquote_to_bytes(piece).decode() for piece in pieces)
            except UnicodeDecodeError:
                break
            shape = ("*", *names[1:]) if names else ()
            if table is self._of_snapshots and len(names) == 2 and names[1].isdigit() and names[1].isascii():
                shape = ("*", "#")
            if shape in table and all(names):
                return table[shape], names
        raise Refused("not_found", _NO_PATH)

    async def answer(self, found: FoundCall, principal: Principal, request: Request) -> Answer:
        """Read the body and answer."""
        call, names = found
        body: bytes | None = b""
        bodies = self._snapshot_bodies if request.raw_path.startswith(SNAPSHOTS) else self._bodies
        if request.method in ("POST", "PUT"):
            body = await bodies.read(request)
        if body is None:
            message, facts = f"a body may have at most {bodies.max_bytes} bytes", {"max_bytes": bodies.max_bytes}
            raise Refused("bad_request", message, facts, own_status=413, headers=(CLOSE,))
        return await call(ConsumerCall(principal, names, request, EventQueryString(request.query), body))

    def stop(self) -> None:
        """The server is stopping: end the fetches that wait."""
        self.calls.stop()

    # -- groups -------------------------------------------------------------------------------------------------------

    async def _list(self, call: ConsumerCall) -> Answer:
        reach = self.calls.reach(call.principal, Role.READ)
        after = call.query.one("after") or ""
        limit = _number(call.query, "limit", GROUPS_DEFAULT, 1, GROUPS_MOST)
        if len(after.encode()) > MAX_GROUP_NAME_BYTES:
            raise bad_request("after must be the name of a group")
        page = await self.calls.groups(after.encode(), limit, reach)
        shown = {
            "groups": page.groups,
            "next_after": page.next_after.decode(),
            "has_more": page.has_more,
        }
        return _answer(await apart(len(page.groups) * 2_000, dump, shown))

    async def _show(self, call: ConsumerCall) -> Answer:
        reach = self.calls.reach(call.principal, Role.READ)
        return _answer(dump(group_members(await self.calls.state(group_name(call.names[0]), reach))))

    async def _create(self, call: ConsumerCall) -> Answer:
        reach = self.calls.reach(call.principal, Role.READ, Role.WRITE)
        name = group_name(call.names[0])
        definition = await _parsed(call, parse_definition)
        secret = self._context.world.random_bytes(16)
        command = GroupCreate(name, definition, call.principal.name.encode(), secret, reach)
        shown = await self.calls.execute(command, len(call.body), caller_of(call.request))
        assert isinstance(shown, GroupShown)
        return _answer(_shown(shown), 201 if shown.is_new else 200)

    async def _delete(self, call: ConsumerCall) -> Answer:
        reach = self.calls.reach(call.principal, Role.READ, Role.WRITE)
        deleted = await self.calls.execute(GroupDelete(group_name(call.names[0]), reach), 0, caller_of(call.request))
        assert isinstance(deleted, GroupDeleted)
        return _answer(dump({"deleted": deleted.was_there}))

    async def _reset(self, call: ConsumerCall) -> Answer:
        reach = self.calls.reach(call.principal, Role.READ, Role.WRITE)
        command = GroupReset(group_name(call.names[0]), *await _parsed(call, parse_reset), reach)
        shown = await self.calls.execute(command, len(call.body), caller_of(call.request))
        assert isinstance(shown, GroupShown)
        return _answer(_shown(shown))

    # -- members ------------------------------------------------------------------------------------------------------

    async def _fetch(self, call: ConsumerCall) -> Answer:
        reach = self.calls.reach(call.principal, Role.READ, Role.WORK)
        caller = caller_of(call.request)
        end = self._context.end_of(caller, call.principal)
        asked = await _parsed(call, parse_fetch)
        call.request.is_live = bool(asked.wait_ms)
        fetched, texts = await self.calls.fetch(group_name(call.names[0]), asked, reach, caller, end)
        size = sum(map(len, texts.values()))
        return _answer(await apart(size, fetched_payload, fetched, texts, most=COPIED_BYTES))

    async def _ack(self, call: ConsumerCall) -> Answer:
        return await self._settle(call, is_ack=True)

    async def _nack(self, call: ConsumerCall) -> Answer:
        return await self._settle(call, is_ack=False)

    async def _settle(self, call: ConsumerCall, *, is_ack: bool) -> Answer:
        reach = self.calls.reach(call.principal, Role.READ, Role.WORK)
        name = group_name(call.names[0])
        command = await _parsed(call, lambda body: parse_settle(name, body, reach, is_ack=is_ack))
        settled = await self.calls.execute(command, len(call.body), caller_of(call.request))
        assert isinstance(settled, GroupSettled)
        return _answer(settled_payload(settled, is_ack=is_ack))

    async def _extend(self, call: ConsumerCall) -> Answer:
        reach = self.calls.reach(call.principal, Role.READ, Role.WORK)
        command = GroupExtend(group_name(call.names[0]), await _parsed(call, parse_lease), reach)
        extended = await self.calls.execute(command, len(call.body), caller_of(call.request))
        assert isinstance(extended, GroupExtended)
        return _answer(extended_payload(extended))

    # -- parked events ------------------------------------------------------------------------------------------------

    async def _parked(self, call: ConsumerCall) -> Answer:
        reach = self.calls.reach(call.principal, Role.READ)
        after = _number(call.query, "after", 0, 0, MAX_COMMITTED_ID)
        limit = _number(call.query, "limit", PARKED_MOST, 1, PARKED_MOST)
        page = await self.calls.parked(group_name(call.names[0]), after, limit, reach)
        size = sum(map(len, page.texts.values()))
        return _answer(await apart(size, parked_payload, page.rows, page.texts, page.has_more, most=COPIED_BYTES))

    async def _replay(self, call: ConsumerCall) -> Answer:
        return await self._move(call, is_replay=True)

    async def _drop(self, call: ConsumerCall) -> Answer:
        return await self._move(call, is_replay=False)

    async def _move(self, call: ConsumerCall, *, is_replay: bool) -> Answer:
        reach = self.calls.reach(call.principal, Role.READ, Role.WRITE)
        name = group_name(call.names[0])
        command = await _parsed(call, lambda body: parse_parked(name, body, reach, is_replay=is_replay))
        moved = await self.calls.execute(command, len(call.body), caller_of(call.request))
        assert isinstance(moved, ParkedMoved)
        return _answer(moved_payload(moved, is_replay=is_replay))

    # -- snapshots ----------------------------------------------------------------------------------------------------

    def _partition(self, call: ConsumerCall, role: Role) -> bytes:
        """The partition in the path, if the caller may use it in this role."""
        name = normalize("NFC", call.names[0])
        try:
            refuse_name(name)
        except PartitionError as error:
            raise bad_request(str(error)) from None
        if not call.principal.may(role, SURFACE, name.encode()):
            raise Refused("forbidden", f"This credential may not {role.value} {name}.", {"partition": name})
        return name.encode()

    async def _put_snapshot(self, call: ConsumerCall) -> Answer:
        name = self._partition(call, Role.WRITE)
        media_type = call.request.fields.get(b"content-type") or _OCTETS
        if len(media_type) > MAX_MEDIA_TYPE_BYTES:
            raise bad_request(f"Content-Type may have at most {MAX_MEDIA_TYPE_BYTES} bytes")
        digest = await apart(len(call.body), lambda: sha256(call.body).digest(), most=COPIED_BYTES)
        owner = call.principal.name.encode()
        command = SnapshotPut(name, _position(call.names[1]), call.body, digest, media_type, owner)
        stored = await self.calls.execute(command, len(call.body), caller_of(call.request))
        assert isinstance(stored, SnapshotStored)
        is_new = not (stored.is_replay or stored.is_superseded)
        self._counts["snapshots"] += is_new
        shown = {
            "partition": name.decode(),
            "committed_id": stored.committed_id,
            "replayed": stored.is_replay,
            "superseded": stored.is_superseded,
        }
        return _answer(dump(shown), 201 if is_new else 200)

    async def _latest_snapshot(self, call: ConsumerCall) -> Answer:
        at_most = _number(call.query, "at_most", MAX_COMMITTED_ID, 0, MAX_COMMITTED_ID)
        return await self._snapshot(call, at_most, is_exact=False)

    async def _one_snapshot(self, call: ConsumerCall) -> Answer:
        return await self._snapshot(call, _position(call.names[1]), is_exact=True)

    async def _snapshot(self, call: ConsumerCall, at_most: int, *, is_exact: bool) -> Answer:
        name = self._partition(call, Role.READ)
        found = await self._context.engine.read(
            lambda reading: find_snapshot(reading, name, at_most, is_exact=is_exact)
        )
        if found is None:
            raise Refused("snapshot_not_found", "There is no such snapshot of this partition.")
        headers = [
            (b"content-type", found.row.media_type),
            (b"semel-committed-id", b"%d" % found.row.committed_id),
            (b"etag", b'"%s"' % found.row.digest.hex().encode()),
            NO_STORE,
        ]
        return Answer(200, headers, found.body)

    async def _list_snapshots(self, call: ConsumerCall) -> Answer:
        name = self._partition(call, Role.READ)
        limit = _number(call.query, "limit", LIST_DEFAULT, 1, SNAPSHOTS_KEPT_MOST)
        rows = await self._context.engine.read(lambda reading: list_snapshots(reading, name, limit))
        return _answer(dump({"partition": name.decode(), "snapshots": [snapshot_members(row) for row in rows]}))

    async def _delete_snapshot(self, call: ConsumerCall) -> Answer:
        name = self._partition(call, Role.WRITE)
        command = SnapshotDelete(name, _position(call.names[1]))
        deleted = await self.calls.execute(command, 0, caller_of(call.request))
        assert isinstance(deleted, SnapshotDeleted)
        return _answer(dump({"deleted": deleted.was_there}))


async def _parsed(call: ConsumerCall, parse: Callable[[bytes], T]) -> T:
    """Parse the body, in a thread if it is large."""
    return await apart(len(call.body), parse, call.body)


def _shown(shown: GroupShown) -> bytes:
    return dump(group_members(shown.state) | {"replayed": not shown.is_new})


def _position(text: str) -> int:
    if len(text) > 16 or int(text) > MAX_COMMITTED_ID:
        raise bad_request(f"a committed id is at most {MAX_COMMITTED_ID}")
    return int(text)


def _number(query: EventQueryString, name: str, default: int, least: int, most: int) -> int:
    text = query.one(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 16 and least <= int(text) <= most):
        raise bad_request(f"{name} must be a whole number from {least} to {most}")
    return int(text)
