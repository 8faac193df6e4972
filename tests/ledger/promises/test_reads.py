"""Reads: what is visible, at which height, many keys at once, blocks, transactions, and reads with proofs."""

from __future__ import annotations

import hashlib
import time

import pytest

from tests.ledger import hashes
from tests.ledger.rig import LINEARIZABLE, Ledger, Site, SiteOf
from tests.ledger.words import WIRES, Message, Place, data, fresh, new_key, put, refused, relate, remove, text

HISTORY = [b"one", b"two", None, b"four"]
"""What the key holds at heights 1 to 4."""
KEY = "the/key é"


@pytest.fixture
def told(ledger: Ledger, place: Place) -> Place:
    """A place whose key has a history."""
    client = fresh("client")
    for value in HISTORY:
        ledger.commit(place, client, remove(KEY) if value is None else put(KEY, value), key=new_key())
    return place


def test_a_read_tells_value_height_and_version(ledger: Ledger, place: Place) -> None:
    client, later = fresh("client"), int(time.time()) + 10_000
    ledger.commit(place, client, put("a", b"1", expires_at=later), sequence=1)
    ledger.commit(place, client, put("b", b"2"), sequence=2)
    found = ledger.ask("Read", place, key="a")
    assert found == {"value": text(b"1"), "blockHeight": "2", "version": "1", "expiresAt": str(later)}
    other = ledger.ask("Read", place, key="b", consistency=LINEARIZABLE)
    assert (other["value"], other["version"], other["blockHeight"]) == (text(b"2"), "2", "2")
    assert "value" not in ledger.ask("Read", place, key="c")


def test_an_empty_value_is_there(ledger: Ledger, place: Place) -> None:
    ledger.commit(place, "c", put("a", b""), sequence=1)
    assert ledger.ask("Read", place, key="a")["value"] == ""


def test_an_expired_entity_is_not_visible(ledger: Ledger, place: Place) -> None:
    client, past = fresh("client"), int(time.time()) - 100
    ledger.commit(place, client, put("old", b"1", expires_at=past), put("never", b"2", expires_at=0), sequence=1)
    assert (ledger.value(place, "old"), ledger.value(place, "never")) == (None, b"2")
    assert ledger.value(place, "old", at=1) is None


def test_an_entity_that_expires_was_there_before(site_of: SiteOf) -> None:
    """A read of the past compares with the time of that block. It takes a while, so one server is asked both ways."""
    clients = [site_of("sqlite").ledger(via) for via in WIRES]
    ledger, place = clients[0], clients[0].new_place()
    soon = int(time.time()) + 3
    ledger.commit(place, "c", put("soon", b"1", expires_at=soon), sequence=1)
    stored_at = hashes.instant(ledger.block(place, 1)["header"]["timestamp"])[0]
    expected = b"1" if stored_at < soon else None
    assert [client.value(place, "soon", at=1) for client in clients] == [expected] * 2
    time.sleep(max(0.0, soon + 0.2 - time.time()))
    ledger.commit(place, "c", put("x"), sequence=2)
    for client in clients:
        assert client.value(place, "soon") is None
        assert client.value(place, "soon", at=1) == expected
        assert client.value(place, "soon", at=2) is None


def test_a_read_of_the_past(ledger: Ledger, told: Place) -> None:
    assert [ledger.value(told, KEY, at=height) for height in (1, 2, 3, 4)] == HISTORY
    assert ledger.value(told, "never", at=4) is None
    found = ledger.ask("HistoricalRead", told, key=KEY, atHeight="2")
    assert (data(found["value"]), found["blockHeight"]) == (b"two", "2")


def test_heights_that_cannot_be_read(ledger: Ledger, told: Place) -> None:
    with refused("INVALID_ARGUMENT", "3203"):
        ledger.ask("HistoricalRead", told, key=KEY, atHeight="5")
    with refused("INVALID_ARGUMENT", "3203"):
        ledger.ask("VerifiedRead", told, key=KEY, atHeight="5")
    with refused("INVALID_ARGUMENT", "3203"):
        ledger.ask("ListEntities", told, atHeight="5")
    if ledger.via == "grpc":
        with refused("INVALID_ARGUMENT", "3203"):
            ledger.ask("HistoricalRead", told, key=KEY, atHeight="0")
    assert ledger.ask("ListEntities", told, atHeight="0")["blockHeight"] == "4"
    assert ledger.ask("VerifiedRead", told, key=KEY, atHeight="0")["blockHeight"] == "4"


