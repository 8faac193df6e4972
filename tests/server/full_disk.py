"""A real server on a disk that is really full: `unshare -rm python -m tests.server.full_disk FOLDER stop|kill`.

The disk is a small file system in memory, which nobody but this process and its children sees. It fails by raising.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tests.cli.command import Semel
from tests.harness.known import KnownAnswer, KnownRequest, known_requests, send
from tests.harness.server import READY_SECONDS, RunningServer
from tests.harness.together import eventually

DISK_BYTES = 48 * 1024 * 1024
TOKEN = "a-token-of-forty-characters-for-this-test"
ENV = {"SEMEL_READY_FREE_BYTES": "0", "SEMEL_TOKEN_ACTIVE": TOKEN, "SEMEL_ACCESS_LOG": "1"}
TEXT = {"Content-Type": "text/plain"}
RESTARTS = 3


class FullDisk:
    """A disk of its own at a folder, and what fills it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)], check=True)
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Take every byte that is left."""
        with self._ballast.open("ab", buffering=0) as out:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while True:
                        out.write(bytes(size))
                except OSError:
                    continue

    def free(self) -> None:
        """Give all of it back."""
        self._ballast.unlink()


class Site:
    """The server, its client, and writes that were answered before the disk was full."""

    def __init__(self, folder: Path) -> None:
        self.disk = FullDisk(folder / "data")
        self.server = RunningServer(folder / "data", env=ENV)
        self.server.start()
        self.http = httpx.Client(base_url=self.server.url, timeout=30, headers={"Authorization": f"Bearer {TOKEN}"})
        self.http.put("/v1/stream/late", headers=TEXT).raise_for_status()
        self.requests: list[KnownRequest] = known_requests(self.http)
        for one in self.requests:
            assert send(self.http, one).status < 300, one
        self.answers: list[KnownAnswer] = [send(self.http, one) for one in self.requests]

    def launch(self) -> None:
        """Start the server, which is not ready, and wait until it lives."""
        self.server.launch({})
        deadline = time.monotonic() + READY_SECONDS
        while not self._lives():
            assert time.monotonic() < deadline, self.server.output_tail()
            time.sleep(0.05)

    def _lives(self) -> bool:
        try:
            return self.http.get("/livez").status_code == 200
        except httpx.TransportError:
            return False

    def append(self) -> httpx.Response:
        """A new write, under the same key each time."""
        return self.http.post("/v1/stream/late", content="late\n", headers=TEXT | {"Idempotency-Key": "late"})

    def reasons(self) -> list[str]:
        told: dict[str, Any] = self.http.get("/readyz").json()
        return [one["reason"] for one in told.get("reasons", ())]

    def check_known(self) -> None:
        """Reads and replays are as they were."""
        assert [send(self.http, one) for one in self.requests] == self.answers
        assert self.http.get("/v1/stream/known").text == "once\nproduced\n"

    def check_refused(self) -> None:
        """A new write is refused, and stops nothing."""
        for _ in range(2):
            refused = self.append()
            assert (refused.status_code, refused.json()["code"]) == (503, "NOT_STORED"), refused.text
        assert self.reasons() == ["disk full"]


def run(folder: Path, end: str) -> None:
    """Fill the disk while no server runs, start again and again, and free it while the last one runs."""
    site = Site(folder)
    ends: dict[str, Callable[[], object]] = {"stop": site.server.stop, "kill": site.server.kill}
    ends[end]()
    for _ in range(RESTARTS):
        site.disk.fill()
        site.launch()
        site.check_known()
        site.check_refused()
        site.check_known()
        ends[end]()
    site.disk.fill()
    site.launch()
    site.check_refused()
    site.disk.free()
    eventually(lambda: site.reasons() == [], "the server is ready again by itself")
    eventually(lambda: site.append().status_code == 204, "and takes writes")
    assert site.append().headers["Idempotency-Replayed"] == "true"
    site.check_known()
    assert "ledger open" in site.server.output_tail(), "the term of this start is stored before any block of it"
    site.server.stop()
    checked = Semel("http://127.0.0.1:1").here("check", "--data", str(folder / "data"))
    assert checked.code == 0, checked.out


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2])
