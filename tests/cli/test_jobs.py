"""`semel jobs` against a real server, as a script and a person use it."""

from __future__ import annotations

import json
import re
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.command import SECONDS, Finished, Semel
from tests.harness.server import RunningServer

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
JOB_ID = re.compile(r"job_[0-9a-f]{32}")
RESUME = "Earlier lines are done: run this again with --key {}, and no job is queued twice.\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    env = {"SEMEL_JOBS_RETRY_BACKOFF_BASE_MS": "1", "SEMEL_JOBS_RETRY_BACKOFF_CAP_MS": "1"}
    with RunningServer(tmp_path_factory.mktemp("jobs") / "data", env=env) as running:
        yield running


class Worker:
    """Takes jobs of one kind and reports on them."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        answer = self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    def claim(self, kind: str, worker: str = "") -> dict[str, Any]:
        # Each claim is another worker's: the server ends the waits of one whose offer expired, as on a slow machine.
        name = worker or f"w-{uuid.uuid4()}"
        jobs = self.post("/claim", worker_id=name, kinds=[kind], wait_ms=30_000)["jobs"]
        assert len(jobs) == 1
        job: dict[str, Any] = jobs[0]
        return job

    def complete(self, kind: str, result: Any) -> str:
        job = self.claim(kind)
        self.post(f"/{job['job_id']}/complete", lease_token=job["lease_token"], result=result)
        return str(job["job_id"])

    def fail(self, kind: str, *, retryable: bool = False, code: str = "boom", worker: str = "") -> str:
        job = self.claim(kind, worker)
        error = {"code": code, "message": "it went wrong"}
        self.post(f"/{job['job_id']}/fail", lease_token=job["lease_token"], error=error, retryable=retryable)
        return str(job["job_id"])


@pytest.fixture(scope="module")
def worker(server: RunningServer) -> Iterator[Worker]:
    with httpx.Client(base_url=f"{server.url}/v1/jobs", timeout=SECONDS) as http:
        yield Worker(http)


def submitted(semel: Semel, *args: str, stdin: bytes = b"") -> dict[str, Any]:
    return semel.here("jobs", "submit", "--json", *args, stdin=stdin).facts


def listed(semel: Semel, *args: str) -> list[dict[str, Any]]:
    run = semel.here("jobs", "list", "--all", "--json", *args)
    assert run.code == 0, run.err
    return objects(run)


def objects(run: Finished) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run.out.splitlines()]


def refused(run: Finished, sentence: str, code: int = 1) -> None:
    assert (run.code, run.raw) == (code, b"")
    assert sentence in run.err


def test_submit_says_which_job_it_is(semel: Semel) -> None:
    first = semel.here("jobs", "submit", "said", '{"n": 1}', "--key", "said-1")
    again = semel.here("jobs", "submit", "said", '{"n": 1.0}', "--key", "said-1")
    assert (first.code, first.err, again.code, again.err) == (0, "", 0, "")
    found = re.fullmatch(r"Accepted (job_[0-9a-f]{32}) \(queued\); key said-1\n", first.out)
    assert found is not None
    assert again.out == f"Already there (replayed): {found[1]} is queued; key said-1\n"
    facts = submitted(semel, "said", '{"n": 1}', "--key", "said-1")
    assert (facts["job_id"], facts["idempotency_key"], facts["dedup"]) == (found[1], "said-1", True)
    assert [job["job_id"] for job in listed(semel, "--kind", "said")] == [found[1]]


def test_submit_makes_keys_unless_told_otherwise(semel: Semel) -> None:
    one, two = submitted(semel, "made"), submitted(semel, "made", "-", stdin=b'{"n": 1}')
    assert UUID7.fullmatch(one["idempotency_key"])
    assert one["idempotency_key"] < two["idempotency_key"]
    again = submitted(semel, "made", "--key", one["idempotency_key"])
    assert (again["job_id"], again["dedup"]) == (one["job_id"], True)
    without = [submitted(semel, "made", "--no-key") for _ in range(2)]
    assert without[0]["job_id"] != without[1]["job_id"]
    assert [job["idempotency_key"] for job in without] == [None, None]


def test_submit_hands_on_every_option(semel: Semel, tmp_path: Path) -> None:
    (tmp_path / "params").write_text('{\n "big": 12345678901234567890, "one": 1.50}\n')
    options = ["--queue", "images", "--priority", "high", "--max-attempts", "3", "--lease", "7", "--delay", "3600"]
    options += ["--timeout", "1.5"]
    made = submitted(semel, "every", "--file", str(tmp_path / "params"), *options)
    job = semel.here("jobs", "show", made["job_id"], "--json").facts
    assert job["params"] == {"big": 12345678901234567890, "one": 1.5}
    assert (job["queue"], job["priority"], job["max_attempts"], job["lease_sec"]) == ("images", 2, 3, 7)
    assert job["timeout_ms"] == 1_500
    assert (job["state"], made["state"]) == ("scheduled", "scheduled")
    later = submitted(semel, "every", "--run-at", "2100-01-01T00:00:00Z", "--priority", "9")
    assert semel.here("jobs", "show", later["job_id"], "--json").facts["run_at_utc"] == "2100-01-01T00:00:00.000Z"
    known = semel.here("jobs", "submit", "every", "--key", later["idempotency_key"], "--priority", "1")
    assert "; not changed by this: priority; key " in known.out


def test_another_payload_under_a_key_is_a_failure(semel: Semel) -> None:
    submitted(semel, "taken", '{"n": 1}', "--key", "taken-1")
    run = semel.here("jobs", "submit", "taken", '{"n": 2}', "--key", "taken-1")
    refused(run, "[IDEMPOTENCY_KEY_COLLISION]")
    assert run.err.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["p", "not json"], "The text is not JSON"),
        (["p", "[1]"], "The params of a job must be a JSON object."),
        (["p", '{"a": 1, "a": 2}'], "occurs twice"),
        (["p", '{"a":' * 65 + "1" + "}" * 65], "The value is nested more than 64 levels deep."),
        (["with blank"], "[invalid_request]"),
        (["p", "--key", "x" * 257], "[invalid_request]"),
        (["p", "--file", "-"], "The text is not JSON"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, list) else "",
)
def test_what_cannot_be_queued_is_one_sentence(semel: Semel, args: list[str], sentence: str) -> None:
    run = semel.here("jobs", "submit", *args)
    refused(run, sentence)
    assert run.err.count("\n") == 1
    assert listed(semel, "--kind", "p") == []


@pytest.mark.parametrize("call", ["show", "wait", "result", "cancel"])
def test_a_job_that_is_not_there_is_told(semel: Semel, call: str) -> None:
    for wanted in ("job_" + "0" * 32, "00000000-0000-8000-8000-000000000000"):
        refused(semel.here("jobs", call, wanted), "[not_found]")
    refused(semel.here("jobs", call, "--key", "never used"), "[not_found]")


LINES = "".join(f'{{"kind": "line", "params": {{"n": {number}}}}}\n' for number in range(1, 251))


def test_lines_go_in_batches_and_twice_gives_hits(semel: Semel, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text(LINES)
    import_it = ("jobs", "submit", "--lines", "--file", str(tmp_path / "lines"), "--key", "import")
    first = semel.here(*import_it, "--json")
    assert (first.code, first.err) == (0, "")
    results = objects(first)
    assert [(one["line"], one["idempotency_key"]) for one in results] == [(n, f"import-{n}") for n in range(1, 251)]
    assert {(one["http"], one["status"], one["dedup"]) for one in results} == {(200, "accepted", False)}
    again = semel.here(*import_it, "--batch", "7")
    assert again.out == "Submitted 250 jobs: 0 new, 250 already there (--key import)\n"
    (tmp_path / "lines").write_text(LINES + '\n{"kind": "line"}\n')
    longer = semel.here(*import_it)
    assert longer.out == "Submitted 251 jobs: 1 new, 250 already there (--key import)\n"
    found = listed(semel, "--kind", "line")
    assert len({job["job_id"] for job in found}) == len(found) == 251


def test_lines_as_params_of_a_kind_and_with_keys_of_their_own(semel: Semel) -> None:
    run = semel.here("jobs", "submit", "params", "--lines", "--key", "p", stdin=b'{"n": 1}\n\n  {"n": 2} \n')
    assert run.out == "Submitted 2 jobs: 2 new, 0 already there (--key p)\n"
    lines = b"""
        {"kind": "own", "idempotency_key": "own-1", "queue": "mine"}
        {"kind": "own", "idempotency_key": "own-1"}
        {"kind": "own", "idempotency_key": "own-1", "params": {"n": 2}}
        {"kind": "own", "idempotency_key": 7}
        {"kind": "own", "params": {"n": 1e999}}
        {"kind": "own", "idempotencyKey": "typo"}
        {"kind": "own"}
    """
    run = semel.here("jobs", "submit", "--lines", "--queue", "theirs", "--key", "o", "--json", stdin=lines)
    told = [(one["line"], one["http"], one["idempotency_key"], one.get("dedup")) for one in objects(run)]
    assert told == [
        (2, 200, "own-1", False),
        (3, 200, "own-1", True),
        (4, 409, "own-1", None),
        (5, 400, "7", None),
        (6, 400, "o-6", None),
        (7, 400, "o-7", None),
        (8, 200, "o-8", False),
    ]
    assert (run.code, run.err) == (1, "Error: 4 of 7 jobs were refused.\n")
    assert [job["queue"] for job in listed(semel, "--kind", "own")] == ["theirs", "mine"]
    again = semel.here("jobs", "submit", "--lines", "--queue", "theirs", "--key", "o", stdin=lines)
    assert again.out == "Submitted 3 jobs: 0 new, 3 already there (--key o)\n"
    assert again.err.splitlines()[0].startswith("Line 4: ")
    assert "[IDEMPOTENCY_KEY_COLLISION]" in again.err


def test_a_line_that_cannot_be_sent_is_named(semel: Semel) -> None:
    content = b'{"kind": "bad"}\n{"kind": "bad"\n{"kind": "bad"}\n'
    run = semel.here("jobs", "submit", "--lines", "--key", "bad", stdin=content)
    refused(run, "Error: Line 2: The text is not JSON")
    assert run.err.endswith(" " + RESUME.format("bad"))
    assert len(listed(semel, "--kind", "bad")) == 1


def test_lines_are_sent_as_they_come_and_control_c_says_how_to_go_on(semel: Semel) -> None:
    with semel.start("jobs", "submit", "stopped", "--lines", "--json") as run:
        assert run.stdin is not None
        assert run.stdout is not None
        assert run.stderr is not None
        keys = []
        for number in (1, 2):
            run.stdin.write(b'{"n": %d}\n' % number)
            run.stdin.flush()
            keys.append(json.loads(run.stdout.readline())["idempotency_key"])
        base = keys[0].removesuffix("-1")
        assert keys == [f"{base}-1", f"{base}-2"]
        told = f"Keys: {base}-1, {base}-2, ...; continue an interrupted run with --key {base}.\n"
        assert run.stderr.readline().decode() == told
        run.send_signal(signal.SIGINT)
        assert run.stderr.read().decode() == "Error: Stopped after line 2. " + RESUME.format(base)
    assert run.returncode == 1


def test_a_bar_on_a_terminal(semel: Semel, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text(LINES)
    shown = semel.on_terminal("jobs", "submit", "--lines", "--file", str(tmp_path / "lines"), "--key", "import")
    assert (shown.code, b"Submitting  [####" in shown.raw, b"100%" in shown.raw) == (0, True, True)


def test_waiting_tells_by_its_code_how_a_job_ended(semel: Semel, worker: Worker) -> None:
    job = submitted(semel, "waited", "--key", "waited-1")["job_id"]
    still = semel.here("jobs", "wait", job, "--timeout", "0")
    assert (still.code, still.out) == (4, f"{job} is queued\n")
    with semel.start("jobs", "wait", "--key", "waited-1", "--json") as waiting:
        worker.complete("waited", {"answer": 42})
        out, err = waiting.communicate(timeout=SECONDS)
    assert (waiting.returncode, err) == (0, b"")
    told = json.loads(out)
    assert (told["state"], told["cached_result"]) == ("completed", {"ok": True, "result": {"answer": 42}})

    failing = submitted(semel, "waited")
    worker.fail("waited")
    failed = semel.here("jobs", "wait", failing["request_id"])
    assert (failed.code, failed.out) == (3, f"{failing['job_id']} is failed (permanent): boom: it went wrong\n")


def test_submit_can_wait(semel: Semel, worker: Worker) -> None:
    thread = threading.Thread(target=worker.complete, args=("patient", 7))
    thread.start()
    run = semel.here("jobs", "submit", "patient", "--key", "patient-1", "--wait", "30")
    thread.join()
    assert run.code == 0
    assert re.fullmatch(r"Accepted (job_\w+) \(queued\); key patient-1\n\1 is completed\n", run.out)
    facts = submitted(semel, "patient", "--key", "patient-1", "--wait", "30")
    assert (facts["state"], facts["dedup"], facts["idempotency_key"]) == ("completed", True, "patient-1")
    known = semel.here("jobs", "submit", "patient", "--key", "patient-1")
    assert "is completed; key patient-1" in known.out
    still = semel.here("jobs", "submit", "impatient", "--wait", "0.01")
    assert (still.code, still.out.splitlines()[1].endswith(" is queued")) == (4, True)


def test_a_wait_outlasts_a_restart(semel: Semel, server: RunningServer, worker: Worker) -> None:
    job = submitted(semel, "outlasted")["job_id"]
    with semel.start("jobs", "wait", job, "--retries", "20") as waiting:
        time.sleep(0.5)
        server.restart()
        worker.complete("outlasted", None)
        out, _ = waiting.communicate(timeout=SECONDS)
    assert (waiting.returncode, out.decode()) == (0, f"{job} is completed\n")


def test_results_are_printed_as_json(semel: Semel, worker: Worker) -> None:
    job = submitted(semel, "result", "--key", "result-1")["job_id"]
    refused(semel.here("jobs", "result", job), f"The job {job} is queued.")
    worker.complete("result", {"ü": [1.5, 12345678901234567890]})
    assert semel.here("jobs", "result", job).out == '{"ü": [1.5, 12345678901234567890]}\n'
    whole = semel.here("jobs", "result", "--key", "result-1", "--json").facts
    assert (whole["job_id"], whole["ok"], whole["integrity"]["mode"]) == (job, True, "sha256")
    failing = submitted(semel, "result")["job_id"]
    worker.fail("result")
    failed = semel.here("jobs", "result", failing)
    assert (failed.code, json.loads(failed.out)) == (3, {"code": "boom", "message": "it went wrong"})


def test_a_job_is_shown_with_its_life(semel: Semel, worker: Worker) -> None:
    job = submitted(semel, "shown", '{"text": "a\\u001bb"}', "--key", "shown-1", "--max-attempts", "3")["job_id"]
    waits = semel("jobs", "show", "--key", "shown-1", env={"PYTHONIOENCODING": "ascii"})
    assert waits.out.splitlines()[0] == f"{job}  shown  queued"
    assert waits.out.splitlines()[-1] == "                     now  >  waits for a worker"
    worker.fail("shown", retryable=True, worker="w-1")
    held = worker.claim("shown", "w-2")
    leased = semel.here("jobs", "show", job).out
    assert f"{job}  shown  leased by w-2 (attempt 2)" in leased
    assert "attempt 1 failed at w-1: boom: it went wrong" in leased
    assert "now  ▶  attempt 2 runs at w-2" in leased
    worker.post(f"/{job}/complete", lease_token=held["lease_token"], result={"done": True})
    done = semel.here("jobs", "show", job)
    assert "attempts  2 of 3\n" in done.out
    assert 'result    {"done":true}; ' in done.out
    assert "●  completed\n" in done.out
    assert "○  its key can be used anew\n" in done.out
    assert "\x1b" not in done.out
    assert b"\x1b[32m" in semel.on_terminal("jobs", "show", job).raw


def test_a_list_is_a_table_of_the_newest(semel: Semel, worker: Worker) -> None:
    ids = [submitted(semel, "table", "--queue", f"q{number}")["job_id"] for number in range(3)]
    worker.complete("table", None)
    run = semel.here("jobs", "list", "--kind", "table")
    head, *rows = run.out.splitlines()
    assert head.split() == ["JOB", "KIND", "QUEUE", "PRIORITY", "ATTEMPT", "CREATED", "STATE"]
    assert [row.split()[0] for row in rows] == ids[::-1]
    assert [job["job_id"] for job in listed(semel, "--kind", "table", "--state", "completed")] == ids[:1]
    assert [job["job_id"] for job in listed(semel, "--kind", "table", "--queue", "q1")] == ids[1:2]
    some = semel.here("jobs", "list", "--kind", "table", "--limit", "2", "--json")
    assert [job["job_id"] for job in objects(some)] == [ids[2], ids[1]]
    assert some.err == "There are more than 2 jobs: give a higher --limit, or --all.\n"
    none = semel.here("jobs", "list", "--kind", "no.such")
    assert (none.code, none.out, none.err) == (0, "", "No jobs match.\n")


def test_cancel_ends_what_waits_and_asks_what_runs(semel: Semel, worker: Worker) -> None:
    waiting = submitted(semel, "cancelled", "--key", "cancelled-1")["job_id"]
    dry = semel.here("jobs", "cancel", waiting, "--dry-run")
    assert dry.out == f"{waiting} (cancelled) is queued: would be cancelled.\n"
    assert semel.here("jobs", "cancel", "--key", "cancelled-1").out == f"Cancelled {waiting}\n"
    again = semel.here("jobs", "cancel", waiting)
    assert (again.code, again.out) == (0, f"Cancelled {waiting}\n")
    assert "it would not change." in semel.here("jobs", "cancel", waiting, "--dry-run").out

    running = submitted(semel, "cancelled")["job_id"]
    held = worker.claim("cancelled")
    assert "its worker would be asked to stop." in semel.here("jobs", "cancel", running, "--dry-run").out
    asked = semel.here("jobs", "cancel", running, "--json").facts
    assert (asked["state"], asked["cancel_requested"]) == ("leased", True)
    assert "asked to stop" in semel.here("jobs", "show", running).out
    no = semel.on_terminal("jobs", "cancel", running, "--force", typed=b"n\n")
    assert (no.code, b"Cancel it at once?" in no.raw) == (1, True)
    forced = semel.here("jobs", "cancel", running, "--force", "--yes")
    assert forced.out == f"Cancelled {running}\n"
    late = worker.http.post(f"/{running}/complete", json={"lease_token": held["lease_token"], "result": 1})
    assert late.status_code == 409


def test_dead_letters_are_listed_and_run_again(semel: Semel, worker: Worker) -> None:
    ids = []
    for number in range(3):
        submitted(semel, f"dead{number}", "--queue", "graves", "--max-attempts", "1")
        ids.append(worker.fail(f"dead{number}", retryable=number == 0))
    found = [job for job in objects(semel.here("jobs", "dead", "--json")) if job["queue"] == "graves"]
    assert {job["job_id"] for job in found} == set(ids)
    assert {job["reason"] for job in found} == {"exhausted", "permanent"}
    shown = semel.here("jobs", "dead")
    assert "ERROR" in shown.out.splitlines()[0]
    assert shown.out.count("boom: it went wrong") >= 3

    dry = semel.here("jobs", "requeue", "--dead", "--queue", "graves", "--reason", "permanent", "--dry-run")
    assert dry.out.splitlines()[-1] == "Would run 2 jobs again."
    assert ids[0] not in dry.out
    one = semel.here("jobs", "requeue", ids[0])
    assert (one.code, one.out) == (0, f"Requeued {ids[0]}\n")
    twice = semel.here("jobs", "requeue", ids[0])
    assert (twice.code, twice.err.splitlines()[-1]) == (1, "Error: 1 of 1 jobs were not requeued.")
    no = semel.on_terminal("jobs", "requeue", "--dead", "--queue", "graves", typed=b"n\n")
    assert (no.code, b"Run these 2 jobs again?" in no.raw) == (1, True)
    rest = semel.here("jobs", "requeue", "--dead", "--queue", "graves", "--yes", "--json")
    assert {job["job_id"] for job in objects(rest)} == set(ids[1:])
    states = {job["job_id"]: (job["state"], job["revision"]) for job in listed(semel, "--queue", "graves")}
    assert states == dict.fromkeys(ids, ("queued", 1))
    assert semel.here("jobs", "requeue", "--dead", "--queue", "graves", "--yes").out == "Requeued 0 jobs\n"


def test_a_key_is_released(semel: Semel, worker: Worker) -> None:
    first = submitted(semel, "released", "--key", "released-1")["job_id"]
    refused(semel.here("jobs", "release", "released-1"), "[job_active]")
    dry = semel.here("jobs", "release", "released-1", "--force", "--dry-run")
    assert dry.out == "Would release the key released-1 of default, even if its job has not ended.\n"
    no = semel.on_terminal("jobs", "release", "released-1", "--force", typed=b"n\n")
    assert (no.code, b"Release the key released-1 of default" in no.raw) == (1, True)
    assert submitted(semel, "released", "--key", "released-1")["job_id"] == first
    worker.complete("released", None)
    assert semel.here("jobs", "release", "released-1").out == "Released the key released-1 of default\n"
    assert submitted(semel, "released", "--key", "released-1")["job_id"] != first
    refused(semel.here("jobs", "release", "released-1", "--principal", "nobody"), "[not_found]")
    facts = semel.here("jobs", "release", "released-1", "--force", "--yes", "--json").facts
    assert (facts["released"], facts["dry_run"]) == (True, False)


def test_queues_have_limits(semel: Semel, worker: Worker) -> None:
    for _ in range(2):
        submitted(semel, "limited", "--queue", "narrow")
    assert semel.here("jobs", "queue", "set", "narrow", "1").out == "narrow: at most 1 running at once\n"
    worker.claim("limited")
    rows = {one["queue"]: one for one in objects(semel.here("jobs", "queue", "list", "--json"))}
    assert (rows["narrow"]["max_inflight"], rows["narrow"]["inflight"], rows["narrow"]["waiting"]) == (1, 1, 1)
    shown = semel.here("jobs", "queue", "list").out.splitlines()
    assert ["narrow", "1", "1", "1", "none", "none"] in [row.split() for row in shown]
    assert semel.here("jobs", "queue", "rm", "narrow").out == "narrow has no limit\n"
    assert semel.here("jobs", "queue", "set", "narrow", "0").out == "narrow has no limit\n"
    assert "none" in semel.here("jobs", "queue", "list").out


def test_d3_a_queue_limits_the_time_of_its_runs(semel: Semel, worker: Worker) -> None:
    def say(*args: str) -> str:
        return semel.here("jobs", "queue", *args).out

    assert say("show", "timed") == "timed has no limit; 0 waiting, 0 running\n"
    assert say("set", "timed", "--timeout", "1.5") == "timed: a run may take 1.5 s\n"
    assert say("set", "timed", "3") == "timed: at most 3 running at once, a run may take 1.5 s\n"
    submitted(semel, "timed", "--queue", "timed")
    assert worker.claim("timed")["timeout_ms"] == 1_500
    assert say("show", "timed") == "timed: at most 3 running at once, a run may take 1.5 s; 0 waiting, 1 running\n"
    assert semel.here("jobs", "queue", "show", "timed", "--json").facts["default_timeout_ms"] == 1_500
    assert ["timed", "0", "1", "3", "1.5", "s", "none"] in [row.split() for row in say("list").splitlines()]
    assert say("set", "timed", "--timeout", "0") == "timed: at most 3 running at once\n"
    assert say("rm", "timed") == "timed has no limit\n"


def test_a_queue_limits_how_many_jobs_start(semel: Semel, worker: Worker) -> None:
    def say(*args: str) -> str:
        return semel.here("jobs", "queue", *args).out

    assert say("set", "paced", "--rate-limit", "2/3600") == "paced: at most 2 start in 3600 s\n"
    for _ in range(3):
        submitted(semel, "paced", "--queue", "paced")
    for _ in range(2):
        worker.claim("paced")
    assert worker.post("/claim", worker_id="w", kinds=["paced"])["jobs"] == []
    assert say("show", "paced") == "paced: at most 2 start in 3600 s; 1 waiting, 2 running\n"
    assert semel.here("jobs", "queue", "show", "paced", "--json").facts["rate_limit"]["left"] == 0
    rows = [row.split() for row in say("list").splitlines()]
    assert ["paced", "1", "2", "none", "none", "2", "in", "3600", "s"] in rows
    assert say("set", "paced", "--rate-limit", "5") == "paced: at most 5 start in 1 s\n"
    assert say("set", "paced", "--rate-limit", "0") == "paced has no limit\n"


def test_submissions_are_joined(semel: Semel) -> None:
    first = submitted(semel, "single", '{"n": 1}', "--unique", "one")
    again = submitted(semel, "single", '{"n": 2}', "--unique", "one")
    assert (again["job_id"], again["unique"]) == (first["job_id"], True)
    same = [submitted(semel, "single", '{"n": 3}', "--unique-for", "60")["job_id"] for _ in range(2)]
    assert same[0] == same[1] != first["job_id"]
    burst = [submitted(semel, "burst", f'{{"n": {n}}}', "--debounce", "b", "--delay", "3600") for n in range(3)]
    assert len({one["job_id"] for one in burst}) == 1
    shown = semel.here("jobs", "show", burst[0]["job_id"], "--json").facts
    assert (shown["state"], shown["params"]) == ("scheduled", {"n": 2})


def test_a_group_is_filled_closed_and_listed(semel: Semel, worker: Worker) -> None:
    join = submitted(semel, "joined", "--join", "0", "--key", "the-join")["job_id"]
    assert semel.here("jobs", "members", join).err == "No members.\n"
    members = [submitted(semel, "member", "--group", join)["job_id"] for _ in range(2)]
    assert [one["job_id"] for one in objects(semel.here("jobs", "members", join, "--json"))] == members
    worker.complete("member", 1)
    worker.fail("member")
    closed = semel.here("jobs", "close", "--key", "the-join")
    assert (closed.code, closed.out) == (0, f"Closed the group of {join}: it is queued\n")
    rows = [row.split() for row in semel.here("jobs", "members", join).out.splitlines()]
    assert rows == [
        ["JOB", "NAME", "STATE"],
        [members[0], "completed"],
        [members[1], "failed", "(permanent)"],
    ]
    refused(semel.here("jobs", "submit", "member", "--group", join), "[")
    sized = submitted(semel, "joined", "--join", "1")["job_id"]
    member = submitted(semel, "member", "--group", sized)["job_id"]
    assert semel.here("jobs", "cancel", sized, "--members").out == f"Cancelled {sized}\n"
    assert semel.here("jobs", "wait", member).out.startswith(f"{member} is failed (cancelled)")
    refused(semel.here("jobs", "close", submitted(semel, "alone")["job_id"]), "[")


def test_schedules_come_and_go(semel: Semel) -> None:
    assert semel.here("jobs", "schedule", "list").err == "There are no schedules.\n"
    cron = "0 2 1 1 *"
    set_it = ("jobs", "schedule", "set", "yearly", cron, "report", '{"of": 1.50}', "--queue", "reports")
    made = semel.here(*set_it)
    assert re.fullmatch(r"Scheduled yearly\. The next job will be created at \d{4}-01-01T02:00:00.*Z\.\n", made.out)
    shown = semel.here("jobs", "schedule", "list").out.splitlines()
    assert shown[1].startswith(f"yearly  {cron}  report  reports  none yet  ")
    assert semel.here(*set_it, "--paused").out == "Scheduled yearly. It is paused.\n"
    one = objects(semel.here("jobs", "schedule", "list", "--json"))[0]
    assert (one["name"], one["paused"], one["params"]) == ("yearly", True, {"of": 1.5})
    refused(semel.here("jobs", "schedule", "set", "yearly", "61 * * * *", "report"), "[invalid_request]")
    refused(semel.here("jobs", "schedule", "set", "yearly", cron, "report", "[]"), "must be a JSON object")
    dry = semel.here("jobs", "schedule", "rm", "yearly", "--dry-run")
    assert dry.out == f"Would remove yearly ({cron}: report)\n"
    no = semel.on_terminal("jobs", "schedule", "rm", "yearly", typed=b"n\n")
    assert (no.code, b"Remove it?" in no.raw) == (1, True)
    assert semel.here("jobs", "schedule", "rm", "yearly", "--yes").out == "Removed yearly\n"
    refused(semel.here("jobs", "schedule", "rm", "yearly", "--dry-run"), "[not_found]")
