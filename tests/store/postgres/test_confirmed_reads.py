"""A server that confirms no commits may have been replaced: no answer is given from its rows alone.

A primary whose standby has taken over does not know it at first. It serves reads as before, but no commit on it is
confirmed: the standby that it waits for has left. So a server whose synchronous standby does not exist stands for it
here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest

from semel.store.open import open_store
from semel.store.postgres.store import PgStore
from semel.store.protocol import Store
from tests.harness.postgres.cluster import Cluster
from tests.store.conformance import LOCKS, MIGRATIONS, TABLES, THING, Clock, find, thing, write

PATIENCE_SECONDS = 120.0
SHORT_MS, LONG_MS = 100, 600_000
KEY = (b"a", 1, 1)


@pytest.fixture(scope="module")
def primary() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@contextmanager
def replaced(primary: Cluster, trust_ms: int) -> Iterator[Store]:
    """A store with one row, on a server that has confirmed commits and does so no more."""
    query = f"schema=reads_{time.monotonic_ns()}&readers=1&patience_ms={PATIENCE_SECONDS * 1_000:.0f}"
    url = f"{primary.url}?{query}&trust_ms={trust_ms}"
    with closing(open_store(url, TABLES, MIGRATIONS, Clock())) as store:
        write(store, [(THING, thing(number=1))])
        assert find(store, THING, KEY) is not None
        primary.set("synchronous_standby_names", "nobody")
        try:
            time.sleep(SHORT_MS / 1_000)
            yield store
        finally:
            primary.set("synchronous_standby_names", "")


def waiting(primary: Cluster) -> int:
    """How many commits wait for the standby."""
    asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'semel' AND wait_event = 'SyncRep'"
    count: int = primary.execute(asked)[0][0]
    return count


def nothing_changes(store: Store) -> bool:
    """A transaction that answers from what it has loaded, as a refusal and a replay do; whether it found the row."""
    tx = store.begin(LOCKS)
    try:
        found = tx.load({THING: [KEY]}, []).rows[THING]
        tx.check()
        return KEY in found
    finally:
        tx.rollback()


def reads(store: Store) -> bool:
    return find(store, THING, KEY) is not None


@pytest.mark.parametrize("look", [reads, nothing_changes])
def test_an_answer_from_rows_alone_waits_until_a_commit_is_confirmed(
    primary: Cluster, look: Callable[[Store], bool]
) -> None:
    with ThreadPoolExecutor(1) as pool, replaced(primary, SHORT_MS) as store:
        answer: Future[bool] = pool.submit(look, store)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not waiting(primary):
            assert not answer.done(), "a server that confirms nothing was believed"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert not answer.done()
        primary.set("synchronous_standby_names", "")
        assert answer.result(PATIENCE_SECONDS)


@pytest.mark.parametrize("look", [reads, nothing_changes])
def test_a_server_that_has_just_confirmed_a_commit_is_believed(primary: Cluster, look: Callable[[Store], bool]) -> None:
    with replaced(primary, LONG_MS) as store:
        assert look(store)
        assert waiting(primary) == 0


def test_a_commit_on_another_server_says_nothing_of_this_one(primary: Cluster) -> None:
    with replaced(primary, LONG_MS) as store:
        assert isinstance(store, PgStore)
        [line] = store.pool.lines[1:]
        assert line.is_current(time.monotonic())
        store.trust.confirmed("another server", time.monotonic())
        assert not line.is_current(time.monotonic())
