"""The older dialect of gRPC, byte by byte: the tables of today do not describe it."""

from __future__ import annotations

from typing import Any

from tests.ledger.rig import Ledger
from tests.ledger.words import Place, fresh

ALREADY_COMMITTED, SEQUENCE_GAP = 5, 6
Fields = dict[int, Any]


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def number_field(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def bytes_field(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def set_entity(key: str, value: bytes, condition: bytes | None = None) -> bytes:
    """An operation."""
    fields = bytes_field(1, key.encode()) + bytes_field(2, value)
    return bytes_field(3, fields + (b"" if condition is None else bytes_field(4, condition)))


NOT_EXISTS = number_field(1, 1)
MUST_EXIST = number_field(4, 1)


def old_request(place: Place, client: str, sequence: int | None, *operations: bytes) -> bytes:
    """A write of the older dialect."""
    vault = number_field(2, place.vault) if place.vault else b""
    content = number_field(1, place.org) + vault + bytes_field(3, bytes_field(1, client.encode()))
    content += b"" if sequence is None else number_field(4, sequence)
    return content + b"".join(bytes_field(5, operation) for operation in operations)


def fields_of(content: bytes) -> Fields:
    """The numbers and bytes of a message, by field."""
    found: Fields = {}
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        value, at = _varint(content, at)
        if tag & 7 == 2:
            found[tag >> 3], at = content[at : at + value], at + value
        else:
            assert tag & 7 == 0, tag
            found[tag >> 3] = value
    return found


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            return value, at


class Old:
    """A client of the older dialect."""

    def __init__(self, ledger: Ledger, place: Place) -> None:
        self.ledger = ledger
        self.place = place
        self.client = fresh("client")

    def write(self, sequence: int | None, *operations: bytes, rpc: str = "Write") -> tuple[str, Fields]:
        """`success` or `error`, and its fields."""
        answer, _ = self.ledger.grpc.send(rpc, old_request(self.place, self.client, sequence, *operations))
        [(number, content)] = fields_of(answer).items()
        return {1: "success", 2: "error"}[number], fields_of(content)


A, B = set_entity("a", b"1"), set_entity("b", b"2")
