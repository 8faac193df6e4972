"""The reader of a failover run notices a node that shows less than what was answered before."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.failover.clients import Answered, TailWatcher
from tests.streams.crash.clients import Operation


def stale_reads(tail: str, status: int = 200) -> tuple[list[str], int]:
    """What a reader finds of a stream that ends there, after an append was answered with offset 0_20."""
    answered = Answered()
    answered.note(Operation("s0", "one", {}, answers=[(204, "0_20")]))

    async def look() -> tuple[list[str], int]:
        stop = asyncio.Event()

        def answer(request: httpx.Request) -> httpx.Response:
            stop.set()
            return httpx.Response(status, headers={"Stream-Next-Offset": tail})

        async with httpx.AsyncClient(base_url="http://node", transport=httpx.MockTransport(answer)) as node:
            watcher = TailWatcher(node, answered)
            await watcher.work(stop)
        return watcher.stale, watcher.reads

    return asyncio.run(look())


@pytest.mark.parametrize(("tail", "stale"), [("0_20", 0), ("0_21", 0), ("0_19", 1)])
def test_a_tail_below_what_was_answered_is_stale(tail: str, stale: int) -> None:
    found, reads = stale_reads(tail)
    assert (len(found), reads) == (stale, 1)


def test_a_refusal_shows_nothing() -> None:
    assert stale_reads("0_19", 503) == ([], 0)
