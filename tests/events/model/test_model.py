"""Random clients against real servers that are stopped and killed, and a model that knows every acknowledged id.

Each follower sees every event of its partitions exactly once and in order, no id appears late, every retry gets the
first answer. `python -m tests.events.model` runs as many seeds as you like. The last tests show that the model finds
what it is there to find.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.events.model.cast import churning_cast
from tests.events.model.model import Draft, Feed, Log, Message, Model, Page
from tests.events.model.simulation import Plan, Simulation

RUNS = [
    (Plan("memory", seconds=2.0), 1),
    (Plan("sqlite", seconds=3.0, kills=2, stops=1), 2),
    (Plan("sqlite", seconds=3.0, kills=1, stops=1, crashes=1), 3),
    (Plan("postgres", seconds=3.0, kills=1, stops=1), 4),
]


@pytest.mark.parametrize(("plan", "seed"), RUNS, ids=lambda given: getattr(given, "store", str(given)))
def test_everyone_sees_the_same_log_once_and_in_order(tmp_path: Path, plan: Plan, seed: int) -> None:
    verdict = Simulation(tmp_path, plan, seed, has_shown=lambda verdict: verdict.has_shown_all).run()
    assert not verdict.faults, "\n".join([str(verdict), *verdict.faults])
    assert verdict.events, f"the run has shown nothing: {verdict}"
    assert verdict.has_shown_all, f"the run has shown nothing: {verdict}"


CHURN = [(Plan("sqlite", seconds=5.0), 1), (Plan("sqlite", seconds=5.0), 4), (Plan("postgres", seconds=5.0), 6)]


@pytest.mark.parametrize(("plan", "seed"), CHURN, ids=lambda given: getattr(given, "store", str(given)))
def test_c3_subscriptions_that_change_all_the_time_miss_nothing(tmp_path: Path, plan: Plan, seed: int) -> None:
    """A subscription that counts from the feed's place, and not from its page's, is found by five seeds of seven."""
    verdict = Simulation(tmp_path, plan, seed, churning_cast, has_shown=lambda verdict: verdict.pages > 100).run()
    assert not verdict.faults, "\n".join([str(verdict), *verdict.faults])
    assert verdict.broadcasts, f"the run has shown nothing: {verdict}"


# -- The model itself -------------------------------------------------------------------------------------------------


def event(number: int, *names: str, client_id: str = "ann") -> Message:
    inside = {"type": "t", "payload": number}
    return {
        "id": f"e{number}",
        "client_id": client_id,
        "partitions": list(names or ("p",)),
        "committed_id": number,
        "event": inside,
        "status_updated_at": 1_000 + number,
    }


def drafted(model: Model, *events: Message, owner: str = "ann") -> list[Draft]:
    """The drafts that these events come from, sent and acknowledged."""
    drafts = []
    for one in events:
        draft = Draft(one["id"], tuple(one["partitions"]), one["event"], owner)
        model.drafts.append(draft)
        model.sends(draft, one["client_id"], 1)
        model.commits(draft, one["committed_id"], one["status_updated_at"], "test")
        drafts.append(draft)
    return drafts


LOG = [event(1), event(2, "q"), event(3), event(5, "p", "q")]


def judged(
    log: list[Message] | None = None, *, pages: list[Page] | None = None, feeds: list[Feed] | None = None
) -> str:
    """What the model says when LOG was acknowledged and the log turns out to be something else."""
    model = Model()
    drafted(model, *LOG)
    model.pages += pages or []
    model.feeds += feeds or []
    model.judge(Log(LOG if log is None else log))
    return "\n".join(model.faults)


def test_a_good_log_is_good() -> None:
    pages = [
        Page("", frozenset("p"), 0, 5, (1, 3), True),
        Page("", frozenset("p"), 3, 5, (5,), False),
        Page("", frozenset("q"), 0, 3, (2,), False),
    ]
    feeds = [Feed("", 9, [(1, frozenset("p")), (3, frozenset("pq"))], [3, 5])]
    assert judged(pages=pages, feeds=feeds) == ""


@pytest.mark.parametrize(
    ("log", "fault"),
    [
        (LOG[:3], "is lost"),
        ([*LOG, LOG[1] | {"committed_id": 7}], "is there twice"),
        ([LOG[0] | {"committed_id": 4}, *LOG[1:]], "do not ascend"),
        ([*LOG[:3], LOG[3] | {"status_updated_at": 1}], "the times go back"),
        ([*LOG, event(6)], "nobody has sent"),
        ([*LOG[:3], LOG[3] | {"event": {"type": "t"}}], "another content"),
        ([*LOG[:3], LOG[3] | {"client_id": "bob"}], "nobody has sent"),
    ],
)
def test_a_bad_log_is_found_out(log: list[Message], fault: str) -> None:
    assert fault in judged(log)


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        (Page("", frozenset("p"), 0, 5, (1, 5), False), "the log has [1, 3, 5]"),
        (Page("", frozenset("p"), 0, 4, (1,), False), "has_more is False"),
        (Page("", frozenset("p"), 3, 5, (5,), True), "has_more is True"),
        (Page("", frozenset("q"), 0, 5, (1,), True), "the log has [2, 5]"),
    ],
)
def test_a_page_that_missed_something_is_found_out(page: Page, fault: str) -> None:
    assert fault in judged(pages=[page])


@pytest.mark.parametrize(
    ("feed", "fault"),
    [
        (Feed("", 9, [(0, frozenset("p"))], [1, 5]), "3 was left out"),
        (Feed("", 9, [(0, frozenset("p"))], [1, 3, 3]), "do not ascend"),
        (Feed("", 9, [(0, frozenset("p"))], [1, 2]), "2 was broadcast"),
        (Feed("", 9, [(1, frozenset("p"))], [1]), "1 was broadcast"),
        (Feed("", 9, [], [1]), "without a subscription"),
        (Feed("", 9, [(0, frozenset("p")), (1, frozenset("q"))], [1, 5]), "2 was left out"),
        (Feed("", 1, [(0, frozenset("p"))], [1]), "to its submitter"),
    ],
)
def test_broadcasts_that_are_wrong_are_found_out(feed: Feed, fault: str) -> None:
    assert fault in judged(feeds=[feed])


def test_answers_that_differ_are_found_out() -> None:
    model = Model()
    draft, _ = drafted(model, LOG[0], LOG[1])
    other = Draft(draft.id, draft.partitions, draft.event | {"payload": "other"})
    for one, place in [(draft, 3), (other, 1), (Draft("new", ("p",), draft.event), 2)]:
        model.sends(one, "ann", 1)
        model.commits(one, place, 1_001, "test")
    found = "\n".join(model.faults)
    assert all(fault in found for fault in ("before", "two contents", "belongs to e2 and to new")), found


def test_a_refusal_without_a_cause_is_found_out() -> None:
    model = Model()
    draft = Draft("e9", ("p",), {"type": "t"})
    model.sends(draft, "ann", 1)
    errors: list[Any] = [{"field": "event", "message": "taken"}]
    model.rejects(draft, "validation_failed", errors, "test")
    assert "nobody has sent other content" in model.faults[-1]
    model.judge(Log([event(9) | {"event": {"type": "t"}}]))
    assert any("was refused, yet it is there" in fault for fault in model.faults), model.faults


def test_an_event_that_does_not_follow_the_one_it_expects_is_found_out() -> None:
    for expected, fault in ((3, ""), (1, "e5 expects 1, and 5 follows 3"), (0, "and 5 follows 3")):
        model = Model()
        drafted(model, *LOG[:3])
        [last] = drafted(model, LOG[3] | {"partitions": ["p"]})
        last.if_watermark = expected
        model.judge(Log([*LOG[:3], LOG[3] | {"partitions": ["p"]}]))
        assert fault in "\n".join(model.faults)
        assert bool(fault) == bool(model.faults)


@pytest.mark.parametrize(
    ("expected", "told", "fault"),
    [
        (1, 3, ""),
        (3, 3, "expects 3, told 3"),
        (0, 1, "and 5 was visible before"),
        (1, 4, "no event of its partitions"),
        (1, 2, "no event of its partitions"),
        (1, None, "the watermark is None"),
    ],
)
def test_a_refusal_for_a_wrong_watermark_is_found_out(expected: int, told: Any, fault: str) -> None:
    model = Model()
    drafted(model, *LOG)
    draft = Draft("e9", ("p",), {"type": "t"}, "bob", if_watermark=expected)
    model.drafts.append(draft)
    model.sends(draft, "bob", 1)
    draft.floor = 5 if "before" in fault else 0
    model.mismatches_watermark(draft, told, "test")
    model.judge(Log(LOG))
    assert fault in "\n".join(model.faults)
    assert bool(fault) == bool(model.faults)


def test_a_committed_draft_that_is_refused_for_its_watermark_is_found_out() -> None:
    model = Model()
    drafted(model, *LOG)
    again = Draft("e1", ("p",), LOG[0]["event"], if_watermark=0)
    model.sends(again, "ann", 1)
    model.mismatches_watermark(again, 5, "test")
    assert "was committed, and refused" in model.faults[-1]


def test_a_watermark_that_falls_back_is_found_out() -> None:
    model = Model()
    model.shows(event(7), "test")
    model.watermark(6, model.high, "test")
    assert "7 was visible before" in model.faults[-1]
