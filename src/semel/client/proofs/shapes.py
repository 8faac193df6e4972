"""Value types of proof documents: headers, transactions, proofs. Text is kept as the UTF-8 that is hashed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

from semel.client.proofs.documents import Instant, Part
from semel.client.proofs.errors import ProofError

MAX_TX_SIBLINGS = 32
MAX_STATE_SIBLINGS = 256
BUCKETS = 256
TX_ID_BYTES = 16
MAX_CLIENT_CHARACTERS = 256


class Header(NamedTuple):
    """The header of a block. Its hash covers all of it but the name of the leader."""

    height: int
    organization: int
    vault: int
    """0 for the organization's own scope."""
    previous_hash: bytes
    tx_merkle_root: bytes
    state_root: bytes
    timestamp: Instant
    term: int
    committed_index: int
    leader_id: bytes


class Relationship(NamedTuple):
    """One that is created or deleted."""

    is_created: bool
    resource: bytes
    relation: bytes
    subject: bytes


class Check(Enum):
    """The kind of a condition; the value is its byte in the encoding."""

    NONE = 0
    NOT_EXISTS = 1
    MUST_EXIST = 2
    VERSION = 3
    VALUE_EQUALS = 4


class Condition(NamedTuple):
    """A check, and the value to compare with."""

    check: Check = Check.NONE
    version: int = 0
    value: bytes = b""


class SetEntity(NamedTuple):
    """An entity that is created or replaced; `expires_at` in seconds, 0 is never."""

    key: bytes
    value: bytes
    condition: Condition
    expires_at: int


class DeleteEntity(NamedTuple):
    """An entity that is removed."""

    key: bytes


class ExpireEntity(NamedTuple):
    """One that the system removed."""

    key: bytes
    expired_at: int


Operation = Relationship | SetEntity | DeleteEntity | ExpireEntity


class Transaction(NamedTuple):
    """A transaction as it was committed."""

    id: bytes
    client_id: bytes
    sequence: int
    operations: tuple[Operation, ...]
    timestamp: Instant
    actor: bytes


class Side(Enum):
    """The side of a sibling."""

    LEFT = "DIRECTION_LEFT"
    RIGHT = "DIRECTION_RIGHT"


class Sibling(NamedTuple):
    """One step of a proof, from the bottom up."""

    hash: bytes
    side: Side


class MerkleProof(NamedTuple):
    """The way from a leaf to a root."""

    leaf_hash: bytes
    siblings: tuple[Sibling, ...]


class Entry(NamedTuple):
    """A leaf of the state: an entity or, under a key that begins with a zero byte, a relationship."""

    key: bytes
    value: bytes
    expires_at: int
    """Seconds; 0 is never."""
    version: int
    """The height of the block that set it."""


class StateProof(NamedTuple):
    """The rest of a state proof: the roots of the other buckets, and the entry in the key's place."""

    entry: Entry
    """Of version 0 when nothing is there."""
    bucket_id: int
    bucket_root: bytes
    other_bucket_roots: tuple[bytes, ...]
    block_height: int
    state_root: bytes
    bucket_entries: tuple[Entry, ...]


def read_header(part: Part) -> Header:
    """A block's header."""
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


def read_transaction(part: Part) -> Transaction:
    """A committed transaction."""
    part.only(("id", "clientId", "sequence", "operations", "timestamp", "actor"))
    client = part.part("clientId").only(("id",)).text("id")
    transaction = Transaction(
        id=read_tx_id(part, "id"),
        client_id=client,
        sequence=part.number("sequence"),
        operations=tuple(map(read_operation, part.parts("operations"))),
        timestamp=part.instant("timestamp"),
        actor=part.text("actor"),
    )
    if not 1 <= len(client.decode()) <= MAX_CLIENT_CHARACTERS:
        raise ProofError(f"{part.path('clientId')} does not have 1 to {MAX_CLIENT_CHARACTERS} characters.")
    if transaction.sequence == 0:
        raise ProofError(f"{part.path('sequence')} is 0, and sequences begin with 1.")
    if not transaction.operations:
        raise ProofError(f"{part.path('operations')} is empty, and a transaction has at least one.")
    return transaction


