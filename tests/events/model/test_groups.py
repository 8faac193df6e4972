"""The model of a consumer group: random calls, lost answers and stale plans."""

from __future__ import annotations

import pytest

from tests.events.model.groups import GroupModel
from tests.events.rules.group_rig import STRICT, UNORDERED

SEEDS = 8


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("definition", [STRICT, UNORDERED], ids=["strict", "unordered"])
def test_a_group_delivers_exactly_what_the_model_says(definition: object, seed: int) -> None:
    model = GroupModel(seed, STRICT if definition is STRICT else UNORDERED)
    model.run()
    assert all((model.delivered, model.replayed, model.stale, model.lost)), "the run has shown nothing"


def test_the_runs_park_and_fence() -> None:
    models = [GroupModel(seed, definition) for seed in range(3) for definition in (STRICT, UNORDERED)]
    for model in models:
        model.run()
    assert sum(model.parked for model in models) > 0
    assert sum(model.fenced for model in models) > 0
