"""The log, carried out once more from what is stored, makes the same rows: every byte, in batches of any size."""

from __future__ import annotations

import pytest

from tests.ledger.model.replay import Entry, differing, dump, log_of, replay
from tests.ledger.model.simulation import Simulation

SEEDS = (3, 8)
STEPS = 800
FENCED = 4
"""A seed that begins with the fence on and retention short."""
ALL = 10**6
SIZES = {"one by one": 1, "by sevens": 7, "by sixty-fours": 64, "all at once": ALL}


@pytest.fixture(scope="module", params=SEEDS)
def run(request: pytest.FixtureRequest) -> Simulation:
    """A run with crashes, clocks, settings and evictions, whose rows are all still there."""
    simulation = Simulation(request.param, STEPS, sweeps=False)
    verdict = simulation.run()
    assert not verdict.faults, verdict.faults
    assert verdict.seen["evicted"]
    return simulation


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_the_log_makes_the_same_rows_in_batches_of_any_size(run: Simulation, size: int) -> None:
    log = log_of(run.store)
    assert len(log) > STEPS / 4
    again = replay(log, run.policy, size, run.model.term)
    assert not differing(dump(run.store), dump(again))


def test_sweeping_or_not_makes_no_difference_but_when() -> None:
    """The same requests with sweeps between them and, after a last one, the same rows."""
    swept, unswept = Simulation(FENCED), Simulation(FENCED, sweeps=False)
    assert not swept.run().faults
    assert not unswept.run().faults
    unswept.sweep_at_last()
    assert not differing(dump(swept.store), dump(unswept.store))


def test_a_log_with_an_entry_at_another_time_makes_other_rows(run: Simulation) -> None:
    """The comparison finds what it is there to find."""
    log = log_of(run.store)
    place = next(number for number, entry in enumerate(log) if entry.number > 3)
    later = Entry(*log[place][:3], log[place].ms + 1, log[place].command)
    again = replay([*log[:place], later, *log[place + 1 :]], run.policy, 64, run.model.term)
    assert differing(dump(run.store), dump(again))
