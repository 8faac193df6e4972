"""What clients that work side by side see of one another: the acceptance scenarios A1 to A7.

The clients are scripted after the published ones. Over PostgreSQL their requests go to two nodes in turn.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.deltas.cast import Cast
from tests.deltas.client import BATCH, MAX_TRIES, PAGE
from tests.deltas.vectors import forged
from tests.deltas.wire import Deltas

LATER_MS = 1_000
"""A clock so much ahead gives every stamp after those of a right one."""
STRATEGIES = [pytest.param(True, id="push first"), pytest.param(False, id="pull first")]


@pytest.fixture
def cast(deltas: Deltas, gateway: str) -> Iterator[Cast]:
    """Clients on the store of the test."""
    with Cast(deltas, gateway) as made:
        yield made


@pytest.mark.parametrize("pushes_first", STRATEGIES)
def test_a1_rows_of_one_client_reach_another(cast: Cast, pushes_first: bool) -> None:
    one, two = (cast.client(name, pushes_first=pushes_first) for name in ("c1", "c2"))
    for number in range(3):
        one.insert(f"r{number}", title=f"t{number}", done=0)
    one.cycle()
    two.cycle()
    assert len(two.rows()) == 3
    assert two.rows() == one.rows()
    cast.settle()
    cast.check_untroubled()
    cast.agree()


def test_a2_a_push_whose_answer_is_lost_is_made_once(cast: Cast) -> None:
    one = cast.client()
    made = one.insert("r", title="t")
    assert one.push(lose=True) is None
    answer = one.push()
    assert answer is not None
    assert (answer["accepted"], answer["duplicates"], answer["deltas"]) == (1, 1, [])
    assert [entry["deltaId"] for entry in cast.deltas.log(cast.gateway)] == [made["deltaId"]]
    cast.agree()


@pytest.mark.parametrize("pushes_first", STRATEGIES)
def test_a3_columns_of_two_writers_are_merged(cast: Cast, pushes_first: bool) -> None:
    one, two = cast.client("c1"), cast.client("c2", ahead_ms=LATER_MS)
    one.insert("r", title="t0", note="n0")
    one.cycle()
    two.cycle()
    one.update("r", title="t1", note="n1")
    two.update("r", title="t2")
    two.push()
    one.push()
    one.pull()
    two.pull()
    three = cast.client("c3", pushes_first=pushes_first)
    three.cycle()
    for each in (one, two, three):
        assert each.rows() == {("todos", "r"): {"title": "t2", "note": "n1"}}, cast.story()
    cast.check_untroubled()
    cast.agree()


def test_a4_a_push_does_not_move_a_client_past_what_it_has_not_pulled(cast: Cast) -> None:
    one, two = cast.client("c1"), cast.client("c2")
    two.insert("r0", title="first")
    two.push()
    one.pull()
    two.insert("r2", title="of two")
    two.push()
    one.insert("r1", title="of one")
    one.push()
    assert one.pull()[-1]["rowId"] == "r2"
    assert one.rows()["todos", "r2"] == {"title": "of two"}
    cast.settle()
    cast.check_untroubled()
    cast.agree()


def test_a5_a_long_absence_is_made_up_for_page_by_page(anywhere: Deltas, gateway: str) -> None:
    with Cast(anywhere, gateway) as cast:
        writer, reader = cast.client("c1"), cast.client("c2")
        writer.insert("first", title="t")
        writer.push()
        reader.cycle()
        for number in range(2_500):
            writer.insert(f"r{number}", title=f"t{number}")
        writer.push_all()
        assert len(writer.acknowledged) == 2_501
        assert [len(reader.cycle()) for _ in range(4)] == [PAGE, PAGE, 500, 0]
        cast.check_untroubled()
        cast.agree()


def test_a6_what_was_written_long_ago_and_pushed_late_is_not_skipped(cast: Cast) -> None:
    offline, writer, reader = cast.client("c1", ahead_ms=-60_000), cast.client("c2"), cast.client("c3")
    offline.insert("old", title="written a minute ago")
    for number in range(3):
        writer.insert(f"r{number}", title="t")
        writer.cycle()
        reader.cycle()
    assert len(reader.rows()) == 3
    offline.push()
    assert [entry["rowId"] for entry in reader.pull()] == ["old"]
    cast.settle()
    cast.check_untroubled()
    cast.agree()


def test_a7_an_edit_after_a_delete_brings_the_row_back(cast: Cast) -> None:
    one, two, three = cast.client("c1"), cast.client("c2", ahead_ms=LATER_MS), cast.client("c3")
    one.insert("r", title="t", note="n")
    for each in (one, two, three):
        each.cycle()
    one.delete("r")
    two.update("r", title="edited")
    one.cycle()
    three.cycle()
    assert three.rows() == {}
    two.cycle()
    three.cycle()
    newcomer = cast.client("c4")
    newcomer.cycle()
    for each in (three, newcomer):
        assert each.rows() == {("todos", "r"): {"title": "edited"}}, cast.story()
    cast.settle()
    cast.check_untroubled()
    cast.agree()


# -- beginnings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pushes_first", STRATEGIES)
def test_a_newcomer_with_rows_of_its_own_gets_those_of_the_others(cast: Cast, pushes_first: bool) -> None:
    host = cast.client("c1")
    host.insert("r1", title="of the host")
    host.cycle()
    newcomer = cast.client("c2", pushes_first=pushes_first)
    newcomer.insert("r2", title="of the newcomer")
    newcomer.cycle()
    cast.settle()
    assert len(newcomer.rows()) == 2, cast.story()
    cast.check_untroubled()
    cast.agree()


@pytest.mark.parametrize("pushes_first", STRATEGIES)
def test_a_newcomer_who_begins_to_write_is_not_given_twice_what_it_has(cast: Cast, pushes_first: bool) -> None:
    host = cast.client("c1")
    host.insert("r1", title="of the host")
    host.cycle()
    newcomer = cast.client("c2", pushes_first=pushes_first)
    newcomer.cycle()
    assert len(newcomer.rows()) == 1
    newcomer.insert("r2", title="of the newcomer")
    newcomer.push()
    host.insert("r3", title="of the host")
    host.cycle()
    cast.settle()
    cast.check_untroubled()
    cast.agree()


@pytest.mark.parametrize("pushes_first", STRATEGIES)
def test_a_client_that_came_before_the_first_row_misses_nothing(cast: Cast, pushes_first: bool) -> None:
    early, writer = cast.client("c1", pushes_first=pushes_first), cast.client("c2")
    early.cycle()
    assert early.cursor == 0
    writer.insert("r1", title="t")
    writer.cycle()
    early.insert("r2", title="t")
    early.cycle()
    cast.settle()
    cast.check_untroubled()
    cast.agree()


# -- what the published client gives up -------------------------------------------------------------------------------


def test_a_change_that_waits_gives_way_to_a_newer_one_that_is_pulled_first(cast: Cast) -> None:
    one, two = cast.client("c1", pushes_first=False), cast.client("c2", ahead_ms=LATER_MS)
    two.insert("r", title="t0")
    two.cycle()
    one.cycle()
    waiting = one.update("r", title="older")
    two.update("r", title="newer")
    two.cycle()
    one.cycle()
    assert one.dropped == [waiting]
    assert one.rows() == {("todos", "r"): {"title": "newer"}}
    cast.settle()
    assert not one.failures
    cast.agree()


def test_a_batch_with_a_forged_delta_is_refused_whole_until_the_client_gives_it_up(cast: Cast) -> None:
    one = cast.client()
    for number in range(3):
        one.insert(f"r{number}", title="t")
    one.outbox[1].delta = forged(one.outbox[1].delta)
    for _ in range(MAX_TRIES):
        assert one.push() is None
    assert cast.deltas.log(cast.gateway) == []
    assert one.push() is None
    assert len(one.dropped) == 3
    one.insert("r9", title="t")
    assert one.push() is not None
    assert [entry["rowId"] for entry in cast.deltas.log(cast.gateway)] == ["r9"]


def test_a_full_outbox_goes_in_batches_and_oldest_first(cast: Cast) -> None:
    one = cast.client()
    for number in range(BATCH + 1):
        one.insert(f"r{number}", title="t")
    assert [one.push() is not None, len(one.outbox)] == [True, 1]
    one.cycle()
    assert one.outbox == []
    assert [entry["rowId"] for entry in cast.deltas.log(cast.gateway)] == [f"r{number}" for number in range(BATCH + 1)]
    cast.check_untroubled()
    cast.agree()
