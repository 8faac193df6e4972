"""The thread that keeps the leases of functions: who may run, whatever the guarded function does to its process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, event

from semel.once import Once, OnceError, StoreBusy, current_call
from semel.once.table import Statement
from tests.harness.together import eventually
from tests.once.keeping import Keeping, told
from tests.once.places import fresh_place

WAITING = 4
LEASE, LEASE_SECONDS = "0.6s", 0.6


@pytest.mark.parametrize("has_engine", [False, True], ids=["file", "engine"])
def test_a_function_that_holds_the_write_lock_of_its_own_receipt_runs_once(tmp_path: Path, has_engine: bool) -> None:
    """Its lease cannot be renewed meanwhile, and ends. The function goes on when it has let go of the lock."""
    file = str(tmp_path / "app.db")
    Once(file).close()
    runs = str(tmp_path / "runs")
    keeping = Keeping(file, runs, has_engine, lease="1s", locks=file, locks_seconds=2.5, works_seconds=1.5)
    answers = [told(process)["answer"] for process in [keeping.start() for _ in range(1 + WAITING)]]
    assert len(keeping.noted()) == 1
    assert answers == keeping.noted() * (1 + WAITING)


def test_a_take_over_waits_for_no_lock_although_the_engine_begins_with_one(tmp_path: Path) -> None:
    """Else a lock that ends while it waits would give it the key before the lease can be renewed."""
    file, patience = str(tmp_path / "app.db"), 20
    engine = create_engine(f"sqlite:///{file}", connect_args={"timeout": patience, "isolation_level": None})
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    store = Once(engine)
    store.store.create()
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with pytest.raises(StoreBusy):
            store.store.database.run_unlocked(Statement("UPDATE semel_once SET key = key"))
        assert time.monotonic() - began < patience / 2
        other.execute("COMMIT")
    assert store.store.database.run_unlocked(Statement("SELECT 1")) == [(1,)]
    engine.dispose()
    store.close()


def stop_between_renewals(pid: int, place: str) -> None:
    """Stop a process. One that is stopped in a renewal keeps the lock of its file, and nobody can take over."""
    for _ in range(500):
        os.kill(pid, signal.SIGSTOP)
        if place.startswith("postgresql:"):
            return
        with closing(sqlite3.connect(place, isolation_level=None, timeout=0)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.02)
            else:
                return
    raise AssertionError("each renewal was met")


@pytest.mark.parametrize("has_child", [False, True], ids=["alone", "with a child"])
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_stopped_process_loses_its_lease_and_is_fenced(tmp_path: Path, kind: str, has_child: bool) -> None:
    """Nobody renews it meanwhile, also not a child of the process."""
    place, runs = fresh_place(kind, tmp_path).url, str(tmp_path / "runs")
    slow = Keeping(place, runs, lease=LEASE, works_seconds=4, has_child=has_child)
    first = slow.start()
    eventually(lambda: slow.noted() == [first.pid], "it runs")
    time.sleep(2 * LEASE_SECONDS)  # its lease is renewed
    stop_between_renewals(first.pid, place)
    try:
        second = slow._replace(works_seconds=0, has_child=False).start()
        after = told(second)
    finally:
        os.kill(first.pid, signal.SIGCONT)
    before = told(first)
    assert slow.noted() == [first.pid, second.pid]
    assert (before["answer"], after["answer"]) == ("Fenced", second.pid)
    assert [one["seen"]["attempt"] for one in (before, after)] == [1, 2]
    assert before["seen"]["fence"] < after["seen"]["fence"]
    assert (before["seen"]["was_lost"], before["seen"]["is_lost"]) == (False, True)
    assert before["seen"]["left_at_end"] == 0


def fill_executor() -> Any:
    """Use every thread of the loop's executor, for several leases."""
    return asyncio.gather(*[asyncio.to_thread(time.sleep, LEASE_SECONDS / 2) for _ in range(40)])


async def block_loop() -> None:
    """Let nothing else of the loop run, for several leases."""
    time.sleep(3 * LEASE_SECONDS)  # noqa: ASYNC251 - as a program does that knows no better


@pytest.mark.parametrize("guarded", [fill_executor, block_loop])
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_lease_depends_neither_on_the_loop_nor_on_its_executor(
    tmp_path: Path, kind: str, guarded: Callable[[], Any]
) -> None:
    place = fresh_place(kind, tmp_path)
    stores = [place.open() for _ in range(2)]
    has_begun = threading.Event()
    runs: list[float] = []

    def charge_of(store: Once) -> Callable[[str], Any]:
        @store.once(key="key", scope="shop", lease=LEASE, on_crash="retry", wait="25s")
        async def charge(key: str) -> int:
            runs.append(current_call().lease_left)
            has_begun.set()
            await guarded()
            return len(runs)

        return charge

    first, second = [charge_of(store) for store in stores]
    told: list[int] = []
    thread = threading.Thread(target=lambda: told.append(asyncio.run(first("k"))))
    thread.start()
    assert has_begun.wait(25)
    told.append(asyncio.run(second("k")))
    thread.join(25)
    for store in stores:
        store.close()
    assert (told, len(runs)) == ([1, 1], 1)


def test_a_running_call_sees_what_it_is_and_a_warning_names_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Once(str(tmp_path / "receipts.db"))
    began = datetime.now(UTC)

    @store.once(key="key", lease=LEASE)
    def hang(key: str) -> None:
        call, found = current_call(), hang.inspect(key)
        assert (call.key, call.attempt, call.is_lost) == (key, 1, False)
        assert call.fence > 0
        assert 0 < call.lease_left <= LEASE_SECONDS
        assert found is not None
        assert (found.state, found.attempt) == ("running", 1)
        # The receipt has milliseconds.
        assert began - timedelta(milliseconds=1) <= found.created_at <= datetime.now(UTC)
        time.sleep(2.5 * LEASE_SECONDS)
        later = hang.inspect(key)
        assert later is not None
        assert later.created_at == found.created_at, "since when it runs"
        assert 0 < call.lease_left <= LEASE_SECONDS

    with caplog.at_level(logging.WARNING, "semel.once"):
        hang("k")
    with pytest.raises(OnceError, match="only inside a function"):
        current_call()
    store.close()
    named = [one.getMessage() for one in caplog.records if "hang has been running" in one.getMessage()]
    assert named[0].endswith("its lease is renewed.")
    assert len(named) == 2, "one for each lease"
