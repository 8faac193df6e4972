"""Joined requests of FastAPI on real servers that are killed (-9): what a client was told is stored, or is not told."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import psycopg
import pytest

from semel import once
from tests.harness.guardian import guard
from tests.harness.server import HOST, free_port
from tests.harness.together import eventually
from tests.once.conftest import fresh_schema
from tests.once.joined_service import CONTENT, POINTS

ROOT = Path(__file__).parent.parent.parent


class JoinedShop:
    """The service on PostgreSQL, which is started again when it has died."""

    def __init__(self, server: str, scope: str, folder: Path) -> None:
        guard()
        self.scope = scope
        self.database = fresh_schema()
        with psycopg.connect(self.database, autocommit=True) as connection:
            connection.execute(b"CREATE TABLE orders (name text UNIQUE DEFERRABLE INITIALLY DEFERRED)")
            connection.execute(once.ddl("postgresql").encode())
        address = self.database.replace("postgresql://", "postgresql+psycopg://")
        self._words = [server, "{port}", address, str(folder / "receipts.db"), scope]
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self) -> None:
        """Start it on a new port, and wait until it listens."""
        port = free_port()
        self.url = f"http://{HOST}:{port}"
        words = [word.format(port=port) for word in self._words]
        self._process = subprocess.Popen([sys.executable, "-m", "tests.once.joined_service", *words], cwd=ROOT)
        eventually(self._listens, "the shop listens")

    def stop(self) -> None:
        """End it, and the workers that a server may have."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(25)

    def order(self, name: str, die: str = "", **headers: str) -> tuple[int, object]:
        """Place an order under its name; what the client is told. A server that dies is started again."""
        named = {"Idempotency-Key": name, "X-Die": die, **headers}
        told: tuple[int, object] = (0, None)
        with suppress(httpx.TransportError):
            answer = httpx.post(f"{self.url}/orders", params={"name": name}, headers=named, timeout=25)
            told = answer.status_code, answer.json() if answer.status_code == 201 else None
        if die:
            assert self._process is not None
            self._process.wait(25)
            self.start()
        return told

    def orders(self, name: str) -> int:
        """How often it was placed."""
        with psycopg.connect(self.database) as connection:
            row = connection.execute("SELECT count(*) FROM orders WHERE name = %s", (name,)).fetchone()
            return int(row[0]) if row else 0

    def _listens(self) -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(self.url).status_code == 200
        assert self._process is not None
        assert self._process.poll() is None, "it ended"
        return False


@pytest.fixture(params=["uvicorn function", "uvicorn request", "granian request"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JoinedShop]:
    """On each server, with a session of each scope."""
    server, _, scope = request.param.partition(" ")
    made = JoinedShop(server, scope, tmp_path)
    made.start()
    yield made
    made.stop()


def test_what_a_client_was_told_is_stored_wherever_the_server_dies(shop: JoinedShop) -> None:
    for point in POINTS:
        name = f"died {point}"
        told = [shop.order(name, point), shop.order(name), shop.order(name)]
        assert told[1][0] == 201, (point, told)
        assert {answer[0]: answer for answer in told if answer[0]} == {201: told[1]}, (point, told)
        assert shop.orders(name) == 1, point


def test_a_commit_that_fails_behind_the_answer_is_a_failure_and_the_retry_runs(shop: JoinedShop) -> None:
    assert shop.order("o", **{"X-Fail": "1"}) == (500, None)
    assert shop.orders("o") == 0
    first, again = shop.order("o"), shop.order("o")
    assert (first[0], again) == (201, first)
    assert shop.orders("o") == 1


def test_files_and_streams_take_effect_once_and_arrive_whole(shop: JoinedShop) -> None:
    with httpx.Client(base_url=shop.url, headers={"Idempotency-Key": "k"}, timeout=25) as client:
        first, again = client.post("/file"), client.post("/file")
        assert (first.status_code, first.content) == (200, CONTENT)
        assert (again.content, again.headers["idempotency-replayed"]) == (CONTENT, "true")
        for name in ("content-disposition", "content-type", "etag", "last-modified", "content-length"):
            assert first.headers[name] == again.headers[name]
        key = {"Idempotency-Key": "stream"}
        with client.stream("POST", "/events", headers=key) as stream:
            assert next(stream.iter_raw()) == b"data: 1\n\n"  # it comes while the handler still runs
        refused = client.post("/events", headers=key)
        assert (refused.status_code, refused.json()["code"]) == (409, "answer_not_stored")
        joined = client.post("/joined-events", headers={"Idempotency-Key": "joined"})
        assert joined.status_code == (200 if shop.scope == "function" else 500)
