"""Hostile clients against one server: how much memory each kind takes, and what a healthy client notices meanwhile.

Idle connections, slow heads, heads without end, floods of chunks, and pipelined reads whose answers are never read. The
callers come from many addresses of loopback, because of the limit of one address. Each attack has a bounded number of
connections and a bounded time; all of them together take less than three minutes.

    python -m bench.hostile
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import multiprocessing
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple, cast

HOST = "127.0.0.1"
START_SECONDS = 60.0
HOLD_SECONDS = 6.0
"""For how long an attack goes on once its connections are open."""
SETTLE_SECONDS = 1.5
AN_ADDRESS = 1_500
"""Connections from one address of loopback."""
SPARE_FILES = 300
MIB = 1024 * 1024
LARGE = 256 * 1024
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
READ = b"GET /v1/stream/large?offset=-1 HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Caller(NamedTuple):
    """One hostile connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Attack(NamedTuple):
    """What some connections do until they are closed or the time is over."""

    name: str
    connections: int
    act: Callable[[Caller], Awaitable[None]]


async def stay_idle(caller: Caller) -> None:
    """Open, and say nothing."""
    await asyncio.sleep(HOLD_SECONDS)


async def send_slow_head(caller: Caller) -> None:
    """A byte of a head now and then."""
    caller.writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ")
    for _ in range(int(HOLD_SECONDS)):
        caller.writer.write(b"x")
        await asyncio.sleep(1)


async def send_endless_head(caller: Caller) -> None:
    """One header that never ends."""
    caller.writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ")
    await send_on(caller, b"x" * 16_384)


async def send_giant_head(caller: Caller) -> None:
    """Header after header."""
    caller.writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n")
    await send_on(caller, b"X-Giant: 1\r\n" * 1_000)


async def send_tiny_chunks(caller: Caller) -> None:
    """A body in chunks of one byte, to a stream that is not there: it is read to its end or refused."""
    head = b"POST /v1/stream/large HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
    caller.writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n")
    await send_on(caller, b"1\r\nx\r\n" * 2_000)


async def send_extensions(caller: Caller) -> None:
    """A chunk whose extension never ends."""
    head = b"POST /v1/stream/large HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
    caller.writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n1;")
    await send_on(caller, b"e" * 16_384)


async def read_nothing(caller: Caller) -> None:
    """Fifty reads of a quarter of a MiB at once, whose answers are left where they are."""
    cast(asyncio.Transport, caller.writer.transport).pause_reading()
    caller.writer.write(READ * 50)
    await asyncio.sleep(HOLD_SECONDS)


async def send_on(caller: Caller, piece: bytes) -> None:
    """Send it again and again, as fast as it is taken, until the server ends the connection."""
    end = time.monotonic() + HOLD_SECONDS
    while time.monotonic() < end:
        caller.writer.write(piece)
        await caller.writer.drain()
        await asyncio.sleep(0.05)


ATTACKS = (
    Attack("idle connections", 10_000, stay_idle),
    Attack("slow heads", 3_000, send_slow_head),
    Attack("endless heads", 200, send_endless_head),
    Attack("giant heads", 200, send_giant_head),
    Attack("floods of tiny chunks", 100, send_tiny_chunks),
    Attack("endless chunk extensions", 200, send_extensions),
    Attack("50 pipelined reads, never read", 100, read_nothing),
)


class Target:
    """The server that is attacked."""

    def __init__(self, folder: str) -> None:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            self.port: int = probe.getsockname()[1]
        command = [sys.executable, "-m", "semel", "serve", "--port", str(self.port), "--ledger-grpc-port", "0"]
        env = {**os.environ, "SEMEL_STORE": "memory:", "SEMEL_LOG_LEVEL": "error", "SEMEL_DATA": folder}
        self._process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)

    async def ready(self) -> None:
        """Wait until it listens, and store what is read later."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(OSError):
                await self.ask(b"PUT /v1/stream/large HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n\r\n")
                break
            if time.monotonic() > deadline:
                raise TimeoutError
            await asyncio.sleep(0.1)
        head = (
            f"POST /v1/stream/large HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: {LARGE}"
        )
        await self.ask(head.encode() + b"\r\n\r\n" + b"x" * LARGE)

    async def ask(self, request: bytes) -> float:
        """Send one request on a connection of its own; the seconds until the answer."""
        began = time.perf_counter()
        reader, writer = await asyncio.open_connection(HOST, self.port)
        try:
            writer.write(request)
            if not await reader.read(65_536):
                raise ConnectionError
        finally:
            writer.close()
        return time.perf_counter() - began

    @property
    def resident(self) -> int:
        """Bytes of memory it holds."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(30)


