"""No bit of a proof, a header or a transaction can be turned without being found out, from a trusted block hash."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from semel.client.proofs import ProofError, Trusted, verify_block, verify_read, verify_whole_block, verify_write
from semel.client.proofs.blocks import headed
from semel.client.proofs.documents import Part
from semel.client.proofs.shapes import MAX_STATE_SIBLINGS, read_merkle_proof, read_state_proof
from semel.client.proofs.state import proved
from tests.client.flips import flips, turned
from tests.client.slow_ledger import Json, SlowLedger, relate, request_of, set_entity, three_blocks

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
    tried, passed = 0, []
    for change in flips(document, skipped):
        tried += 1
        try:
            verify()
        except ProofError as error:
            sentence = str(error)
            assert sentence.endswith("."), sentence
        else:
            passed.append(change)
    verify()
    return tried, passed


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
    tried, passed = unnoticed(answer, partial(verify_write, answer, None, trusted))
    assert tried > 2_000
    assert not passed


def test_a_write_of_every_operation_among_others() -> None:
    ledger = SlowLedger(vault=0)
    others = [request_of(number, "app-2", number, "client:x", set_entity(f"n{number}", b"")) for number in (1, 2, 3, 4)]
    ledger.commit(*others[:2], many_operations(), *others[2:], index=3, seconds=-1, nanos=999_999_999)
    answer = ledger.written(1, 2)
    assert len(answer["success"]["txProof"]["siblings"]) == 3
    tried, passed = unnoticed(answer, partial(verify_write, answer, None, Trusted(1, ledger.hashes[0])))
    assert tried > 3_000
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
    tried, passed = unnoticed(answer, partial(verify_read, answer, key, trusted), frozenset({"otherBucketRoots"}))
    assert tried > 2_000
    assert not passed
    for root in answer["stateProof"]["otherBucketRoots"]:
        kept, root["value"] = root["value"], next(iter(flipped(root["value"])))
        with pytest.raises(ProofError, match="256 bucket roots"):
            verify_read(answer, key, trusted)
        root["value"] = kept


def flipped(text: str) -> list[str]:
    document = {"value": text}
    return [document["value"] for _ in flips(document)]


@pytest.mark.parametrize("name", ["deep in its bucket", "absent, its bucket empty", "absent, another in its place"])
def test_every_bit_of_the_other_buckets(ledger: SlowLedger, name: str) -> None:
    key, height = READS[name]
    answer = ledger.read(key, height)
    header = headed(Part.of(answer["blockHeader"], "header"))
    way = read_merkle_proof(Part.of(answer["merkleProof"], "way"), MAX_STATE_SIBLINGS)
    state = read_state_proof(Part.of(answer["stateProof"], "state"))
    roots = state.other_bucket_roots
    tried = 0
    for at, root in enumerate(roots):
        for other in turned(root):
            changed = state._replace(other_bucket_roots=(*roots[:at], other, *roots[at + 1 :]))
            with pytest.raises(ProofError, match="256 bucket roots"):
                proved(header, way, changed, key)
            tried += 1
    assert tried == 255 * 256


@pytest.mark.parametrize(("trusted", "wanted"), [(1, 3), (2, 3), (3, 1), (2, 2)], ids=str)
def test_a_chain(ledger: SlowLedger, trusted: int, wanted: int) -> None:
    answer = ledger.written(wanted)["success"]
    if trusted != wanted:
        answer["chainProof"] = ledger.chain(min(trusted, wanted), max(trusted, wanted))
    document = {"success": answer}
    anchor = Trusted(trusted, ledger.hashes[trusted - 1])
    tried, passed = unnoticed(document, partial(verify_write, document, None, anchor))
    assert tried > 2_000
    assert not passed
