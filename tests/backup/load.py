"""Writers on all five surfaces of one server, which remember every write that was acknowledged, and can repeat it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx

from tests.deltas.vectors import Message, columns, delta, now_ms, stamp

TEXT = {"Content-Type": "text/plain"}
GATEWAY = "shop"


class Acknowledged(NamedTuple):
    """One write, the stable part of its answer, and when the answer came."""

    number: int
    answer: Any
    at: float


class Surface(NamedTuple):
    """How a surface is written to: the same number is the same write, also on another server."""

    name: str
    write: Callable[[httpx.Client, int], tuple[Any, bool]]
    """The stable part of the answer, and whether the write was known before."""


def append(http: httpx.Client, number: int) -> tuple[Any, bool]:
    headers = TEXT | {"Idempotency-Key": f"append-{number}"}
    answer = http.post("/v1/stream/log", content=f"{number:08d}", headers=headers)
    assert answer.status_code == 204, answer.text
    return answer.headers["Stream-Next-Offset"], answer.headers.get("Idempotency-Replayed") == "true"


def submit_event(http: httpx.Client, number: int) -> tuple[Any, bool]:
    event = {"id": f"event-{number}", "partitions": ["p"], "event": {"type": "t", "payload": number}}
    answer = http.post("/v1/events", json={"events": [event]})
    [result] = answer.json()["results"]
    assert result["status"] == "committed", result
    return result["committed_id"], "Events-Replayed" in answer.headers


def submit_job(http: httpx.Client, number: int) -> tuple[Any, bool]:
    body = {"kind": "bill", "params": {"number": number}, "idempotency_key": f"job-{number}"}
    answer = http.post("/v1/jobs", json=body)
    assert answer.status_code in (200, 201, 202), answer.text
    return answer.json()["job_id"], bool(answer.json()["dedup"])


class Ledger:
    """One client of one vault, which counts."""

    def __init__(self, http: httpx.Client) -> None:
        org = http.post("/ledger/v1/orgs", json={"name": "shop"}).json()["slug"]["slug"]
        vault = http.post(f"/ledger/v1/orgs/{org}/vaults", json={}).json()["vault"]["slug"]
        self.place = f"/ledger/v1/orgs/{org}/vaults/{vault}"

    def write(self, http: httpx.Client, number: int) -> tuple[Any, bool]:
        operations = [{"setEntity": {"key": f"k{number}", "value": "MTAw"}}]
        body = {"clientId": "till", "sequence": str(number + 1), "operations": operations}
        answer = http.post(f"{self.place}/writes", json=body)
        assert "success" in answer.json(), answer.text
        return answer.json()["success"], answer.headers.get("Idempotency-Replayed") == "true"


class Deltas:
    """One client of a gateway; a delta is repeated byte for byte."""

    def __init__(self) -> None:
        self._made: dict[int, Message] = {}
        self._last = 0

    def write(self, http: httpx.Client, number: int) -> tuple[Any, bool]:
        is_repeated = number in self._made
        if not is_repeated:
            self._last = max(self._last + 1, stamp(now_ms()))
            made = delta("INSERT", columns(title=str(number)), row=f"r{number}", client="writer", hlc=self._last)
            self._made[number] = made
        body = {"clientId": "writer", "deltas": [self._made[number]]}
        answer = http.post(f"/v1/sync/{GATEWAY}/push", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["accepted"], is_repeated


class Load:
    """Writes to every surface, each in its own thread, until it is stopped."""

    def __init__(self, url: str) -> None:
        self.url = url
        with httpx.Client(base_url=url, timeout=30) as http:
            assert http.put("/v1/stream/log", headers=TEXT).status_code == 201
            self.ledger = Ledger(http)
        self.deltas = Deltas()
        self.surfaces: Sequence[Surface] = (
            Surface("streams", append),
            Surface("events", submit_event),
            Surface("jobs", submit_job),
            Surface("ledger", self.ledger.write),
            Surface("deltas", self.deltas.write),
        )
        self.done: dict[str, list[Acknowledged]] = {one.name: [] for one in self.surfaces}
        self._is_stopped = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Write while the block runs."""
        threads = [threading.Thread(target=self._write, args=(one,)) for one in self.surfaces]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._is_stopped.set()
            for thread in threads:
                thread.join(30)

    def wait(self, least: int) -> None:
        """Wait until each surface has acknowledged this number of further writes."""
        wanted = {name: len(done) + least for name, done in self.done.items()}
        deadline = time.monotonic() + 60
        while any(len(self.done[name]) < number for name, number in wanted.items()):
            assert time.monotonic() < deadline, {name: len(done) for name, done in self.done.items()}
            time.sleep(0.01)

    def _write(self, surface: Surface) -> None:
        with httpx.Client(base_url=self.url, timeout=30) as http:
            number = 0
            while not self._is_stopped.is_set():
                answer, _ = surface.write(http, number)
                self.done[surface.name].append(Acknowledged(number, answer, time.monotonic()))
                number += 1
