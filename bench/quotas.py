"""A flood of one principal at ten times its quota, and what another principal's appends take meanwhile.

Rounds alternate: quiet, then flooded. In each, one connection of the other principal appends, one request after another
with a short pause. The flood sends keyed appends on many connections at a fixed rate and waits for no answer. It is run
against a server with the quota and against one without, each with its own quiet rounds. Client, flood and server are
processes of their own.

    python -m bench.quotas
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

HOST = "127.0.0.1"
START_SECONDS = 60.0
QUOTA = 200
"""Requests a second of the principal that floods."""
TIMES = 10
LINES = 20
PAUSE_SECONDS = 0.002
TICK_SECONDS = 0.01
BODY = b"x" * 200
UNSENT_BYTES = 64 * 1024
"""A connection that the server does not read sends no more than this."""


class Round(NamedTuple):
    """The appends of the other principal in one round, in milliseconds, and what the flood offered."""

    p50: float
    p99: float
    offered: float


def token(name: str) -> str:
    return f"the-token-of-{name}"


def token_file(folder: Path, *, has_quota: bool) -> Path:
    lines = []
    for name in ("flood", "other"):
        digest = hashlib.sha256(token(name).encode()).hexdigest()
        lines.append(f'[[token]]\nname = "{name}"\nsha256 = "{digest}"\nroles = ["read", "write"]\n')
    if has_quota:
        lines.append(f'[[quota]]\nname = "flood"\nrequests_per_second = {QUOTA}\nconnections = {LINES}\n')
    path = folder / "tokens.toml"
    path.write_text("\n".join(lines))
    return path


@contextlib.contextmanager
def serving(*, has_quota: bool) -> Iterator[int]:
    """A server in a folder of its own; its port."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with socket.create_server((HOST, 0)) as probe:
            port = probe.getsockname()[1]
        env = {key: value for key, value in os.environ.items() if not key.startswith("SEMEL_")}
        env |= {"SEMEL_TOKENS": str(token_file(folder, has_quota=has_quota)), "SEMEL_LEDGER_GRPC_PORT": "0"}
        command = [sys.executable, "-m", "semel", "serve", "--port", str(port), "--data", str(folder / "data")]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(command, env=env, stdin=quiet, stdout=quiet, stderr=quiet)
        try:
            wait_for(port)
            for stream in ("flood", "other"):
                with socket.create_connection((HOST, port)) as line:
                    line.sendall(request("PUT", stream, "other", "", b""))
                    assert b" 201 " in line.recv(65_536)
            yield port
        finally:
            process.terminate()
            process.wait(START_SECONDS)


def wait_for(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port)):
            return
        time.sleep(0.05)
    raise TimeoutError("the server does not listen")


def request(method: str, stream: str, name: str, key: str, body: bytes) -> bytes:
    keyed = f"Idempotency-Key: {key}\r\n" if key else ""
    return (
        f"{method} /v1/stream/{stream} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token(name)}\r\n"
        f"Content-Type: text/plain\r\nContent-Length: {len(body)}\r\n{keyed}\r\n"
    ).encode() + body


def append_all(port: int, seconds: float) -> list[float]:
    """The appends of the other principal; the milliseconds of each."""
    taken = []
    number, until = 0, time.monotonic() + seconds
    with socket.create_connection((HOST, port)) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while time.monotonic() < until:
            number += 1
            began = time.perf_counter()
            line.sendall(request("POST", "other", "other", f"{began:.9f}-{number}", BODY))
            answer = line.recv(65_536)
            taken.append((time.perf_counter() - began) * 1_000)
            assert b" 204 " in answer, answer
            time.sleep(PAUSE_SECONDS)
    return taken


class FloodLine(asyncio.Protocol):
    """A connection that sends at a rate, and reads and drops every answer."""

    transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None

    def send(self, data: bytes) -> bool:
        if self.transport is None or self.transport.get_write_buffer_size() > UNSENT_BYTES:
            return False
        self.transport.write(data)
        return True


def flood(port: int, orders: Connection) -> None:
    """Flood for as many seconds as is ordered each time, and tell the requests a second that were wanted.

    Its process gives way to the others: a flood comes from another machine.
    """
    os.nice(10)
    while (seconds := orders.recv()) > 0:
        orders.send(asyncio.run(flooding(port, seconds)))


async def flooding(port: int, seconds: float) -> float:
    loop = asyncio.get_running_loop()
    lines = [(await loop.create_connection(FloodLine, HOST, port))[1] for _ in range(LINES)]
    began, wanted = loop.time(), 0
    while (now := loop.time()) < began + seconds:
        while wanted < (now - began) * QUOTA * TIMES:
            wanted += 1
            line = lines[wanted % LINES]
            if line.transport is None:
                lines[wanted % LINES] = (await loop.create_connection(FloodLine, HOST, port))[1]
            line.send(request("POST", "flood", "flood", f"{began:.6f}-{wanted:08}", BODY))
        await asyncio.sleep(TICK_SECONDS)
    for line in lines:
        if line.transport is not None:
            line.transport.abort()
    return wanted / seconds


def measure(port: int, seconds: float, orders: Connection | None) -> Round:
    """One round, with a flood if there are orders to give."""
    if orders is not None:
        orders.send(seconds + 1)
        time.sleep(0.5)
    taken = sorted(append_all(port, seconds))
    offered = 0.0 if orders is None else orders.recv()
    time.sleep(0.5)
    return Round(statistics.median(taken), taken[int(len(taken) * 0.99)], offered)


def run(rounds: int, seconds: float, *, has_quota: bool) -> tuple[list[Round], list[Round]]:
    """Alternating rounds against one server: the quiet ones and the flooded ones."""
    context = multiprocessing.get_context("spawn")
    with serving(has_quota=has_quota) as port:
        own, theirs = context.Pipe()
        process = context.Process(target=flood, args=(port, theirs), daemon=True)
        process.start()
        append_all(port, 1.0)
        quiet, loud = [], []
        for _ in range(rounds):
            quiet.append(measure(port, seconds, None))
            loud.append(measure(port, seconds, own))
        own.send(0)
        process.join(START_SECONDS)
    return quiet, loud


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    print("| server | quiet p50, p99 | flooded p50, p99 | p99 flooded / quiet, median of rounds |")
    print("|---|---|---|---|")
    for has_quota in (True, False):
        quiet, loud = run(options.rounds, options.seconds, has_quota=has_quota)
        ratio = statistics.median(b.p99 / a.p99 for a, b in zip(quiet, loud, strict=True))
        shown = [
            f"{statistics.median(getattr(one, name) for one in some):.2f}"
            for some in (quiet, loud)
            for name in ("p50", "p99")
        ]
        name = f"quota of {QUOTA} a second" if has_quota else "no quota"
        print(f"| {name} | {shown[0]}, {shown[1]} ms | {shown[2]}, {shown[3]} ms | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
