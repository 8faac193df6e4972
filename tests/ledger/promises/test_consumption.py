"""What each outcome uses up: a sequence, a key, a block; and nothing for whatever was not committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.ledger.rig import Ledger
from tests.ledger.words import Place, expire, fresh, new_key, put, refused, relate


class Stream(NamedTuple):
    """A client that has committed one transaction with a key."""

    ledger: Ledger
    place: Place
    client: str
    key: bytes

    @property
    def used(self) -> tuple[int, int, int]:
        """The last sequence, the tip, and the length of the organization's log."""
        ledger, place = self.ledger, self.place
        return ledger.last(place, self.client), ledger.height(place), ledger.entries(place)


@pytest.fixture
def stream(ledger: Ledger, place: Place) -> Stream:
    client, key = fresh("client"), new_key()
    ledger.commit(place, client, put("a", b"1"), sequence=1, key=key)
    return Stream(ledger, place, client, key)


def test_a_commit_takes_a_sequence_a_key_and_a_block(stream: Stream) -> None:
    ledger, place, client, _ = stream
    last, height, entries = stream.used
    key = new_key()
    first = ledger.commit(place, client, put("b", b"2"), sequence=2, key=key)
    assert stream.used == (last + 1, height + 1, entries + 1)
    ledger.check_replay(ledger.write(place, client, put("b", b"2"), key=key), first)
    ledger.commit(place, client, put("b", b"3"), key=new_key())
    assert stream.used == (last + 2, height + 2, entries + 2)


JUDGED: dict[str, Callable[[Stream], str]] = {
    "replay-by-key": lambda s: s.ledger.write(s.place, s.client, put("a", b"1"), key=s.key).code,
    "replay-by-sequence": lambda s: s.ledger.write(s.place, s.client, put("a", b"1"), sequence=1).code,
    "already-committed": lambda s: s.ledger.write(s.place, s.client, put("a", b"1"), sequence=2, key=s.key).code,
    "gap": lambda s: s.ledger.write(s.place, s.client, put("b"), sequence=3, key=new_key()).code,
    "key-reused": lambda s: s.ledger.write(s.place, s.client, put("b"), sequence=2, key=s.key).code,
    "sequence-reused": lambda s: s.ledger.write(s.place, s.client, put("b"), sequence=1).code,
    "condition": lambda s: s.ledger.write(s.place, s.client, put("a", not_exists=True), sequence=2).code,
}


@pytest.mark.parametrize("case", JUDGED)
def test_what_is_judged_and_not_committed_takes_nothing(stream: Stream, case: str) -> None:
    before = stream.used
    code = JUDGED[case](stream)
    assert (code == "OK") <= case.startswith("replay"), code
    assert stream.used == before
    assert stream.ledger.commit(stream.place, stream.client, put("b", b"2"), sequence=2).facts[1:] == (2, 2)


@pytest.mark.parametrize("case", ["gap", "condition", "validation", "permission"])
def test_a_key_that_was_not_committed_is_not_remembered(stream: Stream, case: str) -> None:
    """Another payload may use it."""
    ledger, place, client, _ = stream
    key = new_key()
    if case == "gap":
        assert ledger.write(place, client, put("b"), sequence=9, key=key).code == "SEQUENCE_GAP"
    elif case == "condition":
        assert ledger.write(place, client, put("a", not_exists=True), key=key).code == "KEY_EXISTS"
    elif case == "validation":
        with refused("INVALID_ARGUMENT"):
            ledger.write(place, client, relate("doc#1", "viewer", "user:1"), key=key)
    else:
        with refused("PERMISSION_DENIED"):
            ledger.write(place, client, expire("a"), key=key)
    assert ledger.commit(place, client, put("c", b"3"), key=key).facts[1:] == (2, 2)


def test_an_already_committed_sequence_is_still_free(stream: Stream) -> None:
    """A key sent with the next sequence does not use it up."""
    ledger, place, client, key = stream
    assert ledger.write(place, client, put("a", b"1"), sequence=2, key=key).code == "ALREADY_COMMITTED"
    assert ledger.last(place, client) == 1
    assert ledger.commit(place, client, put("b", b"2"), sequence=2, key=new_key()).sequence == 2


def test_both_modes_share_one_counter(stream: Stream) -> None:
    ledger, place, client, _ = stream
    told = [
        ledger.commit(place, client, put("b", b"2"), key=new_key()),
        ledger.commit(place, client, put("b", b"3"), sequence=3),
        ledger.commit(place, client, put("b", b"4"), key=new_key()),
        ledger.commit(place, client, put("b", b"5"), sequence=5, key=new_key()),
    ]
    assert [one.sequence for one in told] == [2, 3, 4, 5]
    assert ledger.write(place, client, put("b", b"6"), sequence=7).last == 5


def test_every_key_of_a_stream_is_remembered(stream: Stream) -> None:
    """Not only the last one."""
    ledger, place, client, _ = stream
    keys = [new_key() for _ in range(12)]
    first = [ledger.commit(place, client, put("n", str(number)), key=key) for number, key in enumerate(keys)]
    for number, key in reversed(list(enumerate(keys))):
        ledger.check_replay(ledger.write(place, client, put("n", str(number)), key=key), first[number])


def test_keys_belong_to_one_client_of_one_scope(ledger: Ledger) -> None:
    org, key = ledger.new_org(), new_key()
    places = [org, ledger.new_vault(org), ledger.new_vault(org)]
    told = [ledger.commit(place, client, put(client), key=key) for place in places for client in ("ann", "bob")]
    assert len({one.tx for one in told}) == 6
    assert {one.sequence for one in told} == {1}
