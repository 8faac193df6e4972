"""`make bench WHAT=memory`: ten thousand idle readers in bounded memory, and a bounded queue in front of a slow disk.

Exit code 1 when a bound does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx

from tests.harness.server import RunningServer

STREAM = "/v1/stream/crowd"
LIMIT_MIB = 1024
QUEUE_WRITES = 256
WRITERS = 1_000
SLOW_MS = 250


def resident_mib(pid: int) -> float:
    """Memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("the server has gone")


def idle_readers(folder: Path, count: int) -> bool:
    """Open the readers, look at the server's memory, wake them all once."""
    calm = {"SEMEL_STREAMS_SSE_MAX_MS": "600000"}
    with RunningServer(folder / "readers", env=calm) as server:
        httpx.put(server.url + STREAM, headers={"Content-Type": "text/plain"}).raise_for_status()
        before = resident_mib(server.pid)
        command = [sys.executable, "-m", "bench.idle_readers", "--port", str(server.port)]
        command += ["--path", STREAM, "--readers", str(count)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as readers:
            assert readers.stdout is not None
            opened = readers.stdout.readline().strip()
            during = resident_mib(server.pid)
            began = time.perf_counter()
            httpx.post(server.url + STREAM, content="x", headers={"Content-Type": "text/plain"}).raise_for_status()
            woken = readers.stdout.readline().strip()
            seconds = time.perf_counter() - began
            after = resident_mib(server.pid)
            assert readers.stdin is not None
            readers.stdin.close()
    each = (during - before) * 1024 / count
    print(f"idle readers: {opened}; server {before:.0f} MiB before, {during:.0f} MiB with them ({each:.1f} KiB each)")
    print(f"one append:   {woken} readers in {seconds:.1f} s; {after:.0f} MiB afterwards; bound {LIMIT_MIB} MiB")
    return max(during, after) < LIMIT_MIB


def slow_disk(folder: Path) -> bool:
    """More writers than the queue takes, against commits that are slow."""
    slow = {"SEMEL_COMMIT_DELAY_MS": str(SLOW_MS), "SEMEL_QUEUE_WRITES": str(QUEUE_WRITES), "SEMEL_BATCH_WRITES": "64"}
    with RunningServer(folder / "slow", env=slow) as server:
        httpx.put(server.url + STREAM, headers={"Content-Type": "text/plain"}).raise_for_status()
        before = resident_mib(server.pid)
        statuses, longest, refused_with_advice = asyncio.run(_crowd_of_writers(server.url))
        after = resident_mib(server.pid)
        stored = len(httpx.get(server.url + STREAM).content)
    print(
        f"slow disk:    {WRITERS} writers at once, commits {SLOW_MS} ms slower: {dict(statuses)}; "
        f"queue at most {longest:.0f} of {QUEUE_WRITES}; server {before:.0f} then {after:.0f} MiB"
    )
    print(f"              {stored} bytes stored by {statuses[204]} one-byte appends; {statuses[503]} refused")
    return longest <= QUEUE_WRITES and statuses[503] > 0 and refused_with_advice and stored == statuses[204]


async def _crowd_of_writers(url: str) -> tuple[Counter[int], float, bool]:
    limits = httpx.Limits(max_connections=WRITERS + 1)
    statuses: Counter[int] = Counter()
    advised = True
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as http:

        async def write() -> None:
            nonlocal advised
            answer = await http.post(STREAM, content=b"x", headers={"Content-Type": "text/plain"})
            statuses[answer.status_code] += 1
            if answer.status_code == 503:
                advised = advised and "Retry-After" in answer.headers and answer.json()["code"] == "OVERLOADED"

        await asyncio.gather(*(write() for _ in range(WRITERS)))
        longest: float = (await http.get("/metrics")).json()["semel_engine_queue_most_writes"]
    return statuses, longest, advised


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readers", type=int, default=10_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        held = [idle_readers(Path(folder), asked.readers), slow_disk(Path(folder))]
    sys.exit(0 if all(held) else 1)


if __name__ == "__main__":
    main()
