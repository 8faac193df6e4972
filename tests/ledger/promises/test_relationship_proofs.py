"""Relationships are proved as entities are: there and not there, now and at a height, over both wires."""

from __future__ import annotations

from typing import Any

import pytest

from semel.client.proofs import ProofError, Trusted, block_hash, relationship_key, verify_relationship
from tests.ledger.rig import Ledger, Site
from tests.ledger.words import Answer, Message, Place, data, fresh, put, refused, relate, unrelate

THERE = ("doc:1", "viewer", "group:1#member")
ENDED = ("doc:1", "viewer", "user:2")
NEVER = ("doc:1", "editor", "user:\u00e9")
MANY = 600
"""Enough for every bucket of the state to hold some."""


def parts(triple: tuple[str, str, str]) -> Message:
    return dict(zip(("resource", "relation", "subject"), triple, strict=True))


def proof_of(ledger: Ledger, place: Place, triple: tuple[str, str, str], **fields: Any) -> Answer:
    return ledger.ask("ListRelationships", place, **parts(triple), includeProof=True, **fields)


def document(answer: Answer) -> Message:
    """What is kept of an answer: gRPC as JSON has an empty page token besides."""
    return {name: value for name, value in answer.items() if name != "nextPageToken"}


def hash_at(ledger: Ledger, place: Place, height: int) -> bytes:
    return block_hash(ledger.block(place, height)["header"])


@pytest.fixture
def related(ledger: Ledger, place: Place) -> Place:
    """Heights 1 to 3: one relationship is there from the first on, another until the third."""
    client = fresh("client")
    ledger.commit(place, client, put("e", b"1"), relate(*THERE), relate(*ENDED), sequence=1)
    crowd = [relate(f"doc:{number}", "viewer", "user:9") for number in range(MANY)]
    ledger.commit(place, client, *crowd, sequence=2)
    ledger.commit(place, client, unrelate(*ENDED), sequence=3)
    return place


def test_e4_a_relationship_is_proved_to_be_there_or_not_now_and_at_every_height(ledger: Ledger, related: Place) -> None:
    cases = [(THERE, (1, 1, 1)), (ENDED, (1, 1, 0)), (NEVER, (0, 0, 0)), (("doc:7", "viewer", "user:9"), (0, 2, 2))]
    for triple, versions in cases:
        for at, version in ((None, versions[2]), *enumerate(versions, 1)):
            answer = proof_of(ledger, related, triple, atHeight=None if at is None else str(at))
            height = at or 3
            proved = verify_relationship(document(answer), triple, Trusted(height, hash_at(ledger, related, height)))
            assert (0 if proved.entry is None else proved.entry.version) == version
            assert proved[:3] == triple
            assert answer.get("relationships", []) == ([parts(triple)] if version else [])
            assert answer["blockHeight"] == str(height) == answer["stateProof"]["blockHeight"]
            assert data(answer["stateProof"]["key"]) == relationship_key(*triple)
            assert "chainProof" not in answer
            with pytest.raises(ProofError):
                verify_relationship(document(answer), triple, Trusted(height, bytes(32)))


def test_e4_the_proof_of_a_relationship_leads_from_a_trusted_height(ledger: Ledger, related: Place) -> None:
    trusted = Trusted(1, hash_at(ledger, related, 1))
    for triple in (THERE, ENDED):
        answer = proof_of(ledger, related, triple, includeChainProof=True, trustedHeight="1")
        assert [header["height"] for header in answer["chainProof"]["headers"]] == ["2", "3"]
        proved = verify_relationship(document(answer), None, trusted)
        assert (proved[:3], proved.entry is not None) == (triple, triple == THERE)


def test_e4_both_wires_prove_a_relationship_with_the_same_document(site: Site) -> None:
    http, grpc = site.ledger("http"), site.ledger("grpc")
    place = http.new_place()
    http.commit(place, "c", relate(*THERE), sequence=1)
    for triple in (THERE, NEVER):
        for at in (None, "1"):
            asked = {"includeChainProof": True, "trustedHeight": "1"} if at else {}
            one, other = (document(proof_of(ledger, place, triple, atHeight=at, **asked)) for ledger in (http, grpc))
            assert one == other


def test_e4_a_proof_is_about_one_relationship_in_a_vault(ledger: Ledger, related: Place) -> None:
    for left_out in ("resource", "relation", "subject"):
        named = {name: value for name, value in parts(THERE).items() if name != left_out}
        with refused("INVALID_ARGUMENT", "3203"):
            ledger.ask("ListRelationships", related, includeProof=True, **named)
    wrong: list[Message] = [
        {"limit": 1},
        {"pageToken": "AAAA"},
        {"atHeight": "4"},
        {"includeChainProof": True, "trustedHeight": "4"},
        {"resource": "no-type"},
        {"resource": "doc:1#x"},
        {"subject": "user:1#"},
        {"relation": "r" * 65},
    ]
    for fields in wrong:
        with refused("INVALID_ARGUMENT", "3203"):
            ledger.ask("ListRelationships", related, **(parts(THERE) | {"includeProof": True} | fields))
    with refused("INVALID_ARGUMENT", "3203"):
        proof_of(ledger, related.whole, THERE)
    with refused("INVALID_ARGUMENT", "3203"):
        ledger.ask("ListRelationships", related, **parts(THERE), trustedHeight="1")


def test_e4_a_height_that_is_no_longer_kept_cannot_be_proved(ledger: Ledger) -> None:
    place, client = ledger.new_vault(ledger.new_org(), keep=2), fresh("client")
    for number in range(1, 7):
        ledger.commit(place, client, relate("doc:1", "viewer", f"user:{number}"), sequence=number)
    triple = ("doc:1", "viewer", "user:5")
    for height, is_there in ((5, True), (4, False)):
        answer = proof_of(ledger, place, triple, atHeight=str(height))
        proved = verify_relationship(document(answer), triple, Trusted(height, hash_at(ledger, place, height)))
        assert (proved.entry is not None) == is_there
    with refused("FAILED_PRECONDITION"):
        proof_of(ledger, place, triple, atHeight="3")
