"""Large messages are read and answered part by part, and mean what they mean as a whole."""

from __future__ import annotations

from functools import partial

import pytest

from semel.kernel.errors import Refused
from semel.server.grpc import messages
from semel.server.grpc.metadata import GrpcError
from semel.surfaces.ledger.commands import CommittedTransaction
from semel.surfaces.ledger.grpc import answers, requests
from semel.surfaces.ledger.grpc.answers import block_parts, parts_of, success_parts
from semel.surfaces.ledger.grpc.requests import parse_large_batch, parse_large_write
from semel.surfaces.ledger.model import (
    ZERO,
    BlockHeader,
    LedgerPlace,
    LedgerTime,
    LedgerTransaction,
    Operation,
    SetEntity,
)
from semel.surfaces.ledger.proto import ledger_pb2 as pb
from semel.surfaces.ledger.reading import LedgerBlock, tx_proof
from tests.ledger.grpc.samples import OPERATIONS as SAMPLES

MOST = 100
OPERATIONS = tuple(SAMPLES.values())
LARGE = SetEntity(b"large", b"\xff" * 200_000, 7, None)
WHOLE = {
    "write": messages.parser(pb.WriteRequest, partial(requests.parse_write, most=MOST)),
    "batch": messages.parser(pb.BatchWriteRequest, partial(requests.parse_batch, most=MOST)),
}
IN_PARTS = {"write": partial(parse_large_write, most=MOST), "batch": partial(parse_large_batch, most=MOST)}
KINDS = sorted(WHOLE)


def message(kind: str, given: tuple[Operation, ...], **fields: object) -> bytes:
    """A message of this kind, with everything that one can have."""
    told = [answers.operation_pb(one) for one in given]
    groups = [
        pb.BatchWriteOperation(operations=told[:2]),
        pb.BatchWriteOperation(),
        pb.BatchWriteOperation(operations=told[2:]),
    ]
    named = {"organization": pb.OrganizationSlug(slug=7), "client_id": pb.ClientId(id="c"), "sequence": 9}
    if kind == "write":
        return pb.WriteRequest(operations=told, include_tx_proof=True, **named, **fields).SerializeToString()  # type: ignore[arg-type]
    return pb.BatchWriteRequest(operations=groups, include_tx_proofs=True, **named, **fields).SerializeToString()  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_a3_a_large_message_means_the_same_in_parts(kind: str) -> None:
    content = message(kind, (*OPERATIONS, LARGE), idempotency_key=b"k" * 16)
    assert IN_PARTS[kind](content) == WHOLE[kind](content)


@pytest.mark.parametrize("kind", KINDS)
def test_a3_a_large_message_is_let_go_when_it_was_read(kind: str) -> None:
    content = bytearray(message(kind, (LARGE,)))
    assert IN_PARTS[kind](content).draft.operations == (LARGE,)
    assert not content


@pytest.mark.parametrize("kind", KINDS)
def test_a3_a_large_message_that_is_none_is_refused(kind: str) -> None:
    for content in (message(kind, (LARGE,))[:-1], message(kind, (LARGE,)) + b"\x2a\x01\xff"):
        with pytest.raises(GrpcError):
            IN_PARTS[kind](content)


@pytest.mark.parametrize("kind", KINDS)
def test_a3_too_many_operations_of_a_large_message_are_refused(kind: str) -> None:
    with pytest.raises(Refused, match=f"1 to {MOST} operations"):
        IN_PARTS[kind](message(kind, (LARGE,) * (MOST + 1)))


def committed() -> CommittedTransaction:
    """A transaction with every kind of operation, and its block."""
    at = LedgerTime(5, 6)
    transaction = LedgerTransaction(b"i" * 16, b"c", 3, (*OPERATIONS, LARGE), at, b"a")
    return CommittedTransaction(transaction, BlockHeader(4, LedgerPlace(7, 8), ZERO, ZERO, ZERO, at, 1, 2, b"n"))


def test_a3_a_transaction_in_parts_is_the_message_it_is_as_a_whole() -> None:
    done = committed()
    for proof in (None, tx_proof(done)):
        whole = pb.WriteSuccess(**answers.success_fields(done, proof))
        assert pb.WriteSuccess.FromString(b"".join(success_parts(pb.WriteSuccess, done, proof))) == whole
    block = LedgerBlock(done.header, done.transaction)
    parts = parts_of(pb.GetBlockResponse(), block=[block_parts(block)])
    told = pb.Block(header=answers.header_pb(done.header), transactions=[answers.transaction_pb(done.transaction)])
    assert pb.GetBlockResponse.FromString(b"".join(parts)) == pb.GetBlockResponse(block=told)
