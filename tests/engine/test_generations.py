"""Tables are turned when every receipt of their older generation has ended, and never before."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.engine.generations import GENERATION, GenerationRow, Generations, Turn
from semel.engine.reading import Reading
from semel.engine.soft_changes import SoftChanges
from semel.kernel.clock import HOLD_MS, Now
from tests.engine.rig import Desk
from tests.engine.toy import RECEIPT, Add

WINDOW = 10_000


class Turning:
    """A table under a retention window that can be changed, as by restarts with another setting."""

    def __init__(self, window_ms: int = WINDOW) -> None:
        self.desk = Desk()
        self.window_ms = window_ms
        self._written = 0

    def turn(self) -> bool:
        """What the sweeper does: whether the table was turned."""
        [answer] = self.desk.answers(Turn(RECEIPT, self.window_ms), contract=Generations({RECEIPT: self.window_ms}))
        assert isinstance(answer, bool)
        return answer

    def is_due(self) -> bool:
        """Whether the sweeper would do anything."""
        with self.desk.store.read() as snapshot:
            ms = self.desk.world.wall
            reading = Reading(snapshot, SoftChanges(), Now(ms, ms, ms, ms))
            return bool(Generations({RECEIPT: self.window_ms}).chores(reading))

    def write(self) -> tuple[bytes, int]:
        """Leave a receipt: its key, and when it ends."""
        self._written += 1
        key = str(self._written).encode()
        self.desk.run(Add(b"a", key))
        return key, self.desk.world.wall + self.window_ms

    def has(self, key: bytes) -> bool:
        return self.desk.find(RECEIPT, (b"a", key)) is not None

    def row(self) -> GenerationRow:
        row = self.desk.find(GENERATION, (b"receipt",))
        assert row is not None
        return GenerationRow(*row)


def test_the_first_look_begins_to_count() -> None:
    table = Turning()
    assert table.is_due()
    assert not table.turn()
    assert table.row() == GenerationRow(b"receipt", table.desk.world.wall, WINDOW, 0)
    assert not table.is_due()


def test_a_table_turns_after_its_window_and_keeps_the_generation_that_it_closed() -> None:
    table = Turning()
    table.turn()
    first, _ = table.write()
    table.desk.world.pass_ms(WINDOW - 1)
    assert not table.is_due()
    assert not table.turn()
    table.desk.world.pass_ms(1)
    assert table.is_due()
    assert table.turn()
    second, _ = table.write()
    assert table.has(first)
    table.desk.world.pass_ms(WINDOW)
    assert table.turn()
    assert not table.has(first)
    assert table.has(second)
    assert not table.turn()


def test_a_longer_window_is_remembered_before_it_can_hurt() -> None:
    table = Turning()
    table.turn()
    table.desk.world.pass_ms(WINDOW - 1)
    table.window_ms = 3 * WINDOW
    key, ends_at = table.write()
    assert table.is_due()
    table.desk.world.pass_ms(1)
    assert not table.turn()
    assert table.row().window_ms == 3 * WINDOW
    assert not table.is_due()
    while table.desk.world.wall < ends_at:
        assert table.has(key)
        table.turn()
        table.desk.world.pass_ms(WINDOW // 3)


def test_a_shorter_window_waits_for_the_receipts_of_the_longer_one() -> None:
    table = Turning(3 * WINDOW)
    table.turn()
    key, ends_at = table.write()
    table.window_ms = WINDOW
    turned_at = []
    for _ in range(32):
        table.desk.world.pass_ms(WINDOW // 4)
        assert table.has(key) or table.desk.world.wall >= ends_at
        if table.turn():
            turned_at.append(table.desk.world.wall - ends_at)
    # Once when the long window has passed, once more when the closed generation has ended, then at the short pace.
    assert turned_at == [0, 3 * WINDOW, 4 * WINDOW, 5 * WINDOW]
    assert not table.has(key)


@pytest.mark.parametrize("late_ms", [0, WINDOW - 1])
def test_receipts_of_a_node_that_keeps_them_longer_than_the_one_that_rotates(late_ms: int) -> None:
    """It looks that long after each rotation whether its retention is known."""
    table = Turning(3 * WINDOW)
    table.turn()
    rotated_at, rotations, honoured = table.desk.world.wall, 0, dict[bytes, int]()
    for _ in range(200):
        table.desk.world.pass_ms(WINDOW // 8)
        table.window_ms = WINDOW
        if table.turn():
            rotated_at, rotations = table.desk.world.wall, rotations + 1
        table.window_ms = 3 * WINDOW
        if table.desk.world.wall - rotated_at >= late_ms and table.row().window_ms < table.window_ms:
            table.turn()
        key, ends_at = table.write()
        honoured[key] = ends_at
        for known, until in honoured.items():
            assert table.has(known) or until <= table.desk.world.wall
    assert rotations > 5, "and others are freed"
    assert not table.has(next(iter(honoured)))


def test_a_jump_of_the_clock_does_not_turn_a_table() -> None:
    table = Turning()
    table.turn()
    table.desk.world.wall += 100 * WINDOW
    assert not table.turn()
    table.desk.world.pass_ms(HOLD_MS)
    assert table.turn()


def test_two_looks_in_one_batch_turn_once() -> None:
    table = Turning()
    table.turn()
    key, _ = table.write()
    table.desk.world.pass_ms(WINDOW)
    turn, contract = Turn(RECEIPT, WINDOW), Generations({RECEIPT: WINDOW})
    assert table.desk.answers(turn, turn, contract=contract) == [True, False]
    assert table.has(key)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("pass"), st.integers(1, 3 * WINDOW)),
            st.tuples(st.just("window"), st.integers(1, 3 * WINDOW)),
            st.tuples(st.just("write"), st.just(0)),
            st.tuples(st.just("turn"), st.just(0)),
        ),
        max_size=40,
    )
)
def test_no_receipt_is_dropped_before_its_end(steps: list[tuple[str, int]]) -> None:
    table = Turning()
    table.turn()
    honoured: dict[bytes, int] = {}
    for what, number in steps:
        if what == "pass":
            table.desk.world.pass_ms(number)
        elif what == "window":
            table.window_ms = number
            table.turn()
        elif what == "write":
            key, ends_at = table.write()
            honoured[key] = ends_at
        else:
            table.turn()
        for key, ends_at in honoured.items():
            assert table.has(key) or ends_at <= table.desk.world.wall
