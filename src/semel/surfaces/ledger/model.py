"""Data types of the ledger: places, operations, transactions, block headers, proofs.

Text is kept as UTF-8 bytes, so that the hashed, stored and answered bytes are the same.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

ZERO = bytes(32)
SYSTEM = b"system:"
"""The prefix of the server's own actors and client ids."""


class LedgerPlace(NamedTuple):
    """An organization's own place (vault 0), or one of its vaults. Each place has its own sequences and chain."""

    org: int
    vault: int = 0


class LedgerTime(NamedTuple):
    """A logged time: seconds and nanoseconds."""

    seconds: int
    nanos: int = 0


class ConditionKind(Enum):
    """The kind of a condition; the value is its byte in the encoding."""

    NOT_EXISTS = 1
    MUST_EXIST = 2
    VERSION = 3
    VALUE = 4


class SetCondition(NamedTuple):
    """A condition, with the value that it compares."""

    check: ConditionKind
    version: int = 0
    value: bytes = b""


class SetEntity(NamedTuple):
    """Create or replace an entity; `expires_at` in seconds, 0 is never."""

    key: bytes
    value: bytes
    expires_at: int = 0
    condition: SetCondition | None = None


class DeleteEntity(NamedTuple):
    """Remove an entity, if it exists."""

    key: bytes


class ExpireEntity(NamedTuple):
    """Remove an expired entity; only the system does this, and it is logged."""

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


class LedgerTransaction(NamedTuple):
    """One committed transaction."""

    id: bytes
    client: bytes
    sequence: int
    operations: tuple[Operation, ...]
    at: LedgerTime
    actor: bytes


class BlockHeader(NamedTuple):
    """The header of a block; `leader` is the only member that its hash does not cover."""

    height: int
    place: LedgerPlace
    previous_hash: bytes
    tx_root: bytes
    state_root: bytes
    at: LedgerTime
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

    `leaf` and `siblings` lead to the root of the key's bucket; `witness` is the entity at the place of an absent key,
    if there is one.
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


class LedgerStatus(Enum):
    """The status of an organization or a vault; the value is stored."""

    ACTIVE = 1
    MIGRATING = 2
    SUSPENDED = 3
    DELETING = 4
    DELETED = 5
    READ_ONLY = 6


ORG_STATUSES = (
    LedgerStatus.ACTIVE,
    LedgerStatus.MIGRATING,
    LedgerStatus.SUSPENDED,
    LedgerStatus.DELETING,
    LedgerStatus.DELETED,
)
VAULT_STATUSES = (LedgerStatus.ACTIVE, LedgerStatus.READ_ONLY, LedgerStatus.DELETED)
