"""Answers with whole transactions, serialized part by part.

A message that is built as a whole stands in memory once for each level that it is nested, and once more as its bytes.
Here the bytes of each operation are made alone, large values are passed on as they are, and all is joined once.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

from google.protobuf.message import Message

from semel.contracts.ledger.commands import Committed
from semel.contracts.ledger.model import Header, Operation, SetEntity, Transaction, TxProof
from semel.contracts.ledger.reading import Block
from semel.server.ledger.grpc.outbound import header_pb, operation_pb, success_fields, transaction_pb
from semel.server.ledger.proto import ledger_pb2 as pb

Parts = list[bytes]
"""The parts of one message, to be joined."""

_LARGE_BYTES = 4_096
_PIECE = 2


def parts_of(message: Message, **large: Iterable[Parts]) -> Parts:
    """A message, and more fields of it by their names, each of which is given for every time that it comes."""
    numbers = message.DESCRIPTOR.fields_by_name
    more = [_field(numbers[name].number, parts) for name, all_parts in large.items() for parts in all_parts]
    return [message.SerializeToString(), *chain.from_iterable(more)]


def transaction_parts(transaction: Transaction) -> Parts:
    """A transaction."""
    told = transaction_pb(transaction._replace(operations=()))
    return parts_of(told, operations=map(_operation_parts, transaction.operations))


def success_parts(kind: type[Any], committed: Committed, proof: TxProof | None) -> Parts:
    """A success of a single write or of a batch; with all that a check takes, if its proof is given."""
    without = committed._replace(transaction=committed.transaction._replace(operations=()))
    told = success_fields(without, proof)
    told.pop("transaction", None)
    return parts_of(kind(**told), transaction=[] if proof is None else [transaction_parts(committed.transaction)])


def block_parts(block: Block) -> Parts:
    """A block; without a transaction when its body is no longer kept."""
    transaction = block.transaction
    told = [] if transaction is None else [transaction_parts(transaction)]
    return parts_of(pb.Block(header=header_pb(block.header)), transactions=told)


def chain_parts(headers: Iterable[Header]) -> Parts:
    """The headers that lead from a trusted block to another: many, and small."""
    told = parts_of(pb.ChainProof(), headers=([header_pb(header).SerializeToString()] for header in headers))
    return [b"".join(told)]


def _operation_parts(operation: Operation) -> Parts:
    if not isinstance(operation, SetEntity) or len(operation.value) < _LARGE_BYTES:
        return [operation_pb(operation).SerializeToString()]
    told = operation_pb(operation._replace(value=b"")).set_entity
    return parts_of(pb.Operation(), set_entity=[parts_of(told, value=[[operation.value]])])


def _field(number: int, parts: Parts) -> Parts:
    return [_varint(number << 3 | _PIECE) + _varint(sum(map(len, parts))), *parts]


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)
