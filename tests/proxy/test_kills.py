"""The proxy and its upstream are killed (-9) at every named point, started again and asked again.

A counter that is apart from both says how often it took effect: once, or the answer is an honest unknown.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from semel.once import Once
from tests.harness.together import eventually
from tests.once.counter import CounterService, counting
from tests.proxy.dying import LEASE_SECONDS
from tests.proxy.running import CLIENT, Process, proxied

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def counter() -> Iterator[CounterService]:
    """Counts what took effect."""
    with counting() as service:
        yield service


@pytest.fixture(scope="module")
def upstream(counter: CounterService) -> Iterator[Process]:
    """The service, in a process of its own."""
    process = Process("tests.proxy.upstream", "{port}", counter.url)
    process.start()
    yield process
    process.kill()


@pytest.fixture
def key() -> str:
    """A key that no other test has."""
    return f"key-{next(_numbers)}"


def pay(url: str, key: str, path: str = "/charges", **headers: str) -> httpx.Response | None:
    """Ask for a charge; None when the proxy died."""
    named = {"Idempotency-Key": key, **{name.replace("_", "-"): value for name, value in headers.items()}}
    with suppress(httpx.TransportError):
        return CLIENT.post(url + path, content=b"5", headers=named)
    return None


@contextmanager
def restarted(upstream: Process, folder: Path) -> Iterator[str]:
    """Another proxy on the same receipts."""
    store = Once(str(folder / "proxy.db"))
    with proxied(upstream.url, store, lease=LEASE_SECONDS, wait=20.0) as url:
        yield url
    store.close()


def state_after(upstream: Process, folder: Path, key: str, path: str = "/charges") -> list[str]:
    """What two retries are told, each by a proxy that was started again."""
    told = []
    for _ in range(2):
        with restarted(upstream, folder) as url:
            answer = pay(url, key, path)
            assert answer is not None
            is_problem = answer.headers.get("content-type") == "application/problem+json"
            told.append(answer.json()["code"] if is_problem else str(answer.status_code))
    return told


@pytest.mark.parametrize(
    ("point", "path", "effects", "told"),
    [
        ("claimed", "/charges", 0, "outcome_unknown"),
        ("received", "/charges", 1, "outcome_unknown"),
        ("stored", "/charges", 1, "201"),
        ("answered", "/charges", 1, "201"),
        ("claimed", "/again", 1, "201"),
        ("received", "/again", 2, "201"),
    ],
)
def test_the_proxy_dies_at_a_point_of_its_own(
    tmp_path: Path, counter: CounterService, upstream: Process, key: str, point: str, path: str, effects: int, told: str
) -> None:
    proxy = Process("tests.proxy.dying", point, "{port}", upstream.url, str(tmp_path / "proxy.db"))
    proxy.start()
    answer = pay(proxy.url, key, path)
    assert answer is None or point == "answered"
    proxy.died()
    assert state_after(upstream, tmp_path, key, path) == [told, told]
    assert counter.keys("/effects").count(key) == effects  # /again says aloud that it runs again


@pytest.mark.parametrize(("point", "effects"), [("begun", 0), ("effect", 1)])
def test_the_proxy_dies_while_the_upstream_works(
    tmp_path: Path, counter: CounterService, upstream: Process, key: str, point: str, effects: int
) -> None:
    proxy = Process("tests.proxy.dying", "never", "{port}", upstream.url, str(tmp_path / "proxy.db"))
    proxy.start()
    thread = threading.Thread(target=pay, args=(proxy.url, key), kwargs={"X_Hold": point})
    thread.start()
    eventually(lambda: counter.keys("/held").count(key) > 0, "the upstream has it")
    proxy.kill()
    thread.join(25)
    assert state_after(upstream, tmp_path, key) == ["outcome_unknown"] * 2
    assert counter.keys("/effects").count(key) == effects


@pytest.mark.parametrize(("point", "effects"), [("begun", 0), ("effect", 1), ("answering", 1)])
def test_the_upstream_dies(tmp_path: Path, counter: CounterService, key: str, point: str, effects: int) -> None:
    service = Process("tests.proxy.upstream", "{port}", counter.url)
    service.start()
    with restarted(service, tmp_path) as url:
        first = pay(url, key, X_Die=point)
        service.died()
        gone = pay(url, f"{key}-other")
        service.start()
        again, other = pay(url, key), pay(url, f"{key}-other")
    service.kill()
    for answer in (first, again):
        assert answer is not None
        assert (answer.status_code, answer.json()["code"]) == (409, "outcome_unknown")
    assert gone is not None
    assert gone.status_code == 502
    assert other is not None
    assert other.status_code == 201
    assert counter.keys("/effects").count(key) == effects
