"""Plain groups against the full rules: the same transactions give the same answers, rows and signals.

One desk decides groups of plain transactions without a view, several in a batch; what it leaves, and everything else,
is decided by the full rules. The other desk decides every group by the full rules.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from semel.engine.batch import run, steps_of
from semel.engine.contract import Order, Write
from semel.engine.group_commit import QueuedWrite, drive
from semel.store.protocol import AnyTable, Row
from semel.store.sqlite.store import SqliteFileStore
from semel.surfaces.ledger import commands as real
from semel.surfaces.ledger.limits import LedgerPolicy
from semel.surfaces.ledger.model import (
    ConditionKind,
    CreateRelationship,
    DeleteEntity,
    LedgerPlace,
    LedgerStatus,
    Operation,
    SetCondition,
    SetEntity,
)
from semel.surfaces.ledger.rules import plain_load
from semel.surfaces.ledger.rules.group_rows import PageCache
from semel.surfaces.ledger.rules.packed_tree import PLACE_BYTES, way_of
from semel.surfaces.ledger.rules.plain_write import PlainGroup, may_be_plain
from semel.surfaces.ledger.rules.write import ManyAnswers
from semel.surfaces.ledger.tables import (
    INLINE_BYTES,
    LEDGER_BLOCK,
    LEDGER_KEY,
    LEDGER_ORG,
    LEDGER_PLACE,
    LEDGER_STREAM,
    TABLES,
)
from semel.surfaces.schema import MIGRATIONS
from semel.surfaces.schema import TABLES as ALL_TABLES
from tests.ledger.rules.rig import ORG, OWN, LedgerDesk

NAMES = [b"key-%d" % number for number in range(60)]
CLIENTS = (b"ann", b"bob", b"cy")
SEEDS = range(1, 13)
BATCHES = 60
POLICY = LedgerPolicy(eviction_interval=7, ttl_seconds=20)
OTHER = ORG + 1
RETAINED = LedgerPlace(ORG, 11)


class Drawn:
    """Groups of commands by chance, the same for the same seed. Most transactions can be plain, and most are new."""

    def __init__(self, seed: int, desk: LedgerDesk) -> None:
        self.chance = random.Random(seed)
        self.last: dict[tuple[LedgerPlace, bytes], int] = {}
        self.keys: list[bytes] = []
        self._desk = desk

    def operations(self, place: LedgerPlace, *, is_plain: bool) -> tuple[Operation, ...]:
        chance, name = self.chance, self.chance.choice(NAMES)
        kind = chance.random()
        if is_plain or kind < 0.4:
            size = chance.choice((0, 5, 5, 900)) if is_plain else 5
            return (SetEntity(name, chance.randbytes(size), chance.choice((0, 0, 10**10))),)
        if kind < 0.5:
            return (SetEntity(name, bytes(INLINE_BYTES + 1)),)
        if kind < 0.6:
            return (SetEntity(name, b"x" * 1_100),)
        if kind < 0.7:
            return (SetEntity(name, b"c", 0, SetCondition(ConditionKind.NOT_EXISTS)),)
        if kind < 0.85:
            return (DeleteEntity(name),)
        if kind < 0.9 and place.vault:
            return (CreateRelationship(b"doc:1", b"viewer", b"user:%d" % chance.randrange(5)),)
        return tuple(SetEntity(one, b"many") for one in chance.sample(NAMES, 3))

    def group(self, places: list[LedgerPlace], *, is_plain: bool) -> real.WriteMany:
        """One group, of one organization; in some groups a transaction is known, ahead or not plain."""
        chance = self.chance
        place = chance.choice(places)
        mine = [one for one in places if one.org == place.org and RETAINED not in (one, place)] or [place]
        is_new = chance.random() < 0.7
        count = chance.randint(1, 12)
        return real.WriteMany(tuple(self._command(chance.choice(mine), is_plain, is_new) for _ in range(count)))

    def _command(self, place: LedgerPlace, is_plain: bool, is_new: bool) -> real.WriteCommand:
        chance, client = self.chance, self.chance.choice(CLIENTS)
        last = self.last.get((place, client), 0)
        kind = chance.random()
        sequence: int | None = last + 1
        key = b""
        if kind < 0.15 and not is_new:
            sequence = max(1, last + chance.choice((-2, -1, 0, 2, 3)))
        elif kind < 0.5:
            is_known = not is_new and kind < 0.2 and self.keys
            key = chance.choice(self.keys) if is_known else chance.randbytes(16)
            self.keys.append(key)
            sequence = None if kind < 0.4 else sequence
        self.last[place, client] = last + 1
        operations = self.operations(place, is_plain=is_plain)
        return self._desk.command(place, *operations, client=client, sequence=sequence, key=key)

    def look(self) -> None:
        """The last sequences of all clients, as they are stored."""
        cuts = {row.org: row.client_cut for row in self._desk.rows(LEDGER_ORG)}
        rows = self._desk.rows(LEDGER_STREAM)
        self.last = {
            (LedgerPlace(*row[:2]), row.client): row.last if row.last_seen >= cuts[row.org] else 0 for row in rows
        }


class Compared:
    """Two desks that get the same groups."""

    def __init__(self, seed: int, cached: int, fast: LedgerDesk | None = None) -> None:
        self.fast, self.full = fast or LedgerDesk(POLICY), LedgerDesk(POLICY)
        self.fast.ledger.pages = PageCache(cached)
        self.drawn = Drawn(seed, self.full)
        self.plain = self.left = 0
        for desk in (self.fast, self.full):
            desk.carry_out(real.CreateOrg(b"other", (OTHER,), b"", b""))
            desk.make_vault(9)
            desk.make_vault(11, retain=5)
        self.places = [OWN, OWN, LedgerPlace(ORG, 9), LedgerPlace(ORG, 9), RETAINED, LedgerPlace(OTHER)]

    def batch(self, *groups: real.WriteMany) -> list[Any]:
        """One batch of these groups, decided in both ways; returns the answers."""
        plain = [self.group(one) for one in groups]
        result = drive(steps_of(self.fast.inside.around, [], plain=plain))
        self.plain += len(result.plain)
        self.left += len(result.left)
        decided: list[tuple[real.WriteMany, ManyAnswers]] = []
        topics = set(result.plain_topics)
        for one, answer in result.plain:
            assert isinstance(one, PlainGroup)
            decided.append((real.WriteMany(one.commands), answer))
        for queued in result.left:
            assert isinstance(queued.write.command, real.WriteMany)
            topics |= self._decide(self.fast, queued.write.command, decided)
        for _, answer in decided:
            self.fast.ledger.pages.take(answer.tree)
        theirs: list[tuple[real.WriteMany, ManyAnswers]] = []
        told: set[bytes] = set()
        for many, _ in decided:
            told |= self._decide(self.full, many, theirs)
        answers = [answer.answers for _, answer in theirs]
        assert [answer.answers for _, answer in decided] == answers
        assert topics == told
        self._compare_rows()
        return [one for some in answers for one in some]

    def group(self, many: real.WriteMany) -> PlainGroup:
        return PlainGroup(self.fast.ledger, many, 0, 1, "", is_plain=all(map(may_be_plain, many.writes)))

    def full_only(self, many: real.WriteMany) -> list[Any]:
        """A group that goes to the full rules on both desks, as one that is not plain by its requests."""
        found: list[tuple[real.WriteMany, ManyAnswers]] = []
        for desk in (self.fast, self.full):
            self._decide(desk, many, found)
        self.fast.ledger.pages.take(found[0][1].tree)
        assert found[0][1].answers == found[1][1].answers
        return found[1][1].answers

    def pass_seconds(self, seconds: int) -> None:
        for desk in (self.fast, self.full):
            desk.pass_seconds(seconds)
            desk.sweep()

    def _decide(self, desk: LedgerDesk, many: real.WriteMany, into: list[Any]) -> set[bytes]:
        found = run(desk.inside.around, [QueuedWrite(Write(desk.ledger, many))])
        assert not desk.inside.observer.faults, desk.inside.observer.faults
        [(_, outcome)] = found.decided
        into.append((many, outcome.answer))
        return set(outcome.signals)

    def _compare_rows(self) -> None:
        assert not self.fast.inside.observer.faults, self.fast.inside.observer.faults
        for table in TABLES:
            fast, full = ([_unsummed(table, row) for row in desk.rows(table)] for desk in (self.fast, self.full))
            assert sorted(fast) == full, table.name


def _unsummed(table: AnyTable, row: Row) -> Row:
    """The row without its checksum, which a store in memory does not compute."""
    return row if table.checksum_of is None else row._replace(checksum=0)


def played(compared: Compared) -> None:
    """Batches of one to three groups, and now and then time passes."""
    drawn = compared.drawn
    for number in range(BATCHES):
        drawn.look()
        is_plain = drawn.chance.random() < 0.8
        groups = [drawn.group(compared.places, is_plain=is_plain) for _ in range(drawn.chance.randint(1, 3))]
        if is_plain or drawn.chance.random() < 0.5:
            compared.batch(*groups)
        else:
            for group in groups:
                compared.full_only(group)
        if number % 5 == 0:
            compared.pass_seconds(drawn.chance.choice((0, 1, 9)))


@pytest.mark.parametrize("seed", SEEDS)
def test_plain_groups_give_the_answers_and_rows_of_the_full_rules(seed: int) -> None:
    compared = Compared(seed, cached=[0, 5, 1_000][seed % 3])
    played(compared)
    assert compared.plain > 30, "hardly any group was plain"
    assert compared.left > 5, "hardly any group was left"


def test_plain_groups_give_the_rows_of_the_full_rules_on_sqlite_too(tmp_path: Path) -> None:
    fast = LedgerDesk(POLICY, lambda wall_ms: SqliteFileStore(tmp_path, ALL_TABLES, MIGRATIONS, wall_ms))
    compared = Compared(99, 1_000, fast)
    played(compared)
    assert compared.plain > 30


def test_paths_that_are_longer_than_expected_give_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_load, "way_of", lambda *given: way_of(*given)[: PLACE_BYTES + 2])
    for cached in (0, 1_000):
        compared = Compared(5, cached)
        played(compared)
        assert compared.plain > 30


def test_groups_behind_one_that_is_left_are_left_too() -> None:
    compared = Compared(1, 0)
    key = bytes(15) + b"\7"
    known, new, later = (
        compared.full.command(OWN, SetEntity(b"a", b"%d" % number), key=one)
        for number, one in enumerate((key, b"", b""))
    )
    elsewhere = compared.full.command(LedgerPlace(OTHER), SetEntity(b"a", b"x"))
    compared.batch(real.WriteMany((known,)))
    assert (compared.plain, compared.left) == (1, 0)
    answers = compared.batch(*(real.WriteMany((one,)) for one in (new, known, later, elsewhere)))
    assert (compared.plain, compared.left) == (3, 2)
    heights = [answer.committed.header.height for answer in answers]
    assert heights == [2, 1, 1, 3], "the first, the other organization's, and then the ones that were left"


def test_a_group_that_cannot_be_plain_keeps_its_place_between_others() -> None:
    compared = Compared(1, 0)
    condition = SetCondition(ConditionKind.NOT_EXISTS)
    first, fails, second = (
        compared.full.command(OWN, SetEntity(b"a", b"%d" % number, 0, asked), sequence=sequence)
        for number, (sequence, asked) in enumerate(((1, None), (2, condition), (2, None)))
    )
    answers = compared.batch(*(real.WriteMany((one,)) for one in (first, fails, second)))
    assert (compared.plain, compared.left) == (1, 2)
    assert answers[1].code is real.WriteErrorCode.KEY_EXISTS
    assert answers[2].committed.header.height == 2


def test_a_key_or_sequence_twice_in_a_batch_is_executed_once() -> None:
    compared = Compared(1, 0)
    first = compared.full.command(OWN, SetEntity(b"a", b"1"), key=bytes(15) + b"\7")
    again = compared.full.command(OWN, SetEntity(b"a", b"2"), sequence=2)
    answers = compared.batch(*(real.WriteMany((one,)) for one in (first, first, again, again)))
    assert [type(one) for one in answers] == [
        real.WriteCommitted,
        real.WriteReplayed,
        real.WriteCommitted,
        real.WriteReplayed,
    ]
    twice = compared.full.command(OWN, SetEntity(b"b", b"3"), key=bytes(15) + b"\10")
    assert isinstance(compared.batch(real.WriteMany((twice, twice)))[1], real.WriteReplayed)


@pytest.mark.parametrize("quota", [real.OrgQuota(max_storage_bytes=10), real.OrgQuota(max_write_ops_per_sec=1)])
def test_a_limit_of_the_organization_is_left_to_the_full_rules(quota: real.OrgQuota) -> None:
    compared = Compared(1, 0)
    for desk in (compared.fast, compared.full):
        desk.carry_out(real.CreateOrg(b"small", (ORG + 2,), b"", b"", quota))
    commands = [compared.full.command(LedgerPlace(ORG + 2), SetEntity(b"a", b"x" * 8)) for _ in range(2)]
    commands.append(compared.full.command(LedgerPlace(ORG + 2), SetEntity(b"b", b"x" * 8)))
    assert compared.batch(real.WriteMany(tuple(commands)))[-1].code == "ledger:resource_exhausted"
    assert (compared.plain, compared.left) == (0, 1)


@pytest.mark.parametrize("policy", [POLICY, POLICY._replace(writes_per_second=1)])
def test_a_rate_limit_of_the_server_is_left_to_the_full_rules(policy: LedgerPolicy) -> None:
    desk = LedgerDesk(policy)
    group = PlainGroup(desk.ledger, real.WriteMany((desk.command(OWN, SetEntity(b"a", b"1")),)), 0, 1, "")
    result = drive(steps_of(desk.inside.around, [], plain=[group]))
    assert len(result.left) == bool(policy.writes_per_second)


@pytest.mark.parametrize("table", [LEDGER_BLOCK, LEDGER_PLACE])
def test_a_broken_chain_is_left_to_the_full_rules(table: Any) -> None:
    desk = LedgerDesk()
    desk.commit(OWN, SetEntity(b"a", b"1"))
    [row] = desk.rows(table)
    desk.memory._heaps[table].rows[table.key_of(row)] = row._replace(state_root=bytes(32))
    group = PlainGroup(desk.ledger, real.WriteMany((desk.command(OWN, SetEntity(b"b", b"1")),)), 0, 1, "")
    result = drive(steps_of(desk.inside.around, [], plain=[group]))
    assert (len(result.plain), len(result.left)) == (0, 1)
    answer = desk.carry_out(result.left[0].write.command).answers[0]
    assert answer.code == "ledger:data_loss"


def test_a_suspended_organization_and_a_read_only_vault_are_left_to_the_full_rules() -> None:
    compared = Compared(1, 0)
    vault = LedgerPlace(ORG, 9)
    for desk in (compared.fast, compared.full):
        desk.carry_out(real.ChangeVault(vault, LedgerStatus.READ_ONLY))
        desk.carry_out(real.ChangeOrg(OTHER, real.OrgSettings(status=LedgerStatus.SUSPENDED)))
    for place in (vault, LedgerPlace(OTHER), LedgerPlace(ORG, 8), LedgerPlace(ORG + 5)):
        [answer] = compared.batch(real.WriteMany((compared.full.command(place, SetEntity(b"a", b"1")),)))
        assert answer.code.startswith("ledger:")
    assert (compared.plain, compared.left) == (0, 4)


def driven(compared: Compared, count: int) -> list[real.WriteCommand]:
    """Transactions of another client, for entries of the log."""
    return [compared.full.command(OWN, SetEntity(b"z", b"%d" % number), client=b"bob") for number in range(count)]


def test_an_evicted_client_is_unknown_to_the_next_group() -> None:
    compared = Compared(1, 0)
    first, next_one, again = (
        compared.full.command(OWN, SetEntity(b"a", b"%d" % number), sequence=number) for number in (1, 2, 1)
    )
    compared.batch(real.WriteMany((first,)))
    compared.pass_seconds(30)
    compared.batch(real.WriteMany(tuple(driven(compared, 7))))
    [gap] = compared.batch(real.WriteMany((next_one,)))
    assert gap.code is real.WriteErrorCode.SEQUENCE_GAP
    [answer] = compared.batch(real.WriteMany((again,)))
    assert answer.committed.header.height == 9
    assert (compared.plain, compared.left) == (3, 1)


def test_a_client_that_is_evicted_within_a_group_is_unknown_behind_that_entry() -> None:
    compared = Compared(1, 0)
    first, next_one = (
        compared.full.command(OWN, SetEntity(b"a", b"%d" % number), sequence=number) for number in (1, 2)
    )
    compared.batch(real.WriteMany((first,)))
    compared.pass_seconds(30)
    gap = compared.batch(real.WriteMany((*driven(compared, 7), next_one)))[-1]
    assert gap.code is real.WriteErrorCode.SEQUENCE_GAP
    assert (compared.plain, compared.left) == (1, 1)


def test_the_key_of_an_old_last_commit_is_freed_with_the_next_commit() -> None:
    compared = Compared(1, 0)
    for desk in (compared.fast, compared.full):
        desk.carry_out(real.ChangeOrg(ORG, real.OrgSettings(fence=True)))
    compared.batch(real.WriteMany((compared.full.command(OWN, SetEntity(b"a", b"1"), key=b"k" * 16),)))
    compared.pass_seconds(30)
    compared.batch(real.WriteMany(tuple(driven(compared, 7))))
    compared.pass_seconds(1)
    assert [row.freed > 0 for row in compared.fast.rows(LEDGER_PLACE) if row.vault == 0 and row.org == ORG] == [True]
    compared.batch(real.WriteMany((compared.full.command(OWN, SetEntity(b"a", b"2")),)))
    assert (compared.plain, compared.left) == (2, 1)
    assert b"k" * 16 not in {row.key for row in compared.fast.rows(LEDGER_KEY)}
    compared.batch(real.WriteMany((compared.full.command(OWN, SetEntity(b"a", b"3")),)))
    assert (compared.plain, compared.left) == (3, 1), "a place with freed rows takes plain transactions"


def test_too_many_bytes_of_tree_rows_are_left_to_the_full_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = Compared(1, 0)
    compared.batch(real.WriteMany(tuple(compared.full.command(OWN, SetEntity(name, b"x")) for name in NAMES)))
    monkeypatch.setattr(plain_load, "MAX_PAGE_BYTES", 1_000)
    compared.batch(real.WriteMany(tuple(compared.full.command(OWN, SetEntity(name, b"y")) for name in NAMES)))
    assert (compared.plain, compared.left) == (1, 1)
    monkeypatch.undo()
    compared.batch(real.WriteMany(tuple(compared.full.command(OWN, SetEntity(name, b"z")) for name in NAMES)))
    assert (compared.plain, compared.left) == (2, 1)


def test_pages_enter_the_cache_only_with_the_answer() -> None:
    compared = Compared(1, 1_000)
    group = compared.group(real.WriteMany((compared.full.command(OWN, SetEntity(b"a", b"1")),)))
    compared.fast.inside.store.faults["flush"] = 1
    with pytest.raises(Exception, match="flush"):
        drive(steps_of(compared.fast.inside.around, [], plain=[group]))
    assert len(compared.fast.ledger.pages) == 0
    [(_, answer)] = drive(steps_of(compared.fast.inside.around, [], plain=[group])).plain
    assert len(compared.fast.ledger.pages) == 0
    compared.fast.ledger.pages.take(answer.tree)
    assert len(compared.fast.ledger.pages) == 1


def test_a_waiting_transaction_is_told_so_and_its_group_is_decided() -> None:
    desk = LedgerDesk()
    ahead, other = desk.command(OWN, SetEntity(b"a", b"1"), sequence=2), desk.command(OWN, SetEntity(b"b", b"2"))
    queued = {Order(b"ledger:%d/0:ann" % ORG, 1)}
    desk.ledger.is_queued = queued.__contains__
    many = real.WriteMany((ahead, other._replace(write=other.write._replace(client=b"bob"))))
    first, second = desk.carry_out(many).answers
    assert (first, isinstance(second, real.WriteCommitted)) == (real.WriteWaits(), True)
    assert desk.carry_out(many._replace(may_wait=False)).answers[0].code is real.WriteErrorCode.SEQUENCE_GAP
    queued.clear()
    assert desk.carry_out(many).answers[0].code is real.WriteErrorCode.SEQUENCE_GAP
