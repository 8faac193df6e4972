"""Frames without a socket: the published bytes, and what is taken and refused as over HTTP."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from semel.kernel.errors import Refusal, Refused
from semel.kernel.hashes import json_text
from semel.surfaces.deltas.commands import flaws_of
from semel.surfaces.deltas.limits import DEFAULT_PAGE, MAX_COLUMNS, MAX_PAGE, DeltaPolicy
from semel.surfaces.deltas.model import Delta, DeltaEntry, DeltaOp
from semel.surfaces.deltas.proto.sync_pb2 import ColumnDelta, RowDelta, SyncPull, SyncPush
from semel.surfaces.deltas.service import weight_of
from semel.surfaces.deltas.wire.frames import (
    FrameError,
    UntellableError,
    checkpoint_frame,
    pull_of,
    push_of,
    read_frame,
    response,
)
from semel.surfaces.deltas.wire.urls import PullQuery
from tests.deltas.binary.caller import push_frame, read_response, row_delta
from tests.deltas.vectors import VECTORS, Message, columns, delta, forged

NO_PROTOBUF = {"V27"}
"""A member that a column has besides its name and value has no place in a frame."""


def pushed(*deltas: Message, client: str = "client-a", author: str | None = None) -> tuple[Delta, ...]:
    message = read_frame(push_frame(deltas, client))
    assert isinstance(message, SyncPush)
    return push_of(message, DeltaPolicy(), author).deltas


def refusal(message: SyncPush, author: str | None = None, policy: DeltaPolicy | None = None) -> Refusal:
    with pytest.raises(Refused) as caught:
        push_of(message, policy or DeltaPolicy(), author)
    return caught.value.refusal


def test_the_published_pull() -> None:
    raw = bytes.fromhex("0a08636c69656e742d6111000000a4381c9c0118e807")
    message = read_frame(b"\x02" + raw)
    assert isinstance(message, SyncPull)
    assert pull_of(message) == PullQuery('"client-a"', 115998720000000000, 1000)
    assert message.SerializeToString() == raw


def test_the_published_response() -> None:
    assert response((), 115998720000000001, has_more=True).hex() == "11010000a4381c9c011801"


def test_a_response_is_never_empty() -> None:
    raw = response((), 0, has_more=False)
    assert raw[:1] in (b"\x0a", b"\x11", b"\x18")
    assert read_response(raw) == ([], 0, False)


@pytest.mark.parametrize("vector", [one for one in VECTORS if one.name not in NO_PROTOBUF], ids=lambda one: one.name)
def test_the_published_ids_hold_here(vector: object) -> None:
    wanted = vector.delta("INSERT")  # type: ignore[attr-defined]
    [made] = pushed(wanted)
    assert made.id.hex() == wanted["deltaId"]
    assert (made.op, made.table, made.hlc) == (DeltaOp.INSERT, wanted["table"], int(wanted["hlc"]))


def test_a_forged_id_is_refused() -> None:
    message = SyncPush(client_id="client-a", deltas=[row_delta(forged(delta("UPDATE", columns(a=1))))])
    assert refusal(message).status == 422


@pytest.mark.parametrize(
    "value", [b"{", b"NaN", b"1e999", b"\xff", b'{"a":1,"a":2}', b"1 2", b" ", b"[" * 60 + b"]" * 60]
)
def test_values_are_strict_json(value: bytes) -> None:
    made = row_delta(delta("UPDATE", columns(a=1)))
    made.columns[0].value = value
    told = refusal(SyncPush(client_id="client-a", deltas=[row_delta(delta("UPDATE", columns(a=2))), made]))
    assert (told.name, told.status, [flaw.place for flaw in flaws_of(told)]) == ("VALIDATION_ERROR", 400, [1])


def test_values_may_be_as_deep_as_over_http() -> None:
    deep: object = 1
    for _ in range(59):
        deep = [deep]
    assert pushed(delta("UPDATE", columns(a=deep)))


def test_two_columns_of_one_name_and_unknown_operations_are_refused() -> None:
    twice = row_delta(delta("UPDATE", [*columns(a=1), *columns(a=2)]))
    assert refusal(SyncPush(client_id="client-a", deltas=[twice])).status == 400
    for number in (0, 4, -1):
        strange = row_delta(delta("UPDATE", columns(a=1)))
        strange.op = number  # type: ignore[assignment]
        assert refusal(SyncPush(client_id="client-a", deltas=[strange])).status == 400


@pytest.mark.parametrize(
    ("message", "author", "code"),
    [
        (SyncPush(), None, "VALIDATION_ERROR"),
        (SyncPush(client_id="x" * 257), None, "VALIDATION_ERROR"),
        (SyncPush(client_id="b"), "a", "FORBIDDEN"),
        (SyncPush(client_id="a", deltas=[row_delta(delta("UPDATE", columns(a=1), client="b"))]), "a", "FORBIDDEN"),
        (SyncPush(client_id="a", deltas=[RowDelta()]), None, "VALIDATION_ERROR"),
        (SyncPush(client_id="a", deltas=[row_delta(delta("UPDATE", table="a b"))]), None, "SCHEMA_ERROR"),
        (SyncPush(client_id="a", deltas=[row_delta(delta("UPDATE", columns(**{"a\n": 1})))]), None, "SCHEMA_ERROR"),
    ],
    ids=["no client", "long client", "another client", "another author", "nothing", "table", "column"],
)
def test_refusals_are_those_of_http(message: SyncPush, author: str | None, code: str) -> None:
    assert refusal(message, None if author is None else json_text(author)).name == code


def test_the_number_of_deltas_is_bounded() -> None:
    some = [row_delta(delta("UPDATE", columns(a=number))) for number in range(3)]
    assert (
        refusal(SyncPush(client_id="client-a", deltas=some), policy=DeltaPolicy(max_deltas=2)).name
        == "VALIDATION_ERROR"
    )


FULL = 1024 * 1024
"""Bytes of the largest frame."""


def piece(tag: bytes, content: bytes) -> bytes:
    """A field that has a length."""
    length, rest = b"", len(content)
    while rest > 127:
        length += bytes([rest & 127 | 128])
        rest >>= 7
    return tag + length + bytes([rest]) + content


EMPTY_DELTA, EMPTY_COLUMN = b"\x12\x00", b"\x22\x00"
TWO_BYTES_EACH = {
    "deltas": (EMPTY_DELTA * (FULL // 2), None),
    "columns of one": (piece(b"\x12", EMPTY_COLUMN * (FULL // 2)), 413),
    "columns of many": (piece(b"\x12", EMPTY_COLUMN * 50) * 10_000, 400),
}


@pytest.mark.parametrize(("content", "status"), TWO_BYTES_EACH.values(), ids=TWO_BYTES_EACH)
def test_what_takes_two_bytes_in_a_frame_is_counted_before_it_is_made(content: bytes, status: int | None) -> None:
    """Half a million objects of a hundred bytes each would be made of a frame that is thrown away."""
    message = read_frame(b"\x01" + piece(b"\x0a", b"a") + content)
    assert isinstance(message, SyncPush)
    tracemalloc.start()
    try:
        told = refusal(message)
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (told.name, told.own_status) == ("VALIDATION_ERROR", status)
    assert held < 8 * FULL


@pytest.mark.parametrize(("pushed", "width"), [(500, 0), (20, 500), (500, 5)], ids=["bare", "wide", "usual"])
@pytest.mark.parametrize("value", [b"", b'"text"'], ids=["no values", "values"])
def test_a_push_weighs_what_it_holds(pushed: int, width: int, value: bytes) -> None:
    """Writes that wait are bounded by that, so it must not be taken for less than it is."""
    cells = [ColumnDelta(column=f"c{number}", value=value) for number in range(width)]
    fields = {"op": 2, "table": "t", "client_id": "a", "delta_id": "0" * 64, "columns": cells}
    many = [RowDelta(row_id=str(number), hlc=number, **fields) for number in range(pushed)]  # type: ignore[arg-type]
    raw = b"\x01" + SyncPush(client_id="a", deltas=many).SerializeToString()
    tracemalloc.start()
    try:
        message = read_frame(raw)
        assert isinstance(message, SyncPush)
        body = push_of(message, DeltaPolicy(checks_ids=False), None)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held * 0.9 < weight_of(body, len(raw)) < held * 4


def test_a_delta_wider_than_any_row_is_named() -> None:
    wide = [delta("UPDATE", columns(**{f"c{number}": 1 for number in range(MAX_COLUMNS + more)})) for more in (0, 1)]
    assert pushed(wide[0])
    told = refusal(SyncPush(client_id="client-a", deltas=map(row_delta, wide)))
    assert (told.name, told.status, [flaw.place for flaw in flaws_of(told)]) == ("VALIDATION_ERROR", 413, [1])


def test_who_pushes_is_judged_before_how_much() -> None:
    many = SyncPush(client_id="b", deltas=[RowDelta(), RowDelta()])
    assert refusal(many, json_text("a"), DeltaPolicy(max_deltas=1)).name == "FORBIDDEN"
    assert not flaws_of(refusal(many, json_text("b"), DeltaPolicy(max_deltas=1)))


@pytest.mark.parametrize(
    "raw", [b"", b"\x00", b"\x03", b"\x0a\x01a", b"\x01\xff", b"\x02\x0a\x05a", b"\x01\x0a\x01\xff"]
)
def test_what_is_no_frame(raw: bytes) -> None:
    with pytest.raises(FrameError):
        read_frame(raw)


@pytest.mark.parametrize(("asked", "given"), [(0, DEFAULT_PAGE), (1, 1), (MAX_PAGE, MAX_PAGE), (2**32 - 1, MAX_PAGE)])
def test_the_limit_of_a_pull(asked: int, given: int) -> None:
    assert pull_of(SyncPull(client_id="a", max_deltas=asked)).limit == given


def test_fields_that_nobody_knows_are_passed_over() -> None:
    made = delta("UPDATE", columns(a=1))
    raw = push_frame([made], "client-a") + bytes.fromhex("9a0603616263")  # field 99
    message = read_frame(raw)
    assert isinstance(message, SyncPush)
    assert push_of(message, DeltaPolicy(), None).deltas[0].id.hex() == made["deltaId"]


def entry(**fields: Any) -> DeltaEntry:
    plain = DeltaEntry(
        9, DeltaOp.UPDATE, "t", '"r"', '"c"', 2**64 - 1, bytes(range(32)), b'[{"column":"a","value":1e+21}]'
    )
    return plain._replace(**fields)


def test_entries_are_told_whole() -> None:
    made = entry(row=json_text("\u884c/1"), client=json_text("\U0001f389"))
    raw = response([made, made], 5, has_more=False)
    told = read_response(raw)
    assert raw[:1] == b"\x0a"
    assert told.hlc == 5
    assert told.deltas[0] == told.deltas[1]
    assert told.deltas[0] == {
        "op": "UPDATE",
        "table": "t",
        "rowId": "\u884c/1",
        "clientId": "\U0001f389",
        "columns": columns(a=1e21),
        "hlc": str(2**64 - 1),
        "deltaId": bytes(range(32)).hex(),
    }


def test_values_travel_as_canonical_json() -> None:
    made = entry(columns='[{"column":"a","type":"x","value":{"b":"\\ud800","\u00e9":[0.000001,-1]}}]'.encode())
    raw = response([made], 5, has_more=False)
    assert '{"b":"\\ud800","\u00e9":[0.000001,-1]}'.encode() in raw
    assert ColumnDelta(column="a", value='{"b":"\\ud800","\u00e9":[0.000001,-1]}'.encode()).SerializeToString() in raw


@pytest.mark.parametrize("name", ["row", "client"])
def test_an_id_with_half_a_pair_cannot_be_told(name: str) -> None:
    with pytest.raises(UntellableError):
        response([entry(**{name: '"a\\ud800"'})], 5, has_more=False)


def test_a_piece_of_a_checkpoint_stands_behind_its_length() -> None:
    raw = checkpoint_frame([entry()], 5, has_more=True)
    assert int.from_bytes(raw[:4], "big") == len(raw) - 4
    assert read_response(raw[4:]).has_more
