"""A server with fronts answers as one without: the same generated requests, the same answers."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.harness.server import RunningServer
from tests.server.fronts.requests import Caller, conversation

FRONTS = 2
SEEDS = range(6)
STEPS = 200


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, RunningServer]]:
    folder = tmp_path_factory.mktemp("pair")
    # A long poll that finds nothing ends at once.
    env = {"SEMEL_STREAMS_LONG_POLL_MS": "100"}
    with (
        RunningServer(folder / "alone", env={**env, "SEMEL_FRONTS": "0"}) as alone,
        RunningServer(folder / "fronted", env={**env, "SEMEL_FRONTS": str(FRONTS)}) as fronted,
    ):
        yield alone, fronted


def metrics(server: RunningServer) -> dict[str, float]:
    with urllib.request.urlopen(f"{server.url}/metrics") as answer:
        found: dict[str, float] = json.loads(answer.read())
    return found


def counted(server: RunningServer) -> Counter[str]:
    """The answers by surface, method and status."""
    return Counter({name: int(value) for name, value in metrics(server).items() if "http_requests" in name})


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_requests_get_the_same_answers(servers: tuple[RunningServer, RunningServer], seed: int) -> None:
    alone, fronted = servers
    before = counted(alone), counted(fronted)
    callers = Caller(alone.port), Caller(fronted.port)
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
    prefixes = Counter(one.partition("-")[0] for one in callers[1].ids)
    assert 1 < len(prefixes) <= 1 + FRONTS, "fronts have answered plain appends themselves, and the writer the others"
    assert sum(sorted(prefixes.values())[:-1]) >= 5, prefixes
    assert statuses["HTTP/1.1 204"] > STEPS // 8, statuses
    assert len(statuses) >= 6, statuses
    after = counted(alone), counted(fronted)
    assert after[1] - before[1] == after[0] - before[0], "the counts of answers are those of all fronts"
    assert metrics(fronted)["semel_http_front_ends_total"] == 0
