"""A worker in a process of its own, made to be killed: `python -m tests.jobs.crash.worker`.

Everything that it is about to say and everything that it was told goes into a journal first, one line in one write, so
that a death between two lines is visible in it. Its next life goes on from the journal, or forgets everything, as
chance decides. Journals have the system's monotonic time, which is the same in every process.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.harness.caller import Body, Line, Told

SLOTS = 3
POLL_MS = 300
LONG = "long"
"""Jobs of this kind are held with heartbeats over several deaths of the server."""
LONG_SECONDS, BEAT_SECONDS = (0.5, 2.5), 0.3


class Journal:
    """Lines of what was said and heard; used by all slots of one life."""

    def __init__(self, path: Path, life: int) -> None:
        self._life = life
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, what: str, **facts: Any) -> None:
        """One line, in one write."""
        line = json.dumps({"what": what, "at": time.monotonic(), "life": self._life, **facts})
        os.write(self._file, line.encode() + b"\n")


def lines_of(path: Path) -> list[Body]:
    """The whole lines of a journal."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]]


class Slot:
    """One job after another."""

    def __init__(self, name: str, line: Line, journal: Journal, chance: random.Random, *, drains: bool) -> None:
        self._name = name
        self._line = line
        self._journal = journal
        self._chance = chance
        self._drains = drains
        self._zombies: list[Body] = []

    def work(self, life: int) -> None:
        """Until the end of the process."""
        for number in itertools.count():
            self.claim(f"{life}.{number}", self._chance.choice((1, 1, 2, 4)))

    def claim(self, claim_id: str, most: int) -> None:
        """Ask under one name until it is answered, then work on what was given."""
        asked = {"worker_id": self._name, "claim_id": claim_id, "max": most, "wait_ms": POLL_MS}
        self._journal.note("claims", slot=self._name, claim=claim_id, most=most)
        told = self._line.insist("POST", "/v1/jobs/claim", asked)
        self._journal.note("claimed", slot=self._name, claim=claim_id, status=told.status, body=told.body)
        jobs = told.body.get("jobs", ())
        if not jobs:
            time.sleep(told.body.get("defer_ms", 0) / 1000)
        self._hold([job for job in jobs if job["kind"] == LONG])
        for job in jobs:
            if job["kind"] != LONG:
                self.run(job)
        if self._zombies and self._chance.random() < 0.5:
            self._report(self._zombies.pop(0), "complete", self._result("zombie"))

    def run(self, job: Body) -> None:
        """Do with a job what chance decides."""
        if self._drains:
            return self._finish(job)
        ways = [self._finish] * 20 + [self._finish_twice, self._beat, self._beat, self._fail, self._fail, self._give_up]
        ways += [self._defer, self._defer, self._abandon, self._step, self._step, self._die]
        return self._chance.choice(ways)(job)

    def _finish(self, job: Body) -> None:
        self._report(job, "complete", self._result("done"))

    def _finish_twice(self, job: Body) -> None:
        first = self._result("first")
        for result in (first, first, self._result("second")):
            self._report(job, "complete", result)

    def _beat(self, job: Body) -> None:
        self._report(job, "heartbeat", {})
        time.sleep(self._chance.uniform(0, 1.5 * job["lease_ms"] / 1000))
        self._report(job, "heartbeat", {})
        self._finish(job)

    def _hold(self, jobs: Sequence[Body]) -> None:
        until = time.monotonic() + self._chance.uniform(*LONG_SECONDS)
        while jobs and time.monotonic() < until:
            for job in jobs:
                self._report(job, "heartbeat", {})
            time.sleep(BEAT_SECONDS)
        for job in jobs:
            self._finish(job)

    def _fail(self, job: Body) -> None:
        after = self._chance.choice(({}, {"retry_after_ms": 20}))
        self._report(job, "fail", {"error": {"code": "again", "message": self._name}} | after)
        if self._chance.random() < 0.3:
            self._report(job, "fail", {"error": {"code": "again", "message": self._name}} | after)

    def _give_up(self, job: Body) -> None:
        self._report(job, "fail", {"error": {"code": "never", "message": self._name}, "retryable": False})

    def _defer(self, job: Body) -> None:
        self._report(job, "defer", {"delay_ms": self._chance.choice((0, 50))})

    def _abandon(self, job: Body) -> None:
        self._zombies.append(job)

    def _step(self, job: Body) -> None:
        told = self._report(job, "steps", {"step_key": "one"})
        if told.status == 200 and not told.body["known"]:
            told = self._report(job, "steps", {"step_key": "one", "result": self._result("step")["result"]})
        if told.status == 200:
            self._report(job, "complete", {"result": told.body["result"]})

    def _die(self, job: Body) -> None:
        """Say it, and hear no answer."""
        self._note("sends", job, "complete", result := self._result("dying"))
        self._line.send_only("POST", f"/v1/jobs/{job['job_id']}/complete", result | {"lease_token": job["lease_token"]})
        os.kill(os.getpid(), signal.SIGKILL)

    def _result(self, why: str) -> Body:
        return {"result": {"by": self._name, "why": why, "draw": self._chance.getrandbits(60)}}

    def _report(self, job: Body, call: str, body: Body) -> Told:
        self._note("sends", job, call, body)
        return self.resend(job, call, body)

    def resend(self, job: Body, call: str, body: Body) -> Told:
        """Say it until it is answered."""
        path = f"/v1/jobs/{job['job_id']}/{call}"
        told = self._line.insist("POST", path, body | {"lease_token": job["lease_token"]})
        self._note("told", job, call, body, status=told.status, body=told.body)
        return told

    def _note(self, what: str, job: Body, call: str, sent: Body, **facts: Any) -> None:
        known = {name: job[name] for name in ("job_id", "lease_token", "epoch", "kind")}
        self._journal.note(what, slot=self._name, job=known, call=call, sent=sent, **facts)

    def remember(self, before: Sequence[Body]) -> None:
        """Take up what an earlier life left open."""
        closed = {line["claim"] for line in before if line["what"] == "claimed"}
        for line in before:
            if line["what"] == "claims" and line["claim"] not in closed:
                self.claim(line["claim"], line["most"])
        told = {(line["job"]["lease_token"], line["call"]) for line in before if line["what"] == "told"}
        for line in before:
            if line["what"] == "sends" and (line["job"]["lease_token"], line["call"]) not in told:
                self.resend(line["job"], line["call"], line["sent"])


def main() -> None:
    """Work until somebody ends the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ports", type=int, nargs="+", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--life", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--drains", action="store_true")
    asked = parser.parse_args()
    before = lines_of(asked.folder / f"{asked.name}.{asked.life - 1}.jsonl")
    journal = Journal(asked.folder / f"{asked.name}.{asked.life}.jsonl", asked.life)
    for place in range(SLOTS):
        chance = random.Random(f"{asked.name} {asked.life} {place}")
        name = f"{asked.name}-{place}"
        slot = Slot(name, Line(asked.ports, chance), journal, chance, drains=asked.drains)
        own = [line for line in before if line["slot"] == name] if chance.random() < 0.5 else []
        threading.Thread(target=_live, args=(slot, asked.life, own), daemon=True).start()
    signal.pause()


def _live(slot: Slot, life: int, before: Sequence[Body]) -> None:
    slot.remember(before)
    slot.work(life)


if __name__ == "__main__":
    main()
