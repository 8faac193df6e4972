"""How each candidate of `make bench` is started, with an empty store of its own."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path

from bench.filled_store import fill
from bench.jobs_stores import LIFTED, REDIS
from bench.suite.servers import ROOT, Place, Served, run_folder
from tests.events.insieme.packages import HERE as INSIEME
from tests.harness.server import free_port

STREAMS = ROOT / "bench" / "durable_streams"
RECEIPTS = 5_000_000


def serve(place: Place, env: Mapping[str, str]) -> AbstractContextManager[Served]:
    """`semel serve` of this tree."""
    return _process(
        place,
        [sys.executable, "-m", "semel", "serve", "--data", str(place.folder / "data")],
        LIFTED | {"SEMEL_LEDGER_GRPC_PORT": "0", "SEMEL_LOG_LEVEL": "error"} | dict(env),
    )


@contextmanager
def _process(
    place: Place, command: list[str], env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Iterator[Served]:
    port = free_port()
    with place.process([*command, "--port", str(port)], port, env, cwd) as pid:
        yield Served(port, (pid,))


def semel(place: Place) -> AbstractContextManager[Served]:
    """This tree on SQLite."""
    return serve(place, {})


def semel_filled(place: Place) -> AbstractContextManager[Served]:
    """This tree on SQLite, with receipts from before.

    The copy is synced first: a commit on the same file system would otherwise wait for the write-back of its 700 MB.
    """
    shutil.copytree(filled(), place.folder / "data")
    os.sync()
    return serve(place, {})


@cache
def filled() -> Path:
    """A data folder with receipts, made once a run: about two minutes."""
    folder = run_folder("semel-bench-filled-")
    fill(folder, RECEIPTS)
    return folder


@contextmanager
def semel_on_postgres(place: Place) -> Iterator[Served]:
    """This tree on PostgreSQL, one node."""
    with place.database() as (url, pid), serve(place, {"SEMEL_STORE": url}) as served:
        yield Served(served.port, (*served.pids, pid))


def bare(place: Place) -> AbstractContextManager[Served]:
    """The host of this tree with nothing behind it."""
    return _process(place, [sys.executable, "-m", "bench.noop_server"])


def redis(place: Place) -> AbstractContextManager[Served]:
    """Redis with its log synced."""
    command = [place.tools.redis, "--bind", "127.0.0.1", "--dir", str(place.folder), "--loglevel", "warning"]
    return _process(place, [*command, *(word for name, value in REDIS.items() for word in (f"--{name}", value))])


def nats(place: Place) -> AbstractContextManager[Served]:
    """NATS with JetStream on files."""
    place.folder.mkdir(parents=True, exist_ok=True)
    config = place.folder / "nats.conf"
    store = json.dumps(str(place.folder / "store"))
    config.write_text(f'jetstream {{ store_dir: {store}, sync_interval: always }}\nping_interval: "10m"\n')
    return _process(place, [place.tools.nats, "-c", str(config), "-a", "127.0.0.1"])


def streams_reference(place: Place) -> AbstractContextManager[Served]:
    """The reference server of Durable Streams."""
    return _process(place, [place.tools.node, "server.mjs", "--data", str(place.folder / "data")], cwd=STREAMS)


def insieme(place: Place) -> AbstractContextManager[Served]:
    """The server that Insieme brings with it."""
    place.folder.mkdir(parents=True, exist_ok=True)
    return _process(place, [place.tools.node, "server.mjs", "--data", str(place.folder / "events.db")], cwd=INSIEME)


@contextmanager
def fastapi(place: Place) -> Iterator[Served]:
    """The service on PostgreSQL."""
    command = [place.tools.python, "-m", "uvicorn", "bench.fastapi_service:app", "--no-access-log"]
    command += ["--log-level", "warning"]
    with place.database() as (url, pid), _process(place, command, {"DATABASE_URL": url}) as served:
        yield Served(served.port, (*served.pids, pid))
