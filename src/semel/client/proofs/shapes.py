"""Value types of proof documents: headers, transactions, proofs. Text is UTF-8, the form that is hashed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

from semel.client.proofs.documents import ProofError, ProofInstant, ProofPart

MAX_TX_SIBLINGS = 32
MAX_STATE_SIBLINGS = 256
BUCKETS = 256
TX_ID_BYTES = 16
MAX_CLIENT_CHARACTERS = 256


class Header(NamedTuple):
    """The header of a block. Its hash covers all fields except the leader."""

    height: int
    organization: int
    vault: int
    """0 for the organization's own scope."""
    previous_hash: bytes
    tx_merkle_root: bytes
    state_root: bytes
    timestamp: ProofInstant
    term: int
    committed_index: int
    leader_id: bytes


class ProofRelationship(NamedTuple):
    """A relationship that is created or deleted."""

    is_created: bool
    resource: bytes
    relation: bytes
    subject: bytes


class ProofCheck(Enum):
    """The kind of a condition; the value is its byte in the encoding."""

    NONE = 0
    NOT_EXISTS = 1
    MUST_EXIST = 2
    VERSION = 3
    VALUE_EQUALS = 4


class ProofCondition(NamedTuple):
    """A check, and the value to compare with."""

    check: ProofCheck = ProofCheck.NONE
    version: int = 0
    value: bytes = b""


class ProofSetEntity(NamedTuple):
    """An entity that is created or replaced; `expires_at` is in seconds, 0 means never."""

    key: bytes
    value: bytes
    condition: ProofCondition
    expires_at: int


class ProofDeleteEntity(NamedTuple):
    """An entity that is removed."""

    key: bytes


class ProofExpireEntity(NamedTuple):
    """An entity that the system removed after its expiry."""

    key: bytes
    expired_at: int


Operation = ProofRelationship | ProofSetEntity | ProofDeleteEntity | ProofExpireEntity


class ProofTransaction(NamedTuple):
    """A transaction as it was committed."""

    id: bytes
    client_id: bytes
    sequence: int
    operations: tuple[Operation, ...]
    timestamp: ProofInstant
    actor: bytes


class ProofSide(Enum):
    """The side of a sibling."""

    LEFT = "DIRECTION_LEFT"
    RIGHT = "DIRECTION_RIGHT"


class ProofSibling(NamedTuple):
    """One step of a proof, from the bottom up."""

    hash: bytes
    side: ProofSide


class MerkleProof(NamedTuple):
    """The path from a leaf to a root."""

    leaf_hash: bytes
    siblings: tuple[ProofSibling, ...]


class Entry(NamedTuple):
    """A leaf of the state: an entity or, under a key that begins with a zero byte, a relationship."""

    key: bytes
    value: bytes
    expires_at: int
    """Seconds; 0 means never."""
    version: int
    """The height of the block that set it."""


class ProofOfState(NamedTuple):
    """A state proof: the roots of the other buckets, and the entry at the key's place."""

    entry: Entry
    """Has version 0 if the place is empty."""
    bucket_id: int
    bucket_root: bytes
    other_bucket_roots: tuple[bytes, ...]
    block_height: int
    state_root: bytes
    bucket_entries: tuple[Entry, ...]


def read_header(part: ProofPart) -> Header:
    """Parse a block's header."""
    part.only(
        (
            "height",
            "organization",
            "vault",
            "previousHash",
            "txMerkleRoot",
            "stateRoot",
            "timestamp",
            "leaderId",
            "term",
            "committedIndex",
        )
    )
    return Header(
        height=part.number("height"),
        organization=part.part("organization").only(("slug",)).number("slug"),
        vault=part.part("vault").only(("slug",)).number("slug"),
        previous_hash=part.hash("previousHash"),
        tx_merkle_root=part.hash("txMerkleRoot"),
        state_root=part.hash("stateRoot"),
        timestamp=part.instant("timestamp"),
        term=part.number("term"),
        committed_index=part.number("committedIndex"),
        leader_id=part.part("leaderId").only(("id",)).text("id"),
    )


def read_transaction(part: ProofPart) -> ProofTransaction:
    """Parse a committed transaction."""
    part.only(("id", "clientId", "sequence", "operations", "timestamp", "actor"))
    client = part.part("clientId").only(("id",)).text("id")
    transaction = ProofTransaction(
        id=read_tx_id(part, "id"),
        client_id=client,
        sequence=part.number("sequence"),
        operations=tuple(map(read_operation, part.parts("operations"))),
        timestamp=part.instant("timestamp"),
        actor=part.text("actor"),
    )
    if not 1 <= len(client.decode()) <= MAX_CLIENT_CHARACTERS:
        raise ProofError(f"{part.path('clientId')} must have 1 to {MAX_CLIENT_CHARACTERS} characters.")
    if transaction.sequence == 0:
        raise ProofError(f"{part.path('sequence')} is 0, but sequences start with 1.")
    if not transaction.operations:
        raise ProofError(f"{part.path('operations')} is empty, but a transaction has at least one operation.")
    return transaction


