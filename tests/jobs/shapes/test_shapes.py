"""Job calls whose heads are known by their bytes have the same answers as on the full path."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest

from semel.client import JobRequest
from semel.client.jobs.submission import draft
from semel.server.auth.principals import Principal, Role
from semel.server.http.head_shapes import CutHead, cut
from semel.store.protocol import Range
from semel.surfaces.jobs import shaped_calls, shaped_submission, submission
from semel.surfaces.jobs.service import owner_of
from semel.surfaces.jobs.tables import JOB
from semel.surfaces.jobs.wire import quick
from tests.jobs.shapes import bodies
from tests.jobs.shapes.differential import Seen, compare, post
from tests.streams.shapes.differential import Server

CASES = 1_500
PREFIX = b"POST /v1/jobs/job_"
HEAD = PREFIX + b"%b/complete HTTP/1.1\r\nHost: x\r\n\r\n{}"


def test_calls_by_shape_and_by_the_full_path_have_the_same_answers_counts_and_jobs() -> None:
    taken = asyncio.run(compare(1, CASES))
    assert taken["ShapedSubmit"] > CASES / 20
    assert taken["ShapedClaim"] > CASES / 30
    assert taken["ShapedReport"] > CASES / 60


@pytest.mark.parametrize(
    ("module", "name", "planted"),
    [
        (shaped_calls, "_ACTED_ON", ()),
        (shaped_submission, "_QUICK", {"J1": False, "J2": False, "J3": True, "J4": True}),
        (shaped_submission, "_REPLAYED_HEADERS", b""),
    ],
)
def test_a_planted_difference_of_shapes_is_found(module: ModuleType, name: str, planted: object) -> None:
    with patch.object(module, name, planted), pytest.raises(AssertionError):
        asyncio.run(compare(1, CASES))


def test_the_quick_parser_takes_only_what_the_full_parser_takes_with_the_same_result() -> None:
    taken = bodies.compare(1, 28_000)
    assert min(taken[kind] for kind in ("submission", "claim", "report")) > 2_000
    assert taken["many"] > 1_000


def test_the_quick_parser_takes_what_the_client_sends() -> None:
    for request in (JobRequest("k"), JobRequest("k", {"n": 1}, queue="q", priority="high"), JobRequest("k", key="own")):
        sent = draft(request, is_brief=True)
        found = quick.quick_draft(sent.body, b"ann", bodies.POLICY, b"8 bytes.")
        assert found is not None
        assert found == bodies.full_draft(sent.body)
        assert found.is_generated is (request.key is None)


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("_has_only_integers", lambda outside: True),
        ("KIND_RULE", re.compile(".*")),
        ("MAX_KEY_CHARACTERS", 300),
        ("DEFAULT_PRIORITY", 5),
    ],
)
def test_a_planted_difference_of_the_quick_parser_is_found(name: str, planted: object) -> None:
    with patch.object(quick, name, planted), pytest.raises(AssertionError):
        bodies.compare(1, 28_000)


@pytest.mark.parametrize("more", [b"0", b" ", b"abc", b"-" * 40])
def test_a_token_with_more_behind_its_digits_is_left_to_the_full_parser(more: bytes) -> None:
    for token in (bodies.TOKEN[:-1] + more + b'"', bodies.TOKEN):
        body = b'{"lease_token":%b,"result":1}' % token
        assert (quick.quick_report(bodies.JOB_ID, body, bodies.POLICY) is None) == (token != bodies.TOKEN)


def test_a_name_in_the_path_is_cut_out() -> None:
    found = cut(HEAD % b"0a1b", prefixes=(PREFIX,))
    assert found == CutHead(PREFIX + b"/complete HTTP/1.1\r\nHost: x", b"0a1b", len(PREFIX), len(HEAD % b"0a1b") - 2)


@pytest.mark.parametrize("name", [b"", b"a%62", b"a b", b"a?b", b"a.b", b"x" * 65, b"caf\xc3\xa9"])
def test_an_odd_name_in_the_path_has_no_shape(name: bytes) -> None:
    assert cut(HEAD % name, prefixes=(PREFIX,)) is None


def test_a_head_teaches_nothing_about_the_request_behind_it(tmp_path: Path) -> None:
    """The first of two requests is refused at once, so the second starts while the bytes of both are at hand."""
    good = post(b"/v1/jobs", b'{"kind":"k"}')
    bad = good.replace(b"application/json", b"text/plain")

    async def test() -> None:
        server = Server(tmp_path, is_blind=False)
        try:
            assert b" 415 " in await server.send(0, [bad + good])
            assert len(server.shapes) == 0
            assert b" 200 " in await server.send(0, [good + bad])
            assert len(server.shapes) == 1
            assert b" 415 " in await server.send(0, [bad])
        finally:
            await server.stop()

    asyncio.run(test())


def test_pipelined_submissions_are_answered_in_the_order_of_their_requests(tmp_path: Path) -> None:
    """A refusal, a retry and a call of another kind among them keep their places."""
    first = post(b"/v1/jobs", b'{"kind":"k","idempotency_key":"00"}')
    bodies_sent = [b'{"kind":"k","idempotency_key":"%02d"}' % number for number in (1, 2, 1, 3, 4)]
    bodies_sent.insert(3, b'{"kind":"?","idempotency_key":"99"}')

    async def test() -> None:
        server = Server(tmp_path, is_blind=False)
        try:
            for _ in range(3):
                await server.send(0, [first])
            requests = [post(b"/v1/jobs", body) for body in bodies_sent]
            requests.insert(2, post(b"/v1/jobs/claim", b'{"worker_id":"w"}'))
            answer = await server.send(0, [b"".join(requests)])
            found = re.findall(rb'"jobs":|"error":"[a-z_]+"|"dedup":[a-z]+', answer)
            new, known = b'"dedup":false', b'"dedup":true'
            assert found == [new, new, b'"jobs":', known, b'"error":"invalid_request"', new, new]
        finally:
            await server.stop()

    asyncio.run(test())


def test_a_submission_behind_a_call_of_another_kind_starts_after_its_answer(tmp_path: Path) -> None:
    """A long poll must not be answered with a job that its own connection submits behind it."""
    submission = post(b"/v1/jobs", b'{"kind":"k"}')
    poll = post(b"/v1/jobs/claim", b'{"worker_id":"w","kinds":["k"],"wait_ms":300}')

    async def test() -> None:
        server = Server(tmp_path, is_blind=False)
        try:
            for _ in range(2):
                await server.send(0, [submission])
                await server.send(0, [post(b"/v1/jobs/claim", b'{"worker_id":"w"}')])
            answer = await server.send(0, [poll, submission])
            assert answer.index(b'"jobs":[]') < answer.index(b'"dedup":false')
        finally:
            await server.stop()

    asyncio.run(test())


def test_an_evicted_key_is_noted_when_the_submission_came_by_shape(tmp_path: Path) -> None:
    async def test() -> None:
        server = Server(
            tmp_path,
            is_blind=False,
            jobs_idempotency_store_max_items=2,
            jobs_idempotency_full_policy="evict_terminal",
        )
        try:
            for number in range(2):
                await server.send(0, [post(b"/v1/jobs", b'{"kind":"k","idempotency_key":"%d"}' % number)])
            claimed = await server.send(0, [post(b"/v1/jobs/claim", b'{"worker_id":"w"}')])
            job, token = re.findall(rb'job_[0-9a-f]{32}|(?<="lease_token":")[0-9a-f]{32}', claimed)[:2]
            report = b'{"lease_token":"%b","result":1}' % token
            assert b" 200 " in await server.send(0, [post(b"/v1/jobs/%b/complete" % job, report)])
            answer = await server.send(0, [post(b"/v1/jobs", b'{"kind":"k","idempotency_key":"2"}')])
            assert b'"dedup":false' in answer
            assert server.context.meter.totals["idempotency_evicted"] == 1
        finally:
            await server.stop()

    asyncio.run(test())


LETTERS = b"0123456789abcdefghijklmnopqrstuvwxyz"


def behind_a_collision(count: int, first: int = 1) -> bytes:
    """New submissions, and before them one with another payload under the known key 00. Keys have two letters."""
    keys = [bytes(LETTERS[digit] for digit in divmod(number, 36)) for number in range(first, first + count)]
    bodies_sent = [b'{"kind":"j","idempotency_key":"00"}']
    bodies_sent += [b'{"kind":"k","idempotency_key":"%s"}' % key for key in keys]
    return b"".join(post(b"/v1/jobs", body) for body in bodies_sent)


MOST_ATTEMPTS = 12


async def is_between_turns(protocol: Any, pipe: Any) -> bool:
    """Whether some answers were sent while others wait; on a slow machine all may be sent in one turn."""
    while protocol.running is not None or not protocol.waiting:
        if b"".join(pipe.written).count(b"HTTP/1.1 ") == 99:
            return False
        await asyncio.sleep(0)
    return True


@pytest.mark.parametrize("later", [b'{"worker_id":"w"}', b'{"kind":"k","idempotency_key":"00"}'])
def test_a_request_that_comes_between_two_turns_waits_for_those_before_it(later: bytes, tmp_path: Path) -> None:
    """The first submission goes to the full rules, so the answers to those behind it are sent in several turns."""
    last = post(b"/v1/jobs/claim" if b"worker" in later else b"/v1/jobs", later)

    async def test() -> None:
        server = Server(tmp_path, is_blind=False)
        try:
            for request in (last, last, post(b"/v1/jobs", b'{"kind":"k","idempotency_key":"00"}')) * 2:
                await server.send(0, [request])
            protocol, pipe = server.connection(0)
            for attempt in range(MOST_ATTEMPTS):
                pipe.written.clear()
                protocol.data_received(behind_a_collision(98, 98 * attempt + 1))
                if await is_between_turns(protocol, pipe):
                    break
            early = b"".join(pipe.written)
            answers = early + await server.send(0, [last])
            found = re.findall(rb'"jobs":|"error":"[A-Z_]+"|"dedup":[a-z]+', answers)
            assert len(found) == 100, "no attempt came between two turns"
            assert found[0] == b'"error":"IDEMPOTENCY_KEY_COLLISION"'
            assert set(found[1:-1]) == {b'"dedup":false'}
            assert found[-1] == (b'"jobs":' if b"worker" in later else b'"dedup":true')
        finally:
            await server.stop()

    asyncio.run(test())


def test_a_submission_whose_client_left_before_its_turn_is_counted(tmp_path: Path) -> None:
    """The answers behind the first are there, and wait for it, when the connection is lost."""

    async def test() -> None:
        server = Server(tmp_path, is_blind=False)
        try:
            for _ in range(3):
                await server.send(0, [post(b"/v1/jobs", b'{"kind":"k","idempotency_key":"00"}')])
            protocol, _ = server.connection(0)
            protocol.data_received(behind_a_collision(8))
            last = protocol.waiting[-1]
            assert isinstance(last, shaped_submission.ShapedSubmit)
            while last.early is None:  # noqa: ASYNC110
                await asyncio.sleep(0)
            server.close(0)
            await asyncio.sleep(0)
            assert server.context.meter.totals["accepted"] == 9
        finally:
            await server.stop()

    asyncio.run(test())


def test_a_shape_whose_credential_changes_hands_submits_for_the_caller_of_each_request(tmp_path: Path) -> None:
    callers = [Principal(name, "token", frozenset({Role.WRITE})) for name in ("ann", "bob", "ann")]

    async def test() -> None:
        server = Server(tmp_path, is_blind=False)
        try:
            await server.send(0, [post(b"/v1/jobs", b'{"kind":"k","idempotency_key":"0"}')])
            [shape] = server.shapes._known.values()
            for caller in callers:
                with patch.object(shape, "principal", return_value=caller):
                    await server.send(0, [post(b"/v1/jobs", b'{"kind":"k","idempotency_key":"1"}')])
            jobs = await server.context.engine.read(lambda reading: reading.range(Range(JOB, "", (), limit=9)))
            assert [job.principal for job in jobs][1:] == [owner_of(one) for one in callers[:2]]
        finally:
            await server.stop()

    asyncio.run(test())


def test_many_submissions_are_answered_as_each_of_them_alone(tmp_path: Path) -> None:
    """All of them new; then one known, one refused: an answer that is rendered at once is that of the full path."""
    items = [b'{"kind":"k","params":{"n":%d}}' % number for number in range(3)]
    items += [b'{"kind":"k","idempotency_key":"a"}', b'{"kind":"mail","priority":2,"queue":"q"}']
    new = post(b"/v1/jobs/batch", b'{"jobs":[%b]}' % b",".join(items))
    mixed = post(b"/v1/jobs/batch", b'{"jobs":[%b,{"kind":"k","idempotency_key":"b"}]}' % items[3])

    async def test() -> None:
        quick, full = Seen(Server(tmp_path / "a", is_blind=False)), Seen(Server(tmp_path / "b", is_blind=False))
        try:
            for request in (new, mixed, new.replace(b'"a"}', b'"z"}'), new.replace(b'"kind":"mail"', b'"kind":"a bc"')):
                answer = await quick.send(0, [request])
                with patch.object(submission, "quick_drafts", return_value=None):
                    assert answer == await full.send(0, [request])
                assert b" 200 " in answer
            assert quick.server.context.meter.totals == full.server.context.meter.totals
            assert quick.server.context.meter.totals["accepted"] == 5 + 1 + 5 + 3
        finally:
            await quick.server.stop()
            await full.server.stop()

    asyncio.run(test())
