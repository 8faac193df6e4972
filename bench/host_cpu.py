"""CPU of one request in the server's process, this tree beside another revision, alternating on the same machine.

Four kinds: the bare host (`bench/noop_server.py`), `GET /livez`, a keyed append that is on disk before its answer, and
the retry of one, which is answered from its receipt.
The other revision is checked out into a temporary worktree. CPU is that of every thread of the server, user and
system, from the scheduler's own counters; read the ratios, not the figures.

    python -m bench.host_cpu --against HEAD~1
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
HOST = "127.0.0.1"
CONNECTIONS = 64
START_SECONDS = 60.0
BODY = b'{"content":"' + b"x" * 186 + b'"}'


class Kind(NamedTuple):
    """What is asked for."""

    name: str
    is_bare: bool
    request: Callable[[int], bytes]
    status: bytes


def _head(line: str, *headers: str) -> bytes:
    return "\r\n".join((f"{line} HTTP/1.1", f"Host: {HOST}", "User-Agent: bench", *headers, "", "")).encode()


def append(number: int) -> bytes:
    """A keyed append; no key comes twice."""
    key = f"Idempotency-Key: {os.getpid()}-{number:012}"
    return _head("POST /v1/stream/s", "Content-Type: application/json", key, f"Content-Length: {len(BODY)}") + BODY


def retry(number: int) -> bytes:
    """An append under one of a thousand keys: nearly all of them are retries."""
    key = f"Idempotency-Key: retried-{number % 1_000:06}"
    return _head("POST /v1/stream/s", "Content-Type: application/json", key, f"Content-Length: {len(BODY)}") + BODY


def livez(number: int) -> bytes:
    """The cheapest request that the application answers."""
    return _head("GET /livez")


KINDS = (
    Kind("bare host", True, append, b"204"),
    Kind("GET /livez", False, livez, b"200"),
    Kind("keyed append", False, append, b"204"),
    Kind("retried append", False, retry, b"204"),
)


class Server:
    """A server of one tree, in a process of its own."""

    def __init__(self, tree: Path, folder: Path, *, is_bare: bool) -> None:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            self.port: int = probe.getsockname()[1]
        data = tempfile.mkdtemp(dir=folder)
        bare = ["-m", "bench.noop_server", "--port", str(self.port)]
        served = ["-m", "semel", "serve", "--port", str(self.port), "--data", data, "--ledger-grpc-port", "0"]
        env = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}", "SEMEL_LOG_LEVEL": "error"}
        command = [sys.executable, *(bare if is_bare else served)]
        self._process = subprocess.Popen(command, cwd=tree, env=env, stdout=subprocess.DEVNULL)
        self._await()

    def _await(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection((HOST, self.port), 1).close()
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
                time.sleep(0.05)
            else:
                return

    def cpu_ns(self) -> int:
        """What its threads have used so far."""
        tasks = Path(f"/proc/{self._process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(30)


def load(server: Server, kind: Kind, requests: int, numbers: Iterator[int]) -> float:
    """Send requests over two groups of connections; microseconds of CPU that one took.

    One group has its requests under way while the answers of the other are read, so that the server has always work:
    else the faster one of two servers would sleep more often, and pay for that.
    """
    turns = requests // CONNECTIONS
    with ExitStack() as stack:
        groups = [
            [stack.enter_context(socket.create_connection((HOST, server.port), 30)) for _ in range(CONNECTIONS)]
            for _ in range(2)
        ]
        before = server.cpu_ns()
        for turn in range(turns + 1):
            if turn < turns:
                send(groups[turn % 2], kind, numbers)
            if turn > 0:
                receive(groups[(turn - 1) % 2], kind)
        return (server.cpu_ns() - before) / (turns * CONNECTIONS) / 1_000


def send(callers: Iterable[socket.socket], kind: Kind, numbers: Iterator[int]) -> None:
    """One request on each connection."""
    for caller in callers:
        caller.sendall(kind.request(next(numbers)))


def receive(callers: Iterable[socket.socket], kind: Kind) -> None:
    """One answer on each; an unexpected one ends the run."""
    for caller in callers:
        answer = caller.recv(65_536)
        if answer[9:12] != kind.status:
            raise RuntimeError(answer.decode("latin-1"))


def create(server: Server) -> None:
    """The stream that is appended to."""
    with socket.create_connection((HOST, server.port), 30) as caller:
        caller.sendall(_head("PUT /v1/stream/s", "Content-Type: application/json", "Content-Length: 0"))
        caller.recv(65_536)


@contextmanager
def checked_out(revision: str, folder: Path) -> Iterator[Path]:
    """A worktree of another revision, with the generated code of this one."""
    place = folder / "against"
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", place, revision], cwd=ROOT, check=True)
    try:
        for made in (ROOT / "src").rglob("*_pb2.py*"):
            described = made.name.partition("_pb2")[0] + ".proto"  # wherever that revision has it
            for other in (place / "src").rglob(described):
                shutil.copy(made, other.parent / made.name)
        yield place
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", place], cwd=ROOT, check=False)


def compare(kind: Kind, trees: dict[str, Path], folder: Path, requests: int, rounds: int) -> None:
    """Measure both trees in turn."""
    numbers = itertools.count()
    servers = {name: Server(tree, folder, is_bare=kind.is_bare) for name, tree in trees.items()}
    try:
        taken: dict[str, list[float]] = {name: [] for name in servers}
        for turn in range(rounds + 1):
            for name, server in servers.items():
                if turn == 0 and not kind.is_bare:
                    create(server)
                micros = load(server, kind, requests, numbers)
                if turn:  # the first is for warming up
                    taken[name].append(micros)
        show(kind, taken)
    finally:
        for server in servers.values():
            server.stop()


def show(kind: Kind, taken: dict[str, list[float]]) -> None:
    """Medians and the least of each tree, and the median of the ratios of a round with its quartiles."""
    ratios = sorted(this / against for this, against in zip(taken["this"], taken["against"], strict=True))
    low, middle, high = statistics.quantiles(ratios, n=4)
    for name, micros in taken.items():
        print(f"{kind.name:14} {name:8} median {statistics.median(micros):6.1f} us  least {min(micros):6.1f} us")
    print(f"{kind.name:14} ratio    median {middle:.3f} ({low:.3f} to {high:.3f})", flush=True)


def main() -> None:
    """Compare every kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", default="HEAD", help="the other revision")
    parser.add_argument("--requests", type=int, default=3_200, help="of a round")
    parser.add_argument("--rounds", type=int, default=25, help="short and many, because a machine is never quiet")
    parser.add_argument("--only", default="", help="words in the name of a kind")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        with checked_out(asked.against, folder) as other:
            for kind in KINDS:
                if asked.only in kind.name:
                    compare(kind, {"against": other, "this": ROOT}, folder, asked.requests, asked.rounds)


if __name__ == "__main__":
    main()
