"""A function's lease and its take-over: what it is told of itself, what stops no renewal, and a lost answer."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from semel import once
from semel.once import Fenced, Happened, InFlight, Once
from semel.once.claims import Act, ReceiptChange
from semel.once.table import Row
from tests.harness.postgres.proxy import Proxy
from tests.harness.server import HOST
from tests.harness.together import PATIENCE_SECONDS, at_once, eventually
from tests.once.places import PLACES, Place, fresh_place

LEASE = "1s"
SECOND_PROCESS = """
import json, sys, time
from semel.once import InFlight, Once
place, table, lease, keys = json.loads(sys.argv[1])
store, told = Once(place, table=table), {key: set() for key in keys}

@store.once(key="key", scope="shop", lease=lease, in_flight="raise", on_crash="retry")
def charge(key):
    return "ran"

deadline = time.monotonic() + 2.2
while time.monotonic() < deadline:
    for key in keys:
        try:
            told[key].add(charge(key))
        except InFlight:
            told[key].add("in flight")
    time.sleep(0.05)
print(json.dumps({key: sorted(what) for key, what in told.items()}))
"""


def test_a_second_process_runs_no_function_whose_loop_or_executor_is_not_free(
    place: Place, begun: threading.Semaphore
) -> None:
    over, store = threading.Event(), place.open()
    options: dict[str, Any] = {"key": "key", "scope": "shop", "lease": LEASE, "on_crash": "retry"}

    def wait() -> None:
        begun.release()
        over.wait(PATIENCE_SECONDS)

    @store.once(**options)
    def block(key: str) -> str:
        wait()
        return key

    @store.once(**options)
    async def block_loop(key: str) -> str:
        wait()  # an async function that blocks its loop
        return key

    @store.once(**options)
    async def fill_executor(key: str) -> str:
        begun.release()
        await asyncio.gather(*(asyncio.to_thread(over.wait, PATIENCE_SECONDS) for _ in range(64)))
        return key

    def second() -> str:
        for _ in range(3):
            assert begun.acquire(timeout=PATIENCE_SECONDS)
        try:
            asked = json.dumps([place.url, place.table, LEASE, ["block", "loop", "executor"]])
            return subprocess.run(
                [sys.executable, "-c", SECOND_PROCESS, asked], check=True, capture_output=True, text=True
            ).stdout
        finally:
            over.set()

    calls: list[Callable[[], str]] = [
        lambda: block("block"),
        lambda: asyncio.run(block_loop("loop")),
        lambda: asyncio.run(fill_executor("executor")),
        second,
    ]
    *results, told = at_once(calls)
    assert results == ["block", "loop", "executor"]
    assert json.loads(told) == {key: ["in flight"] for key in results}
    store.close()


@pytest.fixture
def begun() -> threading.Semaphore:
    """Nothing has begun."""
    return threading.Semaphore(0)


@pytest.fixture(params=PLACES[1:])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Each kind of store that several processes share."""
    return fresh_place(request.param, tmp_path)


@pytest.fixture(params=[False, True], ids=["function", "coroutine"])
def is_async(request: pytest.FixtureRequest) -> bool:
    """Both kinds of functions."""
    return bool(request.param)


def called(function: Any, *args: Any) -> Any:
    """Call a function of either kind."""
    found = function(*args)
    return asyncio.run(found) if asyncio.iscoroutine(found) else found


def decorated(store: Once, body: Callable[[str], Any], is_async: bool, **options: Any) -> Any:
    """A function of either kind."""

    async def body_async(key: str) -> Any:
        return body(key)

    return store.once(key="key", scope="shop", **options)(body_async if is_async else body)


def test_a_call_is_told_that_another_one_has_its_key_and_each_has_a_higher_fence(place: Place, is_async: bool) -> None:
    store, others, seen = place.open(), place.open(), list[tuple[Any, ...]]()

    def take_over(key: str) -> Any:
        while True:
            store.store.end_leases()  # the process stood still
            with suppress(InFlight):
                return decorated(others, body, is_async=False, **options)(key)

    def body(key: str) -> int:
        call = once.current_call()
        is_whole = 0 < call.lease_left <= 1 and not call.is_lost
        if call.attempt == 1:
            [told] = at_once([lambda: take_over(key)])
            assert told == 2
            eventually(lambda: call.is_lost, "the keeper sees that the lease is another's")
            assert call.lease_left == 0
        seen.append((call.attempt, call.fence, call.key == once.current_key() == key, is_whole))
        return call.attempt

    options: dict[str, Any] = {"lease": LEASE, "in_flight": "raise", "on_crash": "retry"}
    charge = decorated(store, body, is_async, **options)
    with pytest.raises(Fenced):
        called(charge, "a")
    assert called(charge, "a") == 2
    charge.forget("a")
    assert called(decorated(store, lambda key: once.current_call().fence, is_async), "b") > 0
    (second, high, *facts), (first, low, *more) = seen
    assert (first, second, facts, more) == (1, 2, [True, True], [True, True])
    assert high > low
    for read in (once.current_call, once.current_key):
        with pytest.raises(once.OnceError, match="only inside a function"):
            read()
    store.close()
    others.close()


def test_a_fence_grows_although_the_receipt_was_forgotten(place: Place) -> None:
    store = place.open()
    fences = list[int]()
    charge = decorated(store, lambda key: fences.append(once.current_call().fence), is_async=False)
    for _ in range(3):
        charge("a")
        charge.forget("a")
        threading.Event().wait(0.002)  # it is a time in milliseconds
    assert fences == sorted(set(fences))
    store.close()


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[tuple[Once, Proxy]]:
    """A store behind a proxy that loses answers."""
    found = fresh_place("postgresql", tmp_path)
    parts = urlsplit(found.url)
    with Proxy(parts.port or 5_432) as proxy:
        store = Once(parts._replace(netloc=f"{parts.username}@{HOST}:{proxy.port}").geturl(), table=found.table)
        yield store, proxy
        store.close()


@pytest.mark.parametrize(
    ("on_crash", "told", "runs", "asks"), [("ask", 7, 1, 1), ("ask, none", 9, 2, 1), ("retry", 9, 2, 0)]
)
def test_a_take_over_whose_answer_is_lost_is_decided_as_if_it_had_come(
    proxied: tuple[Once, Proxy], is_async: bool, on_crash: str, told: int, runs: int, asks: int
) -> None:
    store, proxy = proxied
    ran, asked, cuts = list[str](), list[str](), list[Act]()

    def find(key: str) -> Happened | None:
        asked.append(key)
        return Happened(7) if on_crash == "ask" else None

    def body(key: str) -> int:
        ran.append(key)
        if len(ran) == 1:
            raise KeyboardInterrupt
        return 9

    change = store.store.change

    def losing(one: ReceiptChange) -> Sequence[Row]:
        if one.act is Act.TAKE_OVER and not cuts:
            cuts.append(one.act)
            proxy.cut_after()
        return change(one)

    store.store.change = losing  # type: ignore[assignment,method-assign] # this store alone
    more: dict[str, Any] = {"on_crash": "retry"} if on_crash == "retry" else {"on_crash": "ask", "ask": find}
    charge = decorated(store, body, is_async, **more)
    with suppress(KeyboardInterrupt):
        called(charge, "a")
    assert (called(charge, "a"), called(charge, "a")) == (told, told)
    assert (len(ran), len(asked), len(cuts), proxy.cuts) == (runs, asks, 1, 1)