def test_many_keys_at_once(ledger: Ledger, told: Place) -> None:
    ledger.commit(told, "c", put("other", b""), sequence=1)
    answer = ledger.ask("BatchRead", told, keys=[KEY, "missing", "other", KEY], consistency=LINEARIZABLE)
    assert answer["blockHeight"] == "5"
    found = [(one["key"], one["found"], one.get("value")) for one in answer["results"]]
    four = (KEY, True, text(b"four"))
    assert found == [four, ("missing", False, None), ("other", True, ""), four]
    assert [one.get("version") for one in answer["results"]] == ["4", None, "5", "4"]


def test_blocks_that_are_not_there(ledger: Ledger, told: Place) -> None:
    assert "block" not in ledger.ask("GetBlock", told, height="5")
    assert "block" not in ledger.ask("GetBlock", told, height="0")
    answer = ledger.ask("GetBlockRange", told, startHeight="3", endHeight="9")
    assert [block["header"]["height"] for block in answer["blocks"]] == ["3", "4"]
    assert answer["currentTip"] == "4"
    beyond = ledger.ask("GetBlockRange", told, startHeight="8", endHeight="9")
    assert (beyond.get("blocks", []), beyond["currentTip"]) == ([], "4")


# -- with proofs ------------------------------------------------------------------------------------------------------


def check_state_proof(answer: Message, key: str, value: bytes | None) -> None:
    """The parts agree with one another; the offline verifier has tests of its own."""
    proof, header = answer["stateProof"], answer["blockHeader"]
    assert (data(proof["key"]), proof["blockHeight"]) == (key.encode(), header["height"])
    assert answer["blockHeight"] == header["height"]
    assert proof["stateRoot"] == header["stateRoot"]
    assert len(proof["otherBucketRoots"]) == 255
    roots = [data(root["value"]) for root in proof["otherBucketRoots"]]
    roots.insert(proof["bucketId"], data(proof["bucketRoot"]["value"]))
    assert hashlib.sha256(b"".join(roots)).digest() == data(header["stateRoot"]["value"])
    assert data(proof["value"]) == (value or b"")
    assert (proof["version"] != "0") is (value is not None)
    assert (data(answer["value"]) if "value" in answer else None) == value


def test_a_read_with_a_proof(ledger: Ledger, told: Place) -> None:
    ledger.commit(told, "c", *[put(f"n{number}", b"x") for number in range(20)], sequence=1)
    for key, value in ((KEY, b"four"), ("n7", b"x"), ("missing", None)):
        answer = ledger.ask("VerifiedRead", told, key=key)
        check_state_proof(answer, key, value)
        assert answer["blockHeader"] == ledger.block(told, 5)["header"]
        assert "chainProof" not in answer
    for height, value in enumerate(HISTORY, start=1):
        answer = ledger.ask("VerifiedRead", told, key=KEY, atHeight=str(height))
        check_state_proof(answer, KEY, value)
        assert answer["blockHeader"] == ledger.block(told, height)["header"]


def test_a_read_with_a_chain_from_a_trusted_height(ledger: Ledger, told: Place) -> None:
    """The headers above the trusted one up to the one that is proved."""
    answer = ledger.ask("VerifiedRead", told, key=KEY, includeChainProof=True, trustedHeight="1")
    headers = answer["chainProof"]["headers"]
    assert [header["height"] for header in headers] == ["2", "3", "4"]
    assert headers[-1] == answer["blockHeader"]
    hashes.check_chain(headers, hashes.block_hash(ledger.block(told, 1)["header"]))


