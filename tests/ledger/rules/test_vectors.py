"""What is hashed, byte by byte: the published vectors."""

from __future__ import annotations

from hashlib import sha256

import pytest

from semel.surfaces.ledger.model import (
    ZERO,
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
    SetCondition,
    SetEntity,
)
from semel.surfaces.ledger.rules.chain import (
    block_hash,
    decode_operations,
    encode_operations,
    genesis_header,
    merkle_root,
    relationship_key,
    request_hash,
    split_relationship,
    transaction_hash,
)
from semel.surfaces.ledger.rules.state_tree import EMPTY_BUCKET, EMPTY_STATE_ROOT, bucket_of, leaf_hash, seahash

T1_OPERATIONS = (
    SetEntity(b"user:1", b"alice", 0, SetCondition(ConditionKind.NOT_EXISTS)),
    CreateRelationship(b"doc:readme", b"viewer", b"user:1"),
)
T1 = LedgerTransaction(
    bytes(range(16)), b"app-1", 1, T1_OPERATIONS, LedgerTime(1_767_225_600, 123_456_789), b"client:app-1"
)
T2_OPERATIONS = (
    SetEntity(b"user:1", b"bob", 1_767_312_000, SetCondition(ConditionKind.VERSION, 1)),
    DeleteEntity(b"user:9"),
    DeleteRelationship(b"doc:readme", b"viewer", b"user:1"),
)
T2 = LedgerTransaction(bytes(range(16, 32)), b"app-1", 2, T2_OPERATIONS, LedgerTime(1_767_225_601), b"user:789")
PLACE = LedgerPlace(7001, 9001)


def test_seahash() -> None:
    assert seahash(b"to be or not to be") == 0x1B993A826F4AE575
    assert (seahash(b"user:1"), bucket_of(b"user:1")) == (0x82A61FE050DAC8E0, 224)


def test_transactions_and_requests() -> None:
    first, second = encode_operations(T1_OPERATIONS), encode_operations(T2_OPERATIONS)
    assert len(first) == 68
    assert request_hash(first).hex() == "7e63e8c9d026d94884c12912f6ebaff601f34ac92e7a437daeea9a65acef0033"
    assert transaction_hash(T1, first).hex() == "a0e213b67c9c59422f778125673ec4540df515ebfc2cea46bb3e647c024b7252"
    assert transaction_hash(T2, second).hex() == "5cc6e77f25d92f54bc6058298887b7da32e7973b0b622383e583cf86ab4f9e18"


@pytest.mark.parametrize(
    ("leaves", "root"),
    [
        (0, sha256(b"").hexdigest()),
        (1, sha256(b"\0").hexdigest()),
        (2, "30e1867424e66e8b6d159246db94e3486778136f7e386ff5f001859d6b8484ab"),
        (3, "f2dcdd96791b6bac5d554f2d320e594b834f5da1981812c3707e7772234cb0ad"),
        (5, "9674600fd139741c0f7dd7a32d984a0e74401cc90e6e8e5d203ed973d27324fe"),
    ],
)
def test_merkle_roots(leaves: int, root: str) -> None:
    assert merkle_root([sha256(bytes((leaf,))).digest() for leaf in range(leaves)]).hex() == root


def test_a_header_is_hashed_in_148_bytes() -> None:
    tx_root = transaction_hash(T1, encode_operations(T1_OPERATIONS))
    state_root = bytes.fromhex("a668f864241921a3360641030c766459e638e4495e634b746b64d3c67b425a43")
    header = BlockHeader(1, PLACE, ZERO, tx_root, state_root, T1.at, 1, 1, b"anyone")
    assert block_hash(header).hex() == "826eb7943eed2e4f6f9c955f1b1ce9f91ae54c861cc91e14369da230dc3327a1"
    assert block_hash(header._replace(leader=b"")) == block_hash(header)


def test_the_empty_state() -> None:
    assert EMPTY_STATE_ROOT.hex() == "0e89e7ed74c9a5944c886585d634e3c68f4dccd0a31968fe52d6df0873ccdec6"
    genesis = genesis_header(PLACE, LedgerTime(5), 1, 1)
    assert (genesis.height, genesis.previous_hash, genesis.tx_root) == (0, ZERO, EMPTY_BUCKET)
    assert genesis.state_root == EMPTY_STATE_ROOT


def test_the_leaf_of_an_entity() -> None:
    entity = Entity(b"user:1", b"alice", 7, 1)
    layout = b"\0" + b"\6\0\0\0user:1" + b"\5\0\0\0alice" + (7).to_bytes(8, "big") + (1).to_bytes(8, "big")
    assert leaf_hash(entity) == sha256(layout).digest()


OPERATIONS: dict[str, Operation] = {
    "set": SetEntity(b"k", b"v"),
    "empty value": SetEntity(b"k", b""),
    "expires": SetEntity(b"k", b"v", 2**64 - 1),
    "not exists": SetEntity(b"k", b"v", 0, SetCondition(ConditionKind.NOT_EXISTS)),
    "must exist": SetEntity(b"k", b"v", 1, SetCondition(ConditionKind.MUST_EXIST)),
    "version": SetEntity(b"k", b"v", 0, SetCondition(ConditionKind.VERSION, 2**64 - 1)),
    "value": SetEntity(b"k", b"v", 0, SetCondition(ConditionKind.VALUE, value=b"old")),
    "delete": DeleteEntity("ключ".encode()),
    "expire": ExpireEntity(b"k", 9),
    "create": CreateRelationship(b"doc:1", b"viewer", b"team:2#member"),
    "remove": DeleteRelationship(b"doc:1", b"viewer", b"user:1"),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_come_back_from_their_bytes(name: str) -> None:
    operations = (OPERATIONS[name], SetEntity(b"another", b"one"))
    assert decode_operations(encode_operations(operations)) == operations


def test_no_two_operations_share_their_bytes() -> None:
    encoded = {encode_operations((operation,)) for operation in OPERATIONS.values()}
    assert len(encoded) == len(OPERATIONS)
    assert encode_operations((SetEntity(b"a", b"bc"),)) != encode_operations((SetEntity(b"ab", b"c"),))


def test_relationship_keys_come_apart_again() -> None:
    parts = (b"doc:1", b"viewer", b"team:2#member")
    key = relationship_key(*parts)
    assert key[:1] == b"\0"
    assert split_relationship(key) == parts
