"""One of 31 parts of the planted bugs, another each day, all noticed; `make nightly NAME=mutants` tries every part."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.planted import BUGS, Bug
from tests.mutants.run import PARTS, part_of_today, some, told, try_one

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("bug", some(part_of_today()), ids=lambda bug: bug.name)
def test_f4_a_planted_bug_is_noticed(bug: Bug) -> None:
    one = try_one(bug)
    assert one.by, told(one)


def test_f4_every_bug_of_the_table_can_be_planted() -> None:
    for bug in BUGS:
        for edit in bug.edits:
            assert (ROOT / "src/semel" / edit.path).read_text().count(edit.old) == 1, (bug.name, edit.path)
        assert all((ROOT / test.partition("::")[0]).exists() for test in bug.tests), bug.name


def test_f4_the_table_covers_every_room() -> None:
    assert len(BUGS) >= 25
    assert len({bug.name for bug in BUGS}) == len(BUGS)
    rooms = {edit.path.split("/")[0] for bug in BUGS for edit in bug.edits}
    assert rooms >= {"kernel", "engine", "store", "surfaces", "client"}
    slices = {edit.path.split("/")[1] for bug in BUGS for edit in bug.edits if edit.path.startswith("surfaces/")}
    assert slices >= {"streams", "events", "jobs", "ledger", "deltas"}
    stores = {edit.path.split("/")[1] for bug in BUGS for edit in bug.edits if edit.path.startswith("store/")}
    assert stores >= {"sqlite", "postgres"}


def test_f4_the_parts_have_every_bug() -> None:
    tried = [bug for part in range(PARTS) for bug in some(part)]
    assert sorted(bug.name for bug in tried) == sorted(bug.name for bug in BUGS)
