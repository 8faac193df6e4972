"""What has expired is removed in the chain: when, how much at once, in which order, and what it changes."""

from __future__ import annotations

import random
from collections.abc import Callable
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from semel.engine.generations import GENERATION
from semel.store.protocol import Changes
from semel.store.sqlite.store import SqliteFileStore
from semel.surfaces.ledger import commands as real
from semel.surfaces.ledger import pagination, proofs, reading
from semel.surfaces.ledger.limits import LedgerPolicy
from semel.surfaces.ledger.model import (
    CreateRelationship,
    DeleteEntity,
    ExpireEntity,
    LedgerPlace,
    LedgerStatus,
    Operation,
    SetEntity,
)
from semel.surfaces.ledger.rules import expiry
from semel.surfaces.ledger.rules.chain import block_hash, header_of, transaction_of
from semel.surfaces.ledger.rules.expiry import COLLECTOR
from semel.surfaces.ledger.tables import (
    INLINE_BYTES,
    LEDGER_BLOCK,
    LEDGER_BODY,
    LEDGER_ENTITY,
    LEDGER_ORG,
    LEDGER_PLACE,
    LEDGER_STREAM,
    TABLES,
)
from semel.surfaces.schema import MIGRATIONS
from semel.surfaces.schema import TABLES as ALL_TABLES
from tests.ledger.model import hashing
from tests.ledger.rules.rig import BEGIN, OWN, LedgerDesk

HOUR = 3_600


def until(seconds: int) -> int:
    """An expiry so many seconds after the beginning."""
    return BEGIN + seconds


def keys_of(desk: LedgerDesk, place: LedgerPlace = OWN) -> list[bytes]:
    return [row.key for row in desk.rows(LEDGER_ENTITY) if (row.org, row.vault) == place]


def height(desk: LedgerDesk, place: LedgerPlace = OWN) -> int:
    [row] = [row for row in desk.rows(LEDGER_PLACE) if (row.org, row.vault) == place]
    return int(row.height)


def collected(desk: LedgerDesk, place: LedgerPlace = OWN) -> list[list[bytes]]:
    """The keys that each transaction of the system has removed."""
    bodies = {(row.org, row.vault, row.height): row.operations for row in desk.rows(LEDGER_BODY)}
    found = []
    for row in desk.rows(LEDGER_BLOCK):
        if (row.org, row.vault) == place and row.client == COLLECTOR:
            body = bodies.get((*place, row.height), row.operations)
            operations = transaction_of(row, body).operations
            assert row.actor == COLLECTOR
            assert all(isinstance(one, ExpireEntity) and one.expired_at <= row.at_seconds for one in operations)
            found.append([one.key for one in operations if isinstance(one, ExpireEntity)])
    return found


def expirations(desk: LedgerDesk) -> list[real.ExpireEntities]:
    """What the chores of one round would remove."""
    return [one for one in desk.look(desk.ledger.chores) if isinstance(one, real.ExpireEntities)]


