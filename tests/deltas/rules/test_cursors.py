"""What a cursor means for the client that was given it: every step of a replica's progress."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from semel.surfaces.deltas.limits import KEPT_ALIASES, MAX_ALIASES
from semel.surfaces.deltas.model import DeltaCursor
from semel.surfaces.deltas.rules.cursors import CursorAlias, ReplicaProgress, dump_aliases, load_aliases

Step = Callable[[ReplicaProgress], ReplicaProgress]

OF_PUSHES = CursorAlias(21, 25, 10, None)
OF_A_PAGE = CursorAlias(14, 14, 14, 22, 0)
TOLD = ReplicaProgress(10, 0, (OF_A_PAGE, OF_PUSHES))


def pushes(count: int) -> tuple[CursorAlias, ...]:
    """Numbers of pushes with pages between them: 101, 201 and so on, each standing for a hundred less."""
    return tuple(CursorAlias(number, number, number - 101, None) for number in range(101, 100 * count + 2, 100))


# -- Meaning -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "is_alias"),
    [(13, False), (14, True), (15, False), (20, False), (21, True), (22, False), (23, True), (25, True), (27, False)],
)
def test_odd_numbers_from_the_first_to_the_last_of_pushes_stand_for_something_else(number: int, is_alias: bool) -> None:
    assert TOLD.is_alias(number) is is_alias


def test_up_to_schema_version_7_numbers_of_pushes_could_be_even() -> None:
    (alias,) = load_aliases(b"[[20,24,10,null,0,true]]")
    assert ReplicaProgress(10, 0, (alias,)).meaning(22, is_entry=False) == DeltaCursor(10, 22, doubt=22)
    assert load_aliases(dump_aliases((alias,))) == (alias,)
    assert load_aliases(b"[[14,14,14,22,0,false]]") == (OF_A_PAGE,)


MEANINGS: dict[str, tuple[ReplicaProgress, int, bool, DeltaCursor]] = {
    # name: the progress, the cursor, whether it is the position of an entry, what it means
    "of nobody": (ReplicaProgress(), 7, False, DeltaCursor(7)),
    "of no push": (TOLD, 27, False, DeltaCursor(27)),
    "the first of pushes": (TOLD, 21, False, DeltaCursor(10, 21, doubt=21)),
    "one of pushes": (TOLD, 23, False, DeltaCursor(10, 23, doubt=23)),
    "the last of pushes": (TOLD, 25, False, DeltaCursor(10, 25, doubt=25)),
    "an entry between pushes": (TOLD, 23, True, DeltaCursor(23)),
    "the end of a whole page between pushes": (TOLD, 24, False, DeltaCursor(24)),
    "the end of a page": (TOLD, 14, True, DeltaCursor(14, 22, doubt=22)),
    "a push in a new life": (
        ReplicaProgress(3, 40, (CursorAlias(51, 51, 3, None, 40),)),
        51,
        False,
        DeltaCursor(3, 51, 40, doubt=51),
    ),
    "a page in a new life": (ReplicaProgress(3, 40, (CursorAlias(3, 3, 3, 0, 40),)), 3, True, DeltaCursor(3, 0, 40)),
    "the newest of two": (
        ReplicaProgress(9, 0, (CursorAlias(5, 5, 1, 0), CursorAlias(5, 5, 2, 0))),
        5,
        False,
        DeltaCursor(2),
    ),
    "a push behind a page that was not shown": (
        ReplicaProgress(3, 0, (CursorAlias(51, 51, 9, None, back=3),)),
        51,
        False,
        DeltaCursor(9, 51, back=3, doubt=51),
    ),
    "a page in doubt beyond the push": (
        ReplicaProgress(3, 0, (CursorAlias(60, 60, 3, 51, doubt=60),)),
        60,
        True,
        DeltaCursor(3, 51, doubt=60),
    ),
    "an entry between pushes, and the end of an older page": (
        ReplicaProgress(9, 0, (CursorAlias(23, 23, 23, 30), OF_PUSHES)),
        23,
        True,
        DeltaCursor(23, 30, doubt=30),
    ),
}


@pytest.mark.parametrize("name", MEANINGS)
def test_a_cursor_means(name: str) -> None:
    progress, since, is_entry, meaning = MEANINGS[name]
    assert progress.meaning(since, is_entry=is_entry) == meaning


def test_a_mark_changes_with_every_number_that_is_remembered() -> None:
    steps: list[Step] = [
        lambda progress: progress.pushed(21, is_behind=True),
        lambda progress: progress.pushed(23, is_behind=True),
        lambda progress: progress.noted(0, 22, DeltaCursor(22, 23)),
        lambda progress: progress.noted(22, 24, DeltaCursor(24, 30)),
        lambda progress: progress.pushed(31, is_behind=True),
        lambda progress: progress.pushed(32, is_behind=False),
        lambda progress: progress.gone_back(32, 40),
        lambda progress: progress.rested(40, 50),
    ]
    progress = ReplicaProgress()
    marks = [progress.mark]
    for step in steps:
        progress = step(progress)
        marks.append(progress.mark)
    assert len(set(marks)) == len(marks)


# -- What is shown -----------------------------------------------------------------------------------------------------


def test_g1_whoever_asks_behind_a_cursor_has_shown_what_it_stands_for() -> None:
    assert TOLD.meaning(40, is_entry=True).shown == 40
    assert TOLD.meaning(14, is_entry=True).shown == 14
    assert TOLD.meaning(25, is_entry=False).shown == 10, "a push's number shows nothing of pages"
    assert DeltaCursor(9, 51, back=3).shown == 3


# -- After a push ------------------------------------------------------------------------------------------------------


def test_the_number_of_a_push_with_nothing_outstanding_means_itself() -> None:
    after = TOLD.pushed(30, is_behind=False)
    assert after == ReplicaProgress(30, 0, TOLD.aliases)
    assert after.meaning(30, is_entry=False) == DeltaCursor(30)


def test_such_a_push_ends_a_new_life() -> None:
    assert ReplicaProgress(10, 5).pushed(30, is_behind=False).muted == 0


BEHIND: dict[str, tuple[ReplicaProgress, tuple[CursorAlias, ...]]] = {
    # name: the progress before a push that answers 31, and the aliases after it
    "the first": (ReplicaProgress(10), (CursorAlias(31, 31, 10, None),)),
    "in a row with others": (TOLD, (OF_A_PAGE, CursorAlias(21, 31, 10, None))),
    "after more was shown": (TOLD._replace(seen=26), (OF_A_PAGE, OF_PUSHES, CursorAlias(31, 31, 26, None))),
    "after the end of a page was shown": (
        ReplicaProgress(14, 0, (OF_A_PAGE,)),
        (OF_A_PAGE, CursorAlias(31, 31, 14, None)),
    ),
    "in a new life": (ReplicaProgress(10, 15), (CursorAlias(31, 31, 10, None, 15),)),
    "in a row with others of another life": (
        ReplicaProgress(10, 15, (OF_PUSHES,)),
        (OF_PUSHES, CursorAlias(31, 31, 10, None, 15)),
    ),
}


@pytest.mark.parametrize("name", BEHIND)
def test_the_number_of_a_push_with_something_outstanding_stands_for_more(name: str) -> None:
    before, aliases = BEHIND[name]
    after = before.pushed(31, is_behind=True)
    assert after == before._replace(aliases=aliases)
    assert after.meaning(31, is_entry=False) == DeltaCursor(before.seen, 31, before.muted, doubt=31)


def test_g1_behind_a_page_that_ended_early_and_was_not_shown_a_push_goes_on_and_then_begins_again() -> None:
    """Else a client that pushes between any two pulls would be given the same page for ever."""
    after = ReplicaProgress(10, 0, (OF_A_PAGE,)).pushed(31, is_behind=True)
    assert after.aliases == (OF_A_PAGE, CursorAlias(31, 31, 14, None, back=10))
    assert after.meaning(31, is_entry=False) == DeltaCursor(14, 31, back=10, doubt=31)
    assert after.meaning(31, is_entry=False).shown == 10
    again = after.pushed(33, is_behind=True)
    assert again.aliases == (OF_A_PAGE, CursorAlias(31, 33, 14, None, back=10))


def test_pushes_in_a_row_take_the_room_of_one() -> None:
    progress = ReplicaProgress(10)
    for number in range(11, 2_001, 2):
        progress = progress.pushed(number, is_behind=True)
    assert progress == ReplicaProgress(10, 0, (CursorAlias(11, 1_999, 10, None),))
    assert progress.meaning(501, is_entry=False) == DeltaCursor(10, 501, doubt=501)


def test_the_oldest_go_when_there_are_too_many() -> None:
    aliases = pushes(MAX_ALIASES)
    before = ReplicaProgress(50, 0, aliases)
    after = before.pushed(10_001, is_behind=True)
    assert after.aliases == (*aliases[1:], CursorAlias(10_001, 10_001, 50, None))


AGAIN: dict[str, tuple[ReplicaProgress, bool, int | None]] = {
    # name: the progress, whether something is outstanding, and what a push of nothing new answers
    "nothing outstanding": (TOLD, False, 90),
    "nothing outstanding, and the end is a number of old": (
        ReplicaProgress(10, 0, (CursorAlias(90, 90, 10, None, is_old=True),)),
        False,
        None,
    ),
    "in a row": (TOLD, True, 25),
    "more was shown": (TOLD._replace(seen=40), True, 40),
    "more was shown, but not what it pushed": (TOLD._replace(seen=24), True, None),
    "in a new life": (ReplicaProgress(10, 15), True, None),
}


@pytest.mark.parametrize("name", AGAIN)
def test_g5_a_push_of_nothing_new_answers_a_number_that_is_known(name: str) -> None:
    progress, is_behind, number = AGAIN[name]
    assert progress.again(is_behind=is_behind, high_water=90) == number


# -- After a page ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rest",
    [
        DeltaCursor(40, 90, doubt=90),
        DeltaCursor(40, 0, 80),
        DeltaCursor(40, 90, 80, 3, 90),
        DeltaCursor(3, 30, doubt=40),
    ],
)
def test_what_is_left_out_behind_a_page_that_ends_early_is_kept(rest: DeltaCursor) -> None:
    after = ReplicaProgress(10).noted(10, 40, rest)
    assert after == ReplicaProgress(10, 0, (CursorAlias(40, 40, *rest),))
    assert after.meaning(40, is_entry=True) == rest


def test_a_page_that_ends_where_another_did_takes_its_place() -> None:
    before = ReplicaProgress(10, 0, (CursorAlias(40, 40, 40, 90), OF_PUSHES))
    assert before.is_end(40)
    assert before.noted(10, 40, None).aliases == (OF_PUSHES,)
    assert before.noted(10, 40, DeltaCursor(40, 95)).aliases == (OF_PUSHES, CursorAlias(40, 40, 40, 95))


def test_older_numbers_are_kept_until_the_client_shows_a_later_one() -> None:
    aliases = pushes(MAX_ALIASES)
    newest = 100 * MAX_ALIASES + 1
    before = ReplicaProgress(0, 0, aliases)
    assert before.noted(100, newest, None).aliases == aliases[:-1]
    assert before.noted(newest - 1_000, newest + 1, None).aliases == aliases[-11:]
    assert before.noted(newest + 1, newest + 2, None).aliases == aliases[-KEPT_ALIASES:]


def test_whoever_goes_back_lives_anew() -> None:
    after = ReplicaProgress(100, 0, (OF_PUSHES,), b"").gone_back(7, 300)
    assert (after.seen, after.muted, after.aliases) == (7, 300, (OF_PUSHES,))
    assert len({b"", after.life, after.gone_back(7, 300).life}) == 3


# -- After a rest ------------------------------------------------------------------------------------------------------


def test_a_cursor_that_rests_stands_for_a_later_one() -> None:
    after = ReplicaProgress(10, 5, (CursorAlias(13, 13, 10, None),)).rested(13, 90)
    assert after == ReplicaProgress(90, 0, (CursorAlias(13, 13, 90, 0),))
    assert after.meaning(13, is_entry=False) == DeltaCursor(90)
    assert after.rested(13, 95) == ReplicaProgress(95, 0, (CursorAlias(13, 13, 95, 0),))


def test_a_cursor_that_rests_leaves_later_numbers_as_they_are() -> None:
    earlier, later = CursorAlias(5, 5, 1, None), CursorAlias(21, 25, 10, None)
    after = ReplicaProgress(10, 0, (earlier, later)).rested(23, 90)
    assert after.aliases == (later, CursorAlias(23, 23, 90, 0))
    assert after.meaning(23, is_entry=False) == DeltaCursor(90)
    assert after.meaning(21, is_entry=False) == DeltaCursor(10, 21, doubt=21)


@pytest.mark.parametrize(
    "aliases", [(), (OF_PUSHES,), (OF_A_PAGE, OF_PUSHES, CursorAlias(2**64 - 1, 2**64 - 1, 0, None, 7, 3, 9))]
)
def test_aliases_are_stored_as_they_are(aliases: tuple[CursorAlias, ...]) -> None:
    assert load_aliases(dump_aliases(aliases)) == aliases
