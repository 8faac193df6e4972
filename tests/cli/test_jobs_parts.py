"""The parts of `semel jobs` that are values in, values out: sentences, the picture of a job's life."""

from __future__ import annotations

from typing import Any

import pytest

from semel.cli.jobs.output import PLAIN_SIGNS, answer_sentence, drawn, end_sentence, seconds_words
from semel.client.jobs.timeline import moments

JOB = "job_0123456789abcdef0123456789abcdef"


def test_answers_in_words() -> None:
    new = {"job_id": JOB, "dedup": False, "state": "queued", "status": "accepted"}
    assert answer_sentence(new, "k") == f"Accepted {JOB} (queued); key k"
    assert answer_sentence(new, None) == f"Accepted {JOB} (queued)"
    known = {"job_id": JOB, "dedup": True, "state": "leased", "attempt": 2, "ignored_fields": ["queue", "priority"]}
    unlike = "not changed by this: queue, priority"
    assert answer_sentence(known, "k\n") == f"Already there (replayed): {JOB} is leased (attempt 2); {unlike}; key k\\n"
    failed = {"job_id": JOB, "state": "failed", "reason": "exhausted"}
    assert end_sentence(failed) == f"{JOB} is failed (exhausted)"
    cached = {"cached_result": {"ok": False, "error": {"code": "boom", "message": "no\x1b[0m"}}}
    assert end_sentence(failed | cached) == f"{JOB} is failed (exhausted): boom: no\\x1b[0m"
    assert end_sentence({"job_id": JOB, "state": "scheduled", "run_at_utc": "T"}) == f"{JOB} is scheduled for T"
    assert end_sentence(failed | {"error": {"code": "x" * 300}}).endswith(f": {'x' * 200}...")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0, "0 ms"), (0.25, "250 ms"), (1.5, "1.5 s"), (300, "5.0 min"), (7_200, "2.0 h"), (172_800, "2.0 days")],
)
def test_lengths_of_time_in_words(seconds: float, words: str) -> None:
    assert seconds_words(seconds) == words


def picture(**job: Any) -> list[str]:
    return list(drawn(moments({"created_utc": "2026-01-01T00:00:00.000Z", "errors": [], **job}), PLAIN_SIGNS))


def test_the_life_of_a_job_as_a_picture() -> None:
    error = {"code": "boom", "message": "no", "attempt": 1, "worker_id": "w", "at_utc": "2026-01-01T00:00:01.500Z"}
    ended = {"finished_utc": "2026-01-01T00:00:04.000Z", "expires_utc": "2026-01-02T00:00:04.000Z"}
    assert picture(state="completed", errors=[error], **ended) == [
        "2026-01-01T00:00:00.000Z  o  submitted",
        "                          |  1.5 s",
        "\x1b[31m2026-01-01T00:00:01.500Z  x  attempt 1 failed at w: boom: no\x1b[0m",
        "                          |  2.5 s",
        "\x1b[32m2026-01-01T00:00:04.000Z  o  completed\x1b[0m",
        "                          |  24.0 h",
        "2026-01-02T00:00:04.000Z  .  its key can be used anew",
    ]


def test_a_job_that_has_not_ended_as_a_picture() -> None:
    assert picture(state="queued")[1:] == [
        "                          |",
        "\x1b[36m                     now  >  waits for a worker\x1b[0m",
    ]
    leased = {"worker_id": "w", "attempt": 2, "cancel_requested": True, "lease_until_utc": "2026-01-01T00:05:00.000Z"}
    assert picture(state="leased", **leased)[2:] == [
        "\x1b[33m                     now  >  attempt 2 runs at w, asked to stop\x1b[0m",
        "                          |",
        "2026-01-01T00:05:00.000Z  .  is given to another, unless its worker is heard of",
    ]
    assert picture(state="scheduled", run_at_utc="2026-01-01T01:00:00.000Z")[1:] == [
        "                          |  60.0 min",
        "\x1b[36m2026-01-01T01:00:00.000Z  .  may be run\x1b[0m",
    ]
    failed = picture(state="failed", reason="cancelled", finished_utc="2026-01-01T00:00:01.000Z")
    assert failed[-1] == "\x1b[31m2026-01-01T00:00:01.000Z  x  failed (cancelled)\x1b[0m"