@pytest.fixture(params=["memory", "sqlite"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> LedgerDesk:
    if request.param == "memory":
        return LedgerDesk()

    def open_file(wall_ms: Callable[[], int]) -> SqliteFileStore:
        store = SqliteFileStore(tmp_path, ALL_TABLES, MIGRATIONS, wall_ms)
        request.addfinalizer(store.close)
        return store

    assert {GENERATION, *TABLES} <= set(ALL_TABLES)
    return LedgerDesk(store=open_file)


def test_an_entity_is_removed_at_the_second_in_which_it_expires(desk: LedgerDesk) -> None:
    desk.commit(
        OWN, SetEntity(b"soon", b"1", until(10)), SetEntity(b"never", b"2"), SetEntity(b"late", b"3", until(11))
    )
    desk.pass_seconds(9)
    desk.sweep()
    assert height(desk) == 1
    desk.pass_seconds(1)
    desk.sweep()
    assert (collected(desk), keys_of(desk), height(desk)) == ([[b"soon"]], [b"late", b"never"], 2)
    desk.pass_seconds(1)
    desk.sweep()
    desk.sweep()
    assert (collected(desk), keys_of(desk), height(desk)) == ([[b"soon"], [b"late"]], [b"never"], 3)


def test_the_block_is_an_ordinary_one(desk: LedgerDesk) -> None:
    """It links to the one before, has the next entry of the log, and a sequence of its own client."""
    place = desk.make_vault(9)
    desk.commit(place, SetEntity(b"a", b"1", until(5)), CreateRelationship(b"d:1", b"r", b"u:1"))
    desk.commit(place, SetEntity(b"b", b"2" * (INLINE_BYTES + 1), until(7)))
    for seconds in (6, 2):
        desk.pass_seconds(seconds)
        desk.sweep()
    blocks = [row for row in desk.rows(LEDGER_BLOCK) if row.vault == place.vault]
    assert [(row.height, row.client, row.sequence) for row in blocks[2:]] == [(3, COLLECTOR, 1), (4, COLLECTOR, 2)]
    [org] = desk.rows(LEDGER_ORG)
    assert [row.committed_index for row in blocks] == [2, 3, 4, 5]
    assert org.entries == 5
    for before, row in pairwise(blocks):
        assert row.previous_hash == block_hash(header_of(before))
        assert row.state_root == hashing.state_root(desk.states[place][row.height].values())
    for row in blocks[2:]:
        transaction = transaction_of(row, row.operations)
        assert row.tx_root == hashing.transaction_hash(transaction)
        assert (row.at_seconds, transaction.id[:6]) == (transaction.at.seconds, row.height.to_bytes(6, "big"))
    assert len({row.id for row in blocks}) == 4
    [stream] = [row for row in desk.rows(LEDGER_STREAM) if row.client == COLLECTOR]
    assert (stream.last, stream.last_height) == (2, 4)


def test_what_was_there_is_still_read_and_proved_at_its_height(desk: LedgerDesk) -> None:
    value = b"v" * (INLINE_BYTES + 1)
    desk.commit(OWN, SetEntity(b"a", value, until(5)))
    desk.pass_seconds(6)
    desk.sweep()
    assert (keys_of(desk), height(desk)) == ([], 2)

    def look(read: Any) -> None:
        assert reading.read_entity(read, OWN, b"a", None).entity is None
        found = reading.read_entity(read, OWN, b"a", 1).entity
        assert found is not None
        assert found.value == value
        assert list(pagination.list_entities(read, OWN, b"", None, True, 100, "").items) == []
        for at in (1, 2):
            proof = proofs.prove_entity(read, OWN, b"a", at).proof
            assert (proof.entity is not None) == (at == 1)
            assert hashing.proof_fault(proof, hashing.state_root(desk.states[OWN][at].values())) == ""

    desk.look(look)


# -- between the look and the decision --------------------------------------------------------------------------------


def found_at(desk: LedgerDesk, seconds: int) -> real.ExpireEntities:
    desk.pass_seconds(seconds)
    [chore] = expirations(desk)
    return chore


@pytest.mark.parametrize(
    ("operation", "left"),
    [
        (SetEntity(b"a", b"2", until(HOUR)), [b"a"]),
        (SetEntity(b"a", b"2"), [b"a"]),
        (SetEntity(b"a", b"2", until(3)), []),
        (DeleteEntity(b"a"), []),
    ],
    ids=["later", "never", "expired again", "deleted"],
)
def test_an_entity_that_was_changed_meanwhile_is_judged_as_it_is_now(
    desk: LedgerDesk, operation: Operation, left: list[bytes]
) -> None:
    desk.commit(OWN, SetEntity(b"a", b"1", until(5)), SetEntity(b"b", b"1", until(5)))
    chore = found_at(desk, 6)
    desk.commit(OWN, operation)
    number = desk.carry_out(chore).number
    assert keys_of(desk) == left
    [removed] = collected(desk)
    assert len(removed) == number
    assert removed == [b"b"] if left or isinstance(operation, DeleteEntity) else [b"a", b"b"]


def test_a_step_that_finds_nothing_writes_nothing(desk: LedgerDesk) -> None:
    """As a second node does that has looked at the same time."""
    desk.commit(OWN, SetEntity(b"a", b"1", until(5)))
    chore = found_at(desk, 6)
    assert desk.carry_out(chore).number == 1
    before = [desk.rows(table) for table in TABLES]
    assert desk.carry_out(chore).number == 0
    assert [desk.rows(table) for table in TABLES] == before


def test_in_one_batch_with_the_write_that_keeps_it(desk: LedgerDesk) -> None:
    desk.commit(OWN, SetEntity(b"a", b"1", until(5)))
    chore = found_at(desk, 6)
    desk.run(desk.command(OWN, SetEntity(b"a", b"2", until(HOUR))), chore)
    assert (keys_of(desk), collected(desk)) == ([b"a"], [])
    desk.pass_seconds(HOUR)
    desk.run(found_at(desk, 1), desk.command(OWN, SetEntity(b"a", b"3")))
    assert (keys_of(desk), collected(desk)) == ([b"a"], [[b"a"]])
    assert desk.states[OWN][-1][b"a"].value == b"3"


# -- the clock ---------------------------------------------------------------------------------------------------------


def test_a_clock_that_jumps_removes_nothing_until_the_jump_is_accepted(desk: LedgerDesk) -> None:
    desk.commit(OWN, SetEntity(b"a", b"1", until(HOUR)))
    chore = real.ExpireEntities(OWN, (b"a",), b"node")
    assert desk.carry_out(chore).number == 0
    desk.world.wall += 2 * HOUR * 1_000
    assert desk.look(desk.ledger.chores) == []
    assert desk.carry_out(chore).number == 0
    desk.pass_seconds(599)
    desk.sweep()
    assert height(desk) == 1
    desk.pass_seconds(2)
    desk.sweep()
    assert (height(desk), keys_of(desk)) == (2, [])


def test_a_log_whose_time_is_ahead_does_not_expire_what_the_clock_does_not(desk: LedgerDesk) -> None:
    desk.pass_seconds(HOUR)
    desk.commit(OWN, SetEntity(b"z", b""))
    desk.world.wall -= HOUR * 1_000
    desk.open()
    desk.commit(OWN, SetEntity(b"a", b"1", until(60)))
    assert desk.carry_out(real.ExpireEntities(OWN, (b"a",), b"node")).number == 0
    desk.pass_seconds(60)
    desk.sweep()
    assert (height(desk), keys_of(desk)) == (3, [b"z"])


# -- so much at once ---------------------------------------------------------------------------------------------------


def test_a_step_is_bounded_and_places_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "KEYS_AT_ONCE", 8)
    monkeypatch.setattr(expiry, "EXPIRED_AT_ONCE", 3)
    desk = LedgerDesk()
    places = [OWN, desk.make_vault(9), desk.make_vault(10, retain=2)]
    for number in range(40):
        desk.commit(places[0], SetEntity(b"a%d" % number, b"", until(1)))
    for place in places[1:]:
        desk.commit(place, *(SetEntity(b"b%d" % number, b"", until(2)) for number in range(5)))
    desk.pass_seconds(10)
    rounds = []
    while chores := expirations(desk):
        assert all(1 <= len(one.keys) <= 3 for one in chores)
        rounds.append([one.place for one in chores])
        for one in chores:
            assert desk.carry_out(one).number == len(one.keys)
    assert keys_of(desk, places[0]) == keys_of(desk, places[1]) == keys_of(desk, places[2]) == []
    first = [next(number for number, some in enumerate(rounds) if place in some) for place in places]
    assert first == [0, 5, 6], "a place waits while the index is read up to its entries, not for another's backlog"
    assert len(rounds) > 12


def test_a_round_has_so_many_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "EXPIRED_PLACES", 2)
    desk = LedgerDesk()
    places = [desk.make_vault(10 + number) for number in range(5)]
    for place in places:
        desk.commit(place, SetEntity(b"a", b"", until(1)), SetEntity(b"b", b"", until(1)))
    desk.pass_seconds(2)
    assert [one.place for one in expirations(desk)] == places[:2]
    assert [one.place for one in expirations(desk)] == places[2:4]
    assert [one.place for one in expirations(desk)] == places[4:]
    desk.sweep()
    assert desk.rows(LEDGER_ENTITY) == []


