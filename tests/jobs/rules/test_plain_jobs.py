"""Plain submissions, claims and completions are decided for a whole batch as the rules decide them, one by one.

`python -m tests.jobs.rules.differential` compares a million of them.
"""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

import pytest

from semel.surfaces.jobs.rules import plain_claim, plain_completion, plain_submission
from tests.jobs.rules.differential import STEPS, Comparison

SEEDS = 25


def compared(seeds: range) -> tuple[int, Counter[str]]:
    """The number of writes, and of those that were decided by the express decision."""
    writes, express = 0, Counter[str]()
    for seed in seeds:
        comparison = Comparison(seed)
        for _ in range(STEPS):
            comparison.step()
        writes, express = writes + comparison.writes, express + comparison.express
    return writes, express


def test_the_express_decisions_and_the_rules_give_the_same_answers_and_rows() -> None:
    writes, express = compared(range(SEEDS))
    assert express["PlainJobSubmit"] > writes / 20
    assert express["PlainClaim"] > writes / 60
    assert express["PlainReport"] > writes / 40


@pytest.mark.parametrize(
    ("module", "name", "planted"),
    [
        (plain_submission, "SEEN_MS", 10_000),
        (plain_submission, "AS_QUEUED", 1),
        (plain_claim, "has_ended", lambda job, policy, now: False),
        (plain_claim, "LISTED_ACTIVE", 3),
        (plain_completion, "is_current", lambda secret, job, token: True),
        (plain_completion, "LISTED_COMPLETED", 3),
    ],
)
def test_a_planted_difference_is_found(module: object, name: str, planted: object) -> None:
    with patch.object(module, name, planted), pytest.raises(AssertionError):
        compared(range(SEEDS))
