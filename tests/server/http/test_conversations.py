"""Two servers give the same answers to the same generated requests, whether their stores are on disk or in memory."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.harness.conversations import Caller, conversation
from tests.harness.server import RunningServer

SEEDS = range(3)
STEPS = 200


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, RunningServer]]:
    folder = tmp_path_factory.mktemp("pair")
    # A long poll that finds nothing ends at once.
    env = {"SEMEL_STREAMS_LONG_POLL_MS": "100"}
    with (
        RunningServer(folder / "sqlite", env=env) as on_disk,
        RunningServer(folder / "memory", env={**env, "SEMEL_STORE": "memory:"}) as in_memory,
    ):
        yield on_disk, in_memory


def counted(server: RunningServer) -> Counter[str]:
    """The answers by surface, method and status."""
    with urllib.request.urlopen(f"{server.url}/metrics") as answer:
        found: dict[str, float] = json.loads(answer.read())
    return Counter({name: int(value) for name, value in found.items() if "http_requests" in name})


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_requests_get_the_same_answers(servers: tuple[RunningServer, RunningServer], seed: int) -> None:
    before = [counted(server) for server in servers]
    callers = [Caller(server.port) for server in servers]
    statuses: Counter[str] = Counter()
    try:
        for number, step in enumerate(conversation(seed, STEPS)):
            first, second = (caller.play(step) for caller in callers)
            assert second == first, f"seed {seed}, step {number}: {step.data[:300]!r}"
            statuses.update(answer[:12] for answer in first)
    finally:
        for caller in callers:
            caller.close()
    assert not any(status.startswith("HTTP/1.1 5") for status in statuses), statuses
    for caller in callers:
        assert len(set(caller.ids)) == len(caller.ids), "request ids are unique"
    assert statuses["HTTP/1.1 204"] > STEPS // 8, statuses
    assert len(statuses) >= 6, statuses
    on_disk, in_memory = (counted(server) - old for server, old in zip(servers, before, strict=True))
    assert on_disk == in_memory
