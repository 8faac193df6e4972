"""The older dialect of gRPC: sequences where keys stand now, plain numbers for places, and its own error numbers."""

from __future__ import annotations

import pytest

from tests.ledger import calls
from tests.ledger.legacy import MUST_EXIST, NOT_EXISTS, SEQUENCE_GAP, A, B, Old, bytes_field, fields_of, set_entity
from tests.ledger.rig import Site
from tests.ledger.words import Place, new_key, put, refused


@pytest.fixture
def old(site: Site) -> Old:
    ledger = site.ledger("grpc", pinned=True)
    return Old(ledger, ledger.new_place())


def test_10_a_sequence_that_is_next_executes(old: Old) -> None:
    told = [old.write(1, A), old.write(2, B, set_entity("c", b"3"))]
    assert [(kind, fields[2], fields[5]) for kind, fields in told] == [("success", 1, 1), ("success", 2, 2)]
    assert old.ledger.value(old.place, "c") == b"3"
    transaction = old.ledger.transaction(old.place, 2)
    assert (transaction["sequence"], transaction["clientId"]) == ("2", {"id": old.client})


def test_10_a_gap_is_code_6(old: Old) -> None:
    """With the last committed sequence in field 8."""
    old.write(1, A)
    kind, error = old.write(3, B)
    assert (kind, error[1], error[8]) == ("error", SEQUENCE_GAP, 1)
    assert old.ledger.height(old.place) == 1


def test_a_gap_of_an_unknown_client(old: Old) -> None:
    kind, error = old.write(2, A)
    assert (kind, error[1], error.get(8, 0)) == ("error", SEQUENCE_GAP, 0)


def test_a_repeated_sequence_is_replayed(old: Old) -> None:
    first = old.write(1, A)
    assert old.write(1, A) == first
    assert old.ledger.height(old.place) == 1


def test_another_payload_is_a_failed_precondition(old: Old) -> None:
    """As an answer it would read as a success there."""
    old.write(1, A)
    with refused("FAILED_PRECONDITION"):
        old.write(1, B)
    assert (old.ledger.height(old.place), old.ledger.value(old.place, "b")) == (1, None)


def test_conditions_keep_their_codes(old: Old) -> None:
    old.write(1, A)
    kind, exists = old.write(2, set_entity("a", b"9", NOT_EXISTS))
    assert (kind, exists[1], exists[2], exists[3], exists[4]) == ("error", 1, b"a", 1, b"1")
    kind, missing = old.write(2, set_entity("z", b"9", MUST_EXIST))
    assert (kind, missing[1], missing[2]) == ("error", 2, b"z")
    assert old.write(2, B)[0] == "success"


@pytest.mark.parametrize("sequence", [None, 0])
def test_without_a_sequence_it_is_refused(old: Old, sequence: int | None) -> None:
    with refused("INVALID_ARGUMENT", "3203"):
        old.write(sequence, A)
    assert old.ledger.height(old.place) == 0


def test_batches_speak_it_too(old: Old) -> None:
    group = bytes_field(1, A) + bytes_field(1, B)
    kind, success = old.write(1, group, rpc="BatchWrite")
    assert (kind, success[2], success[5]) == ("success", 1, 1)
    kind, error = old.write(7, group, rpc="BatchWrite")
    assert (kind, error[1], error[8]) == ("error", SEQUENCE_GAP, 1)
    with refused("FAILED_PRECONDITION"):
        old.write(1, bytes_field(1, B), rpc="BatchWrite")


def test_the_organization_itself_is_a_scope(old: Old) -> None:
    whole = Old(old.ledger, old.place.whole)
    assert whole.write(1, A)[1][2] == 1
    assert whole.write(9, A)[1][8] == 1


def test_places_that_are_not_there(old: Old) -> None:
    with refused("NOT_FOUND", "3100"):
        Old(old.ledger, Place(4_711)).write(1, A)
    with refused("NOT_FOUND", "3101"):
        Old(old.ledger, Place(old.place.org, 4_711)).write(1, A)


def test_both_dialects_share_a_stream(old: Old) -> None:
    """One endpoint tells them apart request by request, and answers each with its own numbers."""
    ledger, place, client = old.ledger, old.place, old.client
    old.write(1, A)
    first = ledger.commit(place, client, put("b", b"2"), sequence=2, key=new_key())
    kind, success = old.write(2, B)
    assert (kind, success[5], fields_of(success[1])[1]) == ("success", 2, first.tx)
    assert ledger.write(place, client, put("c"), sequence=9).code == "SEQUENCE_GAP"
    assert ledger.write(place, client, put("c"), sequence=1).code == "IDEMPOTENCY_KEY_REUSED"
    kind, error = old.write(9, A)
    assert (kind, error[1], error[8]) == ("error", SEQUENCE_GAP, 2)


def test_a_field_4_of_bytes_is_a_key(old: Old) -> None:
    """Also an empty one, beside a sequence in today's place."""
    ledger, place, client = old.ledger, old.place, old.client
    today = calls.encoded(
        "Write", place.fields | {"clientId": {"id": client}, "operations": [put("a")], "sequence": "1"}
    )
    ledger.grpc.send("Write", today + bytes_field(4, b""))
    assert ledger.last(place, client) == 1
