"""Entities that have expired are removed in the chain, by the server itself, and stop counting against the quota."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from semel.client import Client
from tests.cli.command import Semel
from tests.harness.together import eventually
from tests.ledger import hashes
from tests.ledger.rig import Ledger, Site, serving
from tests.ledger.words import Message, Place, Refused, data, fresh, new_key, put, refused

GC = "system:gc"
SWEEP_MS = 50
AT_ONCE = 256


@pytest.fixture(scope="module")
def swept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site of each store that looks for what has expired all the time; PostgreSQL has two nodes."""
    with serving(tmp_path_factory.mktemp("swept") / "data", request.param, SWEEP_INTERVAL_MS=SWEEP_MS) as site:
        yield site


@pytest.fixture
def keeper(request: pytest.FixtureRequest, swept: Site) -> Ledger:
    return swept.ledger(request.param)


def soon() -> int:
    """A second that is over shortly."""
    return int(time.time()) + 1


def stored(ledger: Ledger, place: Place) -> list[str]:
    """The keys that the state holds, expired or not."""
    found = ledger.ask("ListEntities", place, includeExpired=True).get("entities", [])
    return [one["key"] for one in found]


def await_removal(ledger: Ledger, place: Place, *left: str) -> None:
    eventually(lambda: stored(ledger, place) == list(left), f"{place} holds {left} alone")


def removals(ledger: Ledger, place: Place) -> list[Message]:
    """The transactions of the server itself."""
    found = [ledger.transaction(place, height) for height in range(1, ledger.height(place) + 1)]
    return [one for one in found if one["actor"] == GC]


def removed(ledger: Ledger, place: Place) -> list[str]:
    operations = [one for transaction in removals(ledger, place) for one in transaction["operations"]]
    assert all(list(one) == ["expireEntity"] for one in operations)
    return [one["expireEntity"]["key"] for one in operations]


def limited(ledger: Ledger, most: int) -> Place:
    answer = ledger.ask("CreateOrganization", name=fresh("org"), quota={"maxStorageBytes": str(most)})
    return Place(int(answer["slug"]["slug"]))


def test_what_has_expired_stops_counting_against_the_quota(keeper: Ledger) -> None:
    org, client = limited(keeper, 100), fresh("client")
    vault = keeper.new_vault(org)
    keeper.commit(vault, client, put("a" * 10, b"x" * 80, expires_at=soon()), key=new_key())
    keeper.commit(org, client, put("b" * 5, b"x" * 5), key=new_key())
    with refused("RESOURCE_EXHAUSTED"):
        keeper.write(org, client, put("c", b""), key=new_key())

    def has_room() -> bool:
        try:
            keeper.commit(org, client, put("c" * 10, b"x" * 80), key=new_key())
        except Refused as told:
            return told.code != "RESOURCE_EXHAUSTED"
        return True

    eventually(has_room, "the bytes of an expired entity are free again")
    assert removed(keeper, vault) == ["a" * 10]
    with refused("RESOURCE_EXHAUSTED"):
        keeper.write(vault, client, put("d", b""), key=new_key())


def test_a_vault_that_nobody_writes_to_gets_its_block(keeper: Ledger) -> None:
    """Followers of its blocks are told, the block is linked and hashed as any other, and what was there is read."""
    place, ends = keeper.new_place(), soon()
    keeper.commit(place, "c", put("gone", b"1", expires_at=ends), put("kept", b"2"), sequence=1)
    with keeper.watch(place, 2) as blocks:
        assert next(blocks)["height"] == "2"
    first, second = keeper.block(place, 1), keeper.block(place, 2)
    [transaction] = second["transactions"]
    assert (transaction["actor"], transaction["clientId"], transaction["sequence"]) == (GC, {"id": GC}, "1")
    assert transaction["operations"] == [{"expireEntity": {"key": "gone", "expiredAt": str(ends)}}]
    assert hashes.instant(second["header"]["timestamp"])[0] >= ends
    assert data(second["header"]["previousHash"]["value"]) == hashes.block_hash(first["header"])
    assert first["header"]["stateRoot"] != second["header"]["stateRoot"]
    assert stored(keeper, place) == ["kept"]
    stored_at = hashes.instant(first["header"]["timestamp"])[0]
    assert keeper.value(place, "gone", at=1) == (b"1" if stored_at < ends else None)
    assert keeper.value(place, "gone", at=2) is None
    assert "stateProof" in keeper.ask("VerifiedRead", place, key="gone")
    assert keeper.last(place, GC) == 1
    keeper.commit(place, "c", put("gone", b"3", not_exists=True), sequence=2)
    assert keeper.value(place, "gone") == b"3"


