"""Appends at the store, without HTTP: so many tasks, each with one keyed append under way, for so many seconds.

`--through engine` submits to the commit engine the commands that the host would make; `--through block` and `lean` do
one transaction an append through a baseline's pool. What is not the store's business is done beforehand on both sides:
bodies are checked and fingerprinted once, and only the key is fresh. Run as a program it prints one JSON object;
`bench.postgres` starts it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from bench.load_keys import BODY, random_key
from bench.load_sources import paths
from bench.naive import CONNECTIONS, Pool
from bench.tally import Tally, new_loop
from semel.engine.clock import SystemWorld
from semel.engine.contract import Write
from semel.engine.engine import Engine
from semel.engine.group_commit import BatchReport, Commit, SilentObserver
from semel.kernel.header_fields import HeaderFields
from semel.kernel.keys import pack, time_ordered_id
from semel.kernel.verdict import Window
from semel.server.process import collect_rarely
from semel.store.open import open_store
from semel.surfaces.schema import MIGRATIONS, TABLES
from semel.surfaces.streams.commands import Append, Appended, Created
from semel.surfaces.streams.contract import Streams
from semel.surfaces.streams.settings import StreamsSettings
from semel.surfaces.streams.wire.requests import parse_append, parse_create

Store = Callable[[int, bytes], Awaitable[None]]
"""Appends once to the stream of this number, under this key; returns when it is on disk."""

_JSON = (b"content-type", b"application/json")
_STORED = b"204"


class Commits(SilentObserver):
    """Remembers how many writes each commit held."""

    def __init__(self, writes: list[int]) -> None:
        self.writes = writes

    def batch(self, report: BatchReport) -> None:
        """From the threads of several lanes; appending to a list is safe there, adding to a number is not."""
        if report.commit is Commit.DURABLE:
            self.writes.append(report.writes)


def _template(name: bytes) -> Append:
    fields = HeaderFields([_JSON, (b"idempotency-key", b"replaced")])
    return parse_append(name, fields, BODY, 1)


@asynccontextmanager
async def through_engine(url: str, names: list[bytes], commits: list[int]) -> AsyncIterator[Store]:
    """The engine over its store, with these streams in it."""
    world = SystemWorld()
    streams = Streams(Window(StreamsSettings().streams_idempotency_ttl_ms))
    engine = Engine(open_store(url, TABLES, MIGRATIONS, world.wall_ms), world, observer=Commits(commits))
    for name in names:
        life = time_ordered_id(world.wall_ms(), world.random_bytes(10))
        created = await engine.submit(Write(streams, parse_create(name, life, HeaderFields([_JSON]), b"", 1)))
        assert isinstance(created, Created)
    templates = [_template(name) for name in names]

    async def append(number: int, key: bytes) -> None:
        command = templates[number]._replace(key=pack(key))
        answer = await engine.submit(Write(streams, command, len(command.content.data)))
        if not isinstance(answer, Appended):
            raise SystemExit(f"an append was refused: {answer}")

    try:
        yield append
    finally:
        await engine.stop()


@asynccontextmanager
async def through_block(url: str, names: list[bytes], commits: list[int]) -> AsyncIterator[Store]:
    """A baseline; every append is a commit of its own, so none are counted."""
    async with _through(Pool(CONNECTIONS, in_block=True), url, names) as store:
        yield store


@asynccontextmanager
async def through_lean(url: str, names: list[bytes], commits: list[int]) -> AsyncIterator[Store]:
    """The other one."""
    async with _through(Pool(CONNECTIONS, in_block=False), url, names) as store:
        yield store


@asynccontextmanager
async def _through(pool: Pool, url: str, names: list[bytes]) -> AsyncIterator[Store]:
    await pool.open(url)
    fingerprint = _template(b"any").fingerprint

    async def append(number: int, key: bytes) -> None:
        await pool.append(names[number], pack(key), fingerprint, BODY)

    try:
        yield append
    finally:
        await pool.close()


WAYS: dict[str, Callable[[str, list[bytes], list[int]], AbstractAsyncContextManager[Store]]] = {
    "engine": through_engine,
    "block": through_block,
    "lean": through_lean,
}


async def _write(store: Store, number: int, tally: Tally) -> None:
    while not tally.is_over:
        key = random_key()
        began = time.perf_counter()
        await store(number, key)
        tally.count(_STORED, time.perf_counter() - began)


async def measure(
    url: str, way: str, streams: int, writers: int, warm: float, window: float
) -> tuple[Tally, list[int]]:
    """Run the loop; with the counts of writes that each commit of the window held."""
    names = [path.encode() for path in paths("bench", streams)]
    tally = Tally()
    commits: list[int] = []
    async with WAYS[way](url, names, commits) as store, asyncio.TaskGroup() as tasks:
        for number in range(writers):
            tasks.create_task(_write(store, number % len(names), tally))
        await asyncio.sleep(warm)
        commits.clear()
        tally.is_open = True
        await asyncio.sleep(window)
        tally.is_open, tally.is_over = False, True
        held = list(commits)
    return tally, held


def main() -> None:
    """Measure once and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--through", choices=sorted(WAYS), required=True)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--writers", type=int, default=256)
    parser.add_argument("--warm", type=float, default=0.5)
    parser.add_argument("--window", type=float, default=3.0)
    asked = parser.parse_args()
    collect_rarely()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        tally, commits = runner.run(
            measure(asked.url, asked.through, asked.streams, asked.writers, asked.warm, asked.window)
        )
    each = sum(commits) / len(commits) if commits else 1.0
    print(json.dumps(tally.figures(asked.window) | {"writes_a_commit": each}))


if __name__ == "__main__":
    main()
