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


@pytest.mark.parametrize("definition", [STRICT, UNORDERED], ids=["strict", "unordered"])
def test_events_are_parked_again_after_resets(definition: object) -> None:
    wanted = (STRICT if definition is STRICT else UNORDERED)._replace(max_deliveries=1, max_parked=20)
    models = [GroupModel(seed, wanted, resets=0.03) for seed in range(SEEDS)]
    for model in models:
        model.run()
    assert sum(model.parked_again for model in models) > 0
