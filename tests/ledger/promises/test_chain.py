"""Blocks over the wire: their hashes, their chain, proofs of transactions, terms, and the index in the log."""

from __future__ import annotations

import hashlib

import pytest

from tests.ledger import hashes
from tests.ledger.rig import Ledger, Told
from tests.ledger.words import (
    EMPTY_STATE,
    ZERO_HASH,
    Message,
    Place,
    data,
    fresh,
    new_key,
    put,
    relate,
    remove,
    text,
)

T1: Message = {
    "id": {"id": "AAECAwQFBgcICQoLDA0ODw=="},
    "clientId": {"id": "app-1"},
    "sequence": "1",
    "actor": "client:app-1",
    "timestamp": "2026-01-01T00:00:00.123456789Z",
    "operations": [put("user:1", b"alice", not_exists=True), relate("doc:readme", "viewer", "user:1")],
}
LEAVES = [hashlib.sha256(bytes([number])).digest() for number in range(5)]
ROOTS = {
    2: "30e1867424e66e8b6d159246db94e3486778136f7e386ff5f001859d6b8484ab",
    3: "f2dcdd96791b6bac5d554f2d320e594b834f5da1981812c3707e7772234cb0ad",
    5: "9674600fd139741c0f7dd7a32d984a0e74401cc90e6e8e5d203ed973d27324fe",
}


def test_these_hashes_are_the_published_ones() -> None:
    assert hashes.transaction_hash(T1).hex() == "a0e213b67c9c59422f778125673ec4540df515ebfc2cea46bb3e647c024b7252"
    request = hashlib.sha256(hashes.operations_bytes(T1["operations"])).hexdigest()
    assert request == "7e63e8c9d026d94884c12912f6ebaff601f34ac92e7a437daeea9a65acef0033"
    assert {count: hashes.merkle_root(LEAVES[:count]).hex() for count in ROOTS} == ROOTS
    header = {
        "height": "1",
        "organization": {"slug": "7001"},
        "vault": {"slug": "9001"},
        "previousHash": {"value": "A" * 43 + "="},
        "txMerkleRoot": {"value": text(hashes.transaction_hash(T1))},
        "stateRoot": {"value": "pmj4ZCQZIaM2BkEDDHZkWeY45EleY0t0a2TTxntCWkM="},
        "timestamp": T1["timestamp"],
        "term": "1",
        "committedIndex": "1",
    }
    assert hashes.block_hash(header).hex() == "826eb7943eed2e4f6f9c955f1b1ce9f91ae54c861cc91e14369da230dc3327a1"


def fill(ledger: Ledger, place: Place) -> list[Told]:
    """Transactions of every kind, of two clients, in both modes."""
    later = 4_000_000_000
    relation = ("doc:1", "viewer", "group:1#member")
    relations = [relate(*relation)] if place.vault else []
    ann, bob = fresh("ann"), fresh("bob")
    return [
        ledger.commit(place, ann, put("a", b"1", not_exists=True), *relations, sequence=1),
        ledger.commit(place, bob, put("a", b"2", version=1, expires_at=later), put("é", b"\xff" * 300), key=new_key()),
        ledger.commit(place, ann, put("a", b"3", value_equals=b"2"), put("a", b"", must_exists=True), sequence=2),
        ledger.commit(place, bob, remove("nothing"), remove("a"), sequence=2, key=new_key()),
        ledger.commit(place, ann, put("b", b"x", must_exists=False, expires_at=0), put("c", b"y"), key=new_key()),
    ]


@pytest.mark.parametrize("scope", ["organization", "vault"])
def test_a_chain_can_be_recomputed(ledger: Ledger, scope: str) -> None:
    org = ledger.new_org()
    place = org if scope == "organization" else ledger.new_vault(org)
    told = fill(ledger, place)
    answer = ledger.ask("GetBlockRange", place, startHeight="1", endHeight="1000")
    blocks = answer["blocks"]
    assert answer["currentTip"] == str(len(told)) == str(len(blocks))
    for block, one in zip(blocks, told, strict=True):
        hashes.check_block(block)
        assert block == ledger.block(place, int(block["header"]["height"]))
        header, [transaction] = block["header"], block["transactions"]
        assert (data(transaction["id"]["id"]), int(header["height"]), int(transaction["sequence"])) == one.facts
        assert header["organization"] == {"slug": str(place.org)}
        assert header.get("vault", {"slug": "0"}) == {"slug": str(place.vault)}
    tip = ledger.ask("GetTip", place)
    headers = [block["header"] for block in blocks]
    assert hashes.check_chain(headers) == data(tip["blockHash"]["value"])
    assert tip["stateRoot"] == headers[-1]["stateRoot"]
    assert len({header["stateRoot"]["value"] for header in headers}) == len(headers)


