"""Subscriptions while their servers are killed: every event reaches both kinds of subscribers, in order, none is lost.

    make crash SURFACE=subscriptions KILLS=50 STORE=sqlite

Clients create streams and append to them, under idempotency keys. A webhook receiver of the test accepts, fails, hangs,
drops connections and calls back; workers of a pull-wake subscription follow the wake stream, claim when it says so,
acknowledge, release, and now and then forget their claim, as a process does that dies. The servers are killed at random
moments and at the named points of the commit path. What must hold:

- no wake begins after content that was never processed (nothing is skipped), nor before an acknowledged offset;
- an acknowledgement that was answered is never undone, and one that was fenced moves nothing;
- no generation is claimed twice;
- at the end every event was processed by both, and both cursors stand at the tails, by wakes alone.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, ClassVar

import httpx

from tests.harness.crash.run import Client, CrashPlan, Surface
from tests.harness.crash.verdict import Verdict
from tests.streams.subscriptions.receiver import ACCEPTED, DONE, Delivery, Receiver, Reply

LEASE_MS = 1_500
STREAMS, APPENDERS, WORKERS = 12, 3, 3
DRAIN_SECONDS = 150.0
START = "0000000000000000_0000000000000000"
JSON = {"content-type": "application/json"}


class CursorRecord:
    """What the subscribers of one subscription know together."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.guard = threading.Lock()
        self.processed: dict[str, str] = defaultdict(lambda: START)
        """The offset of each stream up to which content was processed and an ack may have been sent."""
        self.acked: dict[str, str] = defaultdict(lambda: START)
        """The offset of each stream whose ack was answered."""
        self.events: dict[str, list[Any]] = defaultdict(list)
        """The content that was processed, in order."""
        self.wakes = self.fenced = 0
        self.generations: set[int] = set()


