"""What the jobs tests say to a server and how they read its answers.

Nothing here knows the implementation: paths, bodies, headers, metrics and audit lines are those of the published
contract. Every answer is held against the rules that all answers share as it arrives.
"""

from __future__ import annotations

import http.client
import itertools
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import httpx

from tests.harness.nodes import Nodes
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import HOST, RunningServer
from tests.harness.together import STOOD_STILL, Servers, check_log, eventually, log_of

PATH = "/v1/jobs"
SUBMIT = "/mesh/submit_request"
CLAIM = "/mesh/pull_requests"
RESULT = "/mesh/results/submit"
PATIENCE_SECONDS = 60.0
"""How long any one answer may take before the test gives up on it."""
JOB_ID = re.compile(r"job_[A-Za-z0-9]{1,60}")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
LEASE_TOKEN = re.compile(r"[0-9a-f]{32}")
SHA256 = re.compile(r"[0-9a-f]{64}")
INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")
ACTIVE = ("scheduled", "queued", "leased")
ENDED = ("completed", "failed")

Message = dict[str, Any]
Together = Callable[[Callable[["Jobs", str], None]], None]
"""Runs a test on several servers at the same time: it is given one of them and a queue of its own."""

_numbers = itertools.count(1)


class _Absent:
    """Marks a field that is left out."""

    def __repr__(self) -> str:
        return "absent"


ABSENT = _Absent()


def fresh(prefix: str = "x") -> str:
    """A name that no test of this run has had: for keys, queues, kinds and workers."""
    return f"{prefix}-{next(_numbers)}"


def without_absent(fields: Mapping[str, Any]) -> Message:
    """The fields that are there."""
    return {name: value for name, value in fields.items() if value is not ABSENT}


def ms_of(instant: str) -> int:
    """An instant of the wire as milliseconds since 1970."""
    assert INSTANT.fullmatch(instant), instant
    return round(datetime.fromisoformat(instant).timestamp() * 1_000)


class Answer(Message):
    """The body of an answer, and what came with it."""

    def __init__(self, body: Mapping[str, Any], response: httpx.Response) -> None:
        super().__init__(body)
        self.http = response.status_code
        self.headers = response.headers
        self.raw = response.content

    @property
    def retry_after(self) -> int:
        """The seconds that a refusal asks for."""
        return int(self.headers["Retry-After"])


def read_answer(response: httpx.Response) -> Answer:
    """The answer to a call of the jobs surface, held against the rules that all of them share."""
    assert response.headers["Content-Type"].split(";")[0] == "application/json", response.headers
    body = json.loads(response.content, parse_constant=_refuse_constant)
    assert isinstance(body, dict), body
    answer = Answer(body, response)
    assert body["ok"] is (200 <= answer.http < 300), (answer.http, body)
    assert response.headers["X-Request-Id"]
    if not body["ok"]:
        assert isinstance(body["error"], str), body
        assert isinstance(body["message"], str), body
        assert body["message"], body
        assert answer.http != 500 or body["error"] == "result_integrity_fail", body
        assert answer.http not in (429, 503) or answer.retry_after >= 1, response.headers
        assert answer.http != 401 or response.headers["WWW-Authenticate"], response.headers
    _check_instants(body)
    return answer


def _refuse_constant(constant: str) -> NoReturn:
    raise AssertionError(f"not JSON: {constant}")


def _check_instants(value: Any) -> None:
    """Params and results are the callers' own; every other member that names an instant is one."""
    if isinstance(value, list):
        for one in value:
            _check_instants(one)
    elif isinstance(value, dict):
        for name, member in value.items():
            if name.endswith("_utc"):
                assert member is None or INSTANT.fullmatch(member), (name, member)
            elif name not in ("params", "result", "cached_result", "client", "progress"):
                _check_instants(member)


