"""What a push is told: the server's clock, how many were known, and the entries that others will see."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests.deltas.rig import check_nothing_stored
from tests.deltas.vectors import DRIFT_MS, now_ms, stamp, wall_of
from tests.deltas.wire import CLIENT, Deltas, Message, columns, delta, fresh, hlcs
from tests.harness.together import at_once, in_time, unless_late

FAR_MS = 9_800
"""Further ahead than any clock may be, by almost as much again."""

# -- the server's clock ------------------------------------------------------------------------------------------------


def test_the_clock_never_stands_still(deltas: Deltas, gateway: str) -> None:
    """Each push is told more than every push and every pull before it, whatever it brings."""
    stamps = hlcs()
    known = delta("INSERT", columns(n=0), hlc=next(stamps))
    pushes: list[list[Message]] = [[known], [], [known], [delta(hlc=0)], [delta(hlc=stamp(now_ms() + 4_000))], [known]]
    told = 0
    for push in pushes * 2:
        answer = deltas.push(gateway, push)
        assert answer.hlc > told
        told = max(answer.hlc, deltas.pull(gateway, client=CLIENT).hlc, deltas.pull(gateway).hlc)


def test_the_clock_is_the_time_or_later(deltas: Deltas, gateway: str) -> None:
    before = now_ms()
    answer = deltas.push(gateway, [delta("INSERT")])
    assert before <= wall_of(answer.hlc) <= now_ms()


def test_the_clock_is_beyond_every_stamp_of_the_push(deltas: Deltas, gateway: str) -> None:
    ahead = [stamp(now_ms() + 4_500, counter) for counter in (7, 65_535, 3)]
    answer = deltas.push(gateway, [delta("INSERT", row=str(hlc), hlc=hlc) for hlc in ahead])
    assert answer.hlc > max(ahead)
    assert deltas.push(gateway, []).hlc >= answer.hlc


@pytest.mark.each_store
def test_many_at_once_are_told_different_times(deltas: Deltas, gateway: str) -> None:
    def push(number: int) -> list[int]:
        made = [delta("INSERT", columns(n=number), row=f"{number}-{row}") for row in range(5)]
        return [deltas.push(gateway, [one]).hlc for one in made]

    told = at_once([partial(push, number) for number in range(8)])
    assert all(one == sorted(one) for one in told)
    assert len({hlc for one in told for hlc in one}) == 40


# -- drift -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("counter", [0, 65_535])
def test_five_seconds_ahead_pass(deltas: Deltas, gateway: str, counter: int) -> None:
    """Time goes on until the server looks, which can only help."""
    ahead = delta("INSERT", hlc=stamp(now_ms() + DRIFT_MS, counter))
    assert deltas.push(gateway, [ahead])["duplicates"] == 0


@pytest.mark.parametrize("beyond_ms", [1, 2, 5, 20, 60_000, 10**13])
def test_more_than_five_seconds_ahead_are_refused(deltas: Deltas, beyond_ms: int) -> None:
    """Whether a stamp is beyond the limit depends on when the server looks: some moment between these two."""
    for _ in range(10):
        gateway, before = fresh("gw"), now_ms()
        hlc = stamp(before + DRIFT_MS + beyond_ms)
        told = deltas.push(gateway, [delta("INSERT", columns(n=1), hlc=hlc)], expect=None)
        after = now_ms()
        if told.http == 409:
            break
        assert after >= before + beyond_ms, "it was taken too early"
    else:
        return
    assert told.told == (409, "CLOCK_DRIFT")
    assert told.blamed == [(0, "CLOCK_DRIFT")]
    assert before <= wall_of(told.hlc) <= after
    check_nothing_stored(deltas, gateway)


def test_nothing_is_too_old(deltas: Deltas, gateway: str) -> None:
    old = [delta("INSERT", row=str(hlc), hlc=hlc) for hlc in (0, 1, 65_535, 65_536, stamp(1_000_000))]
    told = deltas.push(gateway, old)
    assert told["deltas"] == old
    assert deltas.log(gateway) == old


def test_drift_is_measured_by_the_clock_and_not_by_what_was_pushed(deltas: Deltas) -> None:
    """A gateway whose own clock is five seconds ahead takes nothing that is ten seconds ahead."""
    in_time(lambda _: push_far_ahead(deltas, fresh("gw")), (FAR_MS - DRIFT_MS) / 1_000)


def push_far_ahead(deltas: Deltas, gateway: str) -> None:
    """What stands still on its way for as long as it is too far ahead is right when it arrives."""
    began = time.monotonic()
    with unless_late(lambda: began, (FAR_MS - DRIFT_MS) / 1_000):
        for ahead_ms in (4_900, 4_950):
            deltas.push(gateway, [delta("INSERT", columns(n=ahead_ms), hlc=stamp(now_ms() + ahead_ms))])
        refused = deltas.push(gateway, [delta("INSERT", hlc=stamp(now_ms() + FAR_MS))], expect=409)
        assert refused.blamed == [(0, "CLOCK_DRIFT")]


# -- entries -----------------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """A delta as (op, time, columns), and the entry that it gives: (op, columns), with `resolved`, or none."""

    op: str
    at: int
    cells: Message
    entry: tuple[str, Message] | None
    resolved: bool = False


INSERTED = Step("INSERT", 10, {"title": "t", "note": "n"}, ("INSERT", {"title": "t", "note": "n"}))
ENTRIES: dict[str, tuple[list[Step], Message | None]] = {
    "insert": ([INSERTED], {"title": "t", "note": "n"}),
    "update of nothing": ([Step("UPDATE", 10, {"title": "t"}, ("UPDATE", {"title": "t"}))], {"title": "t"}),
    "delete of nothing": ([Step("DELETE", 10, {}, ("DELETE", {}))], None),
    "delete of nothing, again and later": (
        [Step("DELETE", 10, {}, ("DELETE", {})), Step("DELETE", 20, {}, ("DELETE", {}))],
        None,
    ),
    "delete of nothing, again and earlier": (
        [Step("DELETE", 20, {}, ("DELETE", {})), Step("DELETE", 10, {}, None)],
        None,
    ),
    "insert after an insert": (
        [INSERTED, Step("INSERT", 20, {"title": "u"}, ("UPDATE", {"title": "u"}))],
        {"title": "u", "note": "n"},
    ),
    "update that wins": (
        [INSERTED, Step("UPDATE", 20, {"note": "m"}, ("UPDATE", {"note": "m"}))],
        {"title": "t", "note": "m"},
    ),
    "update that loses": ([INSERTED, Step("UPDATE", 5, {"note": "m"}, None)], {"title": "t", "note": "n"}),
    "update that wins in part": (
        [
            INSERTED,
            Step("UPDATE", 5, {"note": "m", "tag": 1, "title": "x", "age": 2}, ("UPDATE", {"tag": 1, "age": 2}), True),
        ],
        {"title": "t", "note": "n", "tag": 1, "age": 2},
    ),
    "insert that wins in part": (
        [INSERTED, Step("INSERT", 5, {"tag": 1, "title": "x"}, ("UPDATE", {"tag": 1}), True)],
        {"title": "t", "note": "n", "tag": 1},
    ),
    "update without columns": ([INSERTED, Step("UPDATE", 20, {}, None)], {"title": "t", "note": "n"}),
    "delete": ([INSERTED, Step("DELETE", 20, {}, ("DELETE", {}))], None),
    "delete that comes late": ([INSERTED, Step("DELETE", 5, {}, None)], {"title": "t", "note": "n"}),
    "delete under a later column": (
        [
            INSERTED,
            Step("UPDATE", 30, {"title": "u"}, ("UPDATE", {"title": "u"})),
            Step("DELETE", 20, {}, ("UPDATE", {"note": None}), True),
        ],
        {"title": "u"},
    ),
    "edit after a delete": (
        [
            INSERTED,
            Step("DELETE", 20, {}, ("DELETE", {})),
            Step("UPDATE", 30, {"title": "u"}, ("INSERT", {"title": "u"})),
        ],
        {"title": "u"},
    ),
    "insert after a delete": (
        [
            INSERTED,
            Step("DELETE", 20, {}, ("DELETE", {})),
            Step("INSERT", 30, {"note": "m"}, ("INSERT", {"note": "m"})),
        ],
        {"note": "m"},
    ),
    "edit before a delete": (
        [Step("DELETE", 20, {}, ("DELETE", {})), Step("UPDATE", 10, {"title": "u"}, None)],
        None,
    ),
    "insert before a delete": (
        [Step("DELETE", 20, {}, ("DELETE", {})), Step("INSERT", 10, {"title": "u"}, None)],
        None,
    ),
    "an old column after resurrection": (
        [
            Step("DELETE", 20, {}, ("DELETE", {})),
            Step("UPDATE", 30, {"title": "u"}, ("INSERT", {"title": "u"})),
            Step("UPDATE", 10, {"note": "old"}, None),
        ],
        {"title": "u"},
    ),
    "values that are null": (
        [INSERTED, Step("UPDATE", 20, {"note": None}, ("UPDATE", {"note": None}))],
        {"title": "t"},
    ),
}


@pytest.mark.parametrize(("steps", "state"), ENTRIES.values(), ids=ENTRIES.keys())
def test_the_entry_of_a_delta(deltas: Deltas, gateway: str, steps: list[Step], state: Message | None) -> None:
    """Each delta comes from a client of its own, so that nothing but the stamps decides."""
    base, seen = stamp(1_770_000_000_000), []
    for number, step in enumerate(steps):
        author = f"client-{number}"
        made = delta(step.op, columns(**step.cells), client=author, hlc=base + step.at)
        told = deltas.push(gateway, [made], client=author)
        expected: list[Message] = []
        if step.entry is not None:
            op, cells = step.entry
            expected = [made | {"op": op, "columns": columns(**cells)} | ({"resolved": True} if step.resolved else {})]
        assert told["deltas"] == expected, step
        seen += expected
    assert deltas.log(gateway) == seen
    assert deltas.rows(gateway) == ({} if state is None else {("todos", "row-1"): state})
    assert deltas.gauges(gateway)["deltaCount"] == len(steps)


TIES: dict[str, tuple[list[tuple[str, str, Message]], Message]] = {
    "the greater client wins": ([("UPDATE", "a", {"x": 1}), ("UPDATE", "b", {"x": 2})], {"x": 2}),
    "a prefix is smaller": ([("UPDATE", "a", {"x": 1}), ("UPDATE", "aa", {"x": 2})], {"x": 2}),
    "code units, not code points": ([("UPDATE", "\U0001f389", {"x": 1}), ("UPDATE", "\uff5e", {"x": 2})], {"x": 2}),
    "an edit of the greater client outlives a delete": ([("DELETE", "a", {}), ("UPDATE", "b", {"x": 2})], {"x": 2}),
}


@pytest.mark.parametrize("is_turned", [False, True], ids=["in order", "turned"])
@pytest.mark.parametrize(("made", "state"), TIES.values(), ids=TIES.keys())
def test_stamps_of_one_moment(
    deltas: Deltas, gateway: str, made: list[tuple[str, str, Message]], state: Message, is_turned: bool
) -> None:
    for op, client, cells in reversed(made) if is_turned else made:
        deltas.push(gateway, [delta(op, columns(**cells), client=client)], client=client)
    assert deltas.rows(gateway) == {("todos", "row-1"): state}


@pytest.mark.parametrize("is_turned", [False, True], ids=["in order", "turned"])
def test_one_client_and_one_moment_the_greater_id_wins(deltas: Deltas, gateway: str, is_turned: bool) -> None:
    made = sorted((delta("UPDATE", columns(x=value)) for value in range(8)), key=lambda one: one["deltaId"])
    winner: Any = made[-1]["columns"][0]["value"]
    for one in reversed(made) if is_turned else made:
        deltas.push(gateway, [one])
    assert deltas.rows(gateway) == {("todos", "row-1"): {"x": winner}}


def test_one_push_over_several_tables(deltas: Deltas, gateway: str) -> None:
    made = [delta("INSERT", columns(n=number), table=f"t{number % 3}", row=f"r{number % 2}") for number in range(6)]
    told = deltas.push(gateway, made)
    assert told["deltas"] == made
    assert deltas.gauges(gateway)["indexSize"] == 6


def test_gateways_know_nothing_of_one_another(deltas: Deltas) -> None:
    one, other = fresh("gw"), fresh("gw")
    made = delta("INSERT", columns(n=1))
    for gateway in (one, other):
        told = deltas.push(gateway, [made])
        assert (told["duplicates"], told["deltas"]) == (0, [made])
    deltas.push(one, [delta("DELETE", hlc="115998720000000001")])
    assert deltas.rows(one) == {}
    assert deltas.rows(other) == {("todos", "row-1"): {"n": 1}}


def test_one_push_of_many_changes_to_one_row(deltas: Deltas, gateway: str) -> None:
    """The order of a push fixes the order of its entries, not the result."""
    stamps = hlcs()
    made = [delta("UPDATE", columns(x=number), hlc=next(stamps)) for number in range(5)]
    told = deltas.push(gateway, [made[2], made[0], made[4], made[1], made[3]])
    assert told.ids == [made[2]["deltaId"], made[4]["deltaId"]]
    assert deltas.rows(gateway) == {("todos", "row-1"): {"x": 4}}
