"""The servers of the table: real processes with two workers, and the rows that are calls over HTTP."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import httpx

from tests.harness.guardian import ROOT, guard
from tests.harness.processes import kill_all
from tests.harness.server import HOST, free_port
from tests.harness.together import eventually
from tests.once.compat.places import count
from tests.once.compat.run import PATIENCE_SECONDS, Row, Work

USUAL_LEASE = 60.0
SHORT_LEASE = 3.0
"""For what waits until a lease has ended."""
ASGI, WSGI = "tests.once.compat.asgi_app:app", "tests.once.compat.wsgi_app:wsgi"
ASYNC_PATHS = ("/async-function-scope", "/async-request-scope", "/asyncpg")
SYNC_PATHS = ("/function-scope", "/request-scope")
WSGI_PATHS = ("/session", "/psycopg")


class Kind(NamedTuple):
    """A server: its command without the port, the handlers that are called, and the database."""

    command: Sequence[str]
    paths: Sequence[str]
    is_sqlite: bool = False


def _uvicorn(loop: str) -> list[str]:
    return ["uvicorn", ASGI, "--loop", loop, "--workers", "2", "--log-level", "warning", "--port"]


def _granian(interface: str, app: str, *options: str) -> list[str]:
    workers = ("--workers", "2", "--respawn-failed-workers", "--no-ws")
    return ["granian", app, "--interface", interface, *workers, *options, "--port"]


def _gunicorn(*options: str) -> list[str]:
    return ["gunicorn", WSGI, "--preload", "--workers", "2", "--no-control-socket", *options, "--bind"]


SERVERS = {
    "uvicorn, asyncio": Kind(_uvicorn("asyncio"), SYNC_PATHS + ASYNC_PATHS),
    "uvicorn, uvloop": Kind(_uvicorn("uvloop"), SYNC_PATHS + ASYNC_PATHS),
    "uvicorn, SQLite": Kind(_uvicorn("asyncio"), SYNC_PATHS, is_sqlite=True),
    "granian, asyncio": Kind(_granian("asgi", ASGI, "--loop", "asyncio"), SYNC_PATHS + ASYNC_PATHS),
    "granian, uvloop": Kind(_granian("asgi", ASGI, "--loop", "uvloop"), SYNC_PATHS + ASYNC_PATHS),
    "granian, WSGI": Kind(_granian("wsgi", WSGI, "--blocking-threads", "8"), WSGI_PATHS),
    "gunicorn --preload, sync": Kind(_gunicorn(), WSGI_PATHS),
    "gunicorn --preload, gthread": Kind(_gunicorn("--worker-class", "gthread", "--threads", "8"), WSGI_PATHS),
    "gunicorn --preload, gevent": Kind(_gunicorn("--worker-class", "gevent"), WSGI_PATHS),
    "gunicorn --preload, SQLite": Kind(_gunicorn(), WSGI_PATHS[:1], is_sqlite=True),
}


class Server:
    """A server under test; a context manager that starts it and ends it with all that it has started."""

    def __init__(self, kind: Kind, place: str, log: Path) -> None:
        guard()
        self.kind, self.place, self.log = kind, place, log
        self.port = free_port()
        self.url = f"http://{HOST}:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, lease_seconds: float = USUAL_LEASE) -> None:
        """Start it, and wait until it answers."""
        bind = f"{HOST}:{self.port}" if self.kind.command[-1] == "--bind" else str(self.port)
        env = os.environ | {"COMPAT_PLACE": self.place, "COMPAT_LEASE": f"{lease_seconds}s"}
        program = [sys.executable, "-m", *self.kind.command, bind]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(program, cwd=ROOT, env=env, stdout=log, stderr=log)
        eventually(self._answers, f"it listens: {self.log.read_text()}", 60)

    def _answers(self) -> bool:
        try:
            return httpx.get(self.url).status_code == 404
        except httpx.TransportError:
            assert self._process is not None
            assert self._process.poll() is None, self.log.read_text()
            return False

    def stop(self) -> int:
        """End it as an operator does, with SIGTERM. Its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(60)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            kill_all([self._process.pid])
            self._process.wait()


class ServerRow(Row):
    """Requests with a key to one handler."""

    def __init__(self, server: Server, path: str) -> None:
        self._server, self._path = server, path
        self._client = httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS)

    def call(self, key: str, work: Work = Work.CHARGE) -> str:
        """Requests until one is answered: uvicorn resets connections behind an exception, and a worker is killed."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self.post(key, {"X-Work": work})
            except httpx.TransportError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def post(self, key: str, headers: Mapping[str, str]) -> str:
        """A request with headers, again as long as another one with its key is running."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            answer = self._client.post(self._path, headers={"Idempotency-Key": key, **headers})
            if answer.status_code != 409 or answer.json()["code"] != "in_flight" or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        if answer.is_error:
            raise httpx.HTTPStatusError(answer.text, request=answer.request, response=answer)
        return answer.text

    def is_stored(self, key: str) -> bool:
        """Whether the middleware replays the answer: else the handler would run, and its block replay."""
        answer = self._client.post(self._path, headers={"Idempotency-Key": key})
        return bool(answer.headers.get("Idempotency-Replayed") == "true")

    def effects(self, key: str) -> int:
        """How many charges there are."""
        return count(self._server.place, "charges", key)

    def runs(self, key: str) -> int:
        """How often the work was begun."""
        return count(self._server.place, "runs", key)

    def reconnect(self) -> None:
        """A client of its own."""
        self.close()
        self._client = httpx.Client(base_url=self._server.url, timeout=PATIENCE_SECONDS)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
