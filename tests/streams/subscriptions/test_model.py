"""The model of subscriptions, under some seeds in every test run."""

from __future__ import annotations

import pytest

from tests.streams.subscriptions.model import play


@pytest.mark.parametrize("first", range(0, 160, 20))
def test_no_wake_is_lost_whatever_happens_in_between(first: int) -> None:
    runs = [play(seed) for seed in range(first, first + 20)]
    assert sum(run.wakes for run in runs) > 50
    assert sum(run.kills for run in runs) > 50
    assert sum(run.fenced for run in runs) > 50
