"""The value types of the ledger: places, operations, transactions, headers, proofs.

Text is kept as UTF-8 bytes, so that what is hashed, stored and told are the same bytes.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

ZERO = bytes(32)


class Place(NamedTuple):
    """A scope: an organization's own (vault 0), or one of its vaults. Sequences and chains are each place's own."""

    org: int
    vault: int = 0


class Instant(NamedTuple):
    """A logged time."""

    seconds: int
    nanos: int = 0


class Check(Enum):
    """The kind of a condition; the value is its byte in the encoding."""

    NOT_EXISTS = 1
    MUST_EXIST = 2
    VERSION = 3
    VALUE = 4


class Condition(NamedTuple):
    """A check with what it compares."""

    check: Check
    version: int = 0
    value: bytes = b""


class SetEntity(NamedTuple):
    """Create or replace an entity; `expires_at` in seconds, 0 is never."""

    key: bytes
    value: bytes
    expires_at: int = 0
    condition: Condition | None = None


class DeleteEntity(NamedTuple):
    """Remove an entity, if it exists."""

    key: bytes


class ExpireEntity(NamedTuple):
    """Removal of an expired entity by the system, logged."""

    key: bytes
    expired_at: int = 0


class CreateRelationship(NamedTuple):
    """Create a relationship, unless it exists."""

    resource: bytes
    relation: bytes
    subject: bytes


class DeleteRelationship(NamedTuple):
    """Remove a relationship, if it exists."""

    resource: bytes
    relation: bytes
    subject: bytes


Operation = SetEntity | DeleteEntity | ExpireEntity | CreateRelationship | DeleteRelationship


class Transaction(NamedTuple):
    """One committed transaction."""

    id: bytes
    client: bytes
    sequence: int
    operations: tuple[Operation, ...]
    at: Instant
    actor: bytes


class Header(NamedTuple):
    """The header of a block; `leader` is the only member that its hash does not cover."""

    height: int
    place: Place
    previous_hash: bytes
    tx_root: bytes
    state_root: bytes
    at: Instant
    term: int
    committed_index: int
    leader: bytes


class Entity(NamedTuple):
    """An entity or, with a key that begins with a zero byte, a relationship; `version` is the height that set it."""

    key: bytes
    value: bytes
    expires_at: int
    version: int


class Side(Enum):
    """The side of the path that a sibling is on; the value is its number on the wire."""

    LEFT = 1
    RIGHT = 2


class Sibling(NamedTuple):
    """One step of a proof, bottom up."""

    hash: bytes
    side: Side


class TxProof(NamedTuple):
    """A proof that a transaction is in a block."""

    leaf: bytes
    siblings: tuple[Sibling, ...] = ()


class StateProof(NamedTuple):
    """A proof that an entity is in the state of a block, or that its key is absent.

    `leaf` and `siblings` lead to the root of the key's bucket; `witness` is the entity that stands where an absent one
    would, if there is one.
    """

    key: bytes
    entity: Entity | None
    leaf: bytes
    siblings: tuple[Sibling, ...]
    bucket: int
    bucket_root: bytes
    other_roots: tuple[bytes, ...]
    height: int
    state_root: bytes
    witness: Entity | None = None


class Status(Enum):
    """The status of an organization or a vault; the value is stored."""

    ACTIVE = 1
    MIGRATING = 2
    SUSPENDED = 3
    DELETING = 4
    DELETED = 5
    READ_ONLY = 6


ORG_STATUSES = (Status.ACTIVE, Status.MIGRATING, Status.SUSPENDED, Status.DELETING, Status.DELETED)
VAULT_STATUSES = (Status.ACTIVE, Status.READ_ONLY, Status.DELETED)
