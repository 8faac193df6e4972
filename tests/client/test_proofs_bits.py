"""No bit of a proof, a header or a transaction can be turned without being found out, from a trusted block hash.

A run turns a seventh of the bits, by the day.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from semel.client.proofs import (
    ProofError,
    Trusted,
    relationship_in,
    relationship_key,
    verify_block,
    verify_read,
    verify_relationship,
    verify_whole_block,
    verify_write,
)
from semel.client.proofs.blocks import headed
from semel.client.proofs.documents import ProofPart
from semel.client.proofs.hashes import split_relationship_key
from semel.client.proofs.shapes import MAX_STATE_SIBLINGS, read_merkle_proof, read_state_proof
from semel.client.proofs.state import proved
from tests.client.flips import flips, turned
from tests.client.part import is_tried
from tests.client.slow_ledger import Json, SlowLedger, relate, request_of, set_entity, three_blocks, way

READS = {
    "alone in its bucket": (b"user:1", 2),
    "deep in its bucket": (b"key:2083", 3),
    "absent, its bucket empty": (b"user:9", 3),
    "absent, nothing in its place": (b"key:3176", 3),
    "absent, another in its place": (b"key:1665", 3),
}


@pytest.fixture(scope="module")
def ledger() -> SlowLedger:
    return three_blocks()


def unnoticed(
    document: Any, verify: Callable[[], object], skipped: frozenset[str] = frozenset()
) -> tuple[int, list[str]]:
    """How many bits there are, and which of them can be turned without an error."""
    verify()
    bits, passed = 0, []
    for number, change in enumerate(flips(document, skipped)):
        bits += 1
        if not is_tried(number):
            continue
        try:
            verify()
        except ProofError as error:
            sentence = str(error)
            assert sentence.endswith("."), sentence
        else:
            passed.append(change)
    verify()
    return bits, passed


def many_operations() -> Json:
    """A transaction with everything in it."""
    return request_of(
        48,
        "app-ä",
        7,
        "system:gc",
        set_entity("a", b"", condition={"mustExists": True}),
        set_entity("b", b"\xff\x00", condition={"notExists": False}, expiresAt="5"),
        set_entity("c", b"x", condition={"valueEquals": "AAE="}),
        set_entity("d", b"y", condition={"version": "18446744073709551615"}),
        set_entity("e", b"z"),
        {"expireEntity": {"key": "é", "expiredAt": "9"}},
        relate("createRelationship", "doc:1", "owner", "group:2#member"),
        relate("deleteRelationship", "doc:2", "owner", "user:3"),
    )


@pytest.mark.parametrize("height", [1, 2, 3])
def test_a_write(ledger: SlowLedger, height: int) -> None:
    answer = ledger.written(height)
    trusted = Trusted(height, ledger.hashes[height - 1])
    bits, passed = unnoticed(answer, partial(verify_write, answer, None, trusted))
    assert bits > 2_000
    assert not passed


def test_a_write_of_every_operation_among_others() -> None:
    ledger = SlowLedger(vault=0)
    others = [request_of(number, "app-2", number, "client:x", set_entity(f"n{number}", b"")) for number in (1, 2, 3, 4)]
    ledger.commit(*others[:2], many_operations(), *others[2:], index=3, seconds=-1, nanos=999_999_999)
    answer = ledger.written(1, 2)
    assert len(answer["success"]["txProof"]["siblings"]) == 3
    bits, passed = unnoticed(answer, partial(verify_write, answer, None, Trusted(1, ledger.hashes[0])))
    assert bits > 3_000
    assert not passed
    block = {"block": ledger.block(1)}
    assert unnoticed(block, partial(verify_whole_block, block, Trusted(1, ledger.hashes[0])))[1] == []


def test_the_transactions_of_a_block_without_a_trusted_hash(ledger: SlowLedger) -> None:
    block = ledger.block(2)
    assert unnoticed(block["transactions"], partial(verify_block, block))[1] == []


@pytest.mark.parametrize("name", READS)
def test_a_read(ledger: SlowLedger, name: str) -> None:
    key, height = READS[name]
    answer = ledger.read(key, height)
    trusted = Trusted(height, ledger.hashes[height - 1])
    # The roots of the other buckets are turned bit by bit below, without reading the rest again each time.
    bits, passed = unnoticed(answer, partial(verify_read, answer, key, trusted), frozenset({"otherBucketRoots"}))
    assert bits > 2_000
    assert not passed
    for root in answer["stateProof"]["otherBucketRoots"]:
        kept, root["value"] = root["value"], next(iter(flipped(root["value"])))
        with pytest.raises(ProofError, match="256 bucket roots"):
            verify_read(answer, key, trusted)
        root["value"] = kept


Triple = tuple[str, str, str]


def triple(number: int) -> Triple:
    return f"doc:{number}", "viewer", f"user:{number}#member"


@pytest.fixture(scope="module")
def related() -> tuple[SlowLedger, dict[str, Triple]]:
    """A block with many relationships, and one for each way in which one is there or is not."""
    ledger = SlowLedger()
    there = [relate("createRelationship", *triple(number)) for number in range(100)]
    ledger.commit(request_of(0, "app-1", 1, "client:app-1", *there), index=1, seconds=1, nanos=0)
    found: dict[str, Triple] = {}
    for number in range(3_000):
        key = relationship_key(*triple(number))
        _, siblings, witness = way(key, ledger.states[1])
        presence = "present" if key in ledger.states[1] else "absent" if witness is None else "witnessed"
        found.setdefault(f"{presence}, {'among others' if siblings else 'alone'}", triple(number))
    return ledger, found


RELATED = ["present, alone", "present, among others", "witnessed, alone", "absent, alone", "absent, among others"]


@pytest.mark.parametrize("name", RELATED)
def test_e4_no_bit_of_a_relationship_with_its_proof_can_be_turned(
    related: tuple[SlowLedger, dict[str, Triple]], name: str
) -> None:
    ledger, found = related
    answer, trusted = ledger.related(found[name], 1), Trusted(1, ledger.hashes[0])
    proved_one = verify_relationship(answer, found[name], trusted)
    assert (proved_one.entry is not None) == name.startswith("present")
    assert proved_one == verify_relationship(answer, None, trusted)
    check = partial(verify_relationship, answer, found[name], trusted)
    bits, passed = unnoticed(answer, check, frozenset({"otherBucketRoots"}))
    assert bits > 2_000
    assert not passed
    for root in answer["stateProof"]["otherBucketRoots"]:
        kept, root["value"] = root["value"], next(iter(flipped(root["value"])))
        with pytest.raises(ProofError, match="256 bucket roots"):
            verify_relationship(answer, found[name], trusted)
        root["value"] = kept


def test_e4_a_proof_of_another_relationship_or_of_an_entity_is_refused(
    ledger: SlowLedger, related: tuple[SlowLedger, dict[str, Triple]]
) -> None:
    others, found = related
    there, absent = found["present, among others"], found["absent, alone"]
    trusted = Trusted(1, others.hashes[0])
    answer, gone = others.related(there, 1), others.related(absent, 1)
    refused: list[tuple[Json, Triple | None]] = [
        (answer, triple(5_000)),
        (answer, (there[0], there[1], "user:\ud800")),
        ({**answer, "relationships": []}, there),
        ({**answer, "relationships": answer["relationships"] * 2}, there),
        ({**answer, "relationships": gone.get("relationships", [{}])}, there),
        ({name: one for name, one in answer.items() if name != "relationships"}, there),
        ({**gone, "relationships": answer["relationships"]}, absent),
        ({**gone, "relationships": []}, absent),
        ({**answer, "value": ""}, there),
    ]
    for document, wanted in refused:
        with pytest.raises(ProofError):
            verify_relationship(document, wanted, trusted)
    with pytest.raises(ProofError):
        verify_read(answer, None, trusted)
    entity = ledger.read(b"user:1", 2)
    assert (relationship_in(entity), relationship_in(answer)) == (None, there)
    del entity["value"]
    with pytest.raises(ProofError, match="not about a relationship"):
        verify_relationship(entity, None, Trusted(2, ledger.hashes[1]))


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\5\0\0\0doc", relationship_key("a:1", "b", "c:1") + b"x", b"\0" * 12])
def test_e4_a_key_that_spells_no_relationship_is_none(key: bytes) -> None:
    assert split_relationship_key(key) is None


def flipped(text: str) -> list[str]:
    document = {"value": text}
    return [document["value"] for _ in flips(document)]


@pytest.mark.parametrize("name", RELATED)
def test_e4_every_bit_of_the_other_buckets_of_a_relationship(
    related: tuple[SlowLedger, dict[str, Triple]], name: str
) -> None:
    ledger, found = related
    check_other_buckets(ledger.related(found[name], 1), relationship_key(*found[name]))


@pytest.mark.parametrize("name", ["deep in its bucket", "absent, its bucket empty", "absent, another in its place"])
def test_every_bit_of_the_other_buckets(ledger: SlowLedger, name: str) -> None:
    key, height = READS[name]
    check_other_buckets(ledger.read(key, height), key)


def check_other_buckets(answer: Json, key: bytes) -> None:
    header = headed(ProofPart.of(answer["blockHeader"], "header"))
    way = read_merkle_proof(ProofPart.of(answer["merkleProof"], "way"), MAX_STATE_SIBLINGS)
    state = read_state_proof(ProofPart.of(answer["stateProof"], "state"))
    roots = state.other_bucket_roots
    bits = 0
    for at, root in enumerate(roots):
        for other in turned(root):
            bits += 1
            if not is_tried(bits):
                continue
            changed = state._replace(other_bucket_roots=(*roots[:at], other, *roots[at + 1 :]))
            with pytest.raises(ProofError, match="256 bucket roots"):
                proved(header, way, changed, key)
    assert bits == 255 * 256


@pytest.mark.parametrize(("trusted", "wanted"), [(1, 3), (2, 3), (3, 1), (2, 2)], ids=str)
def test_a_chain(ledger: SlowLedger, trusted: int, wanted: int) -> None:
    answer = ledger.written(wanted)["success"]
    if trusted != wanted:
        answer["chainProof"] = ledger.chain(min(trusted, wanted), max(trusted, wanted))
    document = {"success": answer}
    anchor = Trusted(trusted, ledger.hashes[trusted - 1])
    bits, passed = unnoticed(document, partial(verify_write, document, None, anchor))
    assert bits > 2_000
    assert not passed
