"""A program is killed (-9) at every point of a function that runs once, started again, and calls it again.

A service that is apart from it counts what arrived, and which keys took effect there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.guardian import guard
from tests.once.charging import AMOUNT, KINDS, POINTS
from tests.once.counter import CounterService, counting
from tests.once.places import Place, fresh_place

ROOT = Path(__file__).parent.parent.parent
UNKNOWN = "OutcomeUnknown"
RAN: dict[str, tuple[object, int]] = dict.fromkeys(POINTS, (AMOUNT, 1))
"""The call is told its result, and one request has arrived."""
ROWS: dict[str, dict[str, tuple[object, int]]] = {
    "refuse": RAN
    | {"behind claim": (UNKNOWN, 0), "before effect": (UNKNOWN, 0)}
    | {"behind effect": (UNKNOWN, 1), "before note": (UNKNOWN, 1)},
    "ask": RAN,
    "retry": RAN | {"behind effect": (AMOUNT, 2), "before note": (AMOUNT, 2)},
}
"""What both further calls are told, and how many requests have arrived in all."""


@pytest.fixture
def counter() -> Iterator[CounterService]:
    """Has counted nothing."""
    with counting() as service:
        yield service


def run(what: str, place: Place, counter: CounterService, on_crash: str) -> str:
    """Run the program to its end; what it printed."""
    guard()
    facts = {"what": what, "place": place.url, "table": place.table}
    words = [
        sys.executable,
        "-m",
        "tests.once.charging",
        json.dumps({**facts, "counter": counter.url, "on_crash": on_crash}),
    ]
    return subprocess.run(words, cwd=ROOT, timeout=120, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.mark.parametrize("on_crash", ROWS)
@pytest.mark.parametrize("kind_of_store", ["sqlite", "postgresql"])
def test_one_effect_or_an_honest_unknown_wherever_the_program_dies(
    tmp_path: Path, counter: CounterService, kind_of_store: str, on_crash: str
) -> None:
    place = fresh_place(kind_of_store, tmp_path)
    run("dying", place, counter, on_crash)
    told = json.loads(run("again", place, counter, on_crash))
    arrived = counter.keys("/charges")
    found = {case: (answers, arrived.count(case)) for case, answers in told.items()}
    expected = {
        f"{kind} {point}": ([said, said], count) for kind in KINDS for point, (said, count) in ROWS[on_crash].items()
    }
    assert found == expected
    # A service that honours the key, as `retry` asks for, has one effect however often it is asked.
    assert set(counter.effects) == {case for case, (_, count) in expected.items() if count > 0}
