"""Each limit: what is at it is taken, what is one above is refused, and nothing has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.ledger.rig import Ledger, Site, serving
from tests.ledger.words import WIRES, Message, Place, fresh, new_key, put, refused, relate, remove, unrelate

MIB = 1024 * 1024


class Limit(NamedTuple):
    """Operations of a size, and the largest size that is taken."""

    make: Callable[[int], list[Message]]
    most: int


LIMITS = {
    "key": Limit(lambda size: [put("k" * size, b"v")], 1024),
    "key-in-bytes": Limit(lambda size: [put("é" * (size // 2) + "k" * (size % 2), b"v")], 1024),
    "key-of-delete": Limit(lambda size: [remove("k" * size)], 1024),
    "value": Limit(lambda size: [put("k", b"v" * size)], MIB),
    "resource": Limit(lambda size: [relate("doc:".ljust(size, "x"), "viewer", "user:1")], 512),
    "resource-in-characters": Limit(lambda size: [relate("doc:".ljust(size, "世"), "viewer", "user:1")], 512),
    "subject": Limit(lambda size: [relate("doc:1", "viewer", "user:".ljust(size, "x"))], 512),
    "relation": Limit(lambda size: [relate("doc:1", "v" * size, "user:1")], 64),
    "relation-in-characters": Limit(lambda size: [relate("doc:1", "é" * size, "user:1")], 64),
    "resource-of-delete": Limit(lambda size: [unrelate("doc:".ljust(size, "x"), "viewer", "user:1")], 512),
    "subject-of-delete": Limit(lambda size: [unrelate("doc:1", "viewer", "user:".ljust(size, "x"))], 512),
    "relation-of-delete": Limit(lambda size: [unrelate("doc:1", "v" * size, "user:1")], 64),
    "operations": Limit(lambda size: [put(f"k{number}") for number in range(size)], 1000),
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit(ledger: Ledger, place: Place, name: str) -> None:
    limit, client = LIMITS[name], fresh("client")
    with refused("INVALID_ARGUMENT", "3203"):
        ledger.write(place, client, *limit.make(limit.most + 1), sequence=1)
    with refused("INVALID_ARGUMENT", "3203"):
        ledger.batch(place, client, [put("fine")], limit.make(limit.most + 1), sequence=1)
    assert (ledger.last(place, client), ledger.height(place)) == (0, 0)
    assert ledger.commit(place, client, *limit.make(limit.most), sequence=1).height == 1


@pytest.mark.parametrize("name", ["", "c" * 257, "é" * 257], ids=["empty", "257-letters", "257-of-two-bytes"])
def test_a_client_id_that_cannot_be(ledger: Ledger, place: Place, name: str) -> None:
    for identity in ({"sequence": 1}, {"key": new_key()}):
        with refused("INVALID_ARGUMENT", "3203"):
            ledger.write(place, name, put("k"), **identity)
    assert ledger.height(place) == 0


REFUSED = {
    "control-newline": [put("a\nb")],
    "control-zero": [put("a\0b")],
    "control-unit": [put("\x1f")],
    "control-delete": [put("a\x7f")],
    "control-in-delete": [remove("a\tb")],
    "hash-in-resource": [relate("doc:1#x", "viewer", "user:1")],
    "hash-in-relation": [relate("doc:1", "view#er", "user:1")],
    "hash-in-resource-of-delete": [unrelate("doc:1#x", "viewer", "user:1")],
    "hash-in-relation-of-delete": [unrelate("doc:1", "view#er", "user:1")],
    "no-operations": [],
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_may_not_be_in_an_operation(ledger: Ledger, place: Place, name: str) -> None:
    client = fresh("client")
    with refused("INVALID_ARGUMENT", "3203"):
        ledger.write(place, client, *REFUSED[name], sequence=1)
    if REFUSED[name]:
        with refused("INVALID_ARGUMENT", "3203"):
            ledger.write(place, client, put("fine"), *REFUSED[name], sequence=1, key=new_key())
    assert (ledger.last(place, client), ledger.height(place)) == (0, 0)
    assert ledger.value(place, "fine") is None


def test_a_limit_is_told_before_anything_is_looked_at(ledger: Ledger) -> None:
    """An organization that is not there, and a request that could never be: the second counts."""
    with refused("INVALID_ARGUMENT", "3203"):
        ledger.write(Place(4_711), "c", put("k" * 1025), sequence=1)


# -- limits that are set ----------------------------------------------------------------------------------------------

SET = {
    "LEDGER_MAX_KEY_BYTES": 8,
    "LEDGER_MAX_VALUE_BYTES": 64,
    "LEDGER_MAX_OPERATIONS": 5,
    "LEDGER_MAX_PAYLOAD_BYTES": 200,
    "LEDGER_HOT_ITEMS": 1,
    "MAX_BODY_BYTES": 65_536,
}
SMALL = {
    "key": Limit(lambda size: [put("k" * size)], 8),
    "value": Limit(lambda size: [put("k", b"v" * size)], 64),
    "operations": Limit(lambda size: [put("k")] * size, 5),
    "payload": Limit(lambda size: [put("k", b"v" * 59)] * 3 + [put("k", b"v" * (size - 181))], 200),
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    env = {f"SEMEL_{name}": str(value) for name, value in SET.items()}
    with serving(tmp_path_factory.mktemp("limits") / "data", "memory", env=env) as site:
        yield site


@pytest.mark.parametrize("via", WIRES)
@pytest.mark.parametrize("name", SMALL)
def test_a_limit_that_is_set(small: Site, name: str, via: str) -> None:
    ledger, limit, client = small.ledger(via), SMALL[name], fresh("client")
    place = ledger.new_place()
    with refused("INVALID_ARGUMENT", "3203"):
        ledger.write(place, client, *limit.make(limit.most + 1), sequence=1)
    assert ledger.last(place, client) == 0
    assert ledger.commit(place, client, *limit.make(limit.most), sequence=1).height == 1


@pytest.mark.parametrize("via", WIRES)
def test_a_message_that_is_too_large_for_the_transport(small: Site, via: str) -> None:
    """It is an invalid argument over both wires, and the next request is answered."""
    ledger, client = small.ledger(via), fresh("client")
    place = ledger.new_place()
    with refused("INVALID_ARGUMENT"):
        ledger.write(place, client, put("k", b"v" * 70_000), sequence=1)
    assert ledger.last(place, client) == 0
    assert ledger.commit(place, client, put("k"), sequence=1).height == 1


@pytest.mark.parametrize("via", WIRES)
def test_a_full_memory_of_answers_changes_their_form_alone(small: Site, via: str) -> None:
    """The answer to the older write is no longer held: over gRPC its replay is the cold one."""
    ledger, client = small.ledger(via), fresh("client")
    place = ledger.new_place()
    older, newer = [ledger.commit(place, client, put("k", str(number)), sequence=number) for number in (1, 2)]
    ledger.check_hot(ledger.write(place, client, put("k", b"2"), sequence=2), newer)
    again = ledger.write(place, client, put("k", b"1"), sequence=1)
    if via == "grpc":
        ledger.check_cold(again, older)
    else:
        ledger.check_hot(again, older)
    assert ledger.height(place) == 2


# -- limits of reads --------------------------------------------------------------------------------------------------


def test_a_thousand_keys_of_one_read(ledger: Ledger, place: Place) -> None:
    keys = [f"k{number}" for number in range(1000)]
    answer = ledger.ask("BatchRead", place, keys=keys)
    assert [one["key"] for one in answer["results"]] == keys
    assert not any(one["found"] for one in answer["results"])
    with refused("INVALID_ARGUMENT", "3203"):
        ledger.ask("BatchRead", place, keys=[*keys, "one more"])


def test_a_thousand_blocks_of_one_range(ledger: Ledger, place: Place) -> None:
    ledger.commit(place, "c", put("k"), sequence=1)
    answer = ledger.ask("GetBlockRange", place, startHeight="1", endHeight="1000")
    assert (len(answer["blocks"]), answer["currentTip"]) == (1, "1")
    with refused("INVALID_ARGUMENT", "3203"):
        ledger.ask("GetBlockRange", place, startHeight="1", endHeight="1001")
    with refused("INVALID_ARGUMENT", "3203"):
        ledger.ask("GetBlockRange", place, startHeight="2", endHeight="1")
