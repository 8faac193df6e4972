"""`kill -9` of servers under a load of pushes and pulls: nothing acknowledged is lost, doubled or told otherwise.

A short run in every test run; `make crash SURFACE=deltas` kills as often as you like. The last tests show that the
verdict finds what it is there to find.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from semel.surfaces.deltas.model import Delta, DeltaEntry, DeltaOp
from semel.surfaces.deltas.reading import DeltaGauges, MergedRow
from tests.deltas.crash.caller import Given
from tests.deltas.crash.parties import LOAD, Batch
from tests.deltas.crash.run import DeltasUnderKills
from tests.deltas.crash.verdict import Gateway, judge_batches, judge_gateway, judge_numbers, judge_rows
from tests.deltas.model.requests import make_column, make_delta
from tests.deltas.pushed_log import LoggedDelta
from tests.harness.caller import Told
from tests.harness.crash.run import CrashPlan, check_lives
from tests.harness.crash.verdict import Verdict


@pytest.mark.timeout(300)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_every_acknowledged_delta_is_there_once(tmp_path: Path, store: str) -> None:
    check_lives(DeltasUnderKills, CrashPlan(tmp_path, 2, store, seed=4))


# -- The verdict itself ------------------------------------------------------------------------------------------------


def delta_of(number: int, op: DeltaOp = DeltaOp.UPDATE, row: str = '"r"') -> Delta:
    return make_delta(op, "todos", row, '"w"', number, [] if op is DeltaOp.DELETE else [make_column("a", number)])


def acknowledged(duplicates: int, total: int) -> Told:
    return Told(200, {"accepted": total, "duplicates": duplicates})


class Scene:
    """A run that went well: a batch of two, one that was answered at the second try, one abandoned and one refused."""

    def __init__(self) -> None:
        first, second, third, bad = delta_of(1), delta_of(2), delta_of(3, DeltaOp.DELETE), delta_of(9)
        self.batches = [
            Batch((first, second), answers=[acknowledged(0, 2), acknowledged(2, 2)]),
            Batch((third,), answers=[acknowledged(1, 1)], unknown=1),
            Batch((delta_of(4), delta_of(5)), unknown=1),
            Batch((bad,), is_poisoned=True, answers=[Told(422, {"code": "VALIDATION_ERROR"})]),
        ]
        self.log = [self.logged(one) for one in (first, second, third)]
        self.fresh = [self.entry(one) for one in (first, second, third)]
        self.reader = list(self.fresh)
        self.rows = [MergedRow("todos", '"r"', 3, '"w"', third.id, (), False)]
        self.gauges = DeltaGauges(3, 1, 10, 3)
        self.given = [
            Given(LOAD, True, 0.0, 1.0, 10),
            Given(LOAD, False, 1.5, 2.0, 12),
            Given(LOAD, True, 3.0, 4.0, 13),
        ]

    @staticmethod
    def logged(delta: Delta) -> LoggedDelta:
        place = delta.table, delta.row, delta.client
        return LoggedDelta(delta.hlc, delta.op, *place, delta.hlc, delta.id, delta.columns_text.decode(), delta.op)

    @staticmethod
    def entry(delta: Delta) -> DeltaEntry:
        return DeltaEntry(0, delta.op, delta.table, delta.row, delta.client, delta.hlc, delta.id, delta.columns_text)

    def faults(self) -> str:
        """What the verdict finds."""
        verdict = Verdict()
        gateway = Gateway(LOAD, self.log, self.rows, self.gauges, self.fresh, {"reader": self.reader})
        judge_batches(verdict, self.log, self.batches)
        judge_numbers(verdict, self.given)
        judge_gateway(verdict, gateway)
        judge_rows(verdict, gateway, {delta.id: delta for batch in self.batches for delta in batch.deltas})
        return "\n".join(verdict.faults)


def test_a_run_that_went_well_has_no_fault() -> None:
    assert not Scene().faults()


def test_an_abandoned_batch_may_be_there_whole() -> None:
    scene = Scene()
    scene.log += [scene.logged(delta) for delta in scene.batches[2].deltas]
    scene.fresh += [scene.entry(delta) for delta in scene.batches[2].deltas]
    scene.reader, scene.gauges = scene.fresh, DeltaGauges(5, 1, 10, 5)
    last = scene.batches[2].deltas[1]
    scene.rows = [MergedRow("todos", '"r"', 5, '"w"', last.id, (("a", "5"),), True)]
    assert not scene.faults()


def _answer(scene: Scene, batch: int, told: Told) -> None:
    scene.batches[batch].answers[0] = told


WRONG: dict[str, tuple[Callable[[Scene], Any], str]] = {
    "an acknowledged one is missing": (lambda scene: scene.log.pop(0), "acknowledged, and 1 of it are not there"),
    "one is there twice": (lambda scene: scene.log.append(scene.log[0]), "is in the log twice"),
    "half of an abandoned batch is there": (
        lambda scene: scene.log.append(scene.logged(scene.batches[2].deltas[0])),
        "1 of a batch are there",
    ),
    "a refused one is there": (
        lambda scene: scene.log.append(scene.logged(scene.batches[3].deltas[0])),
        "refused, and 1 of it are there",
    ),
    "one is there that nobody has pushed": (
        lambda scene: scene.log.append(scene.logged(delta_of(8))),
        "1 deltas that nobody has pushed are there",
    ),
    "a poisoned batch is taken": (lambda scene: _answer(scene, 3, acknowledged(0, 1)), "a poisoned batch was answered"),
    "half of a first push is a duplicate": (lambda scene: _answer(scene, 0, acknowledged(1, 2)), "answer 0 of 2"),
    "all of a first push is a duplicate": (lambda scene: _answer(scene, 0, acknowledged(2, 2)), "answer 0 of 2"),
    "a repeated push is new": (
        lambda scene: scene.batches[0].answers.append(acknowledged(0, 2)),
        "answer 2 of 2 deltas",
    ),
    "an acknowledgement is a refusal": (lambda scene: _answer(scene, 1, Told(409, {})), "answer 0 of 1"),
    "positions fall": (lambda scene: scene.log.reverse(), "stands behind"),
    "a position is before its time": (
        lambda scene: scene.log.__setitem__(0, scene.log[0]._replace(position=0)),
        "stands before its time",
    ),
    "a number is given twice": (
        lambda scene: scene.given.append(Given(LOAD, True, 5.0, 6.0, 13)),
        "13 was given after 13",
    ),
    "a number is below a cursor": (
        lambda scene: scene.given.append(Given(LOAD, True, 2.5, 6.0, 11)),
        "11 was given after 12",
    ),
    "a reader has skipped one": (lambda scene: scene.reader.pop(1), "reader was told"),
    "a reader was told one twice": (lambda scene: scene.reader.append(scene.reader[0]), "reader was told 4 entries"),
    "an entry is not told": (lambda scene: scene.fresh.pop(), "2 entries are told, 3 are in the log"),
    "it is told as another operation": (
        lambda scene: scene.fresh.__setitem__(2, scene.fresh[2]._replace(op=DeltaOp.UPDATE)),
        "3 entries are told, 3 are in the log",
    ),
    "the merged row is another": (
        lambda scene: scene.rows.__setitem__(0, scene.rows[0]._replace(is_live=True)),
        "other rows",
    ),
    "a reader comes to other rows": (
        lambda scene: scene.fresh.append(scene.entry(delta_of(1))),
        "a reader comes to other rows",
    ),
    "it is stored as another": (
        lambda scene: scene.log.__setitem__(0, scene.log[0]._replace(columns_text="[]")),
        "is stored as",
    ),
    "the gauges are wrong": (lambda scene: setattr(scene, "gauges", DeltaGauges(3, 2, 10, 3)), "the gauges show"),
}


@pytest.mark.parametrize(("change", "fault"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_found_out(change: Callable[[Scene], Any], fault: str) -> None:
    scene = Scene()
    change(scene)
    assert fault in scene.faults()