def test_a_historical_read_with_a_proof(site: Site) -> None:
    """Over HTTP it is the same request as a verified read."""
    ledger = site.ledger("grpc")
    told = ledger.new_place()
    for number in (1, 2, 3):
        ledger.commit(told, "c", put(KEY, str(number)), sequence=number)
    answer = ledger.ask(
        "HistoricalRead",
        told,
        key=KEY,
        atHeight="2",
        includeProof=True,
        includeChainProof=True,
        trustedHeight="1",
    )
    check_state_proof(answer, KEY, b"2")
    assert [header["height"] for header in answer["chainProof"]["headers"]] == ["2"]
    bare = ledger.ask("HistoricalRead", told, key=KEY, atHeight="2")
    assert not {"merkleProof", "stateProof", "chainProof"} & set(bare)


def test_the_proof_of_an_expired_entity_is_of_what_is_stored(ledger: Ledger, place: Place) -> None:
    """Expired entities count until they are removed; they are not visible all the same."""
    ledger.commit(place, "c", put("old", b"1", expires_at=int(time.time()) - 100), sequence=1)
    answer = ledger.ask("VerifiedRead", place, key="old")
    assert "value" not in answer
    assert answer["stateProof"]["version"] == "1"
    assert answer["stateProof"]["stateRoot"] == answer["blockHeader"]["stateRoot"]


def test_relationships_are_in_the_state_root(ledger: Ledger, place: Place) -> None:
    client = fresh("client")
    ledger.commit(place, client, put("a", b"1"), sequence=1)
    ledger.commit(place, client, relate("doc:1", "viewer", "user:1"), sequence=2)
    ledger.commit(place, client, relate("doc:1", "viewer", "user:1"), sequence=3)
    roots = [ledger.block(place, height)["header"]["stateRoot"] for height in (1, 2, 3)]
    assert roots[0] != roots[1] == roots[2]


# -- compacted vaults -------------------------------------------------------------------------------------------------


@pytest.fixture
def compacted(ledger: Ledger) -> Place:
    """Ten blocks in a vault that keeps the bodies of three."""
    place, client = ledger.new_vault(ledger.new_org(), keep=3), fresh("client")
    for number in range(1, 11):
        ledger.commit(place, client, put("k", str(number)), sequence=number)
    return place


def test_a_compacted_vault_keeps_headers_for_ever(ledger: Ledger, compacted: Place) -> None:
    blocks = [ledger.block(compacted, height) for height in range(1, 11)]
    assert [len(block.get("transactions", [])) for block in blocks] == [0] * 7 + [1] * 3
    tip = ledger.ask("GetTip", compacted)
    assert hashes.check_chain([block["header"] for block in blocks]) == data(tip["blockHash"]["value"])
    answer = ledger.ask("GetBlockRange", compacted, startHeight="1", endHeight="10")
    assert answer["blocks"] == blocks


def test_a_compacted_vault_tells_only_the_newest_past(ledger: Ledger, compacted: Place) -> None:
    assert [ledger.value(compacted, "k", at=height) for height in (7, 8, 9, 10)] == [b"7", b"8", b"9", b"10"]
    for height in ("1", "6"):
        with refused("FAILED_PRECONDITION"):
            ledger.ask("HistoricalRead", compacted, key="k", atHeight=height)
        with refused("FAILED_PRECONDITION"):
            ledger.ask("VerifiedRead", compacted, key="k", atHeight=height)
        with refused("FAILED_PRECONDITION"):
            ledger.ask("ListEntities", compacted, atHeight=height)


def test_a_compacted_commit_is_still_remembered(ledger: Ledger, compacted: Place) -> None:
    """Its body is gone; within the time to live its identity is not."""
    client = ledger.transaction(compacted, 10)["clientId"]["id"]
    told = ledger.write(compacted, client, put("k", b"1"), sequence=1)
    assert (told.code in ("OK", "ALREADY_COMMITTED"), told.height, told.sequence) == (True, 1, 1)
    assert ledger.write(compacted, client, put("k", b"x"), sequence=1).code == "IDEMPOTENCY_KEY_REUSED"
    assert ledger.height(compacted) == 10
