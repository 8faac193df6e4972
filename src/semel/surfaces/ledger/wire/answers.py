"""Answers of the ledger as JSON by the rules of proto3, and refusals as problem documents.

Numbers of 64 bits are strings and bytes are base64. Scalars are always written, including 0 and the empty string;
absent values and empty lists are omitted. A problem document has the name of a gRPC status, and a number or a name of
its own.
"""

from __future__ import annotations

from base64 import b64encode
from binascii import b2a_base64
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import orjson

from semel.kernel.errors import Refusal
from semel.surfaces.ledger.commands import (
    NO_QUOTA,
    NUMBERS,
    CommittedTransaction,
    Org,
    OrgQuota,
    Vault,
    WriteDeclined,
)
from semel.surfaces.ledger.model import (
    ORG_STATUSES,
    VAULT_STATUSES,
    BlockHeader,
    Entity,
    LedgerPlace,
    LedgerTime,
    LedgerTransaction,
    Sibling,
    StateProof,
    TxProof,
)
from semel.surfaces.ledger.rules.chain import block_hash
from semel.surfaces.ledger.wire.members import DIRECTIONS, ERROR_CODES, ORG_STATUS_NAMES, VAULT_STATUS_NAMES
from semel.surfaces.ledger.wire.operations import operation_json, relationship_json

Json = dict[str, Any]

_AT_ONCE = 256
"""Headers that are serialized together."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ORG_NAMES = dict(zip(ORG_STATUSES, list(ORG_STATUS_NAMES)[1:], strict=True))
_VAULT_NAMES = dict(zip(VAULT_STATUSES, list(VAULT_STATUS_NAMES)[1:], strict=True))


def base64(value: bytes) -> str:
    """Bytes as base64."""
    return b64encode(value).decode()


def hash_json(value: bytes) -> Json:
    """A hash as JSON."""
    return {"value": base64(value)}


def instant_text(at: LedgerTime) -> str:
    """An instant in RFC 3339, with zero, three, six or nine fractional digits."""
    seconds, nanos = at
    if not nanos:
        return f"{_second_text(seconds)}Z"
    fraction = f"{nanos:09d}"
    while fraction.endswith("000"):
        fraction = fraction[:-3]
    return f"{_second_text(seconds)}.{fraction}Z"


@lru_cache(maxsize=16)
def _second_text(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")


def place_json(place: LedgerPlace) -> Json:
    """The two members that name a place."""
    return {"organization": {"slug": str(place.org)}, "vault": {"slug": str(place.vault)}}


def header_json(header: BlockHeader) -> Json:
    """The header of a block as JSON."""
    return {
        "height": str(header.height),
        **place_json(header.place),
        "previousHash": hash_json(header.previous_hash),
        "txMerkleRoot": hash_json(header.tx_root),
        "stateRoot": hash_json(header.state_root),
        "timestamp": instant_text(header.at),
        "leaderId": {"id": header.leader.decode()},
        "term": str(header.term),
        "committedIndex": str(header.committed_index),
    }


def transaction_json(transaction: LedgerTransaction) -> Json:
    """A transaction as JSON."""
    return {
        "id": {"id": base64(transaction.id)},
        "clientId": {"id": transaction.client.decode()},
        "sequence": str(transaction.sequence),
        "operations": [operation_json(operation) for operation in transaction.operations],
        "timestamp": instant_text(transaction.at),
        "actor": transaction.actor.decode(),
    }


def proof_json(leaf: bytes, siblings: Sequence[Sibling]) -> Json:
    """The Merkle path from a leaf to its root."""
    told: Json = {"leafHash": hash_json(leaf)}
    if siblings:
        told["siblings"] = [{"hash": hash_json(one.hash), "direction": DIRECTIONS[one.side]} for one in siblings]
    return told


def tx_proof_json(proof: TxProof) -> Json:
    """The proof that a transaction is in a block."""
    return proof_json(proof.leaf, proof.siblings)


def state_proof_json(proof: StateProof) -> Json:
    """The proof of a key's bucket in the state of a block."""
    entity = proof.entity or Entity(proof.key, b"", 0, 0)
    told: Json = {
        **_leaf_json(entity),
        "bucketId": proof.bucket,
        "bucketRoot": hash_json(proof.bucket_root),
        "otherBucketRoots": [hash_json(root) for root in proof.other_roots],
        "blockHeight": str(proof.height),
        "stateRoot": hash_json(proof.state_root),
    }
    if proof.witness is not None:
        told["bucketEntries"] = [_leaf_json(proof.witness)]
    return told


def _leaf_json(entity: Entity) -> Json:
    return {
        "key": base64(entity.key),
        "value": base64(entity.value),
        "expiresAt": str(entity.expires_at),
        "version": str(entity.version),
    }


def chain_json(headers: Sequence[BlockHeader]) -> Json:
    """The headers from a trusted block to another one, serialized: as Python values they take five times the memory."""
    if not headers:
        return {}
    starts = range(0, len(headers), _AT_ONCE)
    some = [orjson.dumps(list(map(header_json, headers[start : start + _AT_ONCE])))[1:-1] for start in starts]
    return {"headers": orjson.Fragment(b"[%b]" % b",".join(some))}


def success_json(committed: CommittedTransaction, proof: TxProof | None) -> Json:
    """A committed transaction; with everything that verification needs if `proof` is given."""
    transaction, header = committed
    told: Json = {"txId": {"id": base64(transaction.id)}, "blockHeight": str(header.height)}
    if proof is not None:
        told |= {"blockHeader": header_json(header), "txProof": tx_proof_json(proof)}
    told["assignedSequence"] = str(transaction.sequence)
    if proof is not None:
        told["transaction"] = transaction_json(transaction)
    return told


