"""Subscriptions and the law of the event loop: neither many patterns nor many streams of one wake hold it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.law.rig import HOLD_MS, WatchedServer, watched

JSON = {"Content-Type": "application/json"}
SUBSCRIPTIONS = 1_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WatchedServer]:
    with watched(tmp_path) as running:
        yield running


def subscribe(server: WatchedServer, pattern: str, count: int = SUBSCRIPTIONS) -> None:
    """Create subscriptions of one pattern."""
    body = {"type": "pull-wake", "pattern": pattern, "wake_stream": "wakes"}
    with httpx.Client() as http, ThreadPoolExecutor(8) as pool:

        def put(number: int) -> None:
            url = f"{server.url}/v1/stream/__ds/subscriptions/s{number}"
            http.put(url, json=body, timeout=60).raise_for_status()

        list(pool.map(put, range(count)))


@pytest.mark.parametrize("pattern", ["**/" + "*/" * 28 + "b/**", "**/" + "a/" * 28 + "b/**", "**/" + "*/" * 30 + "b"])
def test_a_stream_is_created_beside_many_slow_patterns_without_holding_the_loop(
    server: WatchedServer, pattern: str
) -> None:
    subscribe(server, pattern)
    url = f"{server.url}/v1/stream/{'/'.join('a' * 512)}"
    cost = server.cost_of(lambda: httpx.put(url, headers=JSON, timeout=60).raise_for_status())
    assert cost.hold_ms < HOLD_MS


def test_a_stream_of_many_subscriptions_is_created_without_holding_the_loop(server: WatchedServer) -> None:
    subscribe(server, "events/*")
    url = f"{server.url}/v1/stream/events/{'a' * 1_000}"
    cost = server.cost_of(lambda: httpx.put(url, content=b"[1]", headers=JSON, timeout=60).raise_for_status())
    assert cost.hold_ms < HOLD_MS


def test_a_claim_of_many_streams_does_not_hold_the_loop(server: WatchedServer) -> None:
    subscribe(server, "events/*", 1)
    with httpx.Client() as http, ThreadPoolExecutor(8) as pool:

        def create(number: int) -> None:
            url = f"{server.url}/v1/stream/events/{'a' * 1_000}{number}"
            http.put(url, content=b"[1]", headers=JSON, timeout=60).raise_for_status()

        list(pool.map(create, range(SUBSCRIPTIONS)))
    url = f"{server.url}/v1/stream/__ds/subscriptions/s0/claim"
    claimed: list[httpx.Response] = []
    cost = server.cost_of(lambda: claimed.append(httpx.post(url, json={"worker": "w"}, timeout=60)))
    assert len(claimed[0].json()["streams"]) == SUBSCRIPTIONS
    assert cost.hold_ms < HOLD_MS