def test_the_bound_as_it_is(desk: LedgerDesk) -> None:
    names = [b"k%d" % number for number in range(600)]
    desk.commit(OWN, *(SetEntity(name, name, until(1)) for name in names))
    desk.pass_seconds(2)
    desk.sweep()
    assert [len(some) for some in collected(desk)] == [256, 256, 88]
    assert sorted(key for some in collected(desk) for key in some) == sorted(names)


def test_keys_of_so_many_bytes_and_at_least_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "EXPIRED_BYTES", 10)
    desk = LedgerDesk()
    desk.commit(OWN, *(SetEntity(key, b"", until(1)) for key in (b"a" * 20, b"b" * 4, b"c" * 4, b"d" * 4)))
    desk.pass_seconds(2)
    desk.sweep()
    assert collected(desk) == [[b"a" * 20], [b"b" * 4, b"c" * 4], [b"d" * 4]]


# -- places that accept no writes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [LedgerStatus.READ_ONLY, LedgerStatus.DELETED], ids=lambda one: one.name)
def test_a_vault_that_accepts_no_writes_keeps_all_and_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch, status: LedgerStatus
) -> None:
    monkeypatch.setattr(expiry, "KEYS_AT_ONCE", 4)
    desk = LedgerDesk()
    closed, place = desk.make_vault(9), desk.make_vault(10)
    desk.commit(closed, *(SetEntity(b"%d" % number, b"", until(1)) for number in range(10)))
    desk.commit(place, SetEntity(b"a", b"", until(2)))
    desk.carry_out(real.ChangeVault(closed, status))
    desk.pass_seconds(3)
    assert desk.carry_out(real.ExpireEntities(closed, (b"1",), b"node")).number == 0
    desk.sweep()
    assert (height(desk, closed), keys_of(desk, place)) == (1, [])
    if status is LedgerStatus.READ_ONLY:
        desk.carry_out(real.ChangeVault(closed, LedgerStatus.ACTIVE))
        desk.sweep()
        assert keys_of(desk, closed) == []


