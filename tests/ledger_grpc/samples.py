"""Values of every kind that the ledger tells, none of their members left as it would be anyway."""

from __future__ import annotations

from semel.contracts.ledger.commands import Code, Committed, Declined, Org, Vault
from semel.contracts.ledger.model import (
    Check,
    Condition,
    CreateRelationship,
    DeleteEntity,
    DeleteRelationship,
    Entity,
    ExpireEntity,
    Header,
    Instant,
    Operation,
    Place,
    SetEntity,
    Sibling,
    Side,
    StateProof,
    Status,
    Transaction,
    TxProof,
)

PLACE = Place(7001, 9001)
LARGEST = 2**64 - 1


def hash_of(number: int) -> bytes:
    """A hash that is no other's."""
    return bytes((number,)) * 32


OPERATIONS: dict[str, Operation] = {
    "set": SetEntity(b"user:1", b"alice"),
    "set-empty": SetEntity(b"user:1", b""),
    "set-expires": SetEntity("schlüssel".encode(), bytes(range(256)), LARGEST),
    "set-not-exists": SetEntity(b"k", b"v", 0, Condition(Check.NOT_EXISTS)),
    "set-must-exist": SetEntity(b"k", b"v", 0, Condition(Check.MUST_EXIST)),
    "set-version": SetEntity(b"k", b"v", 0, Condition(Check.VERSION, version=LARGEST)),
    "set-version-0": SetEntity(b"k", b"v", 0, Condition(Check.VERSION, version=0)),
    "set-value": SetEntity(b"k", b"v", 5, Condition(Check.VALUE, value=b"\0\xff")),
    "set-value-empty": SetEntity(b"k", b"v", 5, Condition(Check.VALUE, value=b"")),
    "delete": DeleteEntity(b"user:9"),
    "expire": ExpireEntity(b"user:9", 1_767_312_000),
    "relate": CreateRelationship(b"doc:readme", b"viewer", b"user:1"),
    "unrelate": DeleteRelationship(b"doc:readme", b"viewer", b"group:1#member"),
}

HEADER = Header(
    height=3,
    place=PLACE,
    previous_hash=hash_of(1),
    tx_root=hash_of(2),
    state_root=hash_of(3),
    at=Instant(1_767_225_600, 123_456_789),
    term=4,
    committed_index=5,
    leader=b"node-1",
)
TRANSACTION = Transaction(
    id=bytes(range(16)),
    client=b"app-1",
    sequence=6,
    operations=tuple(OPERATIONS.values()),
    at=Instant(1_767_225_600, 120_000_000),
    actor=b"client:app-1",
)
COMMITTED = Committed(TRANSACTION, HEADER)
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
    "key-exists": Declined(Code.KEY_EXISTS, "It is there.", key=b"user:1", current_version=0, current_value=b""),
    "key-not-found": Declined(Code.KEY_NOT_FOUND, "It is not there.", key=b"user:1"),
    "version": Declined(Code.VERSION_MISMATCH, "Another one.", key=b"user:1", current_version=9, current_value=b"x"),
    "value": Declined(Code.VALUE_MISMATCH, "Too large to tell.", key=b"user:1", current_version=9),
    "committed": Declined(
        Code.ALREADY_COMMITTED, "It is.", "R4", tx_id=bytes(range(16)), height=3, sequence=6, last=LARGEST
    ),
    "unverified": Declined(
        Code.ALREADY_COMMITTED, "It may be.", "R11", sequence=6, last=7, details={"verified": "false"}
    ),
    "reused": Declined(
        Code.IDEMPOTENCY_KEY_REUSED,
        "For something else.",
        "R10",
        tx_id=bytes(range(16)),
        sequence=6,
        details={"conflict": "sequence"},
    ),
    "gap": Declined(Code.SEQUENCE_GAP, "Where is the rest?", "R7", last=0),
}
ORG = Org(
    slug=7001,
    name="Müller".encode(),
    status=Status.SUSPENDED,
    created=Instant(1, 2),
    entries=8,
    eviction_interval=1_000,
    ttl_seconds=86_400,
    fence=True,
    vaults=2,
)
VAULT = Vault(place=PLACE, status=Status.READ_ONLY, height=3, state_root=hash_of(3), retain=100, created=Instant(1, 2))
