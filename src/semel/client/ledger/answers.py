"""The server's JSON as values. An answer that is incomplete raises KeyError, TypeError or ValueError; see `read`."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from semel.client.errors import refusal
from semel.client.json_answer import Facts
from semel.client.ledger.values import (
    BlockNotice,
    BlockTransaction,
    ChainBlock,
    CommittedWrite,
    EntityValue,
    ItemPage,
    OrganizationInfo,
    PlaceName,
    PlaceTip,
    RelationshipName,
    SequenceState,
    VaultInfo,
)
from semel.client.proofs import block_hash

T = TypeVar("T")
ORG_STATUS, VAULT_STATUS = "ORGANIZATION_STATUS_", "VAULT_STATUS_"
COMPACTED = "BLOCK_RETENTION_MODE_COMPACTED"
ALREADY_COMMITTED = "WRITE_ERROR_CODE_ALREADY_COMMITTED"


def octets_in(value: Any) -> bytes:
    """Bytes in base64."""
    if not isinstance(value, str):
        raise TypeError("bytes are not a string")
    return b64decode(value, validate=True)


def hex_in(value: Any) -> str:
    """Bytes in base64, in hexadecimal."""
    return octets_in(value).hex()


def committed(facts: Facts, *, is_replayed: bool, key: str | None) -> CommittedWrite:
    """A committed transaction. Raises `FencedSequenceError` if the server no longer knows its content."""
    success = facts.get("success")
    if success is not None:
        return CommittedWrite(
            int(success["blockHeight"]),
            hex_in(success["txId"]["id"]),
            int(success["assignedSequence"]),
            is_replayed,
            key,
            None,
            facts,
        )
    error = facts["error"]
    if error["code"] != ALREADY_COMMITTED:
        raise ValueError("an error that is no refusal")
    if "committedTxId" not in error:
        raise refusal(409, facts)
    height, tx_id = int(error["committedBlockHeight"]), hex_in(error["committedTxId"]["id"])
    return CommittedWrite(height, tx_id, int(error["assignedSequence"]), True, key, str(error["message"]), facts)


def entity(facts: Facts, key: str, height: int) -> EntityValue:
    """A key with its value."""
    expires_at = int(facts.get("expiresAt", "0"))
    return EntityValue(key, octets_in(facts["value"]), int(facts["version"]), expires_at, height, facts)


def listed_entity(facts: Facts, height: int) -> EntityValue:
    """A key of a list."""
    return entity(facts, str(facts["key"]), height)


def relationship(facts: Facts, height: int) -> RelationshipName:
    """A relationship of a list."""
    return RelationshipName(str(facts["resource"]), str(facts["relation"]), str(facts["subject"]))


def page(facts: Facts, member: str, make: Callable[[Any, int], T]) -> ItemPage[T]:
    """A page of a list."""
    height = int(facts["blockHeight"]) if "blockHeight" in facts else None
    found = facts.get(member, [])
    if not isinstance(found, list):
        raise TypeError(f"{member} is not a list")
    return ItemPage([make(one, height or 0) for one in found], str(facts["nextPageToken"]), height)


def sequence_state(facts: Facts) -> SequenceState:
    """Where a client stands."""
    last = facts.get("lastTxId")
    return SequenceState(
        int(facts["lastCommittedSequence"]),
        None if last is None else hex_in(last["id"]),
        int(facts["lastBlockHeight"]),
        int(facts["lastSeen"]),
        facts,
    )


def tip(facts: Facts) -> PlaceTip:
    """The end of a chain."""
    block, state = hex_in(facts["blockHash"]["value"]), hex_in(facts["stateRoot"]["value"])
    return PlaceTip(int(facts["height"]), block, state, facts)


def transaction(facts: Facts, height: int, whole: Facts | None = None) -> BlockTransaction:
    """A transaction of a block; `whole` is the document around it."""
    return BlockTransaction(
        hex_in(facts["id"]["id"]),
        str(facts["clientId"]["id"]),
        int(facts["sequence"]),
        str(facts["actor"]),
        str(facts["timestamp"]),
        list(facts["operations"]),
        height,
        facts if whole is None else whole,
    )


def block(facts: Facts) -> ChainBlock:
    """A block; its hash is computed here. Raises `ProofError` for a header that no block can have."""
    header = facts["header"]
    if not isinstance(header, Mapping):
        raise TypeError("a header is not an object")
    height, own = int(header["height"]), block_hash(header).hex()
    found = facts.get("transactions")
    return ChainBlock(
        height,
        own,
        hex_in(header["previousHash"]["value"]),
        hex_in(header["stateRoot"]["value"]),
        str(header["timestamp"]),
        int(header["term"]),
        None if found is None else [transaction(one, height) for one in found],
        facts,
    )


def notice(facts: Facts) -> BlockNotice:
    """The announcement of a block."""
    return BlockNotice(int(facts["height"]), hex_in(facts["blockHash"]["value"]), str(facts["timestamp"]), facts)


def organization(facts: Facts, height: int = 0) -> OrganizationInfo:
    """An organization."""
    return OrganizationInfo(
        str(facts["slug"]["slug"]),
        str(facts["name"]),
        plain_status(facts["status"], ORG_STATUS),
        int(facts["entries"]),
        int(facts["ttlSeconds"]),
        int(facts["evictionInterval"]),
        bool(facts["fence"]),
        facts,
    )


def vault(facts: Facts, height: int = 0) -> VaultInfo:
    """A vault."""
    policy = facts["retentionPolicy"]
    return VaultInfo(
        PlaceName.of(facts["organization"]["slug"], facts["vault"]["slug"]),
        plain_status(facts["status"], VAULT_STATUS),
        int(facts["height"]),
        hex_in(facts["stateRoot"]["value"]),
        int(policy["retentionBlocks"]) if policy["mode"] == COMPACTED else None,
        facts,
    )


def plain_status(status: Any, prefix: str) -> str:
    """The short form of a status: `read-only` for `VAULT_STATUS_READ_ONLY`."""
    return str(status).removeprefix(prefix).lower().replace("_", "-")


def full_status(status: str, prefix: str) -> str:
    """The server's form of a status."""
    return prefix + status.upper().replace("-", "_")