def read_tx_id(part: ProofPart, name: str) -> bytes:
    """Parse the id of a transaction."""
    found = part.part(name).only(("id",)).octets("id")
    if len(found) != TX_ID_BYTES:
        raise ProofError(f"{part.path(name)} is not an id of {TX_ID_BYTES} bytes.")
    return found


def read_operation(part: ProofPart) -> Operation:
    """Parse one operation of a transaction or a request."""
    if len(part.members) != 1 or (kind := next(iter(part.members))) not in _OPERATIONS:
        raise ProofError(f"{part.where} is not an operation of a known kind.")
    return _OPERATIONS[kind](part.part(kind))


def _created(part: ProofPart) -> ProofRelationship:
    return _relationship(part, is_created=True)


def _deleted(part: ProofPart) -> ProofRelationship:
    return _relationship(part, is_created=False)


def _relationship(part: ProofPart, *, is_created: bool) -> ProofRelationship:
    part.only(("resource", "relation", "subject"))
    return ProofRelationship(is_created, part.text("resource"), part.text("relation"), part.text("subject"))


def _set(part: ProofPart) -> ProofSetEntity:
    part.only(("key", "value"), ("expiresAt", "condition"))
    return ProofSetEntity(
        key=part.text("key"),
        value=part.octets("value"),
        condition=_condition(part.part("condition")) if part.has("condition") else ProofCondition(),
        expires_at=part.number("expiresAt") if part.has("expiresAt") else 0,
    )


def _condition(part: ProofPart) -> ProofCondition:
    """Parse a condition. Each of the two flags means the other when it is false."""
    part.only((), ("notExists", "version", "valueEquals", "mustExists"))
    if len(part.members) > 1:
        raise ProofError(f"{part.where} has more than one condition.")
    if part.has("version"):
        return ProofCondition(ProofCheck.VERSION, version=part.number("version"))
    if part.has("valueEquals"):
        return ProofCondition(ProofCheck.VALUE_EQUALS, value=part.octets("valueEquals"))
    if part.has("notExists"):
        return ProofCondition(ProofCheck.NOT_EXISTS if part.flag("notExists") else ProofCheck.MUST_EXIST)
    if part.has("mustExists"):
        return ProofCondition(ProofCheck.MUST_EXIST if part.flag("mustExists") else ProofCheck.NOT_EXISTS)
    return ProofCondition()


def _delete(part: ProofPart) -> ProofDeleteEntity:
    return ProofDeleteEntity(part.only(("key",)).text("key"))


def _expire(part: ProofPart) -> ProofExpireEntity:
    part.only(("key", "expiredAt"))
    return ProofExpireEntity(part.text("key"), part.number("expiredAt"))


_OPERATIONS: Mapping[str, Callable[[ProofPart], Operation]] = {
    "createRelationship": _created,
    "deleteRelationship": _deleted,
    "setEntity": _set,
    "deleteEntity": _delete,
    "expireEntity": _expire,
}


def read_merkle_proof(part: ProofPart, most: int) -> MerkleProof:
    """Parse a Merkle proof of at most `most` steps."""
    part.only(("leafHash",), ("siblings",))
    return MerkleProof(part.hash("leafHash"), tuple(map(_sibling, part.parts("siblings", most))))


def _sibling(part: ProofPart) -> ProofSibling:
    part.only(("hash", "direction"))
    for side in ProofSide:
        if part.members["direction"] == side.value:
            return ProofSibling(part.hash("hash"), side)
    raise ProofError(f"{part.path('direction')} is neither left nor right.")


def read_state_proof(part: ProofPart) -> ProofOfState:
    """Parse a state proof."""
    part.only(
        (
            "key",
            "value",
            "expiresAt",
            "version",
            "bucketId",
            "bucketRoot",
            "otherBucketRoots",
            "blockHeight",
            "stateRoot",
        ),
        ("bucketEntries",),
    )
    others = part.hashes("otherBucketRoots")
    if len(others) != BUCKETS - 1:
        raise ProofError(f"{part.path('otherBucketRoots')} has {len(others)} members instead of {BUCKETS - 1}.")
    return ProofOfState(
        entry=_entry(part),
        bucket_id=part.small_number("bucketId", BUCKETS - 1),
        bucket_root=part.hash("bucketRoot"),
        other_bucket_roots=tuple(others),
        block_height=part.number("blockHeight"),
        state_root=part.hash("stateRoot"),
        bucket_entries=tuple(map(_whole_entry, part.parts("bucketEntries", 1))),
    )


def _whole_entry(part: ProofPart) -> Entry:
    return _entry(part.only(("key", "value", "expiresAt", "version")))


def _entry(part: ProofPart) -> Entry:
    return Entry(part.octets("key"), part.octets("value"), part.number("expiresAt"), part.number("version"))
