"""What a function returns: what can be printed is stored, and what cannot is no reason to fail what was done."""

from __future__ import annotations

import asyncio
import functools
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest

from semel.client import ConfigurationError, Job, Worker
from semel.client.worker.reports import plain
from tests.client.jobs_room import open_jobs
from tests.client.names import fresh
from tests.harness.server import RunningServer


class Colour(Enum):
    RED = "red"


@dataclass
class Receipt:
    number: int
    at: date


TAKEN: dict[str, tuple[Any, Any]] = {
    "tuple": ((1, 2), [1, 2]),
    "datetime": (datetime(2026, 11, 16, 12, 30, tzinfo=UTC), "2026-11-16T12:30:00+00:00"),
    "uuid": (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    "enum": ({"colour": Colour.RED}, {"colour": "red"}),
    "dataclass": ([Receipt(7, date(2026, 1, 2))], [{"number": 7, "at": "2026-01-02"}]),
}
NOT_TAKEN: dict[str, Any] = {
    "Decimal": Decimal("1.10"),
    "set": {1, 2},
    "NaN": (1.0, float("nan")),
    "number as a name": {1: "one"},
    "too large": "x" * 1_100_000,
}


def outcomes(server: RunningServer, returned: dict[str, Any]) -> dict[str, tuple[Any, int]]:
    """Run a job for each value; what is stored, and how often each ran."""

    async def main() -> dict[str, tuple[Any, int]]:
        kind, runs = fresh("kind"), list[str]()
        worker = Worker(server.url, poll=5.0)

        @worker.job(kind)
        def handle(job: Job) -> Any:
            runs.append(job.params["name"])
            return returned[job.params["name"]]

        async with open_jobs(server.url) as jobs:
            ids = {name: (await jobs.submit(kind, {"name": name})).job_id for name in returned}
            serving = asyncio.create_task(worker.serve())
            ends = {name: await jobs.result(one, wait=20) for name, one in ids.items()}
            worker.stop()
            await serving
            assert all(end.ok for end in ends.values()), ends
            return {name: (end.result, runs.count(name)) for name, end in ends.items()}

    return asyncio.run(main())


def test_d6_what_orjson_prints_is_stored_as_it_prints_it(server: RunningServer) -> None:
    got = outcomes(server, {name: value for name, (value, _) in TAKEN.items()})
    assert got == {name: (stored, 1) for name, (_, stored) in TAKEN.items()}


def test_d6_a_result_that_cannot_be_stored_leaves_the_job_done_with_a_note(server: RunningServer) -> None:
    got = outcomes(server, NOT_TAKEN)
    assert {runs for _, runs in got.values()} == {1}
    assert all(set(result) == {"no_result"} for result, _ in got.values()), got
    assert "Decimal" in got["Decimal"][0]["no_result"]


def test_d6_a_function_that_says_it_returns_no_json_is_refused_when_it_is_registered() -> None:
    worker = Worker("http://127.0.0.1:1")
    with pytest.raises(ConfigurationError, match="returns complex: return a JSON type"):

        @worker.job("price")
        def price(job: Job) -> complex:
            return complex(job.params["price"])

    assert worker.kinds == ()


def test_d6_a_value_that_contains_itself_is_no_result() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="nested"):
        plain(endless)


def _lines(order: str) -> Iterator[str]:
    yield order


async def _lines_async(order: str) -> AsyncIterator[str]:
    yield order


class _Lines:
    def __call__(self, order: str) -> Iterator[str]:
        yield order


@pytest.mark.parametrize("function", [_lines, _lines_async, _Lines(), functools.partial(_lines)])
def test_a_generator_function_is_refused_when_it_is_registered(function: Any) -> None:
    with pytest.raises(ConfigurationError, match="generator"):
        Worker("http://127.0.0.1:1").job("bill")(function)


async def _mail(order: str) -> str:
    return order


def _plain(order: str) -> Any:
    return _mail(order)


def _lazy(order: str) -> Any:
    return _lines(order)


async def _lazy_async(order: str) -> Any:
    return _lines(order)


def _future(order: str) -> Any:
    return Future[str]()


async def _task(order: str) -> Any:
    return asyncio.ensure_future(_mail(order))


def _yields(job: Job, call: Callable[[], Any]) -> Iterator[Any]:
    yield call()


async def _forgets(job: Job, call: Callable[[], Any]) -> Any:
    return call()


def _passes(order: str) -> str:
    return order


UNFINISHED: dict[str, tuple[Callable[[str], Any], Callable[..., Any] | None]] = {
    "coroutine": (_plain, None),
    "generator": (_lazy, None),
    "generator of a coroutine function": (_lazy_async, None),
    "future": (_future, None),
    "task": (_task, None),
    "a middleware with yield": (_passes, _yields),
    "a middleware without await": (_passes, _forgets),
}


@pytest.mark.parametrize("name", UNFINISHED)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_result_that_has_still_to_run_fails_the_job_for_good(name: str) -> None:
    function, middleware = UNFINISHED[name]
    worker = Worker("http://127.0.0.1:1")
    bill = worker.job("bill")(function)
    if middleware is not None:
        worker.middleware(middleware)
    with worker.testing() as test:
        bill.submit(order="7")
        [run] = test.run()
        assert (run.ended, run.next_run) == ("failed", None)
        assert run.error is not None
        assert "has still to run" in run.error["message"]


async def test_a_result_that_has_still_to_run_fails_a_job_of_a_server(server: RunningServer) -> None:
    worker, kinds = Worker(server.url, poll=5.0), dict[str, str]()
    for name, (function, middleware) in UNFINISHED.items():
        if middleware is None:
            kinds[name] = fresh("kind")
            worker.job(kinds[name])(function)
    async with open_jobs(server.url) as jobs:
        ids = {name: (await jobs.submit(kind, {"order": "7"})).job_id for name, kind in kinds.items()}
        serving = asyncio.create_task(worker.serve())
        ends = {name: await jobs.result(one, wait=20) for name, one in ids.items()}
        worker.stop()
        await serving
    assert not any(end.ok for end in ends.values()), ends