def read_tx_id(part: Part, name: str) -> bytes:
    """The id of a transaction."""
    found = part.part(name).only(("id",)).octets("id")
    if len(found) != TX_ID_BYTES:
        raise ProofError(f"{part.path(name)} is not an id of {TX_ID_BYTES} bytes.")
    return found


def read_operation(part: Part) -> Operation:
    """One operation, of a transaction or of a request."""
    if len(part.members) != 1 or (kind := next(iter(part.members))) not in _OPERATIONS:
        raise ProofError(f"{part.where} is not one operation of a known kind.")
    return _OPERATIONS[kind](part.part(kind))


def _created(part: Part) -> Relationship:
    return _relationship(part, is_created=True)


def _deleted(part: Part) -> Relationship:
    return _relationship(part, is_created=False)


def _relationship(part: Part, *, is_created: bool) -> Relationship:
    part.only(("resource", "relation", "subject"))
    return Relationship(is_created, part.text("resource"), part.text("relation"), part.text("subject"))


def _set(part: Part) -> SetEntity:
    part.only(("key", "value"), ("expiresAt", "condition"))
    return SetEntity(
        key=part.text("key"),
        value=part.octets("value"),
        condition=_condition(part.part("condition")) if part.has("condition") else Condition(),
        expires_at=part.number("expiresAt") if part.has("expiresAt") else 0,
    )


def _condition(part: Part) -> Condition:
    """The two flags, when they are false, mean each other."""
    part.only((), ("notExists", "version", "valueEquals", "mustExists"))
    if len(part.members) > 1:
        raise ProofError(f"{part.where} has more than one condition.")
    if part.has("version"):
        return Condition(Check.VERSION, version=part.number("version"))
    if part.has("valueEquals"):
        return Condition(Check.VALUE_EQUALS, value=part.octets("valueEquals"))
    if part.has("notExists"):
        return Condition(Check.NOT_EXISTS if part.flag("notExists") else Check.MUST_EXIST)
    if part.has("mustExists"):
        return Condition(Check.MUST_EXIST if part.flag("mustExists") else Check.NOT_EXISTS)
    return Condition()


def _delete(part: Part) -> DeleteEntity:
    return DeleteEntity(part.only(("key",)).text("key"))


def _expire(part: Part) -> ExpireEntity:
    part.only(("key", "expiredAt"))
    return ExpireEntity(part.text("key"), part.number("expiredAt"))


_OPERATIONS: Mapping[str, Callable[[Part], Operation]] = {
    "createRelationship": _created,
    "deleteRelationship": _deleted,
    "setEntity": _set,
    "deleteEntity": _delete,
    "expireEntity": _expire,
}


def read_merkle_proof(part: Part, most: int) -> MerkleProof:
    """A Merkle proof of at most `most` steps."""
    part.only(("leafHash",), ("siblings",))
    return MerkleProof(part.hash("leafHash"), tuple(map(_sibling, part.parts("siblings", most))))


def _sibling(part: Part) -> Sibling:
    part.only(("hash", "direction"))
    for side in Side:
        if part.members["direction"] == side.value:
            return Sibling(part.hash("hash"), side)
    raise ProofError(f"{part.path('direction')} is neither left nor right.")


def read_state_proof(part: Part) -> StateProof:
    """A key's place in the state of a block."""
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
    return StateProof(
        entry=_entry(part),
        bucket_id=part.small_number("bucketId", BUCKETS - 1),
        bucket_root=part.hash("bucketRoot"),
        other_bucket_roots=tuple(others),
        block_height=part.number("blockHeight"),
        state_root=part.hash("stateRoot"),
        bucket_entries=tuple(map(_whole_entry, part.parts("bucketEntries", 1))),
    )


def _whole_entry(part: Part) -> Entry:
    return _entry(part.only(("key", "value", "expiresAt", "version")))


def _entry(part: Part) -> Entry:
    return Entry(part.octets("key"), part.octets("value"), part.number("expiresAt"), part.number("version"))
