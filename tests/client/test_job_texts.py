"""Jobs as JSON text: what is kept, what overrides what, and what is refused before it is sent."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from semel.client import JobRequest, RefusedError, Submitted
from semel.client.jobs.texts import JobText, JobTextError, job_text, line_text
from tests.client.jobs_room import OpenJobs
from tests.client.names import fresh
from tests.harness.server import RunningServer


def test_a_draft_keeps_the_text_of_its_params() -> None:
    draft = job_text(JobRequest("resize", queue="q"), b'{"n": 1.50, "big": 12345678901234567890123}', "k")
    assert draft.key == "k"
    assert b'"params":{"n": 1.50, "big": 12345678901234567890123}' in draft.body
    assert json.loads(draft.body) | {"params": 0} == {
        "kind": "resize",
        "params": 0,
        "queue": "q",
        "idempotency_key": "k",
    }
    assert b"idempotency_key" not in job_text(JobRequest("resize"), b"{}", None).body


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
    draft = line_text(line.encode(), JobRequest("", queue="q", delay=0.005), "made")
    assert draft.key == key
    assert json.loads(draft.body) == {"kind": "a", "idempotency_key": key, **rest}


def test_a_line_without_any_key_has_none() -> None:
    assert line_text(b'{"kind": "a"}', JobRequest(""), None).key is None
    assert line_text(b'{"kind": "a", "idempotency_key": "own"}', JobRequest(""), None).key == "own"


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
    with pytest.raises(JobTextError, match=sentence):
        line_text(line.encode(), JobRequest(""), "k")


def test_a_number_that_no_double_holds_is_left_to_the_server() -> None:
    assert b'{"n": 1e999}' in line_text(b'{"kind": "a", "params": {"n": 1e999}}', JobRequest(""), "k").body
    assert b'{"n": 1e999}' in job_text(JobRequest("a"), b'{"n": 1e999}', "k").body


def test_params_are_nested_as_deep_as_a_server_takes_them() -> None:
    deep = b'{"a":' * 63 + b"{}" + b"}" * 63
    job_text(JobRequest("k"), deep, None)
    line_text(b'{"kind": "k", "params": %s}' % deep, JobRequest(""), None)
    with pytest.raises(JobTextError, match="nested more than"):
        job_text(JobRequest("k"), b'{"a":%s}' % deep, None)
    with pytest.raises(JobTextError, match=r"The params of a job must be a JSON object\."):
        job_text(JobRequest("k"), b"[]", None)


async def test_texts_are_submitted_with_their_keys(server: RunningServer, open_jobs: OpenJobs) -> None:
    kind = fresh("kind")
    async with open_jobs(server.url) as jobs:
        text = job_text(JobRequest(kind, priority=1), b'{"big": 12345678901234567890, "one": 1.50}', fresh("key"))
        made = await jobs.submit_text(text)
        assert made.key == text.key
        job = await jobs.get(made.job_id)
        assert (job.params, job.priority) == ({"big": 12345678901234567890, "one": 1.5}, 1)
        texts = [text, line_text(b'{"kind": "%s"}' % kind.encode(), JobRequest(""), fresh("key"))]
        found = await jobs.submit_texts(texts)
        assert [one.key for one in found] == [one.key for one in texts]
        assert all(isinstance(one, Submitted) for one in found)
        assert len([one async for one in jobs.walk(kind=kind, page=1)]) == 2
        assert (await jobs.submit_text(text._replace(key=None))).key == ""


async def test_each_text_of_a_batch_is_judged_separately(server: RunningServer, open_jobs: OpenJobs) -> None:
    async with open_jobs(server.url) as jobs:
        bodies = [b'{"kind": "a b"}', b'{"kind": "ok"}', b'{"kind": "ok", "params": {"n": 1e999}}']
        texts = [line_text(body, JobRequest(""), fresh("key")) for body in bodies]
        refused, made, too_large = await jobs.submit_texts(texts)
        assert (isinstance(refused, RefusedError), isinstance(too_large, RefusedError)) == (True, True)
        assert isinstance(made, Submitted)
        [other] = await jobs.submit_texts([JobText(texts[1].key, b'{"kind": "ok", "params": 7}')])
        assert isinstance(other, RefusedError)


async def test_wait_returns_the_end_of_a_job_or_its_state_in_time(server: RunningServer, open_jobs: OpenJobs) -> None:
    kind = fresh("kind")
    async with open_jobs(server.url) as jobs:
        job_id = (await jobs.submit(kind)).job_id
        assert (await jobs.wait(job_id, 0)).state == "queued"
        assert (await jobs.wait(job_id, 0.3)).state == "queued"
        waiting = asyncio.create_task(jobs.wait(job_id))
        [lease] = (await jobs.claim("w", kinds=[kind])).leases
        await jobs.complete(lease, {"n": 1})
        ended = await waiting
        assert (ended.state, ended.outcome and ended.outcome.result) == ("completed", {"n": 1})


async def test_a_schedule_takes_the_text_of_its_params(server: RunningServer, open_jobs: OpenJobs) -> None:
    async with open_jobs(server.url) as jobs:
        name = fresh("schedule")
        made = await jobs.set_schedule(name, "@daily", "k", b'{"of": 1.50}', paused=True)
        assert made.params == {"of": 1.5}
        with pytest.raises(JobTextError, match="must be a JSON object"):
            await jobs.set_schedule(name, "@daily", "k", b"[]")
        await jobs.delete_schedule(name)
