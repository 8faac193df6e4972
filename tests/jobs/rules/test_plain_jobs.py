"""Plain submissions, claims and completions are decided for a whole batch as the rules decide them, one by one.

`python -m tests.jobs.rules.differential` compares a million of them.
"""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

import pytest

from semel.surfaces.jobs.limits import JobBounds, JobPolicy
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
    assert express["many jobs"] > writes / 200
    assert express["PlainClaim"] > writes / 60
    assert express["PlainReport"] > writes / 40


@pytest.mark.parametrize(
    ("module", "name", "planted"),
    [
        (plain_submission, "SEEN_MS", 10_000),
        (plain_submission, "AS_QUEUED", 1),
        (plain_claim, "has_ended", lambda job, policy, now: False),
        (plain_claim, "CLAIMED", tuple(name for name in plain_claim.CLAIMED if name != "holder")),
        (plain_completion, "is_current", lambda secret, job, token: True),
        (plain_completion, "LISTED_COMPLETED", 3),
        (plain_completion, "ENDED", tuple(name for name in plain_completion.ENDED if name != "key_until")),
        (plain_completion, "ENDED", tuple(name for name in plain_completion.ENDED if name != "progress")),
    ],
)
def test_a_planted_difference_is_found(module: object, name: str, planted: object) -> None:
    with patch.object(module, name, planted), pytest.raises(AssertionError):
        compared(range(SEEDS))


def test_claims_of_a_batch_take_the_oldest_of_all_jobs_even_if_one_line_has_more_than_are_read() -> None:
    comparison = Comparison(1, JobPolicy(max_inflight=0))
    comparison.batch(comparison.claim(1))
    for queue, count in ((b"a", plain_claim.MAX_PLAIN_JOBS + 60), (b"b", 60)):
        comparison.batch(*(comparison.submission(b"ann", queue) for _ in range(count)))
    comparison.batch(*(comparison.claim((plain_claim.MAX_PLAIN_JOBS + 30) // 3) for _ in range(3)))
    assert comparison.express["PlainClaim"] == 2


def test_a_caller_whose_jobs_were_claimed_is_not_taken_to_be_alone() -> None:
    """Eight jobs of one caller and two of another: after two claims there are as many as the first had before."""
    comparison = Comparison(1, JobPolicy(queued=JobBounds(10, 0, 0), principal_share=0.5))
    comparison.batch(comparison.claim(1))
    for principal, count in ((b"ann", 8), (b"ben", 2)):
        comparison.batch(*(comparison.submission(principal, b"default") for _ in range(count)))
    comparison.batch(comparison.claim(2), comparison.submission(b"ann", b"default"))
    assert (comparison.express["PlainJobSubmit"], comparison.express["PlainClaim"]) == (10, 1)


def test_submissions_that_were_pipelined_are_admitted_in_their_order() -> None:
    """The second of three is left to the full rules, as its queue is nearly full; the third must not overtake it."""
    comparison = Comparison(1, JobPolicy(queued=JobBounds(0, each_queue=3)))
    comparison.batch(*(comparison.submission(b"ann", b"near") for _ in range(2)))
    comparison.batch(*(comparison.submission(b"ann", queue) for queue in (b"a", b"near", b"b")), line="a connection")
    assert comparison.express["PlainJobSubmit"] == 3
    assert comparison.queues() == [b"near", b"near", b"a", b"near", b"b"]