class Figures(NamedTuple):
    """What one attack did."""

    opened: int
    grown: int
    kept: int
    latencies: list[float]
    failed: int


async def attack(target: Target, one: Attack, connections: int) -> Figures:
    """Run one attack beside a healthy client."""
    before = most = target.resident
    healthy = Healthy(target.port)
    addresses = (f"127.0.0.{2 + number // AN_ADDRESS}" for number in itertools.count())
    gate = asyncio.Semaphore(200)
    tasks = [asyncio.create_task(misbehave(target, one, next(addresses), gate)) for _ in range(connections)]
    while not all(task.done() for task in tasks):
        await asyncio.wait(tasks, timeout=0.2)
        most = max(most, target.resident)
    opened = sum(task.result() for task in tasks)
    latencies, failed = healthy.figures()
    await asyncio.sleep(SETTLE_SECONDS)
    return Figures(opened, most - before, target.resident - before, latencies, failed)


async def misbehave(target: Target, one: Attack, address: str, gate: asyncio.Semaphore) -> bool:
    """Run one hostile connection; whether it was taken."""
    try:
        async with gate:
            reader, writer = await asyncio.open_connection(HOST, target.port, local_addr=(address, 0))
    except OSError:
        return False
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(HOLD_SECONDS + 1):
            await one.act(Caller(reader, writer))
    writer.transport.abort()
    return True


class Healthy:
    """A client that asks again and again, in a process of its own: what hostile clients cost here is not its wait."""

    def __init__(self, port: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=ask_again_and_again, args=(port, theirs), daemon=True)
        self._process.start()
        self._ours.recv()

    def figures(self) -> tuple[list[float], int]:
        """Seconds of each request, and how many failed; it asks no more."""
        self._ours.send("enough")
        latencies, failed = self._ours.recv()
        self._process.join(10)
        return latencies, failed


def ask_again_and_again(port: int, told: Connection) -> None:
    """Ask until told that it is enough, on a new connection each time."""
    latencies: list[float] = []
    failed = 0
    told.send("ready")
    while not told.poll(0.02):
        began = time.perf_counter()
        try:
            with socket.create_connection((HOST, port), 30) as caller:
                caller.sendall(LIVEZ)
                is_served = caller.recv(65_536).startswith(b"HTTP/1.1 200")
        except OSError:
            is_served = False
        latencies.append(time.perf_counter() - began)
        failed += not is_served
    told.send((latencies, failed))


def shown(one: Attack, figures: Figures) -> str:
    """A row of the table."""
    ordered = sorted(figures.latencies) or [0.0]
    median, late, worst = statistics.median(ordered), ordered[int(len(ordered) * 0.99)], ordered[-1]
    millis = " / ".join(f"{seconds * 1_000:.1f}" for seconds in (median, late, worst))
    grown, kept = f"{figures.grown / MIB:.1f}", f"{figures.kept / MIB:.1f}"
    return f"| {one.name} | {figures.opened:,} | {grown} | {kept} | {millis} | {figures.failed} |"


async def run(only: str) -> None:
    """Every attack, one after another, on one server."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    most = (soft if hard == resource.RLIM_INFINITY else hard) - SPARE_FILES
    print("| attack | connections | MiB more at most | MiB more afterwards | healthy: p50 / p99 / max, ms | failed |")
    print("|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        target = Target(folder)
        try:
            await target.ready()
            await attack(target, Attack("warming up", 50, stay_idle), 50)
            for one in ATTACKS:
                if only in one.name:
                    figures = await attack(target, one, min(one.connections, most))
                    print(shown(one, figures), flush=True)
        finally:
            target.stop()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="words in the name of an attack")
    asyncio.run(run(parser.parse_args().only))


if __name__ == "__main__":
    main()
