"""What is freed where bodies are compacted: neither too early nor too late, and only so much of it at once."""

from __future__ import annotations

import random
from collections.abc import Iterable
from hashlib import sha256

import pytest

from semel.engine.reading import Reading
from semel.kernel.errors import Refused
from semel.surfaces.ledger import contract, pagination, proofs, reading
from semel.surfaces.ledger.commands import FreePlace
from semel.surfaces.ledger.limits import LedgerPolicy
from semel.surfaces.ledger.model import DeleteEntity, LedgerPlace, Operation, SetEntity
from semel.surfaces.ledger.tables import (
    INLINE_BYTES,
    LEDGER_BLOCK,
    LEDGER_PAST,
    LEDGER_PLACE,
    LEDGER_ROOTS,
    LEDGER_VALUE,
    ROOTS_EVERY,
)
from tests.ledger.model import hashing
from tests.ledger.rules.rig import OWN, LedgerDesk

QUICK = LedgerPolicy(eviction_interval=1, ttl_seconds=1)
"""Every entry forgets what is two seconds old."""
NAMES = [b"a", b"b", b"c", b"d"]
BLOCKS = 16


def large(chance: random.Random) -> bytes:
    return chance.randbytes(INLINE_BYTES + chance.randint(1, 50))


def operation(chance: random.Random) -> Operation:
    name = chance.choice(NAMES)
    kind = chance.random()
    if kind < 0.25:
        return DeleteEntity(name)
    return SetEntity(name, large(chance) if kind < 0.8 else b"small")


def needed_values(desk: LedgerDesk, place: LedgerPlace, oldest: int) -> set[tuple[int, bytes]]:
    """The large values that some height from the oldest on shows."""
    return {
        (one.version, one.key)
        for state in desk.states[place][oldest:]
        for one in state.values()
        if len(one.value) > INLINE_BYTES
    }


def stored_values(desk: LedgerDesk, place: LedgerPlace) -> set[tuple[int, bytes]]:
    rows = [row for row in desk.rows(LEDGER_VALUE) if (row.org, row.vault) == place]
    for row in rows:
        assert desk.states[place][row.version][row.key].value == row.value
    return {(row.version, row.key) for row in rows}


def check_heights(desk: LedgerDesk, place: LedgerPlace, oldest: int) -> None:
    """Every height from the oldest on is told and proved, and none below it."""

    def look(read: Reading) -> None:
        for height in range(max(1, oldest), len(desk.states[place])):
            state = desk.states[place][height]
            assert list(pagination.list_entities(read, place, b"", height, True, 100, "").items) == [
                state[key] for key in sorted(state)
            ]
            for name in NAMES:
                assert reading.read_entity(read, place, name, height).entity == state.get(name)
                proof = proofs.prove_entity(read, place, name, height).proof
                assert proof.entity == state.get(name)
                assert hashing.proof_fault(proof, hashing.state_root(state.values())) == ""
        if oldest > 1:
            with pytest.raises(Refused, match="no longer kept"):
                reading.read_entity(read, place, NAMES[0], oldest - 1)

    desk.look(look)


@pytest.mark.parametrize("retain", [1, 2, 5])
@pytest.mark.parametrize("seed", range(2))
def test_large_values_go_with_the_last_height_that_shows_them(seed: int, retain: int) -> None:
    """After every sweep exactly those are left that a height which can still be read shows."""
    chance = random.Random(seed)
    desk = LedgerDesk(QUICK)
    place, whole = desk.make_vault(9, retain=retain), desk.make_vault(10)
    for _ in range(BLOCKS):
        operations = [operation(chance) for _ in range(chance.randint(1, 4))]
        for target in (place, whole, OWN):
            desk.commit(target, *operations)
        desk.pass_seconds(3)
        desk.commit(OWN, SetEntity(b"z", b""))  # by whose time all that was written before is forgotten
        desk.sweep()
        oldest = max(0, len(desk.states[place]) - 1 - retain)
        assert stored_values(desk, place) == needed_values(desk, place, oldest)
        assert not [row for row in desk.rows(LEDGER_PAST) if row.vault == place.vault and row.until <= oldest]
        check_heights(desk, place, oldest)
    assert stored_values(desk, whole) == needed_values(desk, whole, 0)
    assert stored_values(desk, OWN) == needed_values(desk, OWN, 0)
    assert len(needed_values(desk, place, 0)) > len(stored_values(desk, place))


def check_proofs(desk: LedgerDesk, place: LedgerPlace, heights: Iterable[int], chance: random.Random) -> None:
    """At each height one key is proved, there or not."""

    def look(read: Reading) -> None:
        for height in heights:
            state, name = desk.states[place][height], chance.choice(NAMES)
            proof = proofs.prove_entity(read, place, name, height).proof
            assert proof.entity == state.get(name)
            assert hashing.proof_fault(proof, hashing.state_root(state.values())) == ""

    desk.look(look)


