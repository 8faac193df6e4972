"""Every store gives the same answers to the same generated conversations, and holds the same rows in the end.

The stores are memory, SQLite, and PostgreSQL behind two nodes, which the requests take in turn. Promises are tested on
SQLite alone: this is what says that they hold on the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.harness.conversations import CONNECTIONS, conversation
from tests.harness.nodes import Nodes
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import HOST, RunningServer
from tests.harness.together import Servers, check_log, eventually
from tests.stores.calls import LISTS, Call, calls
from tests.stores.party import Party
from tests.stores.rows import Row, Rows, rows_of

SEEDS = range(3)
CALLS = 600
TABLES_IN_USE = 35
ENV = {
    # A long poll that finds nothing ends at once, and a failed job waits until the conversation is over.
    "SEMEL_STREAMS_LONG_POLL_MS": "50",
    "SEMEL_JOBS_RETRY_BACKOFF_BASE_MS": "3600000",
    "SEMEL_JOBS_RETRY_BACKOFF_CAP_MS": "3600000",
}


class House(NamedTuple):
    """A store with its servers and its client."""

    store: str
    url: str
    server: Servers
    party: Party


def housed(folder: Path) -> Iterator[House]:
    """A house for each store, not started."""
    urls = {"memory": "memory:", "sqlite": f"sqlite:{folder / 'sqlite'}", "postgres": fresh_url(lanes="3")}
    for store, url in urls.items():
        env = ENV | {"SEMEL_STORE": url}
        server: Servers
        if store == "postgres":
            server = Nodes(folder / store, 2, env=env)
            ports = [node.port for node in server.each]
        else:
            server = RunningServer(folder / store, env=env)
            ports = [server.port]
        yield House(store, url, server, Party(*ports))


@pytest.fixture
def houses(tmp_path: Path) -> Iterator[list[House]]:
    """All of them, started."""
    built = list(housed(tmp_path))
    with ExitStack() as stack:
        for house in built:
            stack.enter_context(house.server)
            stack.callback(house.party.close)
        yield built
    for house in built:
        check_log(house.server)


def check_equal(told: dict[str, str], what: str) -> None:
    """What the stores' servers have told is one thing."""
    first = told["sqlite"]
    for store, other in told.items():
        assert other == first, f"{store} and sqlite differ about {what}"


@pytest.mark.parametrize("seed", SEEDS)
def test_stores_answer_alike(houses: list[House], seed: int) -> None:
    steps, before = conversation(seed, CALLS), [counted(house) for house in houses[:2]]
    for number, call in enumerate(calls(seed, CALLS)):
        told = {house.store: house.party.ask(call, number % CONNECTIONS) for house in houses}
        check_equal(told, f"call {number} of seed {seed}: {call}")
        if number % 3 == 0:
            step = next(steps)
            told = {house.store: "\n".join(house.party.play(step)) for house in houses}
            check_equal(told, f"the step after call {number} of seed {seed}: {step.data[:300]!r}")
    for path in LISTS:
        check_equal({house.store: house.party.ask(Call("GET", path), 0) for house in houses}, path)
    for house in houses:
        assert len(set(house.party.ids)) == len(house.party.ids), "request ids are unique"
    in_memory, on_disk = (counted(house) - old for house, old in zip(houses[:2], before, strict=True))
    assert in_memory == on_disk, "answers are counted alike"
    check_rows({house.store: house.url for house in houses if house.store != "memory"})


def counted(house: House) -> Counter[str]:
    """The answers of one server by surface, method and status."""
    found: dict[str, float] = httpx.get(f"http://{HOST}:{house.server.port}/metrics").json()
    return Counter({name: int(value) for name, value in found.items() if "http_requests" in name})


def check_rows(urls: dict[str, str]) -> None:
    """The rows of the stores that outlive their processes are the same, as soon as the sweepers have freed theirs."""
    found: list[Rows] = []

    def is_equal() -> bool:
        found[:] = [rows_of(url) for url in urls.values()]
        return found[0] == found[1]

    with suppress(AssertionError):
        eventually(is_equal, "equal rows")
    first, second = found
    assert sum(map(bool, first.values())) > TABLES_IN_USE, "the conversation uses most tables"
    differing = {part: difference(rows, second[part]) for part, rows in first.items() if rows != second[part]}
    assert not differing, f"rows of {' and '.join(urls)} differ: {differing}"


def difference(some: Counter[Row], others: Counter[Row]) -> list[object]:
    """The rows that only one has, or the columns by which they differ, if they are as many."""
    left, right = sorted((some - others).elements(), key=repr), sorted((others - some).elements(), key=repr)
    if len(left) != len(right):
        return [left, right]
    return [
        (one, other) for pair in zip(left, right, strict=True) for one, other in zip(*pair, strict=True) if one != other
    ]
