"""Large write messages: decoded operation by operation, and freed before the command is built.

A message that is parsed as a whole stands in memory three times: as it arrived, as a message, and as the values in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from semel.contracts.ledger.model import Operation
from semel.server.grpc.messages import Content, WireField, unreadable, wire_fields
from semel.server.ledger.grpc.inbound import (
    OPERATIONS_FIELD,
    WriteOrder,
    check_groups,
    check_most,
    check_operations,
    operation_of,
    order_of,
)
from semel.server.ledger.proto import ledger_pb2 as pb

M = TypeVar("M", bound=Message)

_GROUPED_FIELD = 1


def large_write(content: Content, most: int) -> WriteOrder:
    """One transaction."""
    check_operations(most, content)
    rest = bytearray()
    given: list[Operation] = []
    for piece in _repeated(content, rest):
        check_most(len(given) + 1, most)
        given.append(_operation(content, piece, len(given)))
    _let_go(content)
    request = _read(pb.WriteRequest, rest)
    return order_of(request, tuple(given), wants_proof=request.include_tx_proof)


def large_batch(content: Content, most: int) -> WriteOrder:
    """One transaction whose operations come in groups."""
    check_groups(most, content)
    rest = bytearray()
    given: list[Operation] = []
    for count, group in enumerate(_repeated(content, rest), 1):
        check_most(count, most)
        before = len(given)
        for piece in wire_fields(content, group.start, group.end):
            if piece.has_content and piece.number == _GROUPED_FIELD:
                check_most(len(given) + 1, most)
                given.append(_operation(content, piece, len(given) - before))
    _let_go(content)
    request = _read(pb.BatchWriteRequest, rest)
    return order_of(request, tuple(given), wants_proof=request.include_tx_proofs)


def _repeated(content: Content, rest: bytearray) -> Iterator[WireField]:
    """The operations of a message, or the groups of them; what else it says is put together in `rest`."""
    before = 0
    for piece in wire_fields(content):
        if piece.has_content and piece.number == OPERATIONS_FIELD:
            yield piece
        else:
            rest += content[before : piece.end]
        before = piece.end


def _operation(content: Content, piece: WireField, number: int) -> Operation:
    return operation_of(number, _read(pb.Operation, content[piece.start : piece.end]))


def _read(kind: type[M], content: Content) -> M:
    try:
        return kind.FromString(bytes(content))
    except DecodeError:
        raise unreadable(kind.DESCRIPTOR.full_name) from None


def _let_go(content: Content) -> None:
    """Free the message, although callers still hold a reference."""
    if isinstance(content, bytearray):
        content.clear()