class SubscriptionsUnderKills(Surface):
    """A webhook subscription and a pull-wake subscription of the same streams."""

    settings: ClassVar = {"SEMEL_STREAMS_WEBHOOK_MS": "1000", "SEMEL_STREAMS_LONG_POLL_MS": "500"}
    one_in = (4, 20, 60)
    alive_seconds = (0.4, 1.2)
    lanes = "3"
    shows = ("events", "calls repeated", "wakes of hook", "wakes of pull")

    def __init__(self, plan: CrashPlan) -> None:
        super().__init__(plan)
        self._is_over = threading.Event()
        self._is_drained = threading.Event()
        self._guard = threading.Lock()
        self.appended: dict[str, list[Any]] = defaultdict(list)
        self.tails: dict[str, str] = {}
        self.records = {name: CursorRecord(name) for name in ("hook", "pull")}
        self.faults: list[str] = []
        self.retries = self.bad_replies = 0
        self.receiver = Receiver(self._answer)
        self._reply_chance = random.Random(plan.seed + 1)

    @property
    def running(self) -> AbstractContextManager[Any]:
        """The receiver of webhooks."""
        return self.receiver

    def prepare(self) -> None:
        """Make the subscriptions, and the stream of wakes."""
        with httpx.Client() as http:
            self._call(http, "PUT", "wake/pull", content=b"[]", headers=JSON)
            hook = {"type": "webhook", "webhook": {"url": self.receiver.url}, "pattern": "work/*"}
            pull = {"type": "pull-wake", "wake_stream": "wake/pull", "pattern": "work/*"}
            for name, body in (("hook", hook), ("pull", pull)):
                answer = self._call(http, "PUT", f"__ds/subscriptions/{name}", json=body | {"lease_ttl_ms": LEASE_MS})
                assert answer.status_code in (200, 201), answer.text

    def clients(self) -> Sequence[Client]:
        """Those who append, those who work on what is announced, and one who ends them all when nothing is left."""
        makers = [partial(self._append, number) for number in range(APPENDERS)]
        return [*makers, *(partial(self._work, number) for number in range(WORKERS)), self._watch]

    def _watch(self, stop: threading.Event) -> None:
        stop.wait()
        self._is_over.set()
        self._drain()
        self._is_drained.set()

    def progress(self) -> int:
        """How many events have been appended."""
        return sum(map(len, list(self.appended.values())))

    def has_shown(self) -> bool:
        """Whether both have been woken, and a call was interrupted."""
        return self.retries > 0 and all(record.wakes for record in self.records.values())

    def close(self) -> None:
        """Let nobody wait any longer."""
        self._is_over.set()
        self._is_drained.set()

    def _call(self, http: httpx.Client, method: str, path: str, **options: Any) -> httpx.Response:
        """Repeat a call unchanged until it is answered."""
        is_first = True
        while True:
            self.retries += not is_first
            is_first = False
            server = random.choice(self.servers)
            try:
                answer = http.request(method, f"{server.url}/v1/stream/{path}", timeout=10, **options)
            except httpx.TransportError:
                time.sleep(0.02)
                continue
            if answer.status_code < 500:
                return answer
            time.sleep(0.02)

    def _append(self, number: int, stop: threading.Event) -> None:
        """Each appender has streams of its own, creates them as it goes, and appends in order."""
        chance = random.Random(self.seed * 100 + number)
        own = [f"work/{place}" for place in range(STREAMS) if place % APPENDERS == number]
        made: list[str] = []
        with httpx.Client() as http:
            turn = 0
            while not stop.is_set():
                turn += 1
                if len(made) < len(own) and (not made or chance.random() < 0.05):
                    path = own[len(made)]
                    first = [f"{path}:0"] if chance.random() < 0.5 else []
                    answer = self._call(http, "PUT", path, content=json.dumps(first), headers=JSON)
                    made.append(path)
                    self._appended(path, first, answer)
                    continue
                path = chance.choice(made)
                events = [f"{path}:{turn}:{place}" for place in range(chance.randrange(1, 4))]
                headers = JSON | {"idempotency-key": f"{number}-{turn}"}
                answer = self._call(http, "POST", path, content=json.dumps(events), headers=headers)
                self._appended(path, events, answer)
                time.sleep(chance.uniform(0.0, 0.05 if turn < 300 else 0.4))

    def _appended(self, path: str, events: list[str], answer: httpx.Response) -> None:
        if answer.status_code not in (200, 201, 204):
            self.faults.append(f"append to {path}: {answer.status_code} {answer.text}")
            return
        with self._guard:
            self.appended[path] += events
            self.tails[path] = answer.headers["stream-next-offset"]

    def _process(self, http: httpx.Client, record: CursorRecord, streams: list[dict[str, Any]]) -> list[dict[str, str]]:
        """Process what a wake names, in order; returns the acks."""
        acks = []
        for one in streams:
            path, acked, tail = one["path"], one["acked_offset"], one["tail_offset"]
            with record.guard:
                if acked > record.processed[path]:
                    self.faults.append(f"{record.name}: {path} was skipped from {record.processed[path]} to {acked}")
            found = self._call(http, "GET", path, params={"offset": acked}).json()
            with record.guard:
                known = record.events[path]
                place = known.index(found[0]) if found and found[0] in known else len(known)
                if known[place:] != found[: len(known) - place]:
                    self.faults.append(f"{record.name}: {path} came in another order")
                # The page may reach further than the wake: only what the wake names is acknowledged.
                record.events[path] = known + found[len(known) - place :]
                record.processed[path] = max(record.processed[path], tail)
            acks.append({"stream": path, "offset": tail})
        return acks

    def _check_floor(self, record: CursorRecord, streams: list[dict[str, Any]], floor: dict[str, str]) -> None:
        for one in streams:
            if one["acked_offset"] < floor.get(one["path"], START):
                self.faults.append(f"{record.name}: the ack of {one['path']} was undone: {one['acked_offset']}")

    def _answer(self, delivery: Delivery) -> Reply:
        record = self.records["hook"]
        chance = self._reply_chance
        with record.guard:
            record.wakes += 1
            draw = 1.0 if self._is_over.is_set() else chance.random()
        if draw < 0.15:
            self.bad_replies += 1
            return Reply(503)
        if draw < 0.2:
            self.bad_replies += 1
            return Reply(hangs=True) if draw < 0.17 else Reply(seconds=1.3)
        with httpx.Client() as http:
            acks = self._process(http, record, delivery.body["streams"])
            if draw > 0.6:
                return DONE
            token = {"Authorization": f"Bearer {delivery.body['callback_token']}"}
            body = {
                "wake_id": delivery.body["wake_id"],
                "generation": delivery.body["generation"],
                "acks": acks,
                "done": draw < 0.5,
            }
            answer = self._call(http, "POST", "__ds/subscriptions/hook/callback", json=body, headers=token)
            self._settled(record, answer, acks)
        return ACCEPTED

    def _settled(self, record: CursorRecord, answer: httpx.Response, acks: list[dict[str, str]]) -> None:
        with record.guard:
            if answer.status_code == 200:
                for ack in acks:
                    record.acked[ack["stream"]] = max(record.acked[ack["stream"]], ack["offset"])
            elif answer.json()["error"]["code"] == "FENCED":
                record.fenced += 1
            elif answer.json()["error"]["code"] == "INVALID_OFFSET":
                # An earlier try of this ack took effect, and a later wake went on from there.
                record.fenced += 1
            else:
                self.faults.append(f"{record.name}: {answer.status_code} {answer.text}")

    def _work(self, number: int, stop: threading.Event) -> None:
        """Follow the wake stream, and claim when it has an event; never without one."""
        chance = random.Random(self.seed * 1_000 + number)
        offset = START
        with httpx.Client() as http:
            while not self._is_drained.is_set():
                page = self._call(http, "GET", "wake/pull", params={"offset": offset, "live": "long-poll"})
                offset = page.headers["stream-next-offset"]
                if page.status_code == 200 and page.json():
                    self._claim(http, number, chance)

    def _claim(self, http: httpx.Client, number: int, chance: random.Random) -> None:
        record = self.records["pull"]
        with record.guard:
            floor = dict(record.acked)
        answer = self._call(http, "POST", "__ds/subscriptions/pull/claim", json={"worker": f"w{number}"})
        if answer.status_code == 409:
            if answer.json()["error"]["code"] not in ("ALREADY_CLAIMED", "NO_PENDING_WORK"):
                self.faults.append(f"claim: {answer.text}")
            return
        claimed = answer.json()
        self._check_floor(record, claimed["streams"], floor)
        with record.guard:
            record.wakes += 1
            if claimed["generation"] in record.generations:
                self.faults.append(f"generation {claimed['generation']} was claimed twice")
            record.generations.add(claimed["generation"])
        if not self._is_over.is_set() and chance.random() < 0.1:
            return  # the worker has died
        token = {"Authorization": f"Bearer {claimed['token']}"}
        proof = {"wake_id": claimed["wake_id"], "generation": claimed["generation"]}
        if not self._is_over.is_set() and chance.random() < 0.1:
            self._call(http, "POST", "__ds/subscriptions/pull/release", json=proof, headers=token)
            return
        acks = self._process(http, record, claimed["streams"])
        answer = self._call(
            http, "POST", "__ds/subscriptions/pull/ack", json=proof | {"acks": acks, "done": True}, headers=token
        )
        self._settled(record, answer, acks)

    def _left(self) -> dict[str, int]:
        """The number of streams whose cursors are not at their tails, by subscription."""
        left = {}
        with httpx.Client() as http:
            for name in self.records:
                shown = self._call(http, "GET", f"__ds/subscriptions/{name}").json()["streams"]
                cursors = {one["path"]: one["acked_offset"] for one in shown}
                behind = sum(cursors.get(path) != tail for path, tail in self.tails.items())
                if behind:
                    left[name] = behind
        return left

    def _drain(self) -> None:
        deadline = time.monotonic() + DRAIN_SECONDS
        while self._left() and time.monotonic() < deadline and not self.faults:
            time.sleep(0.1)

    def judge(self, verdict: Verdict) -> None:
        """Every event was processed by both, in order, and both cursors stand at the tails."""
        verdict.require(not (left := self._left()), f"never acknowledged: {left}")
        for name, record in self.records.items():
            verdict.count(f"wakes of {name}", record.wakes)
            verdict.count(f"fenced calls of {name}", record.fenced)
            for path, events in self.appended.items():
                seen = record.events[path]
                what = f"{name}: {path} has {len(events)} events, and {len(seen)} were processed"
                verdict.require(seen == events, what)
        paths = {(delivery.method, delivery.path) for delivery in self.receiver.got}
        verdict.require(not paths - {("POST", "/hook")}, f"something else was called: {paths}")
        verdict.count("events", self.progress())
        verdict.count("bad replies", self.bad_replies)
        verdict.count("calls repeated", self.retries)
        for fault in self.faults:
            verdict.blame(fault)
