"""The short way of plain transactions against the full rules: the same commands give the same answers and rows.

`make soak WHAT=model SURFACE=ledger` takes both ways too. Here one desk decides with the short way and one without it.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from semel.engine.contract import Order
from semel.surfaces.ledger import commands as real
from semel.surfaces.ledger.limits import LedgerPolicy
from semel.surfaces.ledger.model import (
    ConditionKind,
    CreateRelationship,
    DeleteEntity,
    LedgerPlace,
    Operation,
    SetCondition,
    SetEntity,
)
from semel.surfaces.ledger.rules import write as rules
from semel.surfaces.ledger.rules.group_rows import PageCache
from semel.surfaces.ledger.rules.plain_write import write_plain
from semel.surfaces.ledger.rules.write import ManyAnswers
from semel.surfaces.ledger.tables import INLINE_BYTES, TABLES
from tests.ledger.rules.rig import ORG, OWN, LedgerDesk

NAMES = [b"key-%d" % number for number in range(60)]
SEEDS = range(1, 9)
GROUPS = 40
POLICY = LedgerPolicy(eviction_interval=7, ttl_seconds=20)


class Taken:
    """Counts how often the short way was taken, and how often it was left."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plain = self.full = 0
        self.is_on = True
        monkeypatch.setattr(rules, "write_plain", self._write)

    def _write(self, *given: Any) -> Any:
        found = write_plain(*given) if self.is_on else None
        self.plain += found is not None
        self.full += found is None
        return found


class Drawn:
    """Groups of commands by chance, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.last: dict[tuple[LedgerPlace, bytes], int] = {}
        self.keys: list[bytes] = []

    def operations(self) -> tuple[Operation, ...]:
        chance, name = self.chance, self.chance.choice(NAMES)
        kind = chance.random()
        if kind < 0.7:
            return (SetEntity(name, chance.randbytes(5), chance.choice((0, 0, 10**10))),)
        if kind < 0.75:
            return (SetEntity(name, bytes(INLINE_BYTES + 1)),)
        if kind < 0.8:
            return (SetEntity(name, b"x" * 1_100),)
        if kind < 0.85:
            return (SetEntity(name, b"c", 0, SetCondition(ConditionKind.NOT_EXISTS)),)
        if kind < 0.9:
            return (DeleteEntity(name),)
        return tuple(SetEntity(one, b"many") for one in chance.sample(NAMES, 3))

    def command(self, desk: LedgerDesk, places: list[LedgerPlace]) -> real.WriteCommand:
        chance = self.chance
        place, client = chance.choice(places), chance.choice((b"ann", b"bob"))
        last = self.last.get((place, client), 0)
        kind = chance.random()
        sequence: int | None = last + 1
        key = b""
        if kind < 0.15:
            sequence = max(1, last + chance.choice((-2, -1, 0, 2, 3)))
        elif kind < 0.5:
            key = chance.randbytes(16) if kind < 0.45 or not self.keys else chance.choice(self.keys)
            self.keys.append(key)
            sequence = None if kind < 0.4 else sequence
        operations = self.operations()
        if place.vault and chance.random() < 0.05:
            operations = (CreateRelationship(b"doc:1", b"viewer", b"user:%d" % chance.randrange(5)),)
        return desk.command(place, *operations, client=client, sequence=sequence, key=key)

    def note(self, answers: list[Any]) -> None:
        for answer in answers:
            if isinstance(answer, real.WriteCommitted):
                transaction, header = answer.committed
                self.last[header.place, transaction.client] = transaction.sequence


def played(seed: int, taken: Taken, *, is_on: bool, cached: int) -> tuple[list[Any], dict[str, list[Any]]]:
    """All answers and all rows."""
    taken.is_on = is_on
    desk, drawn = LedgerDesk(POLICY), Drawn(seed)
    desk.ledger.pages = PageCache(cached)
    places = [OWN, desk.make_vault(9), desk.make_vault(11, retain=5)]
    told: list[Any] = []
    for number in range(GROUPS):
        commands = tuple(drawn.command(desk, places) for _ in range(drawn.chance.randint(1, 12)))
        found = desk.inside.run(real.WriteMany(commands), contract=desk.ledger)
        assert not desk.inside.observer.faults, desk.inside.observer.faults
        [(_, outcome)] = found.decided
        decided: ManyAnswers = outcome.answer
        desk.ledger.pages.take(decided.tree)
        drawn.note(decided.answers)
        told += decided.answers
        if number % 5 == 0:
            desk.pass_seconds(drawn.chance.choice((0, 1, 9)))
            desk.sweep()
    return told, {table.name: desk.rows(table) for table in TABLES}


@pytest.mark.parametrize("seed", SEEDS)
def test_the_short_way_gives_the_answers_and_rows_of_the_full_rules(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    taken = Taken(monkeypatch)
    full, full_rows = played(seed, taken, is_on=False, cached=0)
    assert (taken.plain, taken.full > 50) == (0, True)
    short, short_rows = played(seed, taken, is_on=True, cached=[0, 5, 1_000][seed % 3])
    assert taken.plain > 50, "the short way was hardly taken"
    assert short == full
    assert short_rows == full_rows


def test_a_limit_of_the_organization_is_left_to_the_full_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Taken(monkeypatch)
    desk = LedgerDesk()
    quota = real.OrgQuota(max_storage_bytes=10)
    desk.carry_out(real.CreateOrg(b"small", (ORG + 1,), b"", b"", quota))
    prepared = desk.command(OWN, SetEntity(b"a", b"x" * 20))
    there = prepared._replace(write=prepared.write._replace(place=LedgerPlace(ORG + 1)))
    assert desk.carry_out(there).code == "ledger:resource_exhausted"
    assert taken.plain == 0


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
