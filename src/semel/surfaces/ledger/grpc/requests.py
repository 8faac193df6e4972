"""Requests over gRPC: protobuf messages to values.

Limits are checked later, where HTTP and gRPC meet. Unknown fields are ignored, as gRPC requires. A large write is
parsed operation by operation and its bytes are freed early: parsed as a whole it would be in memory three times, as
bytes, as a message and as values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from semel.server.grpc.call import GrpcCall
from semel.server.grpc.messages import (
    SPARE_FIELDS,
    Content,
    WireField,
    count_fields,
    may_exceed,
    unreadable,
    wire_fields,
)
from semel.surfaces.ledger.commands import invalid
from semel.surfaces.ledger.model import (
    ConditionKind,
    CreateRelationship,
    DeleteEntity,
    DeleteRelationship,
    ExpireEntity,
    LedgerPlace,
    Operation,
    SetCondition,
    SetEntity,
)
from semel.surfaces.ledger.proto import ledger_pb2 as pb
from semel.surfaces.ledger.service import LedgerCaller
from semel.surfaces.ledger.wire.bodies import WriteDraft, retained

OPERATIONS_FIELD = 5

READ_BYTES = 64 * 1024
"""Limit of bytes of messages for reads and small admin calls, with keys of usual size."""
BATCH_READ_BYTES = 2 * 1024 * 1024


class GrpcWrite(NamedTuple):
    """A transaction to commit."""

    place: LedgerPlace
    draft: WriteDraft


def caller_of_call(call: GrpcCall) -> LedgerCaller:
    """The caller of a call; its credential has been checked."""
    assert isinstance(call.identity, LedgerCaller), "the caller is not known"
    return call.identity


def check_operations(most: int, content: Content) -> None:
    """Refuse a write with too many operations before they are parsed."""
    if may_exceed(content, most + SPARE_FIELDS):
        check_most(count_fields(content, most + SPARE_FIELDS) - SPARE_FIELDS, most)


def check_groups(most: int, content: Content) -> None:
    """Refuse a batch with too many groups, or too many operations in all groups, before they are parsed."""
    if not may_exceed(content, most + SPARE_FIELDS):
        return
    inside = 0
    for groups, piece in enumerate(wire_fields(content), 1):
        if piece.number == OPERATIONS_FIELD:
            inside += count_fields(content, most, piece.start, piece.end)
        check_most(max(groups - SPARE_FIELDS, inside), most)


def parse_write(request: pb.WriteRequest, most: int) -> GrpcWrite:
    """Parse one transaction."""
    check_most(len(request.operations), most)
    return grpc_write(request, operations(request.operations), wants_proof=request.include_tx_proof)


def parse_batch(request: pb.BatchWriteRequest, most: int) -> GrpcWrite:
    """Parse one transaction whose operations come in groups; the limit of operations is also the limit of groups."""
    check_most(len(request.operations), most)
    check_most(sum(len(group.operations) for group in request.operations), most)
    flat = tuple(operation for group in request.operations for operation in operations(group.operations))
    return grpc_write(request, flat, wants_proof=request.include_tx_proofs)


def check_most(count: int, most: int) -> None:
    """Refuse more operations, or groups of operations, than a transaction may have."""
    if count > most:
        raise invalid(_too_many(most), "operations")


def _too_many(most: int) -> str:
    return f"A transaction has 1 to {most} operations."


def grpc_write(
    request: pb.WriteRequest | pb.BatchWriteRequest, given: tuple[Operation, ...], *, wants_proof: bool
) -> GrpcWrite:
    """A transaction with these operations and the other fields of its message."""
    draft = WriteDraft(
        client=request.client_id.id,
        sequence=request.sequence if request.HasField("sequence") else None,
        key=request.idempotency_key,
        operations=given,
        wants_proof=wants_proof,
    )
    return GrpcWrite(place_of(request), draft)


def place_of(request: Any) -> LedgerPlace:
    """The place in the fields `organization` and `vault`; without a vault, the organization's own place."""
    if not request.HasField("organization"):
        raise invalid("Name the organization.", "organization")
    vault = request.vault.slug if "vault" in request.DESCRIPTOR.fields_by_name else 0
    return LedgerPlace(request.organization.slug, vault)


def slug_of(request: pb.GetOrganizationRequest | pb.DeleteOrganizationRequest) -> int:
    """The organization in the field `slug`."""
    if not request.HasField("slug"):
        raise invalid("Name the organization.", "slug")
    return request.slug.slug


