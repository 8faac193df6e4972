"""Answers over gRPC: values to protobuf messages, and refusals to statuses with details in the trailers.

Answers with whole transactions are serialized in parts: a message that is built as a whole is in memory once for each
level of nesting, and once more as bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from semel.engine.contract import EngineError
from semel.kernel.errors import Refusal, Refused, Retry
from semel.server.grpc.metadata import GrpcError, GrpcStatus, error_status
from semel.surfaces.ledger.commands import (
    NO_QUOTA,
    CommittedTransaction,
    Org,
    Vault,
    WriteDeclined,
)
from semel.surfaces.ledger.model import (
    BlockHeader,
    ConditionKind,
    CreateRelationship,
    DeleteEntity,
    DeleteRelationship,
    Entity,
    ExpireEntity,
    LedgerPlace,
    LedgerTime,
    LedgerTransaction,
    Operation,
    SetEntity,
    Sibling,
    StateProof,
    TxProof,
)
from semel.surfaces.ledger.proto import ledger_pb2 as pb
from semel.surfaces.ledger.reading import LedgerBlock, hash_of
from semel.surfaces.ledger.refusals import RETRY_MS, engine_refusal, own_refusal
from semel.surfaces.ledger.wire.answers import error_code
from semel.surfaces.ledger.wire.members import DIRECTIONS, ERROR_CODES


def hash_pb(value: bytes) -> pb.Hash:
    """A hash as protobuf."""
    return pb.Hash(value=value)


def time_pb(at: LedgerTime) -> Timestamp:
    """A logged time as protobuf."""
    return Timestamp(seconds=at.seconds, nanos=at.nanos)


def place_pb(place: LedgerPlace) -> dict[str, Any]:
    """The two fields that name a place."""
    return {"organization": pb.OrganizationSlug(slug=place.org), "vault": pb.VaultSlug(slug=place.vault)}


def header_pb(header: BlockHeader) -> pb.BlockHeader:
    """The header of a block as protobuf."""
    return pb.BlockHeader(
        height=header.height,
        **place_pb(header.place),
        previous_hash=hash_pb(header.previous_hash),
        tx_merkle_root=hash_pb(header.tx_root),
        state_root=hash_pb(header.state_root),
        timestamp=time_pb(header.at),
        leader_id=pb.NodeId(id=header.leader.decode()),
        term=header.term,
        committed_index=header.committed_index,
    )


def transaction_pb(transaction: LedgerTransaction) -> pb.Transaction:
    """A transaction as protobuf."""
    return pb.Transaction(
        id=pb.TxId(id=transaction.id),
        client_id=pb.ClientId(id=transaction.client.decode()),
        sequence=transaction.sequence,
        operations=[operation_pb(operation) for operation in transaction.operations],
        timestamp=time_pb(transaction.at),
        actor=transaction.actor.decode(),
    )


def operation_pb(operation: Operation) -> pb.Operation:
    """An operation as protobuf; default values are omitted."""
    match operation:
        case SetEntity():
            return pb.Operation(set_entity=_set_pb(operation))
        case DeleteEntity(key):
            return pb.Operation(delete_entity=pb.DeleteEntity(key=key.decode()))
        case ExpireEntity(key, expired_at):
            return pb.Operation(expire_entity=pb.ExpireEntity(key=key.decode(), expired_at=expired_at))
        case CreateRelationship():
            return pb.Operation(create_relationship=pb.CreateRelationship(**_parts(operation)))
        case DeleteRelationship():
            return pb.Operation(delete_relationship=pb.DeleteRelationship(**_parts(operation)))


def _parts(parts: Iterable[bytes]) -> dict[str, str]:
    return {name: part.decode() for name, part in zip(("resource", "relation", "subject"), parts, strict=True)}


def _set_pb(operation: SetEntity) -> pb.SetEntity:
    told = pb.SetEntity(key=operation.key.decode(), value=operation.value)
    if operation.expires_at:
        told.expires_at = operation.expires_at
    condition = operation.condition
    if condition is not None:
        match condition.check:
            case ConditionKind.NOT_EXISTS:
                told.condition.not_exists = True
            case ConditionKind.MUST_EXIST:
                told.condition.must_exists = True
            case ConditionKind.VERSION:
                told.condition.version = condition.version
            case ConditionKind.VALUE:
                told.condition.value_equals = condition.value
    return told


def relationship_pb(parts: tuple[bytes, bytes, bytes]) -> pb.Relationship:
    """A relationship of a list as protobuf."""
    return pb.Relationship(**_parts(parts))


def proof_pb(leaf: bytes, siblings: Sequence[Sibling]) -> pb.MerkleProof:
    """The Merkle path from a leaf to its root."""
    return pb.MerkleProof(
        leaf_hash=hash_pb(leaf),
        siblings=[pb.MerkleSibling(hash=hash_pb(one.hash), direction=DIRECTIONS[one.side]) for one in siblings],
    )


def state_proof_pb(proof: StateProof) -> pb.StateProof:
    """The proof of a key's bucket in the state of a block."""
    entity = proof.entity or Entity(proof.key, b"", 0, 0)
    return pb.StateProof(
        **entity._asdict(),
        bucket_id=proof.bucket,
        bucket_root=hash_pb(proof.bucket_root),
        other_bucket_roots=[hash_pb(root) for root in proof.other_roots],
        block_height=proof.height,
        state_root=hash_pb(proof.state_root),
        bucket_entries=[] if proof.witness is None else [pb.StateEntry(**proof.witness._asdict())],
    )


