"""Decoding of requests: protobuf messages to values, with a refusal for what has no meaning.

Limits are not judged here but where both wires meet. Unknown fields are ignored, as gRPC requires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from semel.contracts.ledger.model import (
    Check,
    Condition,
    CreateRelationship,
    DeleteEntity,
    DeleteRelationship,
    ExpireEntity,
    Operation,
    Place,
    SetEntity,
)
from semel.contracts.ledger.refusals import invalid
from semel.contracts.ledger.wire.requests import Draft, retained
from semel.server.grpc.call import GrpcCall
from semel.server.grpc.messages import SPARE_FIELDS, Content, count_fields, may_exceed, wire_fields
from semel.server.ledger.desk import Asked
from semel.server.ledger.proto import ledger_pb2 as pb

_VARINT = 0
OPERATIONS_FIELD = 5
_ORG, _VAULT, _SEQUENCE = 1, 2, 4
"""Field numbers that are plain numbers in the older dialect: the ids of the place, and in writes the sequence."""

READ_BYTES = 64 * 1024
"""Limit of bytes of messages for reads and small admin calls, with keys of usual size."""
BATCH_READ_BYTES = 2 * 1024 * 1024


class WriteOrder(NamedTuple):
    """A transaction that a client wants committed, and how it will read the answer."""

    place: Place
    draft: Draft
    is_legacy: bool


def asked_of(call: GrpcCall) -> Asked:
    """Who calls; its credential has been checked."""
    assert isinstance(call.identity, Asked), "the caller is not known"
    return call.identity


def check_operations(most: int, content: Content) -> None:
    """Refuse too many operations of a write before they are read."""
    if may_exceed(content, most + SPARE_FIELDS):
        check_most(count_fields(content, most + SPARE_FIELDS) - SPARE_FIELDS, most)


def check_groups(most: int, content: Content) -> None:
    """Refuse too many groups of a batch, or operations in them all together, before they are read."""
    if not may_exceed(content, most + SPARE_FIELDS):
        return
    inside = 0
    for groups, piece in enumerate(wire_fields(content), 1):
        if piece.number == OPERATIONS_FIELD:
            inside += count_fields(content, most, piece.start, piece.end)
        check_most(max(groups - SPARE_FIELDS, inside), most)


def write_order(request: pb.WriteRequest, most: int) -> WriteOrder:
    """One transaction."""
    check_most(len(request.operations), most)
    return order_of(request, operations(request.operations), wants_proof=request.include_tx_proof)


def batch_order(request: pb.BatchWriteRequest, most: int) -> WriteOrder:
    """One transaction whose operations come in groups; at most as many groups as operations are allowed."""
    check_most(len(request.operations), most)
    check_most(sum(len(group.operations) for group in request.operations), most)
    flat = tuple(operation for group in request.operations for operation in operations(group.operations))
    return order_of(request, flat, wants_proof=request.include_tx_proofs)


def check_most(count: int, most: int) -> None:
    """Refuse more operations, or groups of them, than a transaction may have."""
    if count > most:
        raise invalid(_too_many(most), "operations")


def _too_many(most: int) -> str:
    return f"A transaction has 1 to {most} operations."


def order_of(
    request: pb.WriteRequest | pb.BatchWriteRequest, given: tuple[Operation, ...], *, wants_proof: bool
) -> WriteOrder:
    """A transaction of these operations, and what else its message says."""
    sequence = request.sequence if request.HasField("sequence") else None
    legacy = None
    if not request.idempotency_key and sequence is None:
        legacy = _numbers(request).get(_SEQUENCE)
    draft = Draft(
        client=request.client_id.id,
        sequence=sequence if legacy is None else legacy,
        key=request.idempotency_key,
        operations=given,
        wants_proof=wants_proof,
    )
    return WriteOrder(place_of(request), draft, legacy is not None)


def place_of(request: Any) -> Place:
    """The place that a request names by its fields `organization` and `vault`; without a vault, the organization's."""
    vault = request.vault.slug if "vault" in request.DESCRIPTOR.fields_by_name else 0
    if request.HasField("organization"):
        return Place(request.organization.slug, vault)
    numbers = _numbers(request)
    if _ORG not in numbers:
        raise invalid("Name the organization.", "organization")
    return Place(numbers[_ORG], vault or numbers.get(_VAULT, 0))


def slug_of(request: pb.GetOrganizationRequest | pb.DeleteOrganizationRequest) -> int:
    """The organization that a request names by its field `slug`."""
    slug = request.slug.slug if request.HasField("slug") else _numbers(request).get(_ORG)
    if slug is None:
        raise invalid("Name the organization.", "slug")
    return slug


def _numbers(request: Message) -> dict[int, int]:
    """Plain numbers in place of nested messages (the older dialect)."""
    unknown = UnknownFieldSet(request)
    fields = [unknown[place] for place in range(len(unknown))]
    return {field.field_number: field.data for field in fields if field.wire_type == _VARINT}


def operations(given: Iterable[pb.Operation]) -> tuple[Operation, ...]:
    """The operations of a transaction, in order."""
    return tuple(operation_of(number, operation) for number, operation in enumerate(given))


def operation_of(number: int, operation: pb.Operation) -> Operation:
    """One operation, by its place among the others."""
    kind = operation.WhichOneof("op")
    if kind is None:
        raise invalid(f"operations[{number}] has no operation in it.", f"operations[{number}]")
    return _OPERATIONS[kind](getattr(operation, kind))


def _set_entity(given: pb.SetEntity) -> SetEntity:
    condition = _condition(given.condition) if given.HasField("condition") else None
    return SetEntity(given.key.encode(), given.value, given.expires_at, condition)


def _condition(given: pb.SetCondition) -> Condition | None:
    kind = given.WhichOneof("condition")
    if kind is None:
        return None
    if kind == "version":
        return Condition(Check.VERSION, version=given.version)
    if kind == "value_equals":
        return Condition(Check.VALUE, value=given.value_equals)
    wants_none = given.not_exists if kind == "not_exists" else not given.must_exists
    return Condition(Check.NOT_EXISTS if wants_none else Check.MUST_EXIST)


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
    """How many bodies a new vault keeps; 0 is all."""
    if not request.HasField("retention_policy"):
        return 0
    policy = request.retention_policy
    if policy.mode not in pb.BlockRetentionMode.values():
        raise invalid("There is no such mode of retention.", "retention_policy.mode")
    return retained(policy.mode, policy.retention_blocks)


def check_consistency(asked: int) -> None:
    """Refuse a consistency that has no name; those that have are all the same here."""
    if asked not in pb.ReadConsistency.values():
        raise invalid("There is no such consistency.", "consistency")
