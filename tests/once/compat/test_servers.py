"""FastAPI and Flask under each server: the script, a blocked worker, a killed worker, a graceful stop."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.harness.postgres.shared import shared_cluster
from tests.harness.together import eventually
from tests.once.compat.places import found_at, postgres_place, runs_beside, sqlite_place
from tests.once.compat.run import play_row
from tests.once.compat.servers import SERVERS, SHORT_LEASE, Kind, Server, ServerRow

BESIDE = 3
AT_ONCE = 4


def pid_of(server: Server, key: str) -> int:
    """The worker that runs a key."""
    place = runs_beside(server.place) if server.kind.is_sqlite else server.place
    [(pid,)] = found_at(place, f"SELECT pid FROM runs WHERE key = '{key}'")
    assert isinstance(pid, int)
    return pid


def block_a_worker(row: ServerRow, key: str) -> None:
    """Block a worker for longer than its lease, beside other calls of its key: they wait, and nothing runs twice."""
    with ThreadPoolExecutor() as pool:
        first = pool.submit(row.post, key, {"X-Block": f"{1.5 * SHORT_LEASE}", "X-Spin": "1"})
        eventually(lambda: row.runs(key) == 1, "the work has begun")
        others = [pool.submit(row.call, key) for _ in range(BESIDE)]
        assert {other.result() for other in others} == {first.result()}
    assert (row.runs(key), row.effects(key)) == (1, 1)


def kill_a_worker(server: Server, row: ServerRow, key: str) -> None:
    """Kill a worker between its effect and its commit: the retry runs, and one effect is there."""
    with ThreadPoolExecutor() as pool:
        lost = pool.submit(row.post, key, {"X-Block": "20"})
        eventually(lambda: row.runs(key) == 1, "the work has begun")
        os.kill(pid_of(server, key), signal.SIGKILL)
        with pytest.raises(httpx.TransportError):
            lost.result()
    found = row.call(key)
    assert (row.call(key), row.effects(key), row.runs(key)) == (found, 1, 2)


def stop_gracefully(server: Server, row: ServerRow, key: str) -> None:
    """Stop the server while a request runs: the request is answered, and its answer is that of the next server."""
    with ThreadPoolExecutor() as pool:
        last = pool.submit(row.post, key, {"X-Block": "0.5"})
        eventually(lambda: row.runs(key) == 1, "the work has begun")
        assert server.stop() == 0, server.log.read_text()
        answer = last.result()
    server.start(SHORT_LEASE)
    row.reconnect()
    assert (row.call(key), row.effects(key), row.runs(key)) == (answer, 1, 1)


def try_server(kind: Kind, folder: Path) -> None:
    """Everything that is asked of a server."""
    place = sqlite_place(folder) if kind.is_sqlite else postgres_place(shared_cluster().url)
    with Server(kind, place, folder / "log") as server:
        for path in kind.paths:
            row = ServerRow(server, path)
            play_row(row, path)
            assert row.is_stored(f"{path}-one")
            row.close()
        row = ServerRow(server, kind.paths[-1])
        stop_gracefully(server, row, "stopped")
        block_a_worker(row, "blocked")
        kill_a_worker(server, row, "killed")
        row.close()


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[None]]]:
    """All servers, a few beside one another: most of their time is leases and pauses."""
    shared_cluster()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(try_server, kind, tmp_path_factory.mktemp("server")) for name, kind in SERVERS.items()}


@pytest.mark.parametrize("name", SERVERS)
def test_a_server(tried: dict[str, Future[None]], name: str) -> None:
    tried[name].result()
