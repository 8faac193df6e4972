"""Forks and the law of the event loop: what a sub-offset copies counts like a body."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from tests.law.rig import HOLD_MS, MIB, watched

FORKS = 8
START = "0000000000000000_0000000000000000"


def test_forks_that_cut_a_large_append_do_not_hold_the_loop(tmp_path: Path) -> None:
    size = 16 * MIB
    with watched(tmp_path) as server:
        url = f"{server.url}/v1/stream/large"
        httpx.put(url, content=b"x" * size, headers={"Content-Type": "text/plain"}, timeout=60).raise_for_status()
        headers = {
            "Stream-Forked-From": "/v1/stream/large",
            "Stream-Fork-Offset": START,
            "Stream-Fork-Sub-Offset": str(size - 1),
        }
        statuses: list[int] = []

        def fork(number: int) -> None:
            statuses.append(httpx.put(f"{url}-{number}", headers=headers, timeout=120).status_code)

        def all_forks() -> None:
            with ThreadPoolExecutor(FORKS) as pool:
                list(pool.map(fork, range(FORKS)))

        cost = server.cost_of(all_forks)
        assert set(statuses) <= {201, 503}
        assert cost.hold_ms < HOLD_MS
