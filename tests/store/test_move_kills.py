"""Moves of keys out of memory in a real server that is killed with SIGKILL at each step of one."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from semel.store.open import file_flaws
from semel.surfaces.schema import TABLES
from tests.harness.serve_with_faults import MOVE_STEPS
from tests.harness.server import RunningServer

FEW_KEYS = {"SEMEL_SQLITE_KEY_INDEX_BYTES": "1024"}
BEFORE, AFTER = 120, 60
STREAM = "/v1/stream/moved"


def append(http: httpx.Client, number: int) -> tuple[str, bool]:
    """One keyed append: the offset behind it, and whether it was answered from a receipt."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": f"k{number}"}
    answer = http.post(STREAM, json={"n": number}, headers=headers)
    answer.raise_for_status()
    return answer.headers["Stream-Next-Offset"], answer.headers.get("Idempotency-Replayed") == "true"


def disk_keys(http: httpx.Client) -> int:
    """The keys that have left memory, as the metrics tell."""
    return int(http.get("/metrics").json()["semel_store_index_keys{place=disk}"])


@pytest.mark.parametrize("step", MOVE_STEPS)
def test_a_kill_in_a_move_loses_and_doubles_nothing(tmp_path: Path, step: str) -> None:
    server = RunningServer(tmp_path / "data", env=FEW_KEYS)
    told: dict[int, str] = {}
    with httpx.Client(base_url=server.url, timeout=30) as http:
        with server:
            http.put(STREAM, headers={"Content-Type": "application/json"}).raise_for_status()
            for number in range(BEFORE):
                told[number], _ = append(http, number)
            assert disk_keys(http) > 0
        server.start({"SEMEL_CRASH_MOVE": step})
        with suppress(httpx.TransportError):
            for number in range(BEFORE, BEFORE + AFTER):
                told[number], _ = append(http, number)
        assert server.wait_for_death(30) == -9
        with server:
            for number, offset in told.items():
                assert append(http, number) == (offset, True), "a duplicate is answered from its receipt"
            for number in range(len(told), BEFORE + AFTER):
                append(http, number)
            stored = http.get(STREAM, params={"offset": "-1"}).json()
            assert [message["n"] for message in stored] == list(range(BEFORE + AFTER))
            assert disk_keys(http) > BEFORE
            assert list(file_flaws(f"sqlite:{server.data}", TABLES)) == []
