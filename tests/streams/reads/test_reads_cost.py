"""The cost of reads, without a clock: store reads and frames for many readers, statements for a page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from semel.engine.engine import Engine
from semel.store.sqlite.store import SqliteFileStore
from semel.surfaces.streams import live
from semel.surfaces.streams.wire import responses
from tests.streams.reads.served import Served, served

READERS = 1_000


async def crowd(server: Served) -> list[list[bytes]]:
    """Readers of one stream that wait for the next append; what each of them is sent."""
    await server.ask("PUT", "t", content_type="text/plain")
    readers = [server.open("t?live=sse&offset=now") for _ in range(READERS)]
    while len(server.context.engine.signals) < READERS:  # noqa: ASYNC110 - each arms its own watch
        await asyncio.sleep(0.01)
    return [pipe.written for _, pipe in readers]


async def tick(server: Served, written: list[list[bytes]], body: bytes) -> None:
    """One append, until every reader has it."""
    for some in written:
        some.clear()
    assert (await server.ask("POST", "t", body, content_type="text/plain")).status == 204
    for _ in range(1_000):
        if all(some and body in b"".join(some) for some in written):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("a reader was not sent the append")


def counting(calls: list[Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with a note of each call."""

    def called(*arguments: Any, **named: Any) -> Any:
        calls.append(arguments)
        return function(*arguments, **named)

    return called


def test_a_commit_for_a_thousand_readers_of_a_hot_tail_costs_no_store_read_and_one_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with served(tmp_path) as server:
            written = await crowd(server)
            reads: list[Any] = []
            frames: list[Any] = []
            monkeypatch.setattr(Engine, "read", counting(reads, Engine.read))
            monkeypatch.setattr(live, "event_part", counting(frames, responses.event_part))
            for number in range(3):
                await tick(server, written, b"append %d" % number)
            assert (len(reads), len(frames)) == (0, 3)
            assert all(len(some) == 1 for some in written)  # one write for each reader

    asyncio.run(test())


def test_a_commit_for_a_thousand_readers_costs_one_store_read_where_other_nodes_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "sees_all_commits", False)

    async def test() -> None:
        async with served(tmp_path) as server:
            written = await crowd(server)
            signals = server.context.engine.signals
            before = signals.turn
            turns: list[int] = []
            frames: list[Any] = []
            read = Engine.read

            def noted(engine: Engine, look: Callable[..., Any]) -> Any:
                turns.append(signals.turn)
                return read(engine, look)

            monkeypatch.setattr(Engine, "read", noted)
            monkeypatch.setattr(live, "event_part", counting(frames, responses.event_part))
            await tick(server, written, b"an append")
            # One read finds the append, and at most one more, after it, finds nothing behind it. The last readers of
            # the crowd may still have been in their first read, which began before the append.
            assert 1 <= len([turn for turn in turns if turn > before]) <= 2
            assert len(frames) == 1

    asyncio.run(test())


def test_a_page_of_small_appends_costs_five_statements(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path) as server:
            await server.ask("PUT", "t", content_type="application/json")
            for _ in range(2_000):
                await server.ask("POST", "t", b'"%s"' % (b"x" * 200), content_type="application/json")
            statements: list[str] = []

            def note(cursor: object, sql: str, values: object) -> bool:
                statements.append(sql)
                return True

            store = cast(SqliteFileStore, server.context.engine._store)
            readers = [store._readers.take() for _ in range(store.readers)]
            for reader in readers:
                reader.exec_trace = note
                store._readers.give_back(reader)
            server.reads.tails.clear()
            page = await server.ask("GET", "t?offset=-1")
            assert (page.status, page.body.count(b",")) == (200, 1_999)
            assert len(statements) <= 5, statements  # the bounds of the snapshot, the stream, and all its content

    asyncio.run(test())
