"""Plain appends decided for a whole batch are decided as the rules decide them, one by one.

`python -m tests.streams.rules.differential` compares a million of them.
"""

from __future__ import annotations

from unittest.mock import patch

import pytest

from semel.surfaces.streams.rules import plain_append
from tests.streams.rules.differential import Comparison

SEEDS = 25
STEPS = 60


def compared(seeds: range) -> tuple[int, int]:
    """The number of appends, and of those that were decided by the express decision."""
    appends = express = 0
    for seed in seeds:
        comparison = Comparison(seed)
        for _ in range(STEPS):
            comparison.step()
        appends, express = appends + comparison.appends, express + comparison.express
    return appends, express


def test_the_express_decision_and_the_rules_give_the_same_answers_and_rows() -> None:
    appends, express = compared(range(SEEDS))
    assert express > appends / 10


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("is_alive", lambda stream, now: True),
        ("same_media_type", lambda one, other: True),
    ],
)
def test_a_planted_difference_is_found(name: str, planted: object) -> None:
    with patch.object(plain_append, name, planted), pytest.raises(AssertionError):
        compared(range(SEEDS))
