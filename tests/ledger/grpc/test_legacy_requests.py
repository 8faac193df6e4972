"""The older dialect: plain numbers where there are messages now, and a sequence where the key is."""

from __future__ import annotations

from functools import partial

import pytest

from semel.server.grpc import messages
from semel.surfaces.ledger.grpc import requests
from semel.surfaces.ledger.model import LedgerPlace
from semel.surfaces.ledger.proto import ledger_pb2 as pb

CLIENT = b"\x1a\x05\x0a\x03app"
MOST = 1_000
SEQUENCE = b"\x20"
WRITES = {
    "write": messages.parser(pb.WriteRequest, partial(requests.parse_write, most=MOST)),
    "batch": messages.parser(pb.BatchWriteRequest, partial(requests.parse_batch, most=MOST)),
}


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    content = bytearray()
    while number > 0x7F:
        content.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*content, number))


@pytest.mark.parametrize("kind", WRITES)
@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (b"\x08\x07\x10\x09", LedgerPlace(7, 9)),
        (b"\x08\x07", LedgerPlace(7)),
        (b"\x0a\x02\x08\x07\x12\x02\x08\x09", LedgerPlace(7, 9)),
        (b"\x0a\x02\x08\x07", LedgerPlace(7)),
        (b"\x08\x07\x12\x02\x08\x09", LedgerPlace(7, 9)),
    ],
    ids=["numbers", "number", "messages", "message", "both"],
)
@pytest.mark.parametrize("sequence", [1, 300, 2**64 - 1])
def test_a_sequence_in_place_of_the_key(kind: str, place: bytes, expected: LedgerPlace, sequence: int) -> None:
    order = WRITES[kind](place + CLIENT + SEQUENCE + varint(sequence))
    assert (order.is_legacy, order.place, order.draft.sequence) == (True, expected, sequence)
    assert (order.draft.key, order.draft.client) == (b"", "app")


@pytest.mark.parametrize("kind", WRITES)
def test_zero_is_a_sequence_too(kind: str) -> None:
    assert WRITES[kind](b"\x08\x07" + SEQUENCE + b"\0").draft.sequence == 0


@pytest.mark.parametrize("kind", WRITES)
def test_a_key_or_a_sequence_of_ours_comes_first(kind: str) -> None:
    with_key = WRITES[kind](b"\x08\x07" + SEQUENCE + b"\x05" + b"\x22\x10" + b"k" * 16)
    assert (with_key.is_legacy, with_key.draft.sequence, with_key.draft.key) == (False, None, b"k" * 16)
    with_ours = WRITES[kind](b"\x08\x07" + SEQUENCE + b"\x05" + b"\xa0\x06\x09")
    assert (with_ours.is_legacy, with_ours.draft.sequence) == (False, 9)


def test_reads_take_plain_numbers() -> None:
    parse = messages.parser(pb.GetClientStateRequest, requests.place_of)
    assert parse(b"\x08\x07\x10\x09" + CLIENT) == LedgerPlace(7, 9)
    assert messages.parser(pb.GetOrganizationRequest, requests.slug_of)(b"\x08\x07") == 7
