"""Servers for all tests of the SDK: an open one; one with a token, signed results and a short queue; one for JWTs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from functools import partial

import pytest
import uvloop

from tests.client.jobs_room import OpenJobs
from tests.client.jobs_room import open_jobs as opened_jobs
from tests.client.names import DELTAS_SECRET, HMAC_KEY, TOKEN
from tests.client.replica_kinds import Chosen, Kind, open_async, open_blocking
from tests.harness.server import RunningServer

QUICK = {
    "SEMEL_JOBS_RETRY_BACKOFF_BASE_MS": "10",
    "SEMEL_JOBS_RETRY_BACKOFF_CAP_MS": "20",
    "SEMEL_JOBS_MAX_INFLIGHT": "0",
}
STRICT = {
    "SEMEL_TOKEN_ACTIVE": TOKEN,
    "SEMEL_JOBS_RESULT_INTEGRITY_MODE": "hmac",
    "SEMEL_JOBS_RESULT_HMAC_KEY": HMAC_KEY,
    "SEMEL_JOBS_MAX_QUEUE_DEPTH": "2",
}


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Retries come at once here."""
    with RunningServer(tmp_path_factory.mktemp("client") / "data", env=QUICK) as running:
        yield running


@pytest.fixture(scope="package")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Two jobs fit into its queue."""
    with RunningServer(tmp_path_factory.mktemp("strict") / "data", env=QUICK | STRICT) as running:
        yield running


@pytest.fixture(scope="package")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Wants tokens of those who sync."""
    env = {"SEMEL_DELTAS_JWT_SECRET": DELTAS_SECRET}
    with RunningServer(tmp_path_factory.mktemp("guarded") / "data", env=env) as running:
        yield running


@pytest.fixture(autouse=True)
def _own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of the developer's own shell must not reach the client under test."""
    for name in ("SEMEL_URL", "SEMEL_TOKEN", "SEMEL_TENANT", "SEMEL_JOBS_RESULT_HMAC_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _named_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test whose parameters have `uvloop` among them runs on it, as applications under uvicorn do."""
    case = getattr(request.node, "callspec", None)
    if case is not None and "uvloop" in case.params.values():
        monkeypatch.setattr(asyncio, "run", uvloop.run)


@pytest.fixture(params=["asyncio", "uvloop"])
def each_loop() -> None:
    """Runs a test of workers on the loop of asyncio, and again on uvloop."""


@pytest.fixture(params=["async", "blocking"])
def each_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test with asynchronous replicas, and again with blocking ones."""
    kind: Kind = open_blocking if request.param == "blocking" else open_async
    monkeypatch.setattr(Chosen, "kind", staticmethod(kind))


@pytest.fixture(params=["async", "blocking"])
def open_jobs(request: pytest.FixtureRequest) -> OpenJobs:
    """The jobs of an asynchronous client, then of a blocking one."""
    return partial(opened_jobs, kind=request.param)