def plain_success(committed: CommittedTransaction) -> bytes:
    """As `success_json` without a proof, serialized."""
    transaction, header = committed
    return b'{"txId":{"id":"%s"},"blockHeight":"%d","assignedSequence":"%d"}' % (
        b2a_base64(transaction.id, newline=False),
        header.height,
        transaction.sequence,
    )


def declined_json(declined: WriteDeclined) -> Json:
    """A domain error as JSON."""
    told: Json = {"code": ERROR_CODES[declined.code], "key": declined.key.decode()}
    if declined.current_version is not None:
        told["currentVersion"] = str(declined.current_version)
    if declined.current_value is not None:
        told["currentValue"] = base64(declined.current_value)
    told["message"] = declined.message
    if declined.tx_id is not None:
        told["committedTxId"] = {"id": base64(declined.tx_id)}
    for name, number in (
        ("committedBlockHeight", declined.height),
        ("assignedSequence", declined.sequence),
        ("lastCommittedSequence", declined.last),
    ):
        if number is not None:
            told[name] = str(number)
    if declined.details:
        told["details"] = dict(declined.details)
    return told


def read_json(entity: Entity, height: int) -> Json:
    """A requested entity as JSON."""
    return {"value": base64(entity.value), "blockHeight": str(height), **_facts(entity)}


def result_json(key: bytes, entity: Entity | None) -> Json:
    """One of many requested entities."""
    told: Json = {"key": key.decode()}
    if entity is None:
        return told | {"found": False}
    return told | {"value": base64(entity.value), "found": True, **_facts(entity)}


def _facts(entity: Entity) -> Json:
    facts: Json = {"version": str(entity.version)}
    if entity.expires_at:
        facts["expiresAt"] = str(entity.expires_at)
    return facts


def entity_json(entity: Entity) -> Json:
    """An entity of a list as JSON."""
    told: Json = {"key": entity.key.decode(), "value": base64(entity.value)}
    if entity.expires_at:
        told["expiresAt"] = str(entity.expires_at)
    return told | {"version": str(entity.version)}


def list_json(name: str, items: Sequence[Any], token: str, height: int | None = None) -> Json:
    """A page of a list as JSON."""
    told: Json = {name: list(items)} if items else {}
    if height is not None:
        told["blockHeight"] = str(height)
    return told | {"nextPageToken": token}


def triple_json(parts: tuple[bytes, bytes, bytes]) -> Json:
    """A relationship of a list as JSON."""
    return relationship_json(*parts)


def block_json(header: BlockHeader, transaction: LedgerTransaction | None) -> Json:
    """A block; without a transaction if its body is no longer stored."""
    told: Json = {"header": header_json(header)}
    if transaction is not None:
        told["transactions"] = [transaction_json(transaction)]
    return told


def announcement_json(header: BlockHeader) -> Json:
    """The announcement of a new block."""
    return {
        **place_json(header.place),
        "height": str(header.height),
        "blockHash": hash_json(block_hash(header)),
        "stateRoot": hash_json(header.state_root),
        "timestamp": instant_text(header.at),
    }


def org_json(org: Org) -> Json:
    """An organization as JSON."""
    return {
        "slug": {"slug": str(org.slug)},
        "name": org.name.decode(),
        "shardId": {"id": 0},
        "status": _ORG_NAMES[org.status],
        "evictionInterval": str(org.eviction_interval),
        "ttlSeconds": str(org.ttl_seconds),
        "fence": org.fence,
        "entries": str(org.entries),
        **({} if org.quota == NO_QUOTA else {"quota": _quota_json(org.quota)}),
    }


def _quota_json(quota: OrgQuota) -> Json:
    return {
        "maxStorageBytes": str(quota.max_storage_bytes),
        "maxVaults": quota.max_vaults,
        "maxWriteOpsPerSec": quota.max_write_ops_per_sec,
        "maxReadOpsPerSec": 0,
    }


def made_org_json(place: LedgerPlace) -> Json:
    """A new organization as JSON."""
    return {"slug": {"slug": str(place.org)}, "shardId": {"id": 0}}


def vault_json(vault: Vault, leader: str) -> Json:
    """A vault as JSON."""
    mode = "COMPACTED" if vault.retain else "FULL"
    return {
        **place_json(vault.place),
        "height": str(vault.height),
        "stateRoot": hash_json(vault.state_root),
        "nodes": [{"id": leader}],
        "leader": {"id": leader},
        "status": _VAULT_NAMES[vault.status],
        "retentionPolicy": {"mode": f"BLOCK_RETENTION_MODE_{mode}", "retentionBlocks": str(vault.retain)},
    }


def made_vault_json(place: LedgerPlace, genesis: BlockHeader | None) -> Json:
    """A new vault, and the genesis header of its chain."""
    told: Json = {"vault": {"slug": str(place.vault)}}
    return told if genesis is None else told | {"genesis": header_json(genesis)}


def error_code(refusal: Refusal) -> str:
    """The error number of a refusal; its name if it has no number."""
    name = refusal.name
    return str(NUMBERS[name]) if name in NUMBERS else name.upper()


def problem_body(refusal: Refusal) -> bytes:
    """The problem document of a refusal."""
    kind = refusal.kind
    document: dict[str, Any] = {
        "type": kind.type,
        "title": kind.title,
        "status": kind.status,
        "code": kind.grpc.name,
        "error_code": error_code(refusal),
        "detail": refusal.message,
        "retry": kind.retry.value,
    }
    if refusal.retry_after_ms is not None:
        document["retry_after_ms"] = refusal.retry_after_ms
    if refusal.facts:
        document["context"] = dict(refusal.facts)
    return orjson.dumps(document)