def operations(given: Iterable[pb.Operation]) -> tuple[Operation, ...]:
    """The operations of a transaction, in order."""
    return tuple(operation_of(number, operation) for number, operation in enumerate(given))


def operation_of(number: int, operation: pb.Operation) -> Operation:
    """One operation; `number` is its index in the list."""
    kind = operation.WhichOneof("op")
    if kind is None:
        raise invalid(f"operations[{number}] has no operation in it.", f"operations[{number}]")
    return _OPERATIONS[kind](getattr(operation, kind))


def _set_entity(given: pb.SetEntity) -> SetEntity:
    condition = _condition(given.condition) if given.HasField("condition") else None
    return SetEntity(given.key.encode(), given.value, given.expires_at, condition)


def _condition(given: pb.SetCondition) -> SetCondition | None:
    kind = given.WhichOneof("condition")
    if kind is None:
        return None
    if kind == "version":
        return SetCondition(ConditionKind.VERSION, version=given.version)
    if kind == "value_equals":
        return SetCondition(ConditionKind.VALUE, value=given.value_equals)
    wants_none = given.not_exists if kind == "not_exists" else not given.must_exists
    return SetCondition(ConditionKind.NOT_EXISTS if wants_none else ConditionKind.MUST_EXIST)


def _parts(given: Any) -> tuple[bytes, bytes, bytes]:
    return given.resource.encode(), given.relation.encode(), given.subject.encode()


_OPERATIONS: dict[str, Callable[[Any], Operation]] = {
    "create_relationship": lambda given: CreateRelationship(*_parts(given)),
    "delete_relationship": lambda given: DeleteRelationship(*_parts(given)),
    "set_entity": _set_entity,
    "delete_entity": lambda given: DeleteEntity(given.key.encode()),
    "expire_entity": lambda given: ExpireEntity(given.key.encode(), given.expired_at),
}


def retained_blocks(request: pb.CreateVaultRequest) -> int:
    """The number of block bodies that a new vault keeps; 0 is all."""
    if not request.HasField("retention_policy"):
        return 0
    policy = request.retention_policy
    if policy.mode not in pb.BlockRetentionMode.values():
        raise invalid("There is no such mode of retention.", "retention_policy.mode")
    return retained(policy.mode, policy.retention_blocks)


def check_consistency(asked: int) -> None:
    """Refuse an unknown consistency level; all known levels mean the same here."""
    if asked not in pb.ReadConsistency.values():
        raise invalid("There is no such consistency.", "consistency")


M = TypeVar("M", bound=Message)

_GROUPED_FIELD = 1


def parse_large_write(content: Content, most: int) -> GrpcWrite:
    """Parse one large transaction."""
    check_operations(most, content)
    rest = bytearray()
    given: list[Operation] = []
    for piece in _repeated(content, rest):
        check_most(len(given) + 1, most)
        given.append(_parse_operation(content, piece, len(given)))
    _let_go(content)
    request = _read(pb.WriteRequest, rest)
    return grpc_write(request, tuple(given), wants_proof=request.include_tx_proof)


def parse_large_batch(content: Content, most: int) -> GrpcWrite:
    """Parse one large transaction whose operations come in groups."""
    check_groups(most, content)
    rest = bytearray()
    given: list[Operation] = []
    for count, group in enumerate(_repeated(content, rest), 1):
        check_most(count, most)
        before = len(given)
        for piece in wire_fields(content, group.start, group.end):
            if piece.has_content and piece.number == _GROUPED_FIELD:
                check_most(len(given) + 1, most)
                given.append(_parse_operation(content, piece, len(given) - before))
    _let_go(content)
    request = _read(pb.BatchWriteRequest, rest)
    return grpc_write(request, tuple(given), wants_proof=request.include_tx_proofs)


def _repeated(content: Content, rest: bytearray) -> Iterator[WireField]:
    """The operations or groups of a message; the other fields are appended to `rest`."""
    before = 0
    for piece in wire_fields(content):
        if piece.has_content and piece.number == OPERATIONS_FIELD:
            yield piece
        else:
            rest += content[before : piece.end]
        before = piece.end


def _parse_operation(content: Content, piece: WireField, number: int) -> Operation:
    return operation_of(number, _read(pb.Operation, content[piece.start : piece.end]))


def _read(kind: type[M], content: Content) -> M:
    try:
        return kind.FromString(bytes(content))
    except DecodeError:
        raise unreadable(kind.DESCRIPTOR.full_name) from None


def _let_go(content: Content) -> None:
    """Free the bytes of the message, although callers still hold a reference."""
    if isinstance(content, bytearray):
        content.clear()
