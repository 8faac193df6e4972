"""The line of a replica, cut at every byte: push, page, checkpoint and WebSocket. No change is lost or doubled."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel.client.deltas import live_connection
from tests.client.both import BOTH, network_of
from tests.client.cut_network import CutNetwork
from tests.client.names import fresh
from tests.client.replica_kinds import Opened, open_async, open_blocking
from tests.harness.server import RunningServer
from tests.harness.share import due

SIDES = pytest.mark.parametrize("side", ["request", "answer"])
SECONDS = 60.0


def bytes_of(size: int, kind: str) -> Sequence[int]:
    """Every second byte: those of the blocking and of the asynchronous one are all bytes, and their rules are one."""
    return due(range(0 if kind == "async" else 1, size, 2))


def surely_cut(places: Sequence[int], size: int) -> int:
    """How many of the places every call reaches: sizes differ by some digits."""
    assert size > 440
    return sum(at < size - 40 for at in places)


def opened(kind: str, path: Path, server: RunningServer, gateway: str, network: CutNetwork) -> Opened:
    """A replica over a line that can be cut."""
    kinds = {"async": open_async, "blocking": open_blocking}
    return kinds[kind](path, url=server.url, gateway=gateway, client_id=path.stem, network=network)


def ids(server: RunningServer, gateway: str) -> list[str]:
    """The ids of all entries."""
    query = f"since=0&clientId={fresh('reader')}&limit=10000"
    answer: dict[str, Any] = httpx.get(f"{server.url}/v1/sync/{gateway}/pull?{query}").json()
    assert answer["hasMore"] is False
    return [entry["deltaId"] for entry in answer["deltas"]]


@BOTH
@SIDES
async def test_a_push_and_a_page_wherever_the_line_is_cut(
    server: RunningServer, tmp_path: Path, kind: str, side: str
) -> None:
    gateway, network = fresh("gw"), CutNetwork(network_of(kind))
    async with (
        opened(kind, tmp_path / "cut.db", server, gateway, network) as cut,
        open_async(tmp_path / "other.db", url=server.url, gateway=gateway, client_id="other") as other,
    ):
        made: list[str] = []

        async def work(number: int) -> None:
            other.put("todos", "shared", {"other": number})
            await other.push()
            made.append(cut.put("todos", "own", {"cut": number}))
            await cut.sync()
            assert cut.get("todos", "shared") == {"other": number}
            assert cut.pending() == []

        await work(-1)
        await work(0)
        before = network.sent, network.received
        await work(1)
        size = {"request": network.sent - before[0], "answer": network.received - before[1]}[side]
        places = bytes_of(size, kind)
        for at in places:
            setattr(network, f"{side}_left", at)
            await work(at + 2)
        assert network.cuts >= surely_cut(places, size)
        counts = Counter(ids(server, gateway))
        assert set(counts.values()) == {1}
        assert set(made) <= set(counts)


@BOTH
async def test_a_checkpoint_wherever_the_line_is_cut(server: RunningServer, tmp_path: Path, kind: str) -> None:
    gateway, network = fresh("gw"), CutNetwork(network_of(kind))
    async with (
        opened(kind, tmp_path / "cut.db", server, gateway, network) as cut,
        open_async(tmp_path / "other.db", url=server.url, gateway=gateway, client_id="other") as other,
    ):
        for number in range(3):
            other.insert("todos", str(number), {"n": number})
        await other.push()
        before = network.received
        await cut.pull()
        size = network.received - before
        places = bytes_of(size, kind)
        for at in places:
            cut.start_over()
            assert cut.rows("todos") == {}
            network.answer_left = at
            await cut.pull()
            assert cut.rows("todos") == other.rows("todos")
        assert network.cuts >= surely_cut(places, size)


@BOTH
async def test_a_websocket_wherever_the_line_is_cut(
    server: RunningServer, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each change is handed over once, in order; a cut may hit the pull, the handshake or a message."""
    monkeypatch.setattr(live_connection, "FIRST_SECONDS", 0.0)
    gateway, network = fresh("gw"), CutNetwork(network_of(kind))
    async with AsyncExitStack() as stack:
        cut = await stack.enter_async_context(opened(kind, tmp_path / "cut.db", server, gateway, network))
        other = await stack.enter_async_context(
            open_async(tmp_path / "other.db", url=server.url, gateway=gateway, client_id="other")
        )
        changes, told, places = cut.follow(every=0.01), [], bytes_of(500, kind)
        for at in places:
            network.answer_left = at
            other.insert("todos", f"{at:04d}", {"n": at})
            await other.push()
            async with asyncio.timeout(SECONDS):
                told.append((await anext(changes)).row_id)
        assert told == [f"{at:04d}" for at in places]
        assert network.cuts > 0.4 * len(places)
        network.answer_left = None
