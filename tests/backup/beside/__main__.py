"""Litestream beside 64 callers: does the server go on, and at which rate?

    python -m tests.backup.beside --minutes 10

Callers append with keys to two servers in turn, of which Litestream replicates one from its start on: started anew, it
would first copy the whole file. In the end a sample of the keys is sent again, and must get the first answers. Exit
code 1 if a server stopped, a retry was a new write, `semel check` finds a fault, or the rate beside Litestream is low.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from semel import AsyncClient
from tests.backup.replication import Litestream
from tests.harness.server import RunningServer

CALLERS = 64
LEAST_SHARE = 0.9
SLICE_SECONDS = 20.0
STREAM = "orders"
SAMPLED = 500


async def append_for(url: str, seconds: float, prefix: str) -> list[str]:
    """The keys that all callers have appended in a time."""
    keys: list[str] = []
    deadline = time.monotonic() + seconds

    async def append(client: AsyncClient, caller: int) -> None:
        number = 0
        while time.monotonic() < deadline:
            key = f"{prefix}-{caller}-{number}"
            await client.streams.append(STREAM, {"n": number}, key=key)
            keys.append(key)
            number += 1

    async with AsyncClient(url, connections=CALLERS) as client:
        await asyncio.gather(*(append(client, caller) for caller in range(CALLERS)))
    return keys


async def retry_all(url: str, keys: list[str]) -> list[str]:
    """The keys whose retry was a new write."""
    async with AsyncClient(url) as client:
        answers = [await client.streams.append(STREAM, {"n": int(key.rpartition("-")[2])}, key=key) for key in keys]
    return [key for key, answer in zip(keys, answers, strict=True) if not answer.replayed]


def measure_slice(server: RunningServer, prefix: str) -> tuple[float, list[str]]:
    """The appends a second of one slice, and a sample of its keys."""
    began = time.monotonic()
    keys = asyncio.run(append_for(server.url, SLICE_SECONDS, prefix))
    return len(keys) / (time.monotonic() - began), keys[:: max(1, len(keys) // SAMPLED)]


def is_clean(server: RunningServer) -> bool:
    """Whether `semel check` finds nothing in the folder of a stopped server."""
    command = [sys.executable, "-m", "semel", "check", "--data", str(server.data)]
    return subprocess.run(command, check=False).returncode == 0


def main() -> int:
    """Run and print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=10.0)
    turns = max(1, round(parser.parse_args().minutes * 30 / SLICE_SECONDS))
    shares, doubled, count = list[float](), list[str](), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with RunningServer(folder / "alone") as alone, RunningServer(folder / "beside") as beside:
            for server in (alone, beside):
                asyncio.run(_create(server.url))
            keys: dict[str, list[str]] = {alone.url: [], beside.url: []}
            with Litestream(beside.data, folder / "copies") as litestream:
                for turn in range(turns):
                    rates = {}
                    for server in (alone, beside) if turn % 2 else (beside, alone):
                        rates[server.url], some = measure_slice(server, str(turn))
                        keys[server.url] += some
                    shares.append(rates[beside.url] / rates[alone.url])
                    print(
                        f"{rates[alone.url]:,.0f} appends a second alone, {rates[beside.url]:,.0f} beside", flush=True
                    )
                litestream.sync()
            for url, sent in keys.items():
                doubled += asyncio.run(retry_all(url, sent))
                count += len(sent)
        flawed = [server.url for server in (alone, beside) if not is_clean(server)]
    share = statistics.median(shares)
    print(f"rate beside Litestream: {share:.2f} of that without, at least {LEAST_SHARE}")
    print(f"{count} keys sent again, {len(doubled)} of them were new writes")
    print(f"semel check: {'failed' if flawed else 'clean'}")
    return 0 if not flawed and not doubled and share >= LEAST_SHARE else 1


async def _create(url: str) -> None:
    async with AsyncClient(url) as client:
        await client.streams.create(STREAM, content_type="application/json")


if __name__ == "__main__":
    sys.exit(main())
