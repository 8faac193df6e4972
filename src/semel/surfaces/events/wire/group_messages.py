"""Requests and answers of consumer groups and snapshots over HTTP: bytes to commands, results to bytes."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from semel.kernel.clock import utc_text
from semel.kernel.errors import Refused
from semel.kernel.json.fragment import dump
from semel.kernel.json.members import MemberReader, is_utf8
from semel.kernel.json.parse import parse
from semel.kernel.json.text import JsonError
from semel.kernel.keys import pack
from semel.surfaces.events.limits import (
    LIST_DEFAULT,
    MAX_COMMITTED_ID,
    MAX_DELAY_MS,
    MAX_DELIVERIES,
    MAX_FETCH_EVENTS,
    MAX_FETCH_ID_BYTES,
    MAX_FETCH_WAIT_MS,
    MAX_GROUP_IN_FLIGHT,
    MAX_GROUP_NAME_BYTES,
    MAX_GROUP_PARKED,
    MAX_LEASE_MS,
    MAX_MEMBER_BYTES,
    MAX_REASON_CHARACTERS,
    MIN_LEASE_MS,
)
from semel.surfaces.events.rules.group_commands import (
    GroupExtended,
    GroupFetched,
    GroupReach,
    GroupRefused,
    GroupSettle,
    GroupSettled,
    ParkedMove,
    ParkedMoved,
)
from semel.surfaces.events.rules.group_state import TOKEN_BYTES, GroupDefinition, GroupState
from semel.surfaces.events.rules.groups import BEGINNING, NOW
from semel.surfaces.events.rules.partitions import PartitionError, checked
from semel.surfaces.events.tables import EventParkedRow, EventSnapshotRow
from semel.surfaces.events.wire.messages import bad_request

STRICT, UNORDERED = "strict", "unordered"
_DEFINITION = ("partitions", "order", "lease_ms", "max_deliveries", "max_in_flight", "batch", "max_parked", "start")
_IDS_RULE = f"must be an array of 1 to {MAX_FETCH_EVENTS} committed ids"
_START_RULE = f'must be "{BEGINNING}", "{NOW}" or a committed id'


class FetchRequest(NamedTuple):
    """A fetch of a member."""

    member: bytes
    fetch_key: bytes
    batch: int
    """The most events; 0 takes the number of the group."""
    wait_ms: int


class BodyMembers(MemberReader[Refused]):
    """The members of a body; a member of another name is refused, because a typing error would be obeyed in part."""

    def __init__(self, body: bytes, names: Sequence[str]) -> None:
        try:
            value = parse(body) if body else {}
        except JsonError as error:
            raise bad_request(str(error)) from None
        if not isinstance(value, dict):
            raise bad_request("the body must be a JSON object")
        unknown = next((name for name in value if name not in names), None)
        if unknown is not None:
            raise bad_request(f"{unknown[:64]} is not a member of this request; {', '.join(names)} are")
        super().__init__(value, lambda path, rule: bad_request(f"{path} {rule}"))

    def name(self, name: str, most: int) -> str | None:
        """A non-empty string with at most this number of bytes."""
        return self.optional(name, lambda value: short_name(value, most), f"must be a string of 1 to {most} bytes")

    def number(self, name: str, least: int, most: int, default: int) -> int:
        """An integer in a range."""
        found = self.integer(name, least, most)
        return default if found is None else found


def short_name(value: object, most: int) -> str | None:
    """The value if it is a string of 1 to `most` bytes, otherwise None."""
    is_name = isinstance(value, str) and value and is_utf8(value) and len(value.encode()) <= most
    return value if is_name and isinstance(value, str) else None


def group_name(text: str) -> bytes:
    """The name of a group in a path."""
    if short_name(text, MAX_GROUP_NAME_BYTES) is None:
        raise bad_request(f"the name of a group must have 1 to {MAX_GROUP_NAME_BYTES} bytes")
    return text.encode()


def parse_definition(body: bytes) -> GroupDefinition:
    """The definition of a group that is to be created."""
    members = BodyMembers(body, _DEFINITION)
    names = members.required("partitions", _strings, "must be an array of strings")
    try:
        partitions = checked(tuple(names)).names
    except PartitionError as error:
        raise bad_request(f"partitions: {error}") from None
    order = members.optional("order", _order, f'must be "{STRICT}" or "{UNORDERED}"') or STRICT
    return GroupDefinition(
        partitions,
        order == STRICT,
        members.number("lease_ms", MIN_LEASE_MS, MAX_LEASE_MS, 30_000),
        members.number("max_deliveries", 0, MAX_DELIVERIES, 10),
        members.number("max_in_flight", 1, MAX_GROUP_IN_FLIGHT, 100),
        members.number("batch", 1, MAX_FETCH_EVENTS, 10),
        members.number("max_parked", 0, MAX_GROUP_PARKED, 100),
        members.optional("start", _start, _START_RULE) or BEGINNING,
    )


class ResetRequest(NamedTuple):
    """A new position of a group."""

    start: str
    reset_id: bytes


def parse_reset(body: bytes) -> ResetRequest:
    """The new position of a group."""
    members = BodyMembers(body, ("start", "reset_id"))
    reset_id = members.name("reset_id", MAX_FETCH_ID_BYTES)
    return ResetRequest(members.required("start", _start, _START_RULE), pack(reset_id.encode()) if reset_id else b"")


def parse_fetch(body: bytes) -> FetchRequest:
    """A fetch: the member and the fetch id are required."""
    members = BodyMembers(body, ("member", "fetch_id", "batch", "wait_ms"))
    member = members.name("member", MAX_MEMBER_BYTES)
    fetch_id = members.name("fetch_id", MAX_FETCH_ID_BYTES)
    if member is None or fetch_id is None:
        raise bad_request(
            "member and fetch_id are required: the fetch_id is new for each fetch, and kept for its retries"
        )
    batch = members.number("batch", 1, MAX_FETCH_EVENTS, 0)
    return FetchRequest(
        member.encode(), pack(fetch_id.encode()), batch, members.number("wait_ms", 0, MAX_FETCH_WAIT_MS, 0)
    )


def parse_settle(name: bytes, body: bytes, reach: GroupReach, *, is_ack: bool) -> GroupSettle:
    """An ack or a nack: of some events of a lease, or of all up to a position."""
    own = () if is_ack else ("delay_ms", "reason")
    members = BodyMembers(body, ("lease", "committed_ids", "up_to_committed_id", *own))
    token = _token(members)
    ids = members.optional("committed_ids", _ids, _IDS_RULE) or ()
    up_to = members.integer("up_to_committed_id", 0, MAX_COMMITTED_ID)
    if bool(ids) == (up_to is not None):
        raise bad_request("send committed_ids or up_to_committed_id, one of the two")
    reason = None if is_ack else members.string("reason", 1, MAX_REASON_CHARACTERS)
    if reason is not None:
        members.check_utf8("reason", reason)
    delay_ms = 0 if is_ack else members.number("delay_ms", 0, MAX_DELAY_MS, 0)
    return GroupSettle(name, token, ids, up_to or 0, is_ack, delay_ms, (reason or "").encode(), reach)


def parse_lease(body: bytes) -> bytes:
    """The token of a lease that is to be extended."""
    return _token(BodyMembers(body, ("lease",)))


def parse_parked(name: bytes, body: bytes, reach: GroupReach, *, is_replay: bool) -> ParkedMove:
    """Which parked events are replayed or dropped: some, or the first of the list."""
    members = BodyMembers(body, ("committed_ids", "limit"))
    ids = members.optional("committed_ids", _ids, _IDS_RULE) or ()
    limit = members.integer("limit", 1, MAX_GROUP_PARKED)
    if ids and limit is not None:
        raise bad_request("send committed_ids or limit, one of the two")
    return ParkedMove(name, ids, is_replay, limit or LIST_DEFAULT, reach)


def token_text(token: bytes) -> str:
    """A lease token as it is sent."""
    return urlsafe_b64encode(token).rstrip(b"=").decode()


def _token(members: BodyMembers) -> bytes:
    return members.required("lease", _lease, "must be the lease of a fetch")


def _lease(value: object) -> bytes | None:
    if not isinstance(value, str) or len(value) > 64 or not value.isascii():
        return None
    try:
        token = urlsafe_b64decode(value + "=" * (-len(value) % 4))
    except (Base64Error, ValueError):
        return None
    return token if len(token) == 8 + TOKEN_BYTES else None


def _strings(value: object) -> list[str] | None:
    return value if isinstance(value, list) and all(isinstance(one, str) for one in value) else None


def _order(value: object) -> str | None:
    return value if isinstance(value, str) and value in (STRICT, UNORDERED) else None


def _start(value: object) -> str | None:
    if isinstance(value, str):
        return value if value in (BEGINNING, NOW) else None
    is_position = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COMMITTED_ID
    return str(value) if is_position else None


def _ids(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_FETCH_EVENTS:
        return None
    is_right = all(isinstance(one, int) and not isinstance(one, bool) and 1 <= one <= MAX_COMMITTED_ID for one in value)
    return tuple(value) if is_right else None


def group_members(state: GroupState) -> dict[str, Any]:
    """A group as it is shown."""
    definition, row = state.definition, state.row
    start = definition.start
    return {
        "group": row.name.decode(),
        "partitions": list(definition.partitions),
        "order": STRICT if definition.is_strict else UNORDERED,
        "lease_ms": definition.lease_ms,
        "max_deliveries": definition.max_deliveries,
        "max_in_flight": definition.max_in_flight,
        "batch": definition.batch,
        "max_parked": definition.max_parked,
        "start": start if start in (BEGINNING, NOW) else int(start),
        "created_at": utc_text(row.created_at),
        "log_epoch": row.epoch,
        "floor_committed_id": state.floor,
        "cursors": dict(zip(definition.partitions, state.cursors, strict=True)),
        "pending": len(state.pending),
        "leased": sum(bool(one.lease) for one in state.pending.values()),
        "parked": row.parked,
        "delivered": row.delivered,
        "acked": row.acked,
        "pruned_events": row.pruned_events,
        "resets": row.generation,
    }


def fetched_payload(fetched: GroupFetched, texts: Mapping[int, bytes]) -> bytes:
    """The answer to a fetch; events that were pruned since they were leased are left out."""
    facts: dict[str, Any] = {
        "lease": token_text(fetched.token) if fetched.events else None,
        "lease_ms": fetched.lease_ms if fetched.events else 0,
        "replayed": fetched.is_replay,
        "floor_committed_id": fetched.floor,
        "log_epoch": fetched.epoch,
    }
    if fetched.pruned_to:
        facts["pruned_to_committed_id"] = fetched.pruned_to
    shown = [
        b'%s,"deliveries":%d}' % (texts[committed_id][:-1], deliveries)
        for committed_id, deliveries in fetched.events
        if committed_id in texts
    ]
    missing = [committed_id for committed_id, _ in fetched.events if committed_id not in texts]
    if missing:
        facts["pruned_committed_ids"] = missing
    return b'%s,"events":[%s]}' % (dump(facts)[:-1], b",".join(shown))


def settled_payload(settled: GroupSettled, *, is_ack: bool) -> bytes:
    """The answer to an ack or a nack."""
    facts: dict[str, Any] = {"acked" if is_ack else "returned": settled.settled, "replayed": settled.is_replay}
    if not is_ack:
        facts["parked"] = settled.parked
    return dump(facts | {"floor_committed_id": settled.floor})


def extended_payload(extended: GroupExtended) -> bytes:
    """The answer to an extension."""
    return dump({"lease_ms": extended.lease_ms, "events": extended.events})


def moved_payload(moved: ParkedMoved, *, is_replay: bool) -> bytes:
    """The answer to a replay or a drop of parked events."""
    return dump({"replayed" if is_replay else "dropped": moved.moved, "left": moved.left})


def parked_payload(rows: Sequence[EventParkedRow], texts: Mapping[int, bytes], has_more: bool) -> bytes:
    """A page of parked events; `event` is null if the event was pruned."""
    shown = [
        b'{"committed_id":%d,"deliveries":%d,"parked_at":%s,"reason":%s,"event":%s}'
        % (
            row.committed_id,
            row.deliveries,
            dump(utc_text(row.parked_at)),
            dump(row.reason.decode()),
            texts.get(row.committed_id, b"null"),
        )
        for row in rows
    ]
    last = rows[-1].committed_id if rows else 0
    head = dump({"has_more": has_more, "next_after": last})[:-1]
    return b'%s,"parked":[%s]}' % (head, b",".join(shown))


def snapshot_members(row: EventSnapshotRow) -> dict[str, Any]:
    """A snapshot without its content."""
    return {
        "committed_id": row.committed_id,
        "media_type": row.media_type.decode("latin-1"),
        "size": row.size,
        "sha256": row.digest.hex(),
        "created_at": utc_text(row.created_at),
    }


def refused(refusal: GroupRefused) -> Refused:
    """The refusal of a command, for the wire."""
    return Refused(refusal.code, refusal.message, dict(refusal.facts))
