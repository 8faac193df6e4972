"""The plants are sound, and two of them are planted and noticed; `make nightly NAME=mutants` tries all."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from tests.mutants.plant import Plant, instead
from tests.mutants.planting import NAME, PlantError, broken, planted_environment, replace
from tests.mutants.plants import PLANTS
from tests.mutants.run import SITE, told, try_one

ROOT = Path(__file__).parents[2]
LEAST = dict.fromkeys(("streams", "events", "jobs", "ledger", "deltas"), 6)
LEAST |= {"once": 8, "outbox": 5, "proxy": 4, "worker": 4, "client": 4, "store": 8, "restore": 4}
LEAST |= {"engine": 5, "access": 4}
"""How many plants each area has at least; its name begins theirs."""
QUICK = ("streams-producer-leaves-a-gap", "once-result-not-kept")


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_f4_every_plant_can_be_made(plant: Plant) -> None:
    for target, break_it in plant.targets:
        module, _, qualname = target.partition(":")
        owner: object = import_module(module)
        *outer, name = qualname.split(".")
        for part in outer:
            owner = getattr(owner, part)
        assert broken(vars(owner)[name], break_it) is not vars(owner)[name], target
    assert plant.tests
    assert all((ROOT / test.partition("::")[0]).exists() for test in plant.tests), plant.tests


def test_f4_the_plants_cover_every_area() -> None:
    assert len(PLANTS) >= 80
    assert len({plant.name for plant in PLANTS}) == len(PLANTS)
    counts = Counter(plant.area for plant in PLANTS)
    assert {area: counts[area] for area in LEAST if counts[area] < LEAST[area]} == {}
    assert counts.keys() == LEAST.keys()


def test_f4_five_plants_are_in_one_store_alone() -> None:
    alone = [plant for plant in PLANTS if plant.one_store]
    assert len(alone) == 5
    assert {plant.target.split(".")[2] for plant in alone} == {"sqlite", "postgres"}
    assert not any(plant.also for plant in alone)


def test_f4_a_target_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(PlantError, match="has no judge_all"):
        replace("judge_all", instead(len), import_module("semel.kernel.producer"))


def test_f4_a_process_with_another_environment_has_the_bug_and_its_own_sitecustomize(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.theirs = 'theirs'\n")
    asks = "from semel.kernel.producer import _place; print(theirs, hasattr(_place, '__wrapped__'))"
    starts = (
        "import subprocess, sys; "
        "subprocess.run([sys.executable, '-c', sys.argv[2]], env={'PYTHONPATH': sys.argv[1]}, check=True)"
    )
    env = planted_environment({}, str(SITE), {NAME: QUICK[0]})
    said = subprocess.run(
        [sys.executable, "-c", starts, str(tmp_path), asks], env=env, capture_output=True, text=True, check=True
    )
    assert said.stdout == "theirs True\n"


@pytest.mark.parametrize("name", QUICK)
def test_f4_a_planted_bug_is_noticed(name: str) -> None:
    [plant] = [plant for plant in PLANTS if plant.name == name]
    one = try_one(plant, plant.tests)
    assert one.by, told(one)
