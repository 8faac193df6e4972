"""WebSocket frames of deltas: binary frames (protobuf), and the one text frame of the plain dialect, a pull.

A delta of a frame is converted to its JSON value and checked in that form, so both wires accept and reject the same.
An id with half a surrogate pair, which only JSON can spell, has no protobuf form: it is an error here, and its row has
to be pulled over HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError

from semel.kernel.errors import Refused
from semel.kernel.hashes import json_text
from semel.kernel.json.canonical import MAX_DEPTH, Integers, Json, JsonError, Surrogates, parse
from semel.kernel.json.large import LargeJson, is_light, read_json
from semel.kernel.json.members import unmarked
from semel.kernel.json.text import depth_of, too_deep
from semel.surfaces.deltas.limits import DEFAULT_PAGE, MAX_PAGE, DeltaPolicy
from semel.surfaces.deltas.model import DeltaEntry, DeltaOp
from semel.surfaces.deltas.proto.sync_pb2 import ColumnDelta, RowDelta, SyncPull, SyncPush, SyncResponse
from semel.surfaces.deltas.wire.push_body import (
    INVALID,
    FlawedDelta,
    PushBody,
    check_width,
    client_of,
    hlc_of,
    judge_push,
)
from semel.surfaces.deltas.wire.urls import PullQuery

PUSH, PULL, BROADCAST = b"\x01", b"\x02", b"\x03"
MEDIA_TYPE = b"application/x-lakesync-checkpoint-stream"
MAX_VALUE_DEPTH = MAX_DEPTH - 5
"""Depth limit of a value, the same as over HTTP, where the JSON of a push nests a value in five brackets."""

_OPS = {int(op): op.name for op in DeltaOp}
_DELTAS_TAG = SyncResponse.DESCRIPTOR.fields_by_name["deltas"].number << 3 | 2
_BINARY, _SHORT, _MEDIUM = 0x82, 126, 65_536
_NOTHING = b"\x11" + bytes(8)
"""A response with only a cursor of 0: protobuf would omit the cursor, and an empty frame is invalid."""


class FrameError(ValueError):
    """The bytes are not a valid frame."""


class UntellableError(ValueError):
    """An entry that cannot be encoded in binary form."""


def read_frame(raw: bytes) -> SyncPush | SyncPull:
    """Decode a frame from a client."""
    message: SyncPush | SyncPull
    if raw.startswith(PUSH):
        message = SyncPush()
    elif raw.startswith(PULL):
        message = SyncPull()
    else:
        raise FrameError("A frame begins with 0x01 for a push or 0x02 for a pull.")
    try:
        message.ParseFromString(raw[1:])
    except DecodeError:
        raise FrameError("The frame is not the protobuf message that its first byte says.") from None
    return message


def push_of(message: SyncPush, policy: DeltaPolicy, author: str | None) -> PushBody:
    """The parsed deltas of a push. `author` is the text of the only id that the caller may push as."""
    deltas = message.deltas
    return judge_push(
        client_of(message.client_id), len(deltas), (partial(_item, one) for one in deltas), policy, author
    )


def pull_of(message: SyncPull) -> PullQuery:
    """The query of a pull."""
    return PullQuery(client_of(message.client_id), message.since_hlc, min(message.max_deltas, MAX_PAGE) or DEFAULT_PAGE)


def response(entries: Iterable[DeltaEntry], cursor: int, *, has_more: bool) -> bytes:
    """A response with entries and the cursor after them."""
    return b"".join(response_parts(entries, cursor, has_more=has_more))


def response_parts(entries: Iterable[DeltaEntry], cursor: int, *, has_more: bool) -> list[bytes]:
    """A response in parts, for callers that add a prefix or suffix: joining would copy the whole page."""
    parts: list[bytes] = []
    for entry in entries:
        delta = _delta(entry)
        parts += _prefix(len(delta)), delta
    rest = SyncResponse(server_hlc=cursor, has_more=has_more).SerializeToString()
    return [*parts, rest] if parts or rest else [_NOTHING]


def _prefix(size: int) -> bytes:
    """The protobuf prefix of one delta of a response."""
    digits = bytearray((_DELTAS_TAG,))
    while size > 0x7F:
        digits.append(size & 0x7F | 0x80)
        size >>= 7
    digits.append(size)
    return bytes(digits)


def wire_frame(parts: Sequence[bytes], behind: bytes = b"") -> bytes:
    """Encode the parts of one message as a binary WebSocket frame, followed by other frames, in one copy."""
    size = sum(map(len, parts))
    if size < _SHORT:
        head = bytes((_BINARY, size))
    elif size < _MEDIUM:
        head = bytes((_BINARY, _SHORT)) + size.to_bytes(2)
    else:
        head = bytes((_BINARY, _SHORT + 1)) + size.to_bytes(8)
    return b"".join((head, *parts, behind))


def checkpoint_frame(entries: Iterable[DeltaEntry], cursor: int, *, has_more: bool) -> bytes:
    """A response as one piece of a checkpoint, with its length in front."""
    parts = response_parts(entries, cursor, has_more=has_more)
    return b"".join((sum(map(len, parts)).to_bytes(4), *parts))


def _item(delta: RowDelta) -> Json:
    """A delta as a JSON value; an unknown operation is left to the validation.

    Columns are counted first: a column can be two bytes of a frame and take a hundred times that in memory.
    """
    check_width(len(delta.columns))
    return {
        "op": _OPS.get(delta.op, ""),
        "table": delta.table,
        "rowId": delta.row_id,
        "clientId": delta.client_id,
        "columns": [_column(column) for column in delta.columns],
        "hlc": str(delta.hlc),
        "deltaId": delta.delta_id,
    }


def _column(column: ColumnDelta) -> Json:
    raw = column.value
    if not raw:
        return {"column": column.column}
    if raw.count(b"[") + raw.count(b"{") > MAX_VALUE_DEPTH and depth_of(raw) > MAX_VALUE_DEPTH:
        raise FlawedDelta(INVALID, str(too_deep()))
    try:
        return {"column": column.column, "value": parse(raw) if is_light(raw) else unmarked(read_json(raw))}
    except JsonError as error:
        raise FlawedDelta(INVALID, str(error)) from None


def _delta(entry: DeltaEntry) -> bytes:
    told = RowDelta(
        op=f"DELTA_OP_{entry.op.name}",
        table=entry.table,
        row_id=_string(entry.row),
        hlc=entry.hlc,
        client_id=_string(entry.client),
        delta_id=entry.id.hex(),
    )
    raw = entry.columns
    columns = parse(raw) if is_light(raw) else read_json(raw)
    assert isinstance(columns, list | LargeJson)
    for column in columns if isinstance(columns, list) else columns.elements():
        told.columns.append(_told(column))
    return told.SerializeToString()


def _told(column: Any) -> ColumnDelta:
    members = column.members(lambda name: True) if isinstance(column, LargeJson) else column
    value = members["value"]
    if isinstance(value, LargeJson):
        return ColumnDelta(column=members["column"], value=value.canonical(Integers.ROUND, Surrogates.ESCAPE))
    return ColumnDelta(column=members["column"], value=json_text(value).encode())


def _string(text: str) -> str:
    value: str = json.loads(text)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UntellableError(
            "An id holds half of a surrogate pair, which a binary frame cannot carry; pull it over HTTP."
        ) from None
    return value


class PlainFrame(bytes):
    """A text message as received."""

    __slots__ = ()

    def read(self) -> PullQuery:
        """Parse the pull: `clientId` and `since`, and optionally `limit` and `ownAfter`."""
        try:
            facts = parse(bytes(self))
        except JsonError as error:
            raise FrameError(f"A text frame is a JSON object: {error}") from None
        if not isinstance(facts, dict):
            raise FrameError("A text frame is a JSON object.")
        since, own_after = hlc_of(facts.get("since")), hlc_of(facts.get("ownAfter"))
        limit = facts.get("limit", DEFAULT_PAGE)
        if since is None or (own_after is None and facts.get("ownAfter") is not None):
            raise FrameError("since, and ownAfter if it is there, are strings of decimal digits.")
        if type(limit) not in (int, float) or not isinstance(limit, int | float) or not limit >= 1:
            raise FrameError("limit is a number, and at least 1.")
        try:
            client = client_of(facts.get("clientId"))
        except Refused as refused:
            raise FrameError(refused.refusal.message) from None
        return PullQuery(client, since, int(min(limit, MAX_PAGE)), is_plain=True, own_after=own_after)