def success_fields(committed: CommittedTransaction, proof: TxProof | None) -> dict[str, Any]:
    """The fields of a success, for a write or a batch; with everything that verification needs if `proof` is given."""
    transaction, header = committed
    told: dict[str, Any] = {
        "tx_id": pb.TxId(id=transaction.id),
        "block_height": header.height,
        "assigned_sequence": transaction.sequence,
    }
    if proof is not None:
        told |= {
            "block_header": header_pb(header),
            "tx_proof": proof_pb(proof.leaf, proof.siblings),
            "transaction": transaction_pb(transaction),
        }
    return told


def declined_pb(declined: WriteDeclined) -> pb.WriteError:
    """A domain error as protobuf."""
    return pb.WriteError(
        code=ERROR_CODES[declined.code],
        key=declined.key.decode(),
        current_version=declined.current_version,
        current_value=declined.current_value,
        message=declined.message,
        committed_tx_id=None if declined.tx_id is None else pb.TxId(id=declined.tx_id),
        committed_block_height=declined.height,
        assigned_sequence=declined.sequence,
        last_committed_sequence=declined.last,
        details=declined.details,
    )


def read_pb(entity: Entity | None, height: int) -> pb.ReadResponse:
    """A requested entity, if it exists."""
    if entity is None:
        return pb.ReadResponse(block_height=height)
    return pb.ReadResponse(value=entity.value, block_height=height, **_facts(entity))


def result_pb(key: str, entity: Entity | None) -> pb.BatchReadResult:
    """One of many requested entities."""
    if entity is None:
        return pb.BatchReadResult(key=key)
    return pb.BatchReadResult(key=key, value=entity.value, found=True, **_facts(entity))


def _facts(entity: Entity) -> dict[str, int]:
    facts = {"version": entity.version}
    return facts | {"expires_at": entity.expires_at} if entity.expires_at else facts


def entity_pb(entity: Entity) -> pb.Entity:
    """An entity of a list as protobuf."""
    return pb.Entity(key=entity.key.decode(), value=entity.value, **_facts(entity))


def announcement_pb(header: BlockHeader) -> pb.BlockAnnouncement:
    """The announcement of a new block."""
    return pb.BlockAnnouncement(
        **place_pb(header.place),
        height=header.height,
        block_hash=hash_pb(hash_of(header)),
        state_root=hash_pb(header.state_root),
        timestamp=time_pb(header.at),
    )


def org_pb(org: Org) -> pb.GetOrganizationResponse:
    """An organization as protobuf."""
    return pb.GetOrganizationResponse(
        slug=pb.OrganizationSlug(slug=org.slug),
        name=org.name.decode(),
        shard_id=pb.ShardId(id=0),
        status=f"ORGANIZATION_STATUS_{org.status.name}",
        eviction_interval=org.eviction_interval,
        ttl_seconds=org.ttl_seconds,
        fence=org.fence,
        entries=org.entries,
        quota=None if org.quota == NO_QUOTA else pb.OrganizationQuota(**org.quota._asdict()),
    )


