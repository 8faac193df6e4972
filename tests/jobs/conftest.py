"""What runs where: `jobs` is a server that all tests share; tests keep to queues of their own.

It is on SQLite, and for tests that are marked `each_store` on PostgreSQL behind two nodes too, whose clients take the
nodes in turn. A test that mostly waits takes `together`, and waits on both at once. A module with settings of its own
asks for `store_kind`, or names one store if the store cannot matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial

import pytest

from tests.harness.together import at_once
from tests.jobs import wire
from tests.jobs.minute import Minute, begin_minute
from tests.jobs.wire import Jobs, Together, fresh, serving
from tests.stores import each


def pytest_configure(config: pytest.Config) -> None:
    each.add_markers(config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    each.choose(metafunc, ["jobs", "store_kind"])


@pytest.fixture(scope="module")
def store_kind(request: pytest.FixtureRequest) -> Iterator[str]:
    """What `serving` puts under its servers, unless a test names a store itself."""
    kind: str = request.param
    wire.store_kind = kind
    yield kind
    wire.store_kind = "sqlite"


@pytest.fixture(scope="package")
def every_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Jobs]]:
    """A server for each store, started when it is first asked for: no limit is near, and retries come to the ms."""
    served: dict[str, tuple[Jobs, AbstractContextManager[Jobs]]] = {}
    folder = tmp_path_factory.mktemp("jobs")

    def start(store: str) -> Jobs:
        if store not in served:
            settings = {"JOBS_MAX_QUEUE_DEPTH": 100_000, "JOBS_MAX_INFLIGHT": 10_000, "JOBS_RETRY_JITTER": 0}
            env = {f"SEMEL_{name}": str(value) for name, value in settings.items()}
            server = serving(folder / store, store=store, env=env)
            served[store] = (server.__enter__(), server)
        return served[store][0]

    yield start
    at_once([partial(server.__exit__, None, None, None) for _, server in served.values()])


@pytest.fixture(scope="package")
def jobs(request: pytest.FixtureRequest, every_store: Callable[[str], Jobs]) -> Jobs:
    """One server, or two nodes, for all tests that need no setting."""
    return every_store(request.param)


@pytest.fixture
def queue() -> str:
    """A queue of the test's own, so that nobody else takes its jobs."""
    return fresh("queue")


@pytest.fixture
def together(every_store: Callable[[str], Jobs]) -> Together:
    """Runs a test on all stores at the same time, with a queue for each."""
    servers = [every_store(store) for store in each.STORES]

    def run(body: Callable[[Jobs, str], None]) -> None:
        at_once([partial(body, one, fresh("queue")) for one in servers])

    return run


@pytest.fixture(scope="package", autouse=True)
def minute(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minute | None]:
    """Begins with the first test of the folder, if any test is going to look."""
    if not any("test_window" in item.nodeid for item in request.session.items):
        yield None
        return
    with begin_minute(tmp_path_factory.mktemp("minute") / "data") as begun:
        yield begun
