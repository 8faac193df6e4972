"""The parts of `semel jobs` that are values in, values out: drafts, sentences, the picture of a job's life."""

from __future__ import annotations

import json
from typing import Any

import pytest

from semel.cli.jobs.options import CliJobDraftError, draft_job, draft_line
from semel.cli.jobs.output import PLAIN_SIGNS, answer_sentence, drawn, end_sentence, moments, seconds_words
from semel.cli.jobs.requests import CliJobReference

JOB = "job_0123456789abcdef0123456789abcdef"


def test_a_draft_keeps_the_text_of_its_params() -> None:
    draft = draft_job("resize", b'{"n": 1.50, "big": 12345678901234567890123}', {"queue": "q"}, "k")
    assert draft.key == "k"
    assert b'"params":{"n": 1.50, "big": 12345678901234567890123}' in draft.text
    assert json.loads(draft.text) | {"params": 0} == {
        "kind": "resize",
        "params": 0,
        "queue": "q",
        "idempotency_key": "k",
    }
    assert b"idempotency_key" not in draft_job("resize", b"{}", {}, None).text


@pytest.mark.parametrize(
    ("line", "key", "rest"),
    [
        ('{"kind": "a"}', "made", {"queue": "q", "delay_ms": 5}),
        ('{"kind": "a", "idempotency_key": null}', "made", {"queue": "q", "delay_ms": 5}),
        ('{"kind": "a", "idempotency_key": "own"}', "own", {"queue": "q", "delay_ms": 5}),
        ('{"kind": "a", "queue": "mine"}', "made", {"queue": "mine", "delay_ms": 5}),
        ('{"kind": "a", "run_at": "t"}', "made", {"queue": "q", "run_at": "t"}),
        ('{"kind": "a", "params": {"x": [1]}}', "made", {"queue": "q", "delay_ms": 5, "params": {"x": [1]}}),
    ],
)
def test_what_a_line_says_goes_before_the_options(line: str, key: str, rest: dict[str, Any]) -> None:
    draft = draft_line(line.encode(), {"queue": "q", "delay_ms": 5}, "made")
    assert draft.key == key
    assert json.loads(draft.text) == {"kind": "a", "idempotency_key": key, **rest}


def test_a_line_without_any_key_has_none() -> None:
    assert draft_line(b'{"kind": "a"}', {}, None).key is None
    assert draft_line(b'{"kind": "a", "idempotency_key": "own"}', {}, None).key == "own"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("7", "A job must be a JSON object with a kind."),
        ("not json", "The text is not JSON"),
        ('{"kind": "a", "kind": "b"}', "occurs twice"),
        ('{"kind": "a", "params": ' + '{"a":' * 65 + "1" + "}" * 66, "nested more than 64 levels deep"),
    ],
)
def test_a_line_that_would_spoil_a_batch_is_found(line: str, sentence: str) -> None:
    with pytest.raises(CliJobDraftError, match=sentence):
        draft_line(line.encode(), {}, "k")


def test_a_number_that_no_double_holds_is_left_to_the_server() -> None:
    assert b'{"n": 1e999}' in draft_line(b'{"kind": "a", "params": {"n": 1e999}}', {}, "k").text
    assert b'{"n": 1e999}' in draft_job("a", b'{"n": 1e999}', {}, "k").text


def test_params_are_nested_as_deep_as_a_server_takes_them() -> None:
    deep = b'{"a":' * 63 + b"{}" + b"}" * 63
    draft_job("k", deep, {}, None)
    draft_line(b'{"kind": "k", "params": %s}' % deep, {}, None)
    with pytest.raises(CliJobDraftError, match="nested more than"):
        draft_job("k", b'{"a":%s}' % deep, {}, None)
    with pytest.raises(CliJobDraftError, match=r"The params of a job must be a JSON object\."):
        draft_job("k", b"[]", {}, None)


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


def test_a_job_by_any_of_its_names() -> None:
    assert CliJobReference(JOB, None).job_id == JOB
    assert CliJobReference("01234567-89ab-cdef-0123-456789abcdef", None).job_id is None
    assert CliJobReference(None, "key").job_id is None