def test_offline_verifiers_follow_the_chain_through_it(swept: Site) -> None:
    ledger, expires = swept.ledger(), soon()
    place = ledger.new_place()
    ledger.commit(place, "c", put("gone", b"1", expires_at=expires), sequence=1)
    await_removal(ledger, place)
    ledger.commit(place, "c", put("kept", b"2"), sequence=2)
    with Client(swept.nodes[0].url) as client:
        handle = client.ledger.place(place.org, place.vault, verify=True)
        assert handle.read("gone") is None
        assert handle.read("kept") is not None
        blocks = list(handle.blocks())
        assert [one.actor for block in blocks for one in block.transactions or ()] == [
            "client:anonymous",
            GC,
            "client:anonymous",
        ]


def test_a_backlog_is_removed_in_bounded_steps_and_each_entity_once(swept: Site) -> None:
    ledger = swept.ledger()
    places, ends = [ledger.new_place() for _ in range(3)], soon()
    names = [f"k{number:04d}" for number in range(600)]
    for place in places:
        ledger.commit(place, "c", *(put(name, b"v", expires_at=ends) for name in names), put("z"), sequence=1)
    for place in places:
        await_removal(ledger, place, "z")
        steps = removals(ledger, place)
        assert all(len(one["operations"]) <= AT_ONCE for one in steps)
        assert sorted(removed(ledger, place)) == names
        assert [one["sequence"] for one in steps] == [str(number) for number in range(1, len(steps) + 1)]


def test_an_entity_that_is_set_again_in_time_stays(keeper: Ledger) -> None:
    place, key = keeper.new_place(), new_key()
    for number in range(1, 20):
        keeper.commit(place, "c", put("lease", str(number), expires_at=soon() + 1), sequence=number)
    keeper.commit(place, "c", put("lease", b"kept"), put("mark", b"", expires_at=soon()), key=key)
    await_removal(keeper, place, "lease")
    assert removed(keeper, place) == ["mark"]
    assert keeper.value(place, "lease") == b"kept"


def test_an_expiry_that_is_moved_forward_counts(keeper: Ledger) -> None:
    """By single writes, one after the other, as most are."""
    place, far = keeper.new_place(), int(time.time()) + 3_600
    for number, ends in enumerate((far, 0, far, far + 1, 1), 1):
        keeper.commit(place, "c", put("a", str(number), expires_at=ends), sequence=number)
    keeper.commit(place, "c", put("kept", b"", expires_at=far), sequence=6)
    await_removal(keeper, place, "kept")
    assert removed(keeper, place) == ["a"]


# -- kills and checks --------------------------------------------------------------------------------------------------


@pytest.mark.each_store
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_kill_leaves_a_block_whole_or_not_at_all_and_semel_check_finds_nothing(tmp_path: Path, store: str) -> None:
    """A node is killed while it removes; the next one that leads goes on where it was."""
    names = [f"k{number:04d}" for number in range(400)]
    with serving(tmp_path / "data", store, SWEEP_INTERVAL_MS=SWEEP_MS) as site:
        ledger = site.ledger()
        org = limited(ledger, 1_000_000)
        places = [ledger.new_vault(org) for _ in range(3)]
        for turn in range(4):
            for place in places:
                some = (put(name, b"v" * 20, expires_at=1) for name in names)
                ledger.commit(place, "c", *some, put("kept", b"v"), sequence=turn + 1)
            site.nodes[turn % len(site.nodes)].kill()
            site.nodes[turn % len(site.nodes)].start()
            ledger.redial()
        for place in places:
            await_removal(ledger, place, "kept")
            steps = removals(ledger, place)
            assert [one["sequence"] for one in steps] == [str(number) for number in range(1, len(steps) + 1)]
            assert set(removed(ledger, place)) == set(names)
            for before, after in pairwise(ledger.block(place, at) for at in range(1, ledger.height(place) + 1)):
                assert data(after["header"]["previousHash"]["value"]) == hashes.block_hash(before["header"])
        bytes_left = 3 * len("kept" + "v")
        ledger.commit(org, "c", put("a", b"x" * (1_000_000 - bytes_left - 1)), sequence=1)
        with refused("RESOURCE_EXHAUSTED"):
            ledger.write(org, "c", put("b", b""), sequence=2)
        for node in site.nodes:
            node.stop()
        semel = Semel("http://127.0.0.1:1")
        where = ("--store", site.url) if store == "postgres" else ("--data", str(tmp_path / "data"))
        checked = semel.here("check", *where)
        assert checked.code == 0, checked.out + checked.err
