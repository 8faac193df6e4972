"""What a run is judged by, when everything has ended: every answer that anybody was given, against what is stored.

| must hold | |
|---|---|
| keys | one job for each key, nobody else's, nothing missing; every answer to one key names the same job |
| ends | each job ended once, in one way; every answer that told of its end tells of this one |
| results | the result is one that the holder of its lease sent; a report that was taken is this result |
| repetitions | the report that ended a job was refused to nobody who repeated it |
| runs | the library's worker starts a function once under a lease |
| leases | one worker for each epoch; no attempt above the limit; a token is refused once a later one was given out |
| held leases | a worker that kept its lease with heartbeats never lost it, however often the server died |
| steps | a step has one result, whoever asked |
| counts | depth, leases, keys and dead letters as the metrics tell them are those that are there |

A worker that was not heard for a whole lease, with servers there to hear it, has not kept it: processes stand still at
times. After an outage its time begins anew.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random

from tests.harness.caller import Body, Line
from tests.harness.crash.verdict import Verdict
from tests.harness.crash.ways import Outage
from tests.jobs.crash.journal import LONG
from tests.jobs.crash.submitter import LONG_LEASE_SEC, Order

READERS = 4
DEAD_REASONS = ("exhausted", "permanent", "lease_exhausted")
ENDED = ("completed", "failed")

REPORTS, RUNS = "reports", "runs of the library's worker"


@dataclass(frozen=True)
class Books:
    """What is stored at the end."""

    ids: Sequence[str]
    """As the list has them."""
    jobs: Mapping[str, Body]
    """Each as it is read by its id, its outcome under `end`."""
    dead: frozenset[str]
    metrics: Body


def read_books(ports: Sequence[int]) -> Books:
    """Everything, over the wire."""
    line = Line(ports, Random(1))
    ids = list(_pages(line, "/v1/jobs?limit=1000"))
    dead = frozenset(_pages(line, "/v1/jobs/dead?limit=1000"))
    metrics = line.insist("GET", "/metrics", headers={"Accept": "application/json"}).body
    line.close()

    def read(some: Sequence[str]) -> list[Body]:
        line = Line(ports, Random(1))
        jobs = [line.insist("GET", f"/v1/jobs/{one}").body for one in some]
        for job in jobs:
            job["end"] = line.insist("GET", f"/v1/jobs/{job['job_id']}/result").body
        line.close()
        return jobs

    with ThreadPoolExecutor(READERS) as pool:
        parts = pool.map(read, [ids[place::READERS] for place in range(READERS)])
        return Books(ids, {job["job_id"]: job for part in parts for job in part}, dead, metrics)


def _pages(line: Line, path: str) -> Iterator[str]:
    page = line.insist("GET", path).body
    yield from (job["job_id"] for job in page["jobs"])
    while page["next"] is not None:
        page = line.insist("GET", f"{path}&after={page['next']}").body
        yield from (job["job_id"] for job in page["jobs"])


def judge_jobs(
    verdict: Verdict,
    books: Books,
    orders: Sequence[Order],
    journals: Sequence[Body],
    outages: Sequence[Outage] = (),
) -> None:
    """Hold everything that was told against what is there."""
    verdict.count("jobs", len(books.ids))
    _judge_keys(verdict, books, orders)
    for job in books.jobs.values():
        verdict.count(f"of them {job.get('reason') or job['state']}")
        _judge_job(verdict, job)
    for order in orders:
        for answer in (*order.answers, *(told.body for told in order.cancels)):
            _judge_told(verdict, books, order.key, answer)
    leases = _Leases(verdict, books, outages)
    _judge_leases(leases, journals, {order.key for order in orders if order.cancels})
    _judge_counts(verdict, books, sum(not order.is_generated for order in orders))


def _judge_keys(verdict: Verdict, books: Books, orders: Sequence[Order]) -> None:
    verdict.require(len(books.ids) == len(set(books.ids)), "a job is listed twice")
    by_order: dict[str, list[str]] = defaultdict(list)
    for job in books.jobs.values():
        by_order[job["params"]["order"]].append(job["job_id"])
    for order in orders:
        told = {(answer["job_id"], answer["request_id"]) for answer in order.answers}
        verdict.require(len(told) == 1, f"{order.key} was told {told}")
        there = by_order.pop(order.key, [])
        verdict.require(there == [one for one, _ in told], f"{order.key} was told {told}, and there is {there}")
        firsts = [answer["dedup"] for answer in order.answers].count(False)
        verdict.require(firsts <= 1, f"{order.key} was accepted {firsts} times")
        if order.answers and not order.answers[0]["dedup"]:
            verdict.require(order.answers[0]["status"] == "accepted", f"{order.key}: {order.answers[0]}")
    verdict.require(not by_order, f"nobody has asked for {dict(by_order)}")


def _judge_job(verdict: Verdict, job: Body) -> None:
    what = f"{job['job_id']} {job['state']} {job.get('reason')}"
    verdict.require(job["state"] in ENDED and job["status"] == job["state"], f"{what} has not ended")
    verdict.require(job["attempt"] <= job["max_attempts"], f"{what} has run {job['attempt']} times")
    uncharged = job["epoch"] - job["deferrals"]
    # Fewer if an offer has lapsed, which no worker tells of; what was confirmed is held against it below.
    verdict.require(job["attempt"] <= uncharged, f"{what}: attempt {job['attempt']}, {uncharged} leases were charged")
    verdict.require(job["end"].get("ok") is (job["state"] == "completed"), f"{what} ended as {job['end']}")
    verdict.require(job["end"].get("integrity", {}).get("sha256") == job["result_sha256"], f"{what}: {job['end']}")


def _judge_told(verdict: Verdict, books: Books, who: str, answer: Body) -> None:
    """An answer that told of an end told of the one that is there."""
    state, job = answer.get("state"), books.jobs.get(answer.get("job_id", ""))
    if job is None or state not in ENDED:
        return
    for name in ("state", "reason", "result_sha256", "cached_result"):
        if name in answer:
            verdict.require(answer[name] == job.get(name), f"{who} was told {answer}, and there is {job}")


def _judge_leases(leases: _Leases, journals: Sequence[Body], cancelled: set[str]) -> None:
    for line in sorted(journals, key=lambda line: float(line["at"])):
        if line["what"] == "claims":
            leases.asked(line)
        elif line["what"] == "claimed":
            leases.given(line)
        elif line["what"] == "sends":
            leases.sent(line)
        elif line["what"] == "told":
            leases.told(line, cancelled)
        elif line["what"] == "runs":
            leases.ran(line)
    leases.end()


class _Leases:
    """What workers said and heard, in the order of time."""

    def __init__(self, verdict: Verdict, books: Books, outages: Sequence[Outage]) -> None:
        self._verdict = verdict
        self._books = books
        self._outages = sorted(outages)
        self._holders: dict[tuple[str, int], tuple[str, str]] = {}
        self._latest: dict[str, int] = defaultdict(int)
        self._superseded: dict[tuple[str, str], bool] = {}
        self._results: dict[str, list[object]] = defaultdict(list)
        self._steps: dict[str, list[object]] = defaultdict(list)
        self._runs: Counter[str] = Counter()
        self._held: dict[str, int] = {}
        """Leases on long jobs that were claimed and heard of in one life of a worker, and that life."""
        self._confirmed: dict[str, set[int]] = defaultdict(set)
        """The leases under whose tokens something was taken."""
        self._asked_at: dict[tuple[str, str], float] = {}
        self._sent_at: dict[tuple[str, str], float] = {}
        self._kept_at: dict[str, float] = {}
        """When the last word was sent that a lease was given or renewed for."""

    def asked(self, line: Body) -> None:
        self._asked_at.setdefault((line["slot"], line["claim"]), line["at"])

    def given(self, line: Body) -> None:
        self._verdict.require(line["status"] == 200, f"a claim was answered {line['status']} {line['body']}")
        for job in line["body"].get("jobs", ()):
            self._verdict.count("leases")
            place, holder = (job["job_id"], job["epoch"]), (line["slot"], job["lease_token"])
            first = self._holders.setdefault(place, holder)
            self._verdict.require(first == holder, f"the lease {place} was given to {first} and to {holder}")
            self._verdict.require(job["attempt"] <= job["max_attempts"], f"an attempt too many: {job}")
            if job["kind"] == LONG and line["claim"].startswith(f"{line['life']}."):
                self._held.setdefault(job["lease_token"], line["life"])
            asked_at = self._asked_at.get((line["slot"], line["claim"]), float(line["at"]))
            self._kept_at.setdefault(job["lease_token"], asked_at)
            self._latest[job["job_id"]] = max(self._latest[job["job_id"]], job["epoch"])

    def ran(self, line: Body) -> None:
        token = line["job"]["lease_token"]
        self._verdict.count(RUNS)
        self._runs[token] += 1
        often = self._runs[token]
        self._verdict.require(often == 1, f"{line['job']['job_id']} ran {often} times under one lease")

    def sent(self, line: Body) -> None:
        job = line["job"]
        self._superseded[job["lease_token"], line["call"]] = job["epoch"] < self._latest[job["job_id"]]
        self._sent_at[job["lease_token"], line["call"]] = line["at"]
        if line["call"] == "complete":
            self._results[job["job_id"]].append((job["epoch"], line["sent"]["result"]))

    def told(self, line: Body, cancelled: set[str]) -> None:
        self._verdict.count(REPORTS)
        job, status, body = line["job"], line["status"], line["body"]
        stored = self._books.jobs.get(job["job_id"])
        if stored is None:
            return self._verdict.blame(f"a lease on a job that is not there: {line}")
        if status != 200:
            self._verdict.require(not _is_end(line, stored), f"{line} was taken, and refused")
            return self._refused(line, stored["params"]["order"] in cancelled)
        self._confirmed[job["job_id"]].add(job["epoch"])
        self._verdict.count("reports taken before", body.get("dedup") is True and line["call"] != "steps")
        dead = self._superseded.get((job["lease_token"], line["call"]), False)
        self._verdict.require(not dead, f"a token was taken after a later one was given out: {line}")
        if line["call"] == "heartbeat":
            self._kept_at[job["lease_token"]] = self._sent_at.get((job["lease_token"], "heartbeat"), float(line["at"]))
        elif line["call"] == "complete":
            end = (stored["state"], stored["end"].get("result"))
            self._verdict.require(end == ("completed", line["sent"]["result"]), f"{line} was taken, and is {end}")
        elif line["call"] == "fail" and body["state"] in ENDED:
            self._verdict.require(stored["state"] == body["state"] == "failed", f"{line} was taken, and is {stored}")
        elif line["call"] == "steps" and "result" in line["sent"]:
            self._steps[job["job_id"]].append(body["result"])
        return None

    def _refused(self, line: Body, is_cancelled: bool) -> None:
        self._verdict.count("reports refused")
        error = line["body"].get("error")
        known = line["status"] == 409 and error in ("lease_lost", "result_conflict")
        self._verdict.require(known, f"a worker was answered {line['status']} {line['body']}")
        conflicts = error == "result_conflict"
        self._verdict.require(not conflicts or line["call"] in ("complete", "fail"), f"what conflict? {line}")
        is_held = self._held.get(line["job"]["lease_token"]) == line["life"]
        is_lost = is_held and error == "lease_lost" and not is_cancelled and not self._was_silent(line)
        self._verdict.require(not is_lost, f"a lease that was held with heartbeats was lost: {line}")

    def _was_silent(self, line: Body) -> bool:
        """Whether servers were there for a whole lease without a word of its worker."""
        since, told_at = self._kept_at[line["job"]["lease_token"]], float(line["at"])
        for begin, end in self._outages:
            if since < end and begin < told_at:
                if begin - since >= LONG_LEASE_SEC:
                    return True
                since = end
        return told_at - since >= LONG_LEASE_SEC

    def end(self) -> None:
        """Every result was sent by the holder of the last lease; every step has one result."""
        for job in self._books.jobs.values():
            if job["state"] == "completed":
                sent = self._results[job["job_id"]]
                is_sent = (job["epoch"], job["end"].get("result")) in sent
                self._verdict.require(is_sent, f"{job['job_id']} has the result {job['end']}, sent were {sent}")
        for job in self._books.jobs.values():
            least = len(self._confirmed[job["job_id"]]) - job["deferrals"]
            what = f"{job['job_id']} ran under {least} leases, and {job['attempt']} were charged"
            self._verdict.require(job["attempt"] >= least, what)
        for one, results in self._steps.items():
            self._verdict.require(all(result == results[0] for result in results), f"steps of {one}: {results}")


def _is_end(line: Body, stored: Body) -> bool:
    """Whether a report is the end that is stored: then every repetition of it must have been answered."""
    end, sent = stored["end"], line["sent"]
    if stored["epoch"] != line["job"]["epoch"]:
        return False
    if line["call"] == "complete":
        return (stored["state"], end.get("result")) == ("completed", sent["result"])
    return (line["call"], stored["state"], end.get("error")) == ("fail", "failed", sent.get("error"))


def _judge_counts(verdict: Verdict, books: Books, keys: int) -> None:
    """`keys` is the number of those that are not generated."""
    dead = {job["job_id"] for job in books.jobs.values() if job.get("reason") in DEAD_REASONS}
    verdict.require(books.dead == dead, f"dead letters: {len(books.dead)} listed, {len(dead)} there")
    counted = {
        name: books.metrics.get(name) for name in ("queue_depth", "inflight", "idempotency_store_size", "dlq_size")
    }
    there = {"queue_depth": 0, "inflight": 0, "idempotency_store_size": keys, "dlq_size": len(dead)}
    verdict.require(counted == there, f"counted {counted}, there are {there}")