def vault_pb(vault: Vault, leader: str) -> pb.GetVaultResponse:
    """A vault as protobuf."""
    mode = pb.BLOCK_RETENTION_MODE_COMPACTED if vault.retain else pb.BLOCK_RETENTION_MODE_FULL
    return pb.GetVaultResponse(
        **place_pb(vault.place),
        height=vault.height,
        state_root=hash_pb(vault.state_root),
        nodes=[pb.NodeId(id=leader)],
        leader=pb.NodeId(id=leader),
        status=f"VAULT_STATUS_{vault.status.name}",
        retention_policy=pb.BlockRetentionPolicy(mode=mode, retention_blocks=vault.retain),
    )


Parts = list[bytes]
"""The serialized parts of one message, to be joined."""

_LARGE_BYTES = 4_096
_PIECE = 2


def parts_of(message: Message, **large: Iterable[Parts]) -> Parts:
    """Serialize a message with additional repeated fields, given by name, one item for each occurrence."""
    numbers = message.DESCRIPTOR.fields_by_name
    more = [_field(numbers[name].number, parts) for name, all_parts in large.items() for parts in all_parts]
    return [message.SerializeToString(), *chain.from_iterable(more)]


def transaction_parts(transaction: LedgerTransaction) -> Parts:
    """A transaction in parts."""
    told = transaction_pb(transaction._replace(operations=()))
    return parts_of(told, operations=map(_operation_parts, transaction.operations))


def success_parts(kind: type[Any], committed: CommittedTransaction, proof: TxProof | None) -> Parts:
    """A success of a write or a batch in parts; with everything that verification needs if `proof` is given."""
    without = committed._replace(transaction=committed.transaction._replace(operations=()))
    told = success_fields(without, proof)
    told.pop("transaction", None)
    return parts_of(kind(**told), transaction=[] if proof is None else [transaction_parts(committed.transaction)])


def block_parts(block: LedgerBlock) -> Parts:
    """A block in parts; without a transaction if its body is no longer stored."""
    transaction = block.transaction
    told = [] if transaction is None else [transaction_parts(transaction)]
    return parts_of(pb.Block(header=header_pb(block.header)), transactions=told)


def chain_parts(headers: Iterable[BlockHeader]) -> Parts:
    """The headers from a trusted block to another one, joined into one part, since they are many and small."""
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


_ADVICE = {
    Retry.SAME_KEY: "Send the same request again, with the same idempotency key and the same sequence.",
    Retry.LATER: "Wait for retry_after_ms, then send the same request again.",
}
_LARGEST_MS = 2**31 - 1


def refusal_of(error: Exception) -> Refusal | None:
    """The refusal for an error; None for a fault of the server."""
    match error:
        case Refused():
            return own_refusal(error.refusal)
        case GrpcError():
            code = f"ledger:{error.kind.name.lower()}"
            return Refusal(code, error.message, error.context, retry_after_ms=error.retry_after_ms)
        case EngineError():
            return engine_refusal(error)
        case _:
            return None


def refusal_status(refusal: Refusal) -> GrpcStatus:
    """The status of a refusal."""
    details = details_pb(refusal)
    wait_ms = details.retry_after_ms if details.HasField("retry_after_ms") else None
    return error_status(refusal.kind.grpc, refusal.message, details.SerializeToString(), wait_ms)


def refusal_pb(refusal: Refusal) -> pb.WriteRefusal:
    """The refusal of one of many transactions."""
    return pb.WriteRefusal(status=refusal.kind.grpc.value, message=refusal.message, details=details_pb(refusal))


def details_pb(refusal: Refusal) -> pb.ErrorDetails:
    """The details of a refusal."""
    kind = refusal.kind
    wait_ms = refusal.retry_after_ms
    if wait_ms is None and kind.retry is Retry.LATER:
        wait_ms = RETRY_MS
    details = pb.ErrorDetails(
        error_code=error_code(refusal), is_retryable=kind.retry is not Retry.NEVER, context=refusal.facts
    )
    if wait_ms is not None:
        details.retry_after_ms = min(wait_ms, _LARGEST_MS)
    if kind.retry in _ADVICE:
        details.suggested_action = _ADVICE[kind.retry]
    return details
