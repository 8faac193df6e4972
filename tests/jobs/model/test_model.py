"""Random submissions, claims, reports, orders, sweeps, clocks and crashes against a plain model of what jobs promise.

`make nightly NAME=model-jobs` runs as many seeds as you like. The last tests show that the comparison finds what
it is there to find.
"""

from __future__ import annotations

import pytest

from semel.kernel.verdict import PinnedThenWindow
from semel.surfaces.jobs.rules.idempotency import RULE, RULES
from semel.surfaces.jobs.tables import JOB_GROUP
from tests.harness.simulation import is_found_out, require_agreement
from tests.jobs.model.rows import AUDITED
from tests.jobs.model.simulation import Simulation

SEEDS = range(1, 25)
WRITTEN_BY_THE_SERVER = {"J7", "J8", "J9"}
"""Rows whose names no answer has: they are told by their codes."""


def test_every_answer_and_every_row_is_the_models() -> None:
    rules = {f"SubmitJobs {rule.name}" for rule in RULES if rule.name not in WRITTEN_BY_THE_SERVER}
    codes = {f"SubmitJobs {code}" for code in ("IDEMPOTENCY_KEY_COLLISION", "backpressure", "idempotency_store_full")}
    codes |= {f"SubmitJobs {code}" for code in ("group_closed", "not_found", "lease_lost")}
    codes |= {f"JobReport {code}" for code in ("lease_lost", "lease_required", "result_conflict", "Taken again")}
    require_agreement(Simulation, SEEDS, rules | codes | AUDITED | {"crashes"})


# -- The comparison itself ---------------------------------------------------------------------------------------------

BREAKAGES: dict[str, tuple[str, object]] = {
    "another payload is taken for the same": (
        "semel.surfaces.jobs.rules.submission.known",
        lambda *_, **__: RULE["J3"],
    ),
    "a full queue takes one more": ("semel.surfaces.jobs.rules.submission.capacity_refusal", lambda *_, **__: None),
    "every token is the current one": ("semel.surfaces.jobs.rules.leases.is_current", lambda *_: True),
    "the order is that of creation": ("semel.surfaces.jobs.rules.claim._place", lambda job: job.id),
    "a failed run is tried again at once": ("semel.surfaces.jobs.rules.leases.delay_ms", lambda *_: 0),
    "a key outlives the end of its job by nothing": (
        "semel.surfaces.jobs.rules.idempotency.PinnedThenWindow",
        lambda keep_ms: PinnedThenWindow(0),
    ),
    "keys are not counted": ("semel.surfaces.jobs.rules.counters.JobCounters.count_record", lambda *_: None),
    "a generated key lives as long as a named one": (
        "semel.surfaces.jobs.rules.completion.key_until_of",
        lambda job, policy, now_ms: min(1, max(-1, job.key_until)) * (now_ms + policy.key_ttl_ms),
    ),
    "generated keys have no limit": ("semel.surfaces.jobs.limits.JobPolicy.max_generated", 0),
    "no lease runs out": ("semel.surfaces.jobs.rules.reaper._ended", lambda *_: []),
    "an offer lasts as long as a lease": ("semel.surfaces.jobs.rules.claim.offer_ms", lambda job, policy: job.held_ms),
    "a run takes as long as it likes": ("semel.surfaces.jobs.rules.reaper.in_time", lambda job, due_at: due_at),
    "a start takes no token": ("semel.surfaces.jobs.rules.claim.take_tokens", lambda row, number, steady_ms: row),
    "another rate gives all tokens back": (
        "semel.surfaces.jobs.rules.admin.with_rate",
        lambda row, count, per_ms, steady_ms: row._replace(rate_count=count, rate_ms=per_ms, rate_full_at=0),
    ),
    "nothing is unique": ("semel.surfaces.jobs.rules.submission.found_job", lambda *_: None),
    "a debounced job starts as early as it likes": (
        "semel.surfaces.jobs.rules.submission.push_back",
        lambda counters, draft, job: job,
    ),
    "a key that made no job is not kept": (
        "semel.surfaces.jobs.rules.submission.add_alias",
        lambda counters, draft, stale, job: job,
    ),
    "an alias ends with the key of its job": (
        "semel.surfaces.jobs.rules.idempotency.key_end",
        lambda record, job: job.key_until,
    ),
    "the last member makes nobody ready": (
        "semel.surfaces.jobs.rules.groups.release_if_ended",
        lambda counters, group: counters.view.put(JOB_GROUP, group),
    ),
    "a child is another one for each attempt": ("semel.surfaces.jobs.rules.submission.known_child", lambda *_: None),
    "a group never closes": ("semel.surfaces.jobs.rules.submission.group_refusal", lambda *_: None),
    "a member that is queued again has ended": (
        "semel.surfaces.jobs.rules.completion.count_revival",
        lambda *_: None,
    ),
    "no caller has a share": ("semel.surfaces.jobs.rules.counters._excess", lambda *_: 0),
}


@pytest.mark.parametrize("breakage", BREAKAGES.values(), ids=BREAKAGES)
def test_rules_that_are_wrong_are_found_out(monkeypatch: pytest.MonkeyPatch, breakage: tuple[str, object]) -> None:
    monkeypatch.setattr(*breakage)
    assert is_found_out(Simulation, SEEDS)