def test_a_state_without_entities_has_the_root_of_nothing(ledger: Ledger, place: Place) -> None:
    tip = ledger.ask("GetTip", place)
    assert (tip["height"], data(tip["stateRoot"]["value"])) == ("0", EMPTY_STATE)
    client = fresh("client")
    ledger.commit(place, client, remove("nothing"), sequence=1)
    ledger.commit(place, client, put("a", b"1"), sequence=2)
    ledger.commit(place, client, remove("a"), sequence=3)
    roots = [data(ledger.block(place, height)["header"]["stateRoot"]["value"]) for height in (1, 2, 3)]
    assert [root == EMPTY_STATE for root in roots] == [True, False, True]


def test_the_header_of_a_new_vault_is_not_linked(ledger: Ledger) -> None:
    org = ledger.new_org()
    made = ledger.ask("CreateVault", org)
    genesis = made["genesis"]
    assert (genesis["height"], genesis["vault"]) == ("0", made["vault"])
    assert data(genesis["previousHash"]["value"]) == ZERO_HASH
    assert data(genesis["txMerkleRoot"]["value"]) == hashlib.sha256(b"").digest()
    assert data(genesis["stateRoot"]["value"]) == EMPTY_STATE
    place = Place(org.org, int(made["vault"]["slug"]))
    ledger.commit(place, "c", put("a"), sequence=1)
    assert data(ledger.block(place, 1)["header"]["previousHash"]["value"]) == ZERO_HASH


def check_proof(success: Message) -> None:
    """The proof leads from the transaction to the header."""
    assert {"blockHeader", "txProof", "transaction"} <= set(success), success
    leaf = hashes.transaction_hash(success["transaction"])
    assert data(success["txProof"]["leafHash"]["value"]) == leaf
    assert "siblings" not in success["txProof"]
    assert data(success["blockHeader"]["txMerkleRoot"]["value"]) == leaf
    assert success["blockHeader"]["height"] == success["blockHeight"]
    assert success["transaction"]["id"] == success["txId"]
    assert success["transaction"]["sequence"] == success["assignedSequence"]


def test_proofs_come_if_they_are_asked_for(ledger: Ledger, place: Place) -> None:
    client, key = fresh("client"), new_key()
    told = ledger.commit(place, client, put("a", b"1"), sequence=1, key=key, proofs=True)
    check_proof(told.success)
    block = ledger.block(place, 1)
    assert told.success["transaction"] == block["transactions"][0]
    assert told.success["blockHeader"] == block["header"]
    ledger.check_replay(ledger.write(place, client, put("a", b"1"), key=key, proofs=True), told)
    batch = ledger.batch(place, client, [put("b", b"1")], [put("c")], sequence=2, proofs=True)
    check_proof(batch.success)
    bare = ledger.commit(place, client, put("d"), sequence=3)
    assert not {"blockHeader", "txProof", "transaction"} & set(bare.success)


def test_a_retry_may_ask_for_proofs_that_the_first_did_not(ledger: Ledger, place: Place) -> None:
    client, key = fresh("client"), new_key()
    first = ledger.commit(place, client, put("a", b"1"), sequence=1, key=key)
    for identity in ({"key": key}, {"sequence": 1}):
        told = ledger.write(place, client, put("a", b"1"), proofs=True, **identity)
        success = told.body if told.kind == "success" else told.error["original"]
        check_proof(success)
        assert told.facts == first.facts


def test_a_retry_that_asks_for_no_proofs_gets_those_of_the_first(ledger: Ledger, place: Place) -> None:
    """A replay is the first answer, in every field."""
    client, key = fresh("client"), new_key()
    first = ledger.commit(place, client, put("a", b"1"), sequence=1, key=key, proofs=True)
    for identity in ({"key": key}, {"sequence": 1}):
        ledger.check_replay(ledger.write(place, client, put("a", b"1"), **identity), first)


def test_the_index_counts_every_entry_of_the_organization(ledger: Ledger) -> None:
    """Vaults and settings are entries, too; the organization itself is not."""
    org, client = ledger.new_org(), fresh("client")
    assert ledger.entries(org) == 0
    vault = ledger.new_vault(org)
    ledger.commit(vault, client, put("a"), sequence=1)
    ledger.commit(org, client, put("a"), sequence=1)
    ledger.set_org(org, ttlSeconds=1_000)
    ledger.write(vault, client, put("a"), sequence=1)
    ledger.write(vault, client, put("a"), sequence=9)
    ledger.commit(vault, client, put("b"), sequence=2)
    indexes = [ledger.block(*at)["header"]["committedIndex"] for at in ((vault, 1), (org, 1), (vault, 2))]
    assert indexes == ["2", "3", "5"]
    assert ledger.entries(org) == 5