def test_an_organization_that_accepts_no_writes_keeps_all(desk: LedgerDesk) -> None:
    desk.commit(OWN, SetEntity(b"a", b"", until(1)))
    desk.carry_out(real.ChangeOrg(OWN.org, real.OrgSettings(status=LedgerStatus.SUSPENDED)))
    desk.pass_seconds(2)
    assert desk.carry_out(real.ExpireEntities(OWN, (b"a",), b"node")).number == 0
    desk.sweep()
    assert height(desk) == 1
    desk.carry_out(real.ChangeOrg(OWN.org, real.OrgSettings(status=LedgerStatus.ACTIVE)))
    desk.sweep()
    assert (height(desk), keys_of(desk)) == (2, [])


def test_a_broken_chain_gets_no_block_and_its_chore_does_not_come_back_for_ever(desk: LedgerDesk) -> None:
    desk.commit(OWN, SetEntity(b"a", b"", until(1)))
    [row] = desk.rows(LEDGER_PLACE)
    tx = desk.memory.begin(())
    tx.flush(Changes({}, {LEDGER_PLACE: [row._replace(tip_hash=sha256(b"other").digest())]}, {}))
    tx.commit()
    desk.inside = type(desk.inside)(desk.memory, desk.world)
    desk.pass_seconds(2)
    assert desk.look(desk.ledger.chores) == []
    assert desk.carry_out(real.ExpireEntities(OWN, (b"a",), b"node")).number == 0


# -- quotas and limits -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_the_stored_bytes_are_those_of_a_recount(seed: int) -> None:
    chance = random.Random(seed)
    desk = LedgerDesk()
    desk.carry_out(real.CreateOrg(b"limited", (8001,), b"", b"", real.OrgQuota(max_storage_bytes=10**9)))
    org = LedgerPlace(8001)
    desk.states[org] = [{}]
    desk.carry_out(real.CreateVault(8001, (9,), 3, b"", b""))
    vault = LedgerPlace(8001, 9)
    desk.states[vault] = [{}]
    for _ in range(60):
        place, name = chance.choice((org, vault)), b"k%d" % chance.randrange(12)
        ends = desk.world.wall // 1_000 + chance.randrange(-2, 9) if chance.random() < 0.7 else 0
        desk.commit(place, SetEntity(name, chance.randbytes(chance.randrange(INLINE_BYTES + 9)), ends))
        desk.pass_seconds(chance.randrange(3))
        if chance.random() < 0.4:
            desk.sweep()
        [row] = [row for row in desk.rows(LEDGER_ORG) if row.org == 8001]
        stored = [entity for entity in desk.rows(LEDGER_ENTITY) if entity.org == 8001]
        assert row.used_bytes == sum(len(entity.key) + entity.size for entity in stored)
    removed = sum(len(some) for place in (org, vault) for some in collected(desk, place))
    assert removed


def test_the_rate_limit_counts_no_transaction_of_the_system() -> None:
    desk = LedgerDesk(LedgerPolicy(writes_per_second=1))
    desk.commit(OWN, SetEntity(b"a", b"", until(1)))
    desk.pass_seconds(2)
    desk.commit(OWN, SetEntity(b"b", b"", until(1)))
    desk.sweep()
    assert keys_of(desk) == []
    desk.pass_seconds(1)
    desk.commit(OWN, SetEntity(b"c", b"", until(1)))
    desk.sweep()
    assert keys_of(desk) == []


# -- an expiry that changes --------------------------------------------------------------------------------------------


def test_a_later_write_moves_the_expiry_in_the_index(desk: LedgerDesk) -> None:
    """By writes alone, as most are; the index has to follow each."""
    for ends in (until(5), until(HOUR), 0, until(20), until(7)):
        desk.commit(OWN, SetEntity(b"a", b"x", ends))
    desk.pass_seconds(6)
    desk.sweep()
    assert keys_of(desk) == [b"a"]
    desk.pass_seconds(1)
    desk.sweep()
    assert keys_of(desk) == []
