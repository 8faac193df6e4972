"""Values of every kind that the ledger tells, none of their members left as it would be anyway."""

from __future__ import annotations

from semel.surfaces.ledger.commands import CommittedTransaction, Org, Vault, WriteDeclined, WriteErrorCode
from semel.surfaces.ledger.model import (
    BlockHeader,
    ConditionKind,
    CreateRelationship,
    DeleteEntity,
    DeleteRelationship,
    Entity,
    ExpireEntity,
    LedgerPlace,
    LedgerStatus,
    LedgerTime,
    LedgerTransaction,
    Operation,
    SetCondition,
    SetEntity,
    Sibling,
    Side,
    StateProof,
    TxProof,
)

PLACE = LedgerPlace(7001, 9001)
LARGEST = 2**64 - 1


def hash_of(number: int) -> bytes:
    """A hash that is no other's."""
    return bytes((number,)) * 32


OPERATIONS: dict[str, Operation] = {
    "set": SetEntity(b"user:1", b"alice"),
    "set-empty": SetEntity(b"user:1", b""),
    "set-expires": SetEntity("schlüssel".encode(), bytes(range(256)), LARGEST),
    "set-not-exists": SetEntity(b"k", b"v", 0, SetCondition(ConditionKind.NOT_EXISTS)),
    "set-must-exist": SetEntity(b"k", b"v", 0, SetCondition(ConditionKind.MUST_EXIST)),
    "set-version": SetEntity(b"k", b"v", 0, SetCondition(ConditionKind.VERSION, version=LARGEST)),
    "set-version-0": SetEntity(b"k", b"v", 0, SetCondition(ConditionKind.VERSION, version=0)),
    "set-value": SetEntity(b"k", b"v", 5, SetCondition(ConditionKind.VALUE, value=b"\0\xff")),
    "set-value-empty": SetEntity(b"k", b"v", 5, SetCondition(ConditionKind.VALUE, value=b"")),
    "delete": DeleteEntity(b"user:9"),
    "expire": ExpireEntity(b"user:9", 1_767_312_000),
    "relate": CreateRelationship(b"doc:readme", b"viewer", b"user:1"),
    "unrelate": DeleteRelationship(b"doc:readme", b"viewer", b"group:1#member"),
}

HEADER = BlockHeader(
    height=3,
    place=PLACE,
    previous_hash=hash_of(1),
    tx_root=hash_of(2),
    state_root=hash_of(3),
    at=LedgerTime(1_767_225_600, 123_456_789),
    term=4,
    committed_index=5,
    leader=b"node-1",
)
TRANSACTION = LedgerTransaction(
    id=bytes(range(16)),
    client=b"app-1",
    sequence=6,
    operations=tuple(OPERATIONS.values()),
    at=LedgerTime(1_767_225_600, 120_000_000),
    actor=b"client:app-1",
)
COMMITTED = CommittedTransaction(TRANSACTION, HEADER)
TX_PROOF = TxProof(hash_of(4), (Sibling(hash_of(5), Side.LEFT), Sibling(hash_of(6), Side.RIGHT)))
ENTITY = Entity(b"user:1", b"alice", 1_767_312_000, 3)
LASTING = Entity(b"user:2", b"", 0, 2)
RELATED = Entity(b"\0\x03\0\0\0d:1", b"", 0, 2)


def state_proof(entity: Entity | None, witness: Entity | None = None) -> StateProof:
    """A proof that nobody has to believe."""
    return StateProof(
        key=b"user:1",
        entity=entity,
        leaf=hash_of(7),
        siblings=TX_PROOF.siblings,
        bucket=224,
        bucket_root=hash_of(8),
        other_roots=tuple(hash_of(number) for number in range(255)),
        height=3,
        state_root=hash_of(3),
        witness=witness,
    )


DECLINED = {
    "key-exists": WriteDeclined(
        WriteErrorCode.KEY_EXISTS, "It is there.", key=b"user:1", current_version=0, current_value=b""
    ),
    "key-not-found": WriteDeclined(WriteErrorCode.KEY_NOT_FOUND, "It is not there.", key=b"user:1"),
    "version": WriteDeclined(
        WriteErrorCode.VERSION_MISMATCH, "Another one.", key=b"user:1", current_version=9, current_value=b"x"
    ),
    "value": WriteDeclined(WriteErrorCode.VALUE_MISMATCH, "Too large to tell.", key=b"user:1", current_version=9),
    "committed": WriteDeclined(
        WriteErrorCode.ALREADY_COMMITTED, "It is.", "R4", tx_id=bytes(range(16)), height=3, sequence=6, last=LARGEST
    ),
    "unverified": WriteDeclined(
        WriteErrorCode.ALREADY_COMMITTED, "It may be.", "R11", sequence=6, last=7, details={"verified": "false"}
    ),
    "reused": WriteDeclined(
        WriteErrorCode.IDEMPOTENCY_KEY_REUSED,
        "For something else.",
        "R10",
        tx_id=bytes(range(16)),
        sequence=6,
        details={"conflict": "sequence"},
    ),
    "gap": WriteDeclined(WriteErrorCode.SEQUENCE_GAP, "Where is the rest?", "R7", last=0),
}
ORG = Org(
    slug=7001,
    name="Müller".encode(),
    status=LedgerStatus.SUSPENDED,
    created=LedgerTime(1, 2),
    entries=8,
    eviction_interval=1_000,
    ttl_seconds=86_400,
    fence=True,
    vaults=2,
)
VAULT = Vault(
    place=PLACE, status=LedgerStatus.READ_ONLY, height=3, state_root=hash_of(3), retain=100, created=LedgerTime(1, 2)
)
