"""What a cursor means for the client that was given it: every step of a replica's progress."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from semel.contracts.deltas.limits import KEPT_ALIASES, MAX_ALIASES
from semel.contracts.deltas.model import Cursor
from semel.contracts.deltas.rules.cursors import Alias, Progress, dump_aliases, load_aliases

Step = Callable[[Progress], Progress]

OF_PUSHES = Alias(20, 25, 10, None)
OF_A_PAGE = Alias(14, 14, 14, 22, 0)
TOLD = Progress(10, 0, (OF_A_PAGE, OF_PUSHES))


def pushes(count: int) -> tuple[Alias, ...]:
    """Numbers of pushes with pages between them: 100, 200 and so on, each standing for a hundred less."""
    return tuple(Alias(number, number, number - 100, None) for number in range(100, 100 * count + 1, 100))


# -- Meaning -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "is_alias"), [(13, False), (14, True), (15, False), (19, False), (20, True), (23, True), (25, True)]
)
def test_numbers_between_the_first_and_the_last_of_pushes_in_a_row_stand_for_something_else(
    number: int, is_alias: bool
) -> None:
    assert TOLD.is_alias(number) is is_alias


MEANINGS: dict[str, tuple[Progress, int, bool, Cursor]] = {
    # name: the progress, the cursor, whether it is the position of an entry, what it means
    "of nobody": (Progress(), 7, False, Cursor(7)),
    "of no push": (TOLD, 26, False, Cursor(26)),
    "the first of pushes": (TOLD, 20, False, Cursor(10, 20)),
    "one of pushes": (TOLD, 23, False, Cursor(10, 23)),
    "the last of pushes": (TOLD, 25, False, Cursor(10, 25)),
    "an entry between pushes": (TOLD, 23, True, Cursor(23)),
    "the end of a page": (TOLD, 14, True, Cursor(14, 22)),
    "a push in a new life": (Progress(3, 40, (Alias(50, 50, 3, None, 40),)), 50, False, Cursor(3, 50, 40)),
    "a page in a new life": (Progress(3, 40, (Alias(3, 3, 3, 0, 40),)), 3, True, Cursor(3, 0, 40)),
    "the newest of two": (Progress(9, 0, (Alias(5, 5, 1, 0), Alias(5, 5, 2, 0))), 5, False, Cursor(2)),
    "an entry between pushes, and the end of an older page": (
        Progress(9, 0, (Alias(22, 22, 22, 30), OF_PUSHES)),
        22,
        True,
        Cursor(22, 30),
    ),
}


@pytest.mark.parametrize("name", MEANINGS)
def test_a_cursor_means(name: str) -> None:
    progress, since, is_entry, meaning = MEANINGS[name]
    assert progress.meaning(since, is_entry=is_entry) == meaning


def test_a_mark_changes_with_every_number_that_is_given_out() -> None:
    steps: list[Step] = [
        lambda progress: progress.pushed(20, is_behind=True),
        lambda progress: progress.pushed(21, is_behind=True),
        lambda progress: progress.given(21, 22, 0, 0),
        lambda progress: progress.given(22, 23, 30, 0),
        lambda progress: progress.pushed(31, is_behind=True),
        lambda progress: progress.pushed(32, is_behind=False),
        lambda progress: progress.told(40),
        lambda progress: progress.rested(40, 50),
    ]
    progress = Progress()
    marks = [progress.mark]
    for step in steps:
        progress = step(progress)
        marks.append(progress.mark)
    assert len(set(marks)) == len(marks)


# -- After a push ------------------------------------------------------------------------------------------------------


def test_the_number_of_a_push_with_nothing_outstanding_means_itself() -> None:
    after = TOLD.pushed(30, is_behind=False)
    assert after == Progress(30, 0, TOLD.aliases)
    assert after.meaning(30, is_entry=False) == Cursor(30)


def test_such_a_push_ends_a_new_life() -> None:
    assert Progress(10, 5).pushed(30, is_behind=False).muted == 0


def is_open(low: int, high: int, start: int, mute: int = 0) -> Alias:
    """Of pushes in a row, to which the next one belongs."""
    return Alias(low, high, start, None, mute, is_open=True)


BEHIND: dict[str, tuple[Progress, tuple[Alias, ...]]] = {
    # name: the progress before a push that answers 30, and the aliases after it
    "the first": (Progress(10), (is_open(30, 30, 10),)),
    "in a row with others": (Progress(10, 0, (OF_A_PAGE, is_open(20, 25, 10))), (OF_A_PAGE, is_open(20, 30, 10))),
    "after a page": (TOLD._replace(seen=26), (OF_A_PAGE, OF_PUSHES, is_open(30, 30, 26))),
    "after a page, and back again": (TOLD, (OF_A_PAGE, OF_PUSHES, is_open(30, 30, 10))),
    "after a page that ended early": (Progress(14, 0, (OF_A_PAGE,)), (OF_A_PAGE, is_open(30, 30, 14))),
    "in a new life": (Progress(10, 15), (is_open(30, 30, 10, 15),)),
}


@pytest.mark.parametrize("name", BEHIND)
def test_the_number_of_a_push_with_something_outstanding_stands_for_more(name: str) -> None:
    before, aliases = BEHIND[name]
    after = before.pushed(30, is_behind=True)
    assert after == before._replace(aliases=aliases)
    assert after.meaning(30, is_entry=False) == Cursor(before.seen, 30, before.muted)


def test_pushes_in_a_row_take_the_room_of_one() -> None:
    progress = Progress(10)
    for number in range(1, 1_000):
        progress = progress.pushed(10 + number, is_behind=True)
    assert progress == Progress(10, 0, (is_open(11, 1_009, 10),))
    assert progress.meaning(500, is_entry=False) == Cursor(10, 500)


def test_the_oldest_go_when_there_are_too_many() -> None:
    aliases = pushes(MAX_ALIASES)
    after = Progress(9_999, 0, aliases).pushed(10_000, is_behind=True)
    assert after.aliases == (*aliases[1:], is_open(10_000, 10_000, 9_999))


ENDS: dict[str, Step] = {
    "a push with nothing outstanding": lambda progress: progress.pushed(50, is_behind=False),
    "a page": lambda progress: progress.given(25, 50, 0, 0),
    "a page that ends early": lambda progress: progress.given(25, 50, 60, 0),
    "a rest": lambda progress: progress.rested(22, 50),
    "news": lambda progress: progress.told(50),
}


@pytest.mark.parametrize("name", ENDS)
def test_pushes_are_in_a_row_until_something_else_is_given_out(name: str) -> None:
    """Else the number that was given out between two of them would be taken for one of theirs."""
    before = Progress(10, 0, (is_open(20, 25, 10),))
    after = ENDS[name](before)
    assert not any(alias.is_open for alias in after.aliases)
    assert after.pushed(70, is_behind=True).meaning(50, is_entry=False) == after.meaning(50, is_entry=False)


# -- After a page ------------------------------------------------------------------------------------------------------


def test_the_end_of_a_page_is_how_far_a_client_was_told() -> None:
    after = TOLD.given(25, 40, 0, 0)
    assert after == Progress(40, 0, TOLD.aliases)
    assert after.meaning(40, is_entry=True) == Cursor(40)


def test_a_page_from_the_beginning_sets_a_client_back() -> None:
    assert Progress(100).given(0, 7, 0, 0) == Progress(7)


@pytest.mark.parametrize(("skip", "mute"), [(90, 0), (0, 80), (90, 80)])
def test_what_is_left_out_behind_a_page_that_ends_early_is_kept(skip: int, mute: int) -> None:
    after = Progress(10).given(10, 40, skip, mute)
    assert after == Progress(40, mute, (Alias(40, 40, 40, skip, mute),))
    assert after.meaning(40, is_entry=True) == Cursor(40, skip, mute)


def test_a_page_that_ends_where_another_did_takes_its_place() -> None:
    before = Progress(40, 0, (Alias(40, 40, 40, 90), OF_PUSHES))
    assert before.given(10, 40, 0, 0).aliases == (OF_PUSHES,)
    assert before.given(10, 40, 95, 0).aliases == (OF_PUSHES, Alias(40, 40, 40, 95, 0))


def test_older_numbers_are_kept_until_the_client_shows_a_later_one() -> None:
    aliases = pushes(MAX_ALIASES)
    newest = 100 * MAX_ALIASES
    before = Progress(newest, 0, aliases)
    assert before.given(100, newest + 1, 0, 0).aliases == aliases
    assert before.given(newest - 1_000, newest + 1, 0, 0).aliases == aliases[-11:]
    assert before.given(newest + 1, newest + 2, 0, 0).aliases == aliases[-KEPT_ALIASES:]


def test_the_end_of_a_page_that_ends_early_pushes_the_oldest_out() -> None:
    aliases = pushes(MAX_ALIASES)
    after = Progress(9_000, 0, aliases).given(1, 9_001, 9_500, 0)
    assert after.aliases == (*aliases[1:], Alias(9_001, 9_001, 9_001, 9_500, 0))


# -- After a rest, and after news --------------------------------------------------------------------------------------


def test_a_cursor_that_rests_stands_for_a_later_one() -> None:
    after = Progress(10, 5, (Alias(12, 12, 10, None),)).rested(12, 90)
    assert after == Progress(90, 0, (Alias(12, 12, 90, 0),))
    assert after.meaning(12, is_entry=False) == Cursor(90)
    assert after.rested(12, 95) == Progress(95, 0, (Alias(12, 12, 95, 0),))


def test_a_cursor_that_rests_leaves_later_numbers_as_they_are() -> None:
    earlier, later = Alias(5, 5, 1, None), Alias(20, 25, 10, None)
    after = Progress(10, 0, (earlier, later)).rested(22, 90)
    assert after.aliases == (later, Alias(22, 22, 90, 0))
    assert after.meaning(22, is_entry=False) == Cursor(90)
    assert after.meaning(21, is_entry=False) == Cursor(10, 21)


def test_what_has_arrived_unasked_is_not_behind_a_number_any_more() -> None:
    early, late = Alias(14, 14, 5, 22), Alias(20, 25, 10, None)
    after = Progress(10, 0, (early, late)).told(40)
    assert after == Progress(40, 0, (early, late._replace(start=40)))
    assert after.meaning(25, is_entry=False) == Cursor(40, 25)
    assert after.meaning(14, is_entry=False) == Cursor(5, 22)


def test_news_of_what_was_told_sets_nobody_back() -> None:
    assert TOLD.told(5) == TOLD


@pytest.mark.parametrize(
    "aliases", [(), (OF_PUSHES,), (OF_A_PAGE, OF_PUSHES, Alias(2**64 - 1, 2**64 - 1, 0, None, 7, is_open=True))]
)
def test_aliases_are_stored_as_they_are(aliases: tuple[Alias, ...]) -> None:
    assert load_aliases(dump_aliases(aliases)) == aliases
