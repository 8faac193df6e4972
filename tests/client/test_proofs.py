"""The verifier agrees with the published vectors, accepts what is so, and refuses what is not, in one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from semel.client.proofs import (
    Entry,
    ProofError,
    Trusted,
    block_hash,
    finding_of,
    relationship_key,
    verify_answer,
    verify_block,
    verify_chain,
    verify_header_hash,
    verify_inclusion,
    verify_read,
    verify_state,
    verify_whole_block,
    verify_write,
)
from semel.client.proofs.documents import ProofPart
from semel.client.proofs.hashes import entry_hash, operations_bytes, seahash, transaction_hash, transactions_root
from semel.client.proofs.shapes import read_transaction
from tests.client import slow_ledger
from tests.client.slow_ledger import Json, SlowLedger, b64, request_of, set_entity, sha, three_blocks

PAGE = Path(__file__).parent.parent.parent / "docs/reference/ledger-proofs.md"

ROOTS = {
    0: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "30e1867424e66e8b6d159246db94e3486778136f7e386ff5f001859d6b8484ab",
    3: "f2dcdd96791b6bac5d554f2d320e594b834f5da1981812c3707e7772234cb0ad",
    5: "9674600fd139741c0f7dd7a32d984a0e74401cc90e6e8e5d203ed973d27324fe",
}
EMPTY_STATE = "0e89e7ed74c9a5944c886585d634e3c68f4dccd0a31968fe52d6df0873ccdec6"
REQUEST_T1 = "7e63e8c9d026d94884c12912f6ebaff601f34ac92e7a437daeea9a65acef0033"
TRANSACTIONS = [
    "a0e213b67c9c59422f778125673ec4540df515ebfc2cea46bb3e647c024b7252",
    "5cc6e77f25d92f54bc6058298887b7da32e7973b0b622383e583cf86ab4f9e18",
    "e7f80a8841a41157eef1b290a15285dd7e2776bb24789ce9d218c6a1feae2cb5",
]
STATES = [
    "6c1123a8d64fb26a5ecef75682fcf9832d2a095f46fa1a51e70042b92bf402fe",
    "7be36a06d32647816f0415d3f241166b0950110675e1c68d5a29079aaeeb11b1",
    "443f22d72069c40d7eab9b8cac59223c7b7b6ee8b740bf14a20cf722a9e4a023",
]
BLOCKS = [
    "829f6c739406e3fec2d19a02c0bb20b315bcf3a8939a92a57466c5c641184c08",
    "4991bbcfa85c841fc961403cc82445c81d50d347bc6812c8607790d798c6b33d",
    "043f7e124cc0a7cf2cd8441a69f68b66cacd4623e0963a18a6cbf91902971a70",
]
CROWD_ROOT = "892eaf1845ab46be3debeeaddf7a3024b3cc8a4ac0c200e784b3f71c924bd793"


@pytest.fixture(scope="module")
def ledger() -> SlowLedger:
    return three_blocks()


def at(ledger: SlowLedger, height: int) -> Trusted:
    return Trusted(height, ledger.hashes[height - 1])


@pytest.mark.parametrize(
    ("content", "number"),
    [
        ("to be or not to be", "1b993a826f4ae575"),
        ("user:1", "82a61fe050dac8e0"),
        ("", "c920ca43256fdcb9"),
        ("12345678", "79476d25d4c6dfc4"),
    ],
    ids=["18 bytes", "6 bytes", "none", "8 bytes"],
)
def test_seahash(content: str, number: str) -> None:
    assert f"{seahash(content.encode()):016x}" == f"{slow_ledger.seahash(content.encode()):016x}" == number


@pytest.mark.parametrize("count", ROOTS)
def test_the_root_of_transactions(count: int) -> None:
    leaves = [sha(bytes([number])) for number in range(count)]
    assert transactions_root(leaves).hex() == slow_ledger.merkle_root(leaves).hex() == ROOTS[count]


@pytest.mark.parametrize("number", [0, 1, 2], ids=["T1", "T2", "T3"])
def test_the_vectors_of_blocks(ledger: SlowLedger, number: int) -> None:
    told = ledger.transactions[number][0]
    transaction = read_transaction(ProofPart.of(told, "transaction"))
    assert transaction_hash(transaction).hex() == sha(slow_ledger.told_bytes(told)).hex() == TRANSACTIONS[number]
    assert slow_ledger.state_root(ledger.states[number + 1]).hex() == STATES[number]
    assert block_hash(ledger.headers[number]).hex() == ledger.hashes[number].hex() == BLOCKS[number]


def test_the_other_vectors(ledger: SlowLedger) -> None:
    transactions = [read_transaction(ProofPart.of(told[0], "transaction")) for told in ledger.transactions]
    encoded = [operations_bytes(one.operations) for one in transactions]
    assert len(encoded[0]) == 68
    assert sha(encoded[0]).hex() == REQUEST_T1
    assert [len(slow_ledger.told_bytes(told[0])) for told in ledger.transactions[:2]] == [129, 142]
    assert slow_ledger.state_root({}).hex() == EMPTY_STATE
    assert slow_ledger.bucket_root(7, ledger.states[3]).hex() == CROWD_ROOT


def test_the_page_has_the_vectors(ledger: SlowLedger) -> None:
    page = PAGE.read_text("utf-8")
    vectors = [*list(ROOTS.values())[2:], EMPTY_STATE, REQUEST_T1, *TRANSACTIONS, *STATES, *BLOCKS, CROWD_ROOT]
    vectors += [entry_hash(Entry(key, *ledger.states[3][key])).hex() for key in map(str.encode, slow_ledger.CROWD)]
    related = relationship_key("doc:readme", "viewer", "user:1")
    for key, height in ((b"user:1", 1), (related, 1), (b"user:1", 2)):
        vectors.append(entry_hash(Entry(key, *ledger.states[height][key])).hex())
    for key in (b"key:500", b"key:1479", b"key:3176", b"key:1665"):
        hashes = [slow_ledger.raw(one["hash"]["value"]) for one in slow_ledger.way(key, ledger.states[3])[1]]
        vectors += [one.hex() for one in hashes if one != bytes(32)]
    assert [vector for vector in vectors if f"`{vector}`" not in page] == []


def test_a_write_is_proved(ledger: SlowLedger) -> None:
    answer = ledger.written(1)
    proved = verify_write(answer, None, at(ledger, 1))
    assert (proved.transaction.client_id, proved.transaction.sequence, proved.header.height) == (b"app-1", 1, 1)
    assert verify_write(json.dumps(answer), None, at(ledger, 1)) == proved
    assert verify_write(json.dumps(answer).encode(), None, at(ledger, 1)) == proved
    facts = answer["success"]
    verify_inclusion(facts["transaction"], facts["txProof"], facts["blockHeader"])
    verify_header_hash(facts["blockHeader"], ledger.hashes[0])
    verify_block(ledger.block(1))
    plain = {name: facts[name] for name in ("transaction", "blockHeight", "blockHeader", "txProof")}
    assert verify_write(plain, None, at(ledger, 1)) == proved


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_every_transaction_of_a_larger_block_is_proved(count: int) -> None:
    ledger = SlowLedger(vault=0)
    requests = [request_of(number, f"c{number}", 1, "a", set_entity(f"k{number}", b"")) for number in range(count)]
    ledger.commit(*requests, index=1, seconds=0)
    for number in range(count):
        assert verify_write(ledger.written(1, number), None, at(ledger, 1)).transaction.id[0] == number
    assert len(verify_whole_block({"block": ledger.block(1)}, at(ledger, 1))) == count


def test_a_proof_of_any_kind_is_verified_and_told(ledger: SlowLedger) -> None:
    viewer = ("doc:readme", "viewer", "user:1")
    written, block = ledger.written(1), {"block": ledger.block(1)}
    read, related = ledger.read(b"user:1", 1), ledger.related(viewer, 1)
    words = {
        "transaction": (written, "of app-1 (sequence 1, actor client:app-1) is in it"),
        "block": (block, "these are all of it: one transaction"),
        "value": (read, "user:1 has a value of 5 bytes set by block 1"),
        "relationship": (related, "the relationship doc:readme viewer user:1 is there, created by block 1"),
    }
    for kind, (answer, end) in words.items():
        found = finding_of(verify_answer(answer, at(ledger, 1)))
        assert (found.facts["kind"], found.header.height) == (kind, 1)
        assert found.words.endswith(end)
    assert verify_answer(read, at(ledger, 1), key="user:1") == verify_read(read, "user:1", at(ledger, 1))
    gone = finding_of(verify_answer(ledger.related(viewer, 2), at(ledger, 2), relationship=viewer))
    assert (gone.facts["present"], gone.words.startswith("there is no relationship")) == (False, True)


def test_a_proof_about_something_else_is_refused(ledger: SlowLedger) -> None:
    written, block, read = ledger.written(1), {"block": ledger.block(1)}, ledger.read(b"user:1", 1)
    for answer in (written, block):
        with pytest.raises(ProofError, match="not a proof of a key"):
            verify_answer(answer, at(ledger, 1), key="user:1")
        with pytest.raises(ProofError, match="not a proof of a relationship"):
            verify_answer(answer, at(ledger, 1), relationship=("a", "b", "c"))
    for answer in (read, block):
        with pytest.raises(ProofError, match="does not prove a write"):
            verify_answer(answer, at(ledger, 1), request=REQUEST_OF_T2)


REQUEST_OF_T2: Json = {
    "clientId": "app-1",
    "sequence": 2,
    "idempotencyKey": "AAAAAAAAAAAAAAAAAAAAAQ==",
    "includeTxProof": True,
    "operations": [
        {"setEntity": {"key": "user:1", "value": "Ym9i", "expiresAt": 1767312000, "condition": {"version": 1}}},
        {"deleteEntity": {"key": "user:9"}},
        {"deleteRelationship": {"resource": "doc:readme", "relation": "viewer", "subject": "user:1"}},
    ],
}


def changed(change: Callable[[Json], object]) -> Json:
    request: Json = json.loads(json.dumps(REQUEST_OF_T2))
    change(request)
    return request


@pytest.mark.parametrize(
    "request_",
    [
        REQUEST_OF_T2,
        changed(lambda request: request.update(clientId={"id": "app-1"}, sequence="2")),
        changed(lambda request: request.pop("sequence")),
        changed(lambda request: request.update(client_id=request.pop("clientId"))),
        changed(lambda request: request["operations"][0]["setEntity"].update(value="Ym9i=".rstrip("="))),
        changed(lambda request: request.update(idempotencyKey=None)),
        changed(
            lambda request: request.update(
                operations=[{"operations": request["operations"][:1]}, {"operations": request["operations"][1:]}]
            )
        ),
    ],
    ids=["as sent", "as objects", "server's sequence", "snake case", "base64", "null", "a batch"],
)
def test_a_write_is_what_was_asked_for(ledger: SlowLedger, request_: Json) -> None:
    verify_write(ledger.written(2), request_, at(ledger, 2))
    verify_write(ledger.written(2), json.dumps(request_), at(ledger, 2))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda request: request.update(clientId="app-2"), "client of the transaction differs"),
        (lambda request: request.update(sequence=3), "sequence of the transaction differs"),
        (lambda request: request["operations"].pop(), "does not have the operations of the request"),
        (lambda request: request["operations"].reverse(), "does not have the operations of the request"),
        (lambda request: request["operations"][0]["setEntity"].pop("condition"), "does not have the operations"),
        (lambda request: request.update(actor="user:1"), "has a member 'actor' that is unknown"),
        (lambda request: request.update(client_id="app-1"), "under two names"),
    ],
    ids=["client", "sequence", "fewer", "order", "condition", "unknown", "twice"],
)
def test_a_write_is_not_what_was_asked_for(ledger: SlowLedger, change: Callable[[Json], object], sentence: str) -> None:
    with pytest.raises(ProofError, match=sentence):
        verify_write(ledger.written(2), changed(change), at(ledger, 2))


def test_what_is_read_is_proved(ledger: SlowLedger) -> None:
    answer = ledger.read(b"user:1", 2)
    entry = Entry(b"user:1", b"bob", 1767312000, 2)
    assert verify_read(answer, "user:1", at(ledger, 2)).entry == entry
    assert verify_read(answer, None, at(ledger, 2)).key == b"user:1"
    parts = (answer["blockHeader"], answer["merkleProof"], answer["stateProof"])
    assert verify_state(*parts, "user:1") == verify_state(*parts, b"user:1", b"bob") == entry
    for key, value in (("user:1", b"alice"), ("user:2", None)):
        with pytest.raises(ProofError):
            verify_state(*parts, key, value)
    related = relationship_key("doc:readme", "viewer", "user:1")
    assert verify_read(ledger.read(related, 1), related, at(ledger, 1)).entry == Entry(related, b"", 0, 1)
    assert verify_read(ledger.read(related, 2), related, at(ledger, 2)).entry is None


def test_every_key_and_its_absence_in_a_large_state() -> None:
    ledger = SlowLedger(vault=0)
    keys = [f"key:{number}" for number in range(1_500)]
    ledger.commit(request_of(0, "c", 1, "a", *(set_entity(key, key.encode()) for key in keys[::2])), index=1, seconds=0)
    root = {number: slow_ledger.bucket_root(number, ledger.states[1]) for number in range(256)}
    assert len(set(root.values())) > 200
    header = ledger.headers[0]
    kinds = set()
    for key in keys[:120]:
        leaf, siblings, witness = slow_ledger.way(key.encode(), ledger.states[1])
        kinds.add((len(siblings) > 0, leaf == bytes(32), witness is not None))
        proof = state_proof(ledger, key.encode(), root, witness)
        entry = verify_state(header, {"leafHash": {"value": b64(leaf)}, "siblings": siblings}, proof, key)
        assert entry == (Entry(key.encode(), key.encode(), 0, 1) if key in keys[::2] else None)
    assert len(kinds) >= 4


def state_proof(ledger: SlowLedger, key: bytes, roots: dict[int, bytes], witness: bytes | None) -> Json:
    value, expires_at, version = ledger.states[1].get(key, (b"", 0, 0))
    bucket = seahash(key) % 256
    proof = {
        "key": b64(key),
        "value": b64(value),
        "expiresAt": str(expires_at),
        "version": str(version),
        "bucketId": bucket,
        "bucketRoot": {"value": b64(roots[bucket])},
        "otherBucketRoots": [{"value": b64(roots[number])} for number in range(256) if number != bucket],
        "blockHeight": "1",
        "stateRoot": ledger.headers[0]["stateRoot"],
    }
    if witness is not None:
        theirs = ledger.states[1][witness]
        entry = {"key": b64(witness), "value": b64(theirs[0]), "expiresAt": "0", "version": str(theirs[2])}
        proof["bucketEntries"] = [entry]
    return proof


def test_an_expired_value_is_in_the_state_and_read_by_nobody() -> None:
    ledger = SlowLedger()
    ledger.commit(request_of(0, "c", 1, "a", set_entity("k", b"v", expiresAt="100")), index=1, seconds=99)
    ledger.commit(request_of(1, "c", 2, "a", set_entity("l", b"v")), index=2, seconds=100, nanos=1)
    fresh = ledger.read(b"k", 1)
    read = verify_read(fresh, "k", at(ledger, 1))
    assert (read.is_expired, read.is_withheld) == (False, False)
    del fresh["value"]
    read = verify_read(fresh, "k", at(ledger, 1))  # it may have expired between the block and the answer
    assert (read.is_expired, read.is_withheld) == (False, True)
    assert read.entry == Entry(b"k", b"v", 100, 1)
    late = ledger.read(b"k", 2)
    with pytest.raises(ProofError, match="no readable one"):
        verify_read(late, "k", at(ledger, 2))
    del late["value"]
    read = verify_read(late, "k", at(ledger, 2))
    assert (read.is_expired, read.is_withheld) == (True, False)
    absent = verify_read(ledger.read(b"m", 2), "m", at(ledger, 2))
    assert (absent.entry, absent.is_withheld) == (None, False)
    lasting = ledger.read(b"l", 2)
    del lasting["value"]
    with pytest.raises(ProofError, match="has one that does not expire"):
        verify_read(lasting, "l", at(ledger, 2))


def test_a_key_that_is_no_text_is_refused() -> None:
    ledger = longer()
    answer = ledger.read(b"k", 1)
    for key in ("\udcff", "k\ud800"):
        with pytest.raises(ProofError, match="cannot be encoded as UTF-8"):
            verify_read(answer, key, at(ledger, 1))
        with pytest.raises(ProofError, match="cannot be encoded as UTF-8"):
            verify_state(answer["blockHeader"], answer["merkleProof"], answer["stateProof"], key)
    with pytest.raises(ProofError, match="for another key"):
        verify_read(answer, b"\xff", at(ledger, 1))


def test_a_request_may_spell_its_numbers_otherwise() -> None:
    ledger = SlowLedger()
    ledger.commit(request_of(0, "c", 7, "a", set_entity("k", b"v", expiresAt="100")), index=1, seconds=99)
    answer = ledger.written(1)
    for sequence, expires_at in ((7, 100), ("7", "100"), ("007", "0100"), (7.0, 1e2)):
        operation = {"set_entity": {"key": "k", "value": "dg", "expires_at": expires_at}}
        request = {"client_id": {"id": "c"}, "sequence": sequence, "operations": [operation]}
        verify_write(answer, request, at(ledger, 1))
        with pytest.raises(ProofError, match="sequence of the transaction differs"):
            verify_write(answer, request | {"sequence": 8}, at(ledger, 1))
    for odd in ("x", "", 7.5, -7, True):
        with pytest.raises(ProofError):
            verify_write(answer, {"clientId": "c", "sequence": odd, "operations": []}, at(ledger, 1))


def longer() -> SlowLedger:
    ledger = SlowLedger()
    for number in range(1, 8):
        operation = set_entity("k", bytes([number]))
        ledger.commit(
            request_of(number, "c", number, "a", operation), index=number * 2, seconds=number // 2, term=number // 3
        )
    return ledger


def test_chains_lead_up_and_down() -> None:
    ledger = longer()
    for trusted in range(1, 8):
        for height in range(1, 8):
            links = ledger.chain(min(trusted, height), max(trusted, height))["headers"]
            verify_chain(ledger.hashes[trusted - 1], trusted, links, ledger.headers[height - 1])


def test_nothing_is_trusted_before_the_first_block() -> None:
    """Every chain begins there, those that somebody made up too."""
    ledger = longer()
    with pytest.raises(ProofError, match="Height 0 cannot be trusted"):
        verify_chain(bytes(32), 0, ledger.chain(0, 3)["headers"], ledger.headers[2])


def shifted(ledger: SlowLedger, number: int, /, **members: Any) -> Json:
    return {**ledger.headers[number - 1], **members}


CHAINS: dict[str, tuple[Callable[[SlowLedger, list[Json]], object], str]] = {
    "a hole": (lambda ledger, links: links.pop(1), "The chain has height 5 where 4 should be."),
    "twice": (lambda ledger, links: links.insert(1, links[0]), "The chain has height 3 where 4 should be."),
    "backwards": (lambda ledger, links: links.reverse(), "The chain has height 6 where 3 should be."),
    "too short": (lambda ledger, links: links.pop(), "The chain does not end with the header to prove."),
    "nothing": (
        lambda ledger, links: links.clear(),
        "No header links the trusted block at height 2 to the block at 6.",
    ),
    "one more": (lambda ledger, links: links.append(ledger.headers[6]), "The chain does not end with the header"),
    "the trusted one": (lambda ledger, links: links.insert(0, ledger.headers[1]), "has height 2 where 3 should be"),
    "another block": (
        lambda ledger, links: links.__setitem__(1, shifted(ledger, 4, term="9")),
        "The header at height 5 does not have the hash of the block before it.",
    ),
    "its genesis": (
        lambda ledger, links: links.__setitem__(0, shifted(ledger, 3, height="0")),
        r"headers\[0\].height is 0, but the first block",
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_is_refused(name: str) -> None:
    ledger = longer()
    links = ledger.chain(2, 6)["headers"]
    change, sentence = CHAINS[name]
    change(ledger, links)
    with pytest.raises(ProofError, match=sentence):
        verify_chain(ledger.hashes[1], 2, links, ledger.headers[5])


def test_a_chain_needs_a_real_anchor() -> None:
    ledger = longer()
    links = ledger.chain(2, 6)["headers"]
    for hash_of, height in ((ledger.hashes[1][:31], 2), (bytes(32), 2), (ledger.hashes[1], -1), (ledger.hashes[1], 3)):
        with pytest.raises(ProofError):
            verify_chain(hash_of, height, links, ledger.headers[5])
    with pytest.raises(ProofError, match="below the trusted block at 7"):
        verify_chain(ledger.hashes[6], 7, links[:-1], ledger.headers[1])


@pytest.mark.parametrize(
    ("later", "sentence"),
    [
        ({"index": 1}, "goes back"),
        ({"term": 0}, "goes back"),
        ({"seconds": 4}, "goes back"),
    ],
    ids=["index", "term", "time"],
)
def test_a_chain_that_goes_back_in_time_is_refused(later: Json, sentence: str) -> None:
    """Each link fits, and yet no server makes such blocks."""
    ledger = SlowLedger()
    usual = {"index": 2, "term": 1, "seconds": 5}
    for number, facts in enumerate(({**usual, "index": 1}, usual, {**usual, "index": 3, **later})):
        ledger.commit(request_of(number, "c", number + 1, "a", set_entity("k", b"")), **facts)
    with pytest.raises(ProofError, match=sentence):
        verify_chain(ledger.hashes[0], 1, ledger.chain(1, 3)["headers"], ledger.headers[2])
    with pytest.raises(ProofError, match=sentence):
        verify_chain(ledger.hashes[2], 3, ledger.chain(2, 3)["headers"], ledger.headers[1])


def test_a_scope_is_kept_to(ledger: SlowLedger) -> None:
    verify_write(ledger.written(2), None, Trusted(2, ledger.hashes[1], 7001, 9001))
    for organization, vault in ((7002, 9001), (7001, 9002), (7001, 0)):
        with pytest.raises(ProofError, match=r"The header is of (organization|vault)"):
            verify_write(ledger.written(2), None, Trusted(2, ledger.hashes[1], organization, vault))


def test_blocks_are_refused(ledger: SlowLedger) -> None:
    block = ledger.block(2)
    with pytest.raises(ProofError, match="came without its transactions"):
        verify_block({"header": block["header"]})
    with pytest.raises(ProofError, match="occurs twice"):
        verify_block({**block, "transactions": block["transactions"] * 2})
    with pytest.raises(ProofError, match="do not give its txMerkleRoot"):
        verify_block({**block, "header": {**ledger.headers[0], "timestamp": block["header"]["timestamp"]}})
    with pytest.raises(ProofError, match="do not have the same timestamp"):
        verify_block({**block, "header": ledger.headers[0]})


def test_sequences_in_a_block_are_consecutive() -> None:
    ledger = SlowLedger()
    requests = [request_of(number, "c", number, "a", set_entity("k", b"")) for number in (1, 2, 4)]
    ledger.commit(*requests, index=1, seconds=0)
    with pytest.raises(ProofError, match="not consecutive"):
        verify_block(ledger.block(1))


def test_no_more_steps_than_a_tree_can_have(ledger: SlowLedger) -> None:
    step = {"hash": {"value": b64(bytes(32))}, "direction": "DIRECTION_LEFT"}
    answer = ledger.written(1)
    answer["success"]["txProof"]["siblings"] = [step] * 33
    with pytest.raises(ProofError, match="has 33 members, more than the limit of 32"):
        verify_write(answer, None, at(ledger, 1))
    read = ledger.read(b"key:58", 3)
    read["merkleProof"]["siblings"] = [step] * 257
    with pytest.raises(ProofError, match="has 257 members, more than the limit of 256"):
        verify_read(read, None, at(ledger, 3))
    for count in (254, 256):
        read = ledger.read(b"key:58", 3)
        read["stateProof"]["otherBucketRoots"] = [{"value": b64(bytes(32))}] * count
        with pytest.raises(ProofError, match=f"has {count} members instead of 255"):
            verify_read(read, None, at(ledger, 3))


def test_absence_cannot_be_made_up(ledger: SlowLedger) -> None:
    """Of a key that is there: with nothing in its place, or with a neighbour whose proof is sound."""
    present, absent = ledger.read(b"key:500", 3), ledger.read(b"key:1665", 3)
    del present["value"]
    nobody = {**present["stateProof"], "value": "", "version": "0"}
    parts = (present["blockHeader"], present["merkleProof"])
    with pytest.raises(ProofError, match="does not say which entry is at the place"):
        verify_state(*parts, nobody, "key:500")
    with pytest.raises(ProofError, match="must be another key of the same bucket"):
        verify_state(*parts, {**nobody, "bucketEntries": absent["stateProof"]["bucketEntries"]}, "key:500")
    other = ledger.read(b"key:58", 3)
    entry = {name: other["stateProof"][name] for name in ("key", "value", "expiresAt", "version")}
    with pytest.raises(ProofError, match="is not on its path"):
        verify_state(parts[0], other["merkleProof"], {**nobody, "bucketEntries": [entry]}, "key:500")
    empty = {"leafHash": {"value": b64(bytes(32))}}
    with pytest.raises(ProofError, match="does not lead to its bucketRoot"):
        verify_state(parts[0], empty, nobody, "key:500")


def test_a_value_from_after_the_block_is_refused(ledger: SlowLedger) -> None:
    """A header says nothing about its own height but by the hash of the chain; so a version above it is a lie."""
    answer = ledger.read(b"key:500", 3)
    version = int(answer["stateProof"]["version"])
    earlier = str(version - 1)
    header = {**answer["blockHeader"], "height": earlier}
    with pytest.raises(ProofError, match="above the height of the block"):
        verify_state(header, answer["merkleProof"], {**answer["stateProof"], "blockHeight": earlier}, "key:500")


def test_sides_follow_the_key(ledger: SlowLedger) -> None:
    """A neighbour's proof does not serve for another place, even where the hashes are the same."""
    answer = ledger.read(b"key:500", 3)
    answer["merkleProof"]["siblings"].reverse()
    with pytest.raises(ProofError, match="not on the side that the key requires"):
        verify_read(answer, None, at(ledger, 3))


def test_it_needs_python_alone() -> None:
    probe = (
        "import sys, semel.client.proofs\n"
        "print([name for name in sys.modules if name.startswith(('semel.surfaces', 'semel.server', 'semel.store'))])"
    )
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout == "[]\n"
    folder = Path(__file__).parent.parent.parent / "src/semel/client/proofs"
    lines = [line for path in folder.glob("*.py") for line in path.read_text("utf-8").splitlines()]
    imported = {line.split()[1] for line in lines if line.startswith(("import ", "from "))}
    foreign = {name for name in imported if name.partition(".")[0] not in sys.stdlib_module_names}
    assert {name for name in foreign if not name.startswith("semel.client.proofs")} == {"semel.client.errors"}


def test_hashes_of_other_lengths_are_refused(ledger: SlowLedger) -> None:
    for content in (bytes(31), bytes(33), b""):
        header = shifted(ledger, 2, stateRoot={"value": b64encode(content).decode()})
        with pytest.raises(ProofError, match=r"header\.stateRoot is not a hash of 32 bytes"):
            block_hash(header)