def check_submitted(answer: Mapping[str, Any]) -> None:
    """What every accepted submission is told."""
    assert UUID.fullmatch(answer["request_id"]), answer
    assert JOB_ID.fullmatch(answer["job_id"]), answer
    assert isinstance(answer["dedup"], bool), answer
    assert answer["status"] in ("accepted", "in_progress", "completed", "failed"), answer
    assert answer["state"] in (*ACTIVE, *ENDED), answer
    assert answer["attempt"] >= 0, answer
    assert answer["revision"] >= 0, answer
    assert INSTANT.fullmatch(answer["created_utc"]), answer
    assert "expires_utc" in answer, answer
    assert (answer["state"] in ENDED) == (answer["status"] in ENDED), answer
    if answer["status"] in ENDED:
        _check_ended(answer)
    else:
        assert answer["expires_utc"] is None, answer
        assert not {"cached_result", "result_sha256", "cached_result_omitted"} & set(answer), answer


def _check_ended(answer: Mapping[str, Any]) -> None:
    assert answer["state"] == answer["status"], answer
    assert SHA256.fullmatch(answer["result_sha256"]), answer
    assert answer["result_bytes"] > 0, answer
    assert answer["result_url"].endswith(f"/v1/jobs/{answer['job_id']}/result"), answer
    assert ("cached_result" in answer) != ("cached_result_omitted" in answer), answer
    if "cached_result" in answer:
        is_completed = answer["status"] == "completed"
        assert answer["cached_result"]["ok"] is is_completed, answer
        assert set(answer["cached_result"]) == {"ok", "result" if is_completed else "error"}, answer


def check_claimed(job: Mapping[str, Any]) -> None:
    """What a worker is told of a job that it now holds."""
    assert JOB_ID.fullmatch(job["job_id"]), job
    assert UUID.fullmatch(job["request_id"]), job
    assert LEASE_TOKEN.fullmatch(job["lease_token"]), job
    assert 1 <= job["attempt"] <= job["max_attempts"], job
    assert job["epoch"] >= job["attempt"], job
    assert isinstance(job["params"], dict), job
    assert 0 <= job["priority"] <= 9, job
    assert job["lease_ms"] > 0, job
    assert {"kind", "queue", "lease_until_utc", "created_utc"} <= set(job), job


class _Turns(httpx.BaseTransport):
    """Sends each request to the next node.

    Connections are kept, however many: the pool might close an idle one just as a thread has been given it, and that
    thread would wait for an answer until its time is up.
    """

    def __init__(self, nodes: Sequence[RunningServer]) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=None)
        self._inside = httpx.HTTPTransport(limits=limits)
        self._turns = itertools.cycle(nodes)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.url = request.url.copy_with(host=HOST, port=next(self._turns).port)
        return self._inside.handle_request(request)

    def close(self) -> None:
        self._inside.close()


