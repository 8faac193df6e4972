"""Fields are counted before anything is made of them; what is counted is what protobuf reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from google.protobuf.message import Message

from semel.kernel.errors import Refused
from semel.server.grpc import messages
from semel.server.grpc.messages import SPARE_FIELDS, WireField, count_fields, wire_fields
from semel.server.grpc.metadata import GrpcError
from semel.surfaces.ledger.grpc import requests
from semel.surfaces.ledger.grpc.answers import refusal_of
from semel.surfaces.ledger.grpc.requests import check_groups, check_operations, parse_batch, parse_write
from semel.surfaces.ledger.proto import ledger_pb2 as pb

MOST = 100
ORG = b"\x0a\x02\x08\x07"
UNKNOWN_NUMBER = b"\x38\x01"
DELETE = pb.Operation(delete_entity=pb.DeleteEntity(key="k"))


class ConvertedError(Exception):
    """Something was made of a message that should have been refused before."""


def no_conversion(message: Message) -> Message:
    raise ConvertedError


def write(count: int) -> bytes:
    return pb.WriteRequest(organization=pb.OrganizationSlug(slug=7), operations=[DELETE] * count).SerializeToString()


def batch(*counts: int) -> bytes:
    groups = [pb.BatchWriteOperation(operations=[DELETE] * count) for count in counts]
    return pb.BatchWriteRequest(organization=pb.OrganizationSlug(slug=7), operations=groups).SerializeToString()


def test_pieces() -> None:
    content = b"\x08\x96\x01" + b"\x12\x03abc" + b"\x1d1234" + b"\x2112345678" + b"\xa0\x06\x05"
    assert list(wire_fields(content)) == [
        WireField(1, 3, 3),
        WireField(2, 5, 8, has_content=True),
        WireField(3, 13, 13),
        WireField(4, 22, 22),
        WireField(100, 25, 25),
    ]
    assert count_fields(content, 3) == 4, "no further than one too many"


@pytest.mark.parametrize(
    "content",
    [
        b"\x0b\x0c",
        b"\x0c",
        b"\x0e",
        b"\x0f",
        b"\x12\x05abc",
        b"\x08",
        b"\x1d123",
        b"\x80" * 11,
        b"\x12" + b"\xff" * 9 + b"\x01",
    ],
    ids=["group", "group-end", "kind-6", "kind-7", "cut", "no-value", "cut-number", "endless", "huge"],
)
def test_what_cannot_be_read(content: bytes) -> None:
    with pytest.raises(GrpcError, match="cannot be read"):
        list(wire_fields(content))


REFUSED: dict[str, tuple[type[Message], Callable[[messages.Content], None], bytes]] = {
    "read": (pb.GetTipRequest, messages.check_fields, ORG + UNKNOWN_NUMBER * 100_000),
    "read-place": (pb.GetTipRequest, messages.check_fields, ORG * 100_000),
    "batch-read": (pb.BatchReadRequest, partial(messages.check_fields, repeated=MOST), ORG + b"\x1a\0" * 100_000),
    "write": (pb.WriteRequest, partial(check_operations, MOST), ORG + b"\x2a\0" * 100_000),
    "write-unknown": (pb.WriteRequest, partial(check_operations, MOST), ORG + UNKNOWN_NUMBER * 100_000),
    "batch-groups": (pb.BatchWriteRequest, partial(check_groups, MOST), ORG + b"\x2a\0" * 100_000),
    "batch-one-group": (pb.BatchWriteRequest, partial(check_groups, MOST), batch(1_000)),
    "batch-many-groups": (pb.BatchWriteRequest, partial(check_groups, MOST), batch(*[MOST // 2] * 3)),
    "batch-unknown": (pb.BatchWriteRequest, partial(check_groups, MOST), ORG + UNKNOWN_NUMBER * 100_000),
}


@pytest.mark.parametrize("name", REFUSED)
def test_too_many_are_refused_before_anything_is_made_of_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, check, content = REFUSED[name]
    looked = 0
    varint = messages._varint

    def counted(content: messages.Content, place: int) -> tuple[int, int]:
        nonlocal looked
        looked += 1
        return varint(content, place)

    monkeypatch.setattr(messages, "_varint", counted)
    with pytest.raises((Refused, GrpcError)) as caught:
        messages.parser(kind, no_conversion, check)(content)
    refusal = refusal_of(caught.value)
    assert refusal is not None
    assert refusal.code == "ledger:invalid_argument"
    assert looked <= 4 * (MOST + SPARE_FIELDS), "and no more of them were looked at than could be"


@pytest.mark.parametrize(
    ("count", "is_fine"), [(1, True), (MOST, True), (MOST + 1, False), (MOST + SPARE_FIELDS, False)]
)
def test_operations_of_a_write(count: int, is_fine: bool) -> None:
    parse = messages.parser(pb.WriteRequest, partial(parse_write, most=MOST), partial(check_operations, MOST))
    if is_fine:
        assert len(parse(write(count)).draft.operations) == count
    else:
        with pytest.raises(Refused, match=f"1 to {MOST} operations"):
            parse(write(count))


@pytest.mark.parametrize(
    ("counts", "is_fine"),
    [
        ((MOST,), True),
        ((MOST - 1, 1), True),
        ((1,) * MOST, True),
        ((0,) * (MOST - 1) + (MOST,), True),
        ((MOST, 1), False),
        ((MOST + 1,), False),
        ((0,) * (MOST + 1), False),
        ((2,) * (MOST // 2) + (1,), False),
    ],
    ids=["one", "two", "each", "empty-ones", "one-more", "too-many", "groups", "together"],
)
def test_operations_of_a_batch(counts: tuple[int, ...], is_fine: bool) -> None:
    parse = messages.parser(pb.BatchWriteRequest, partial(parse_batch, most=MOST), partial(check_groups, MOST))
    if is_fine:
        assert len(parse(batch(*counts)).draft.operations) == sum(counts)
    else:
        with pytest.raises(Refused, match=f"1 to {MOST} operations"):
            parse(batch(*counts))


def test_a_large_operation_is_one() -> None:
    large = pb.Operation(set_entity=pb.SetEntity(key="k", value=UNKNOWN_NUMBER * 100_000))
    groups = [pb.BatchWriteOperation(operations=[large]), pb.BatchWriteOperation(operations=[DELETE] * (MOST - 1))]
    request = pb.BatchWriteRequest(organization=pb.OrganizationSlug(slug=7), operations=groups)
    parse = messages.parser(pb.BatchWriteRequest, partial(parse_batch, most=MOST), partial(check_groups, MOST))
    assert len(parse(request.SerializeToString()).draft.operations) == MOST


def test_some_fields_that_nobody_knows_are_passed_over() -> None:
    content = ORG + b"\xfa\x07\xe8\x07" + bytes(1_000) + UNKNOWN_NUMBER * 50
    assert messages.parser(pb.GetTipRequest, requests.place_of)(content).org == 7