@pytest.mark.parametrize("retain", [0, ROOTS_EVERY + 3], ids=["all are kept", "some are kept"])
def test_heights_between_those_whose_roots_were_written_down_are_proved(retain: int) -> None:
    """Buckets that come, change, empty themselves and come back, and blocks that change nothing."""
    chance = random.Random(retain)
    desk = LedgerDesk(QUICK)
    place = desk.make_vault(9, retain=retain)
    for _ in range(3 * ROOTS_EVERY - 2):
        name = chance.choice(NAMES)
        desk.commit(place, DeleteEntity(name) if chance.random() < 0.5 else SetEntity(name, b"small"))
    desk.pass_seconds(3)
    desk.commit(OWN, SetEntity(b"z", b""))  # by whose time all that was written before is forgotten
    desk.sweep()
    height = len(desk.states[place]) - 1
    oldest = max(0, height - retain) if retain else 0
    check_proofs(desk, place, range(max(1, oldest), height + 1), chance)
    written = [row.height for row in desk.rows(LEDGER_ROOTS) if row.vault == place.vault]
    first = max(1, oldest - oldest % ROOTS_EVERY)  # the oldest height that is kept is proved from there
    assert written == [one for one in range(first, height + 1) if one % ROOTS_EVERY == 0]
    for row in desk.rows(LEDGER_ROOTS):
        assert sha256(row.roots).digest() == hashing.state_root(desk.states[place][row.height].values())


def test_nothing_goes_before_its_commit_is_forgotten() -> None:
    """A body that is compacted may still have to answer a retry."""
    desk = LedgerDesk(LedgerPolicy(eviction_interval=1, ttl_seconds=1_000))
    place = desk.make_vault(9, retain=1)
    for number in range(5):
        desk.commit(place, SetEntity(b"a", b"%d" % number * (INLINE_BYTES + 1)))
    desk.sweep()
    assert stored_values(desk, place) == needed_values(desk, place, 0)
    desk.pass_seconds(2_000)
    desk.commit(OWN, SetEntity(b"z", b""))
    desk.sweep()
    assert stored_values(desk, place) == needed_values(desk, place, 4)


# -- so much at once --------------------------------------------------------------------------------------------------


class Chore:
    """What one chore frees: the heights, and the bytes of their bodies."""

    def __init__(self, desk: LedgerDesk, command: FreePlace) -> None:
        [row] = [row for row in desk.rows(LEDGER_PLACE) if (row.org, row.vault) == command.place]
        blocks = [row for row in desk.rows(LEDGER_BLOCK) if (row.org, row.vault) == command.place]
        self.heights = range(row.freed + 1, command.upto + 1)
        self.bytes = sum(block.size for block in blocks if block.height in self.heights)
        next_up = [block.size for block in blocks if block.height == command.upto + 1]
        self.with_next = self.bytes + next_up[0] if next_up else None


def freed(desk: LedgerDesk) -> list[Chore]:
    """Carry out all chores of places, one after the other."""
    done: list[Chore] = []
    while True:
        chores = [chore for chore in desk.look(desk.ledger.chores) if isinstance(chore, FreePlace)]
        if not chores:
            return done
        [command] = chores
        done.append(Chore(desk, command))
        assert done[-1].heights, "a chore that frees nothing comes back for ever"
        assert desk.carry_out(command).number == len(done[-1].heights)


def forgotten(desk: LedgerDesk, place: LedgerPlace, sizes: list[int]) -> None:
    """Blocks with bodies of about these sizes, all of which may go."""
    for size in sizes:
        desk.commit(place, SetEntity(b"k", bytes(size)), key=b"k" * 16, client=b"client %d" % len(desk.states[place]))
    desk.pass_seconds(3)
    desk.commit(place, SetEntity(b"k", b""))


SIZES = {
    "small": [10] * 40,
    "each above the bound": [2_000] * 6,
    "one above among small": [10] * 5 + [3_000] + [10] * 5,
    "the first above": [3_000] + [10] * 8,
    "just at the bound": [400, 400, 10, 10, 900, 10, 850, 900],
}


@pytest.mark.parametrize("retain", [0, 1], ids=["whole", "compacted"])
@pytest.mark.parametrize("sizes", SIZES)
def test_a_chore_frees_bodies_of_so_many_bytes_and_at_least_one(
    sizes: str, retain: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "FREED_BYTES", 1_000)
    desk = LedgerDesk(QUICK)
    place = desk.make_vault(9, retain=retain)
    forgotten(desk, place, SIZES[sizes])
    chores = freed(desk)
    assert [height for chore in chores for height in chore.heights] == list(range(1, len(SIZES[sizes]) + 1))
    for chore in chores:
        assert chore.bytes <= 1_000 or len(chore.heights) == 1
    for chore in chores[:-1]:
        assert chore.with_next is not None
        assert chore.with_next > 1_000


def test_the_bound_as_it_is() -> None:
    """Six bodies of a megabyte are not loaded at once."""
    desk = LedgerDesk(QUICK)
    place = desk.make_vault(9)
    forgotten(desk, place, [1024 * 1024] * 6)
    assert [len(chore.heights) for chore in freed(desk)] == [3, 3]


def test_so_many_blocks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "FREED_BLOCKS", 4)
    desk = LedgerDesk(QUICK)
    place = desk.make_vault(9)
    forgotten(desk, place, [1] * 10)
    assert [len(chore.heights) for chore in freed(desk)] == [4, 4, 2]
