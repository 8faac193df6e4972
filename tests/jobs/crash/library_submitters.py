"""Submitters on the library: `Client`, and `AsyncClient` on an event loop of its own, with their own retries.

What they were told is kept as the answers of the wire are. Half of the repetitions go over the wire: the library alone
could hide a fault that it shares with the server.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from semel.client import AsyncClient, Client
from semel.client.errors import CallError, KeyCollisionError, RefusedError, SemelError
from semel.client.jobs.values import JobRequest, Submitted
from semel.client.retry import ENDLESS
from tests.harness.caller import HOST, MOVES, Told
from tests.harness.moving_network import MovingAsyncioNetwork, MovingNetwork
from tests.jobs.crash.library_calls import request_of
from tests.jobs.crash.submitter import Order, Submitter

T = TypeVar("T")
OTHER = -1
"""The number in the params of a job that reuses the key of another."""


class LibrarySubmitter(Submitter):
    """One thread with a `Client`."""

    def __init__(self, name: str, ports: Sequence[int], seed: int) -> None:
        super().__init__(name, ports, seed)
        self._retries = 0
        self._generates = False  # `JobRequest` has no such field: the library says it itself, of keys that it makes
        self._open(ports)

    def _open(self, ports: Sequence[int]) -> None:
        network = MovingNetwork(ports, self._chance)
        url = f"http://{HOST}:{ports[0]}"
        self._client = Client(url, patience=ENDLESS, on_retry=self._count, network=network, connections=1)

    @property
    def lost(self) -> int:
        """How many requests went without an answer."""
        return super().lost + self._retries

    def work(self, stop: threading.Event) -> None:
        """As any submitter; then close the client."""
        try:
            super().work(stop)
        finally:
            self._close()

    def _close(self) -> None:
        self._client.close()

    def _count(self, error: CallError) -> None:
        self._retries += 1

    def _move(self) -> None:
        if self._chance.random() < MOVES:
            self._client.caller.transport.close()

    def _submit(self, order: Order) -> None:
        if order.answers and self._chance.random() < 0.5:
            super()._submit(order)
            return
        self._take([order], [self._one(request_of(order.key, order.fields))])

    def _submit_many(self, orders: Sequence[Order]) -> None:
        self._take(orders, self._many([request_of(order.key, order.fields) for order in orders]))

    def _take(self, orders: Sequence[Order], answers: Sequence[Submitted | SemelError]) -> None:
        for order, answer in zip(orders, answers, strict=True):
            if isinstance(answer, Submitted):
                if answer.key != order.key:
                    self.faults.append(f"{order.key} was submitted as {answer.key}")
                self._hear(order, 200, dict(answer.facts))
            else:
                self.faults.append(f"{order.key} ended with {type(answer).__name__}: {answer}")

    def _one(self, job: JobRequest) -> Submitted | SemelError:
        self._move()
        return _or_error(lambda: self._client.jobs.submit_request(job))

    def _many(self, jobs: Sequence[JobRequest]) -> Sequence[Submitted | SemelError]:
        self._move()
        found = _or_error(lambda: self._client.jobs.submit_many(jobs))
        return [found] * len(jobs) if isinstance(found, SemelError) else found

    def _collide(self, order: Order) -> None:
        other = order.fields | {"params": {"order": order.key, "n": OTHER}}
        found = self._one(request_of(order.key, other))
        if not isinstance(found, KeyCollisionError):
            self.faults.append(f"another payload for {order.key} was answered {found}")

    def _cancel(self, order: Order) -> None:
        job_id, force = order.answers[-1]["job_id"], self._chance.random() < 0.5
        try:
            told = Told(200, self._cancelled(job_id, force=force))
        except RefusedError as error:
            told = Told(error.status, dict(error.facts))
        order.cancels.append(told)

    def _cancelled(self, job_id: str, *, force: bool) -> dict[str, Any]:
        return dict(self._client.jobs.cancel(job_id, force=force).facts)


class AsyncSubmitter(LibrarySubmitter):
    """One thread with an event loop and an `AsyncClient`; jobs of a batch are sometimes submitted at once."""

    def _open(self, ports: Sequence[int]) -> None:
        network = MovingAsyncioNetwork(ports, self._chance)
        url = f"http://{HOST}:{ports[0]}"
        self._async = AsyncClient(url, patience=ENDLESS, on_retry=self._count, network=network)
        self._runner = asyncio.Runner()

    def _close(self) -> None:
        self._runner.run(self._async.close())
        self._runner.close()

    def _one(self, job: JobRequest) -> Submitted | SemelError:
        return self._ran(self._async.jobs.submit_request(job))

    def _many(self, jobs: Sequence[JobRequest]) -> Sequence[Submitted | SemelError]:
        if self._chance.random() < 0.5:
            found = self._ran(self._async.jobs.submit_many(jobs))
            return [found] * len(jobs) if isinstance(found, SemelError) else found

        async def at_once() -> list[Submitted | SemelError]:
            calls = [self._async.jobs.submit_request(job) for job in jobs]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            return [_answer(one) for one in answers]

        return self._runner.run(at_once())

    def _cancelled(self, job_id: str, *, force: bool) -> dict[str, Any]:
        return dict(self._runner.run(self._async.jobs.cancel(job_id, force=force)).facts)

    def _ran(self, call: Coroutine[Any, Any, T]) -> T | SemelError:
        return _or_error(lambda: self._runner.run(call))


def _or_error(call: Callable[[], T]) -> T | SemelError:
    """The answer, or the error of the library. Any other exception ends the run."""
    try:
        return call()
    except SemelError as error:
        return error


def _answer(found: Submitted | BaseException) -> Submitted | SemelError:
    if isinstance(found, Submitted | SemelError):
        return found
    raise found
