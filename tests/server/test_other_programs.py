"""Other programs that change the database file of a real server: no retry may be taken for a new write."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.cli.command import Semel
from tests.harness.known import KnownAnswer, KnownRequest, known_requests, send
from tests.harness.server import STOP_SECONDS, RunningServer

TEXT = {"Content-Type": "text/plain"}
ADD_ROW = "INSERT INTO event_id (key, committed_id, committed_at, digest) VALUES (x'00', 1, 1, x'')"
RUN = "import sqlite3, sys\nfor one in sys.argv[2:]: sqlite3.connect(sys.argv[1], isolation_level=None).execute(one)"


class Known(NamedTuple):
    """Writes on every surface, and what their repetitions get."""

    requests: Sequence[KnownRequest]
    answers: Sequence[KnownAnswer]

    def check(self, http: httpx.Client) -> None:
        """Each repetition gets the first answer again."""
        assert [send(http, one) for one in self.requests] == self.answers


def run_sql(data: Path, *statements: str) -> None:
    """Run statements in a process of their own, as the `sqlite3` shell does."""
    subprocess.run([sys.executable, "-c", RUN, str(data / "semel.db"), *statements], check=True, timeout=60)


def append(http: httpx.Client) -> httpx.Response:
    """One more write, to a stream of its own, under the same key each time."""
    return http.post("/v1/stream/late", content="late\n", headers=TEXT | {"Idempotency-Key": "late"})


@contextmanager
def used(data: Path) -> Iterator[tuple[RunningServer, httpx.Client, Known]]:
    """A server that has been written to on all surfaces; its store must be clean in the end."""
    with RunningServer(data) as server, httpx.Client(base_url=server.url, timeout=30) as http:
        http.put("/v1/stream/late", headers=TEXT).raise_for_status()
        requests = known_requests(http)
        for one in requests:
            assert send(http, one).status < 300
        yield server, http, Known(requests, [send(http, one) for one in requests])
    checked = Semel("http://127.0.0.1:1").here("check", "--data", str(data))
    assert checked.code == 0, checked.out


@pytest.mark.parametrize(("change", "mend"), [("VACUUM", ()), (ADD_ROW, ("DELETE FROM event_id WHERE key = x'00'",))])
def test_a_change_beside_the_server_stops_it_and_a_start_repeats_every_answer(
    change: str, mend: Sequence[str], tmp_path: Path
) -> None:
    with used(tmp_path / "data") as (server, http, known):
        run_sql(server.data, change)
        refused = append(http)
        assert (refused.status_code, refused.json()["code"]) == (503, "NOT_STORED"), refused.text
        assert server.wait_for_death(STOP_SECONDS) == 1
        told = server.output_tail()
        assert "Another program has changed" in told
        assert "Traceback" not in told
        run_sql(server.data, *mend)
        server.start()
        known.check(http)
        assert append(http).headers.get("Idempotency-Replayed") is None
        assert append(http).headers.get("Idempotency-Replayed") == "true"


def test_a_vacuum_while_the_server_is_stopped_changes_no_answer(tmp_path: Path) -> None:
    with used(tmp_path / "data") as (server, http, known):
        server.stop()
        run_sql(server.data, "VACUUM")
        server.start()
        known.check(http)


def test_a_table_of_another_program_does_not_stop_the_server(tmp_path: Path) -> None:
    with used(tmp_path / "data") as (server, http, known):
        run_sql(server.data, "CREATE TABLE notes (id INTEGER PRIMARY KEY)", "INSERT INTO notes VALUES (1)")
        assert append(http).status_code == 204
        run_sql(server.data, "INSERT INTO notes VALUES (2)")
        known.check(http)
        assert http.get("/metrics").json()["semel_engine_store_failures_total"] == 0


def test_a_second_server_beside_a_removed_lock_goes_on_alone(tmp_path: Path) -> None:
    with used(tmp_path / "data") as (server, http, known):
        assert (server.data / "semel.lock").read_text() == str(server.pid)
        (server.data / "semel.lock").unlink()
        with RunningServer(server.data) as second, httpx.Client(base_url=second.url, timeout=30) as other:
            assert append(other).status_code == 204
            with suppress(httpx.TransportError):  # a batch of its own may have stopped it already
                refused = append(http)
                assert (refused.status_code, refused.json()["code"]) == (503, "NOT_STORED"), refused.text
            assert server.wait_for_death(STOP_SECONDS) == 1
            assert "semel.lock in " in server.output_tail()
            known.check(other)
            assert append(other).headers.get("Idempotency-Replayed") == "true"
        server.start()
        known.check(http)
        assert append(http).headers.get("Idempotency-Replayed") == "true"