class Jobs:
    """A client of one server, or of two nodes in turn, with or without a token. It may be used by many threads.

    A call returns the body of its answer, which must have the HTTP status `expect`; None takes any.
    """

    def __init__(self, server: Servers, token: str = "") -> None:
        self.server = server
        self.worker = fresh("worker")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.http = httpx.Client(
            base_url=server.url, timeout=PATIENCE_SECONDS, transport=_Turns(self.nodes), headers=headers
        )

    @property
    def nodes(self) -> Sequence[RunningServer]:
        """Each server process."""
        return self.server.each if isinstance(self.server, Nodes) else [self.server]

    # -- calls ---------------------------------------------------------------------------------------------------------

    def call(
        self,
        method: str,
        path: str,
        body: Any = ABSENT,
        *,
        expect: int | None = 200,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        timeout: float = PATIENCE_SECONDS,
    ) -> Answer:
        """Any call: `body` is sent as JSON, `content` as it is."""
        given = {"Content-Type": "application/json"} if content is not None or body is not ABSENT else {}
        sent = content if body is ABSENT else json.dumps(body, ensure_ascii=False).encode()
        response = self.http.request(
            method, path, content=sent, headers=given | dict(headers or {}), timeout=httpx.Timeout(timeout)
        )
        answer = read_answer(response)
        assert expect is None or answer.http == expect, (method, path, answer.http, dict(answer))
        return answer

    def post(self, path: str, body: Any = ABSENT, *, expect: int | None = 200, **options: Any) -> Answer:
        """A call that may change something."""
        return self.call("POST", path, body, expect=expect, **options)

    def submit(
        self,
        kind: Any = "echo",
        params: Any = ABSENT,
        *,
        key: Any = ABSENT,
        path: str = PATH,
        expect: int | None = 200,
        headers: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> Answer:
        """Submit one job; ABSENT leaves a field out."""
        body = without_absent({"kind": kind, "params": params, "idempotency_key": key} | fields)
        return self.submit_text(json.dumps(body), path=path, expect=expect, headers=headers)

    def submit_text(
        self,
        text: str | bytes,
        *,
        path: str = PATH,
        expect: int | None = 200,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Submit this text, letter for letter."""
        content = text.encode() if isinstance(text, str) else text
        answer = self.post(path, expect=expect, content=content, headers=headers, timeout=PATIENCE_SECONDS + 30)
        if answer.http == 200:
            check_submitted(answer)
            assert (answer.headers.get("Idempotency-Replayed") == "true") is answer["dedup"], answer.headers
            # A revived job runs again: it is not new, and its first answer of the new life says so.
            assert answer["dedup"] or answer["status"] != "in_progress", dict(answer)
        return answer

    def batch(self, items: Sequence[Any], *, expect: int | None = 200) -> list[Message]:
        """Submit many; each answer has its own status in `http`."""
        answer = self.post(f"{PATH}/batch", {"jobs": list(items)}, expect=expect)
        answers: list[Message] = answer["jobs"]
        assert len(answers) == len(items), answer
        for one in answers:
            assert one["ok"] is (one["http"] == 200), one
            if one["ok"]:
                check_submitted(one)
        return answers

    def claim(self, *queues: str, path: str = f"{PATH}/claim", expect: int | None = 200, **fields: Any) -> Answer:
        """Claim from these queues, or from all; `worker_id` is this client's own there unless one is given.

        A name for each queue, because the polls of a worker end when it lets something run out in another test.
        """
        worker = f"{self.worker} {queues[0]}"[:128] if queues else self.worker
        asked = {"worker_id": worker} | ({"queues": list(queues)} if queues else {}) | fields
        answer = self.post(path, without_absent(asked), expect=expect, timeout=PATIENCE_SECONDS + 30)
        if answer.http == 200:
            assert answer["defer_ms"] >= 0, answer
            for job in answer["jobs"]:
                check_claimed(job)
                assert not queues or job["queue"] in queues, job
        return answer

    def claim_one(self, *queues: str, confirms: bool = True, **fields: Any) -> Message:
        """Claim one job, which must be there or come within the time that any answer may take, and confirm it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            jobs: list[Message] = self.claim(*queues, **{"wait_ms": 2_000} | fields)["jobs"]
            if jobs:
                [job] = jobs
                if confirms and job["offer_ms"]:
                    self.heartbeat(job)
                return job
            assert time.monotonic() < deadline, f"no job came from {queues}"

    def complete(
        self, job: Mapping[str, Any], result: Any = None, *, expect: int | None = 200, **fields: Any
    ) -> Answer:
        """Report a result for a job as it was claimed; ABSENT leaves a field out."""
        answer = self._report(job, "complete", {"result": result} | fields, expect)
        if answer.http == 200:
            assert (answer["job_id"], answer["status"]) == (job["job_id"], "completed"), answer
            assert SHA256.fullmatch(answer["result_sha256"]), answer
            assert isinstance(answer["dedup"], bool), answer
        return answer

    def fail(
        self,
        job: Mapping[str, Any],
        code: str = "boom",
        message: str = "it broke",
        *,
        expect: int | None = 200,
        **fields: Any,
    ) -> Answer:
        """Report an error for a job as it was claimed."""
        answer = self._report(job, "fail", {"error": {"code": code, "message": message}} | fields, expect)
        if answer.http == 200:
            assert answer["state"] in (*ACTIVE, *ENDED), answer
            assert answer["status"] in ("in_progress", *ENDED), answer
        return answer

    def defer(self, job: Mapping[str, Any], delay_ms: Any = 0, *, expect: int | None = 200, **fields: Any) -> Answer:
        """Put a claimed job back for later."""
        return self._report(job, "defer", {"delay_ms": delay_ms} | fields, expect)

    def heartbeat(self, job: Mapping[str, Any], *, expect: int | None = 200, **fields: Any) -> Answer:
        """Hold a claimed job for longer."""
        answer = self._report(job, "heartbeat", fields, expect)
        if answer.http == 200:
            assert isinstance(answer["cancel_requested"], bool), answer
            assert INSTANT.fullmatch(answer["lease_until_utc"]), answer
        return answer

    def step(
        self,
        job: Mapping[str, Any],
        step_key: Any,
        result: Any = ABSENT,
        *,
        expect: int | None = 200,
        **fields: Any,
    ) -> Answer:
        """Ask for a step of a claimed job, or store its result."""
        return self._report(job, "steps", {"step_key": step_key, "result": result} | fields, expect)

    def report(
        self, job_id: str, *, ok: Any = True, path: str = RESULT, expect: int | None = 200, **fields: Any
    ) -> Answer:
        """Report in the dialect of the mesh, with or without a lease token."""
        return self.post(path, without_absent({"job_id": job_id, "ok": ok} | fields), expect=expect)

    def cancel(self, job_id: str, *, expect: int | None = 200, **fields: Any) -> Answer:
        return self.post(f"{PATH}/{job_id}/cancel", fields, expect=expect)

    def get(self, job_id: str, *, wait_ms: int | None = None, expect: int | None = 200) -> Answer:
        """A job as it stands now, or at the end of a wait."""
        query = "" if wait_ms is None else f"?wait_ms={wait_ms}"
        answer = self.call("GET", f"{PATH}/{job_id}{query}", expect=expect, timeout=PATIENCE_SECONDS + 30)
        assert answer.http != 200 or answer["job_id"] == job_id, answer
        return answer

    def result(self, job_id: str, *, expect: int | None = 200) -> Answer:
        """The whole outcome. Its `ok` is the job's, so the rule of all other answers does not hold here."""
        response = self.http.get(f"{PATH}/{job_id}/result")
        assert expect is None or response.status_code == expect, response.text
        return Answer(response.json(), response) if response.status_code == 200 else read_answer(response)

    def lookup(self, *, expect: int | None = 200, **fields: Any) -> Answer:
        return self.post(f"{PATH}/lookup", fields, expect=expect)

    def page(self, *, expect: int | None = 200, **filters: Any) -> Answer:
        """One page of the list."""
        query = str(httpx.QueryParams(filters))
        return self.call("GET", f"{PATH}?{query}" if query else PATH, expect=expect)

    def listed(self, *, limit: int, **filters: Any) -> list[Message]:
        """Every page of the list."""
        page = self.page(limit=limit, **filters)
        jobs: list[Message] = page["jobs"]
        while page["next"] is not None:
            assert len(page["jobs"]) <= limit, page
            page = self.page(limit=limit, after=page["next"], **filters)
            jobs += page["jobs"]
        return jobs

    def dead(self, *, expect: int | None = 200, **filters: Any) -> Answer:
        """One page of the dead letters."""
        query = str(httpx.QueryParams(filters))
        return self.call("GET", f"{PATH}/dead" + (f"?{query}" if query else ""), expect=expect)

    def dead_ids(self) -> list[str]:
        """Every dead letter."""
        page = self.dead(limit=1_000)
        found = [job["job_id"] for job in page["jobs"]]
        while page["next"] is not None:
            page = self.dead(limit=1_000, after=page["next"])
            found += [job["job_id"] for job in page["jobs"]]
        return found

    def requeue(self, job_id: str, *, expect: int | None = 200) -> Answer:
        return self.post(f"{PATH}/{job_id}/requeue", {}, expect=expect)

    def release(self, key: str, *, principal: str = "default", expect: int | None = 200, **fields: Any) -> Answer:
        body = {"principal": principal, "idempotency_key": key} | fields
        return self.post(f"{PATH}/keys/release", body, expect=expect)

    def set_queue(self, queue: str, max_inflight: Any, *, expect: int | None = 200) -> Answer:
        return self.call("PUT", f"{PATH}/queues/{queue}", {"max_inflight": max_inflight}, expect=expect)

    def set_schedule(self, name: str, *, expect: int | None = 201, **fields: Any) -> Answer:
        return self.call("PUT", f"{PATH}/schedules/{name}", without_absent(fields), expect=expect)

    def schedule(self, name: str, *, expect: int | None = 200) -> Answer:
        return self.call("GET", f"{PATH}/schedules/{name}", expect=expect)

    def _report(self, job: Mapping[str, Any], what: str, fields: Mapping[str, Any], expect: int | None) -> Answer:
        body = without_absent({"lease_token": job.get("lease_token", ABSENT)} | dict(fields))
        return self.post(f"{PATH}/{job['job_id']}/{what}", body, expect=expect)

    # -- what can be seen from outside ---------------------------------------------------------------------------------

    def metrics(self) -> dict[str, float]:
        """The JSON form: counts of the last minute of all nodes together, and everything else as the first tells it."""
        each = [self._metrics_of(node) for node in self.nodes]
        return each[0] | {name: sum(one[name] for one in each) for name in each[0] if name.endswith("_1m")}

    def _metrics_of(self, node: RunningServer) -> dict[str, float]:
        body: dict[str, float] = json.loads(self._metrics_text(node, "application/json"))
        return body

    def prometheus(self) -> dict[str, float]:
        """The text form: each sample of all nodes together, by its name and labels."""
        found: dict[str, float] = {}
        for node in self.nodes:
            for line in self._metrics_text(node, "text/plain").splitlines():
                if not line.startswith("#"):
                    name, _, value = line.rpartition(" ")
                    found[name] = found.get(name, 0) + float(value)
        return found

    def _metrics_text(self, node: RunningServer, kind: str) -> str:
        """As one node tells it, whoever's turn it is; httpx would need a client for each."""
        token = self.http.headers.get("Authorization")
        connection = http.client.HTTPConnection(HOST, node.port, timeout=PATIENCE_SECONDS)
        try:
            connection.request(
                "GET", "/metrics", headers={"Accept": kind} | ({"Authorization": token} if token else {})
            )
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        assert response.status == 200, text
        assert response.headers["Content-Type"].startswith(kind), response.headers
        return text

    def audit(self, event: str = "", **details: Any) -> list[Message]:
        """The details of the audit lines of this event that have these details, in the order of each file."""
        return [
            line["details"]
            for line in self.audit_lines()
            if event in ("", line["event"]) and details.items() <= line["details"].items()
        ]

    def audit_lines(self) -> list[Message]:
        """Every whole audit line of every node."""
        lines: list[Message] = []
        for node in self.nodes:
            for path in (node.data / "logs").glob("audit*.jsonl"):
                lines += [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]]
        for line in lines:
            assert set(line) == {"ts", "event", "details"}, line
            assert INSTANT.fullmatch(line["ts"]), line
        return lines

    def audited_first(self, event: str, **details: Any) -> list[Message]:
        """The audit lines of an event whose answers wait for them: there at once, unless the server stood still."""
        if STOOD_STILL in log_of(self.server):
            eventually(lambda: bool(self.audit(event, **details)), f"an audit line {event} with {details}")
        return self.audit(event, **details)

    def audited(self, event: str, **details: Any) -> Message:
        """The one audit line of this event with these details, which comes within a while."""
        eventually(lambda: bool(self.audit(event, **details)), f"an audit line {event} with {details}")
        [found] = self.audit(event, **details)
        return found

    def with_token(self, token: str) -> Jobs:
        """Another client of the same server; the caller closes it."""
        return Jobs(self.server, token)

    def close(self) -> None:
        self.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


SITE = Path(__file__).parent / "site"
"""Has a `sitecustomize`, which Python runs first."""
store_kind = "sqlite"
"""What stands under the servers; `conftest` sets it."""


@contextmanager
def serving(
    data: Path,
    *,
    store: str = "",
    env: Mapping[str, str] | None = None,
    clean: bool = True,
    token: str = "",
    nodes: int = 2,
    **settings: object,
) -> Iterator[Jobs]:
    """A server with SEMEL_ settings, or nodes over PostgreSQL; unless `clean` is off, their logs must show no fault."""
    variables = {f"SEMEL_{name}": str(value) for name, value in settings.items()} | dict(env or {})
    server = _servers(data, store or store_kind, variables, nodes)
    with server:
        jobs = Jobs(server, token)
        try:
            yield jobs
        finally:
            jobs.close()
    if clean:
        check_log(server)


def _servers(data: Path, store: str, env: dict[str, str], nodes: int) -> Servers:
    if store == "postgres":
        return Nodes(data, nodes, env=env | {"SEMEL_STORE": fresh_url(lanes="3")})
    return RunningServer(data, env=env | ({"SEMEL_STORE": "memory:"} if store == "memory" else {}))
