"""A worker in a process of its own, made to be killed: `python -m tests.jobs.crash.worker`.

Everything that it is about to say and everything that it was told goes into a journal first. With `wire` and `calls`
its next life goes on from the journal, or forgets everything, as chance decides: `wire` speaks HTTP itself, `calls`
makes the calls of `semel.Client`. With `loop` it is the library's own worker.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from tests.harness.caller import Body, Line, Told
from tests.jobs.crash.journal import LONG, LONG_SECONDS, Journal, lines_of

SLOTS = 3
POLL_MS = 300
BEAT_SECONDS = 0.3
WIRE, CALLS, LOOP = "wire", "calls", "loop"
WAYS = (WIRE, CALLS, LOOP)


class Mouth(Protocol):
    """How a slot talks to the servers. Each call is repeated until it is answered."""

    def claim(self, worker_id: str, claim_id: str, most: int) -> Told:
        """Ask for jobs."""

    def say(self, job: Body, call: str, body: Body) -> Told:
        """A call on a leased job."""

    def say_and_die(self, job: Body, call: str, body: Body) -> None:
        """Say it, and hear no answer: the process ends here."""


class WireMouth:
    """Speaks HTTP itself."""

    def __init__(self, ports: Sequence[int], chance: random.Random) -> None:
        self._line = Line(ports, chance)

    def claim(self, worker_id: str, claim_id: str, most: int) -> Told:
        asked = {"worker_id": worker_id, "claim_id": claim_id, "max": most, "wait_ms": POLL_MS}
        return self._line.insist("POST", "/v1/jobs/claim", asked)

    def say(self, job: Body, call: str, body: Body) -> Told:
        return self._line.insist("POST", *_message(job, call, body))

    def say_and_die(self, job: Body, call: str, body: Body) -> None:
        self._line.send_only("POST", *_message(job, call, body))
        os.kill(os.getpid(), signal.SIGKILL)


def _message(job: Body, call: str, body: Body) -> tuple[str, Body]:
    return f"/v1/jobs/{job['job_id']}/{call}", body | {"lease_token": job["lease_token"]}


class Slot:
    """One job after another."""

    def __init__(self, name: str, mouth: Mouth, journal: Journal, chance: random.Random, *, drains: bool) -> None:
        self._name = name
        self._mouth = mouth
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
        self._journal.note("claims", slot=self._name, claim=claim_id, most=most)
        told = self._mouth.claim(self._name, claim_id, most)
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
        self._journal.note_call("sends", self._name, job, "complete", result := self._result("dying"))
        self._mouth.say_and_die(job, "complete", result)

    def _result(self, why: str) -> Body:
        return {"result": {"by": self._name, "why": why, "draw": self._chance.getrandbits(60)}}

    def _report(self, job: Body, call: str, body: Body) -> Told:
        self._journal.note_call("sends", self._name, job, call, body)
        return self.resend(job, call, body)

    def resend(self, job: Body, call: str, body: Body) -> Told:
        """Say it until it is answered."""
        told = self._mouth.say(job, call, body)
        self._journal.note_call("told", self._name, job, call, body, status=told.status, body=told.body)
        return told

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
    parser.add_argument("--way", choices=WAYS, default=WIRE)
    parser.add_argument("--drains", action="store_true")
    asked = parser.parse_args()
    before = lines_of(asked.folder / f"{asked.name}.{asked.life - 1}.jsonl")
    journal = Journal(asked.folder / f"{asked.name}.{asked.life}.jsonl", asked.life)
    # The library is loaded where it is used: a process that is killed every second must start quickly.
    if asked.way == LOOP:
        from tests.jobs.crash.library_worker import run_loop  # noqa: PLC0415

        run_loop(asked.name, asked.ports, journal, asked.life, drains=asked.drains)
        return
    for place in range(SLOTS):
        chance = random.Random(f"{asked.name} {asked.life} {place}")
        name = f"{asked.name}-{place}"
        slot = Slot(name, _mouth_of(asked.way)(asked.ports, chance), journal, chance, drains=asked.drains)
        own = [line for line in before if line["slot"] == name] if chance.random() < 0.5 else []
        threading.Thread(target=_live, args=(slot, asked.life, own), daemon=True).start()
    signal.pause()


def _mouth_of(way: str) -> Callable[[Sequence[int], random.Random], Mouth]:
    if way == WIRE:
        return WireMouth
    from tests.jobs.crash.library_calls import LibraryMouth  # noqa: PLC0415

    return LibraryMouth


def _live(slot: Slot, life: int, before: Sequence[Body]) -> None:
    slot.remember(before)
    slot.work(life)


if __name__ == "__main__":
    main()
