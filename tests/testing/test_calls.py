"""What `assert_idempotent` makes of a call: its points, its processes, its answers, and what it says when it cannot."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from semel.once import InFlight, OutcomeUnknown
from semel.testing import NotIdempotentError, assert_idempotent, point
from semel.testing.calls import UnusableCallError


class Journal:
    """Effects as lines of a file, which outlives a process; the key of each is kept."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        path.touch()

    def write(self, key: str) -> None:
        """One effect: one write, on its way when this returns."""
        with self._path.open("a") as file:
            file.write(f"{key}\n")

    def lines(self) -> list[str]:
        """All of them."""
        return self._path.read_text().splitlines()

    def count(self) -> int:
        """How many."""
        return len(self.lines())

    def once(self, key: str) -> None:
        """An effect that happens once, whatever befalls: the file is looked at before."""
        with self._lock:
            if key not in self.lines():
                self.write(key)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """An empty one."""
    return Journal(tmp_path / "journal")


def test_a_call_is_killed_at_each_point_that_its_code_names(journal: Journal) -> None:
    def charge(key: str) -> None:
        point("begun")
        journal.once(key)
        point("charged")

    report = assert_idempotent(charge, effects=journal.count, schedules=["killed"])
    places = report.places["killed"]
    assert len(places) == 3
    assert "killed at point('begun')" in places[0]
    assert "killed at point('charged')" in places[1]
    assert "in charge: point(" in places[1]
    assert "before its answer left" in places[2]


def test_a_point_outside_of_a_test_does_nothing() -> None:
    point("anywhere")


def test_a_second_call_goes_first_at_each_point(journal: Journal) -> None:
    def charge(key: str) -> None:
        is_new = key not in journal.lines()
        point("looked")
        if is_new:
            journal.write(key)

    with pytest.raises(NotIdempotentError) as found:
        assert_idempotent(charge, effects=journal.count, schedules=["concurrent"], at=1)
    assert str(found.value).startswith("test_a_second_call_goes_first_at_each_point.<locals>.charge is not idempotent")
    assert "The first call was held at point('looked') (test_calls.py:" in str(found.value)
    assert "2 effects instead of 1" in str(found.value)
    assert "schedules=['concurrent'], at=1)" in str(found.value)


def test_calls_side_by_side_meet_at_each_point(journal: Journal) -> None:
    seen: set[str] = set()

    def charge(key: str) -> None:
        is_new = key not in seen
        point("looked")
        seen.add(key)
        if is_new:
            journal.write(key)

    with pytest.raises(NotIdempotentError, match="4 effects instead of 1"):
        assert_idempotent(charge, effects=journal.count, schedules=["concurrent"], at=0, patience=20)


def test_tasks_side_by_side_come_in_between_one_another(journal: Journal) -> None:
    seen: set[str] = set()

    async def charge(key: str) -> None:
        is_new = key not in seen
        await asyncio.sleep(0)
        seen.add(key)
        if is_new:
            journal.write(key)

    with pytest.raises(NotIdempotentError, match="4 effects instead of 1"):
        assert_idempotent(charge, effects=journal.count, schedules=["concurrent"], at=0)
    with pytest.raises(NotIdempotentError, match="2 effects instead of 1") as found:
        assert_idempotent(charge, effects=journal.count, schedules=["concurrent"], at=1)
    assert "was held where it waited (test_calls.py:" in str(found.value)
    assert "in charge: await asyncio.sleep(0))" in str(found.value)


def test_files_and_sockets_are_places(tmp_path: Path, journal: Journal) -> None:
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("127.0.0.1", 0))

    def charge(key: str) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(key.encode(), receiver.getsockname())
        (tmp_path / key).touch()
        (tmp_path / key).rename(tmp_path / f"{key}.done")

    with receiver:
        report = assert_idempotent(charge, effects=lambda: len(list(tmp_path.glob("*.done"))), schedules=["killed"])
    text = "\n".join(report.places["killed"])
    for place in ("before socket.sendto", "after socket.sendto", "before os.rename", "after os.rename"):
        assert place in text


def test_threads_of_the_call_are_watched_too(journal: Journal) -> None:
    def work(key: str) -> None:
        journal.once(key)
        point("in a thread")

    async def charge(key: str) -> None:
        await asyncio.to_thread(work, key)

    report = assert_idempotent(charge, effects=journal.count, schedules=["killed"])
    assert "in a thread" in report.places["killed"][0]


def test_a_connection_of_the_test_is_dead_in_the_process_of_the_call(journal: Journal) -> None:
    ours, theirs = socket.socketpair()

    def charge(key: str) -> None:
        ours.sendall(b"hello")
        journal.once(key)

    with ours, theirs, pytest.raises(NotIdempotentError) as found:
        assert_idempotent(charge, effects=journal.count, schedules=["killed"], at=99)
    assert "BrokenPipeError" in str(found.value)
    assert journal.count() == 0


def test_restart_runs_in_each_process_before_the_call(journal: Journal) -> None:
    home = os.getpid()
    started: list[int] = []

    def charge(key: str) -> bool:
        assert started == [os.getpid()] != [home]
        journal.once(key)
        return True

    assert_idempotent(charge, effects=journal.count, schedules=["killed"], restart=lambda: started.append(os.getpid()))
    assert started == []


def test_a_process_that_does_not_end_is_killed_and_told(journal: Journal) -> None:
    with pytest.raises(NotIdempotentError, match=r"did not end within 0\.5 s"):
        assert_idempotent(lambda key: time.sleep(60), effects=journal.count, schedules=["killed"], timeout=0.5)


def test_a_process_that_dies_by_itself_is_told(journal: Journal) -> None:
    def charge(key: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(NotIdempotentError, match=r"ended with status .* without an answer"):
        assert_idempotent(charge, effects=journal.count, schedules=["killed"])


def test_an_answer_that_cannot_leave_its_process_asks_for_a_plain_one(journal: Journal) -> None:
    def charge(key: str) -> Callable[[], str]:
        journal.once(key)
        return lambda: key

    with pytest.raises(NotIdempotentError, match="pass answer="):
        assert_idempotent(charge, effects=journal.count, schedules=["killed"], at=99)
    assert_idempotent(charge, effects=journal.count, answer=lambda answer: answer())


def test_an_error_is_no_answer(journal: Journal) -> None:
    def charge(key: str) -> None:
        journal.write(key)
        raise OSError("the bank is closed")

    with pytest.raises(NotIdempotentError, match="the bank is closed") as found:
        assert_idempotent(charge, effects=journal.count)
    assert [run.schedule for run in found.value.runs] == ["duplicate", "lost", "concurrent", "killed"]


def test_a_call_that_asks_for_another_try_gets_it(journal: Journal) -> None:
    tries: list[str] = []

    def charge(key: str) -> None:
        tries.append(key)
        if len(tries) % 3:
            raise InFlight(key)
        journal.once(key)

    assert_idempotent(charge, effects=journal.count, schedules=["duplicate"])
    assert len(tries) == 9


def test_a_call_that_is_always_refused_fails(journal: Journal) -> None:
    def charge(key: str) -> None:
        raise InFlight(key)

    with pytest.raises(NotIdempotentError, match="refused until the test gave up"):
        assert_idempotent(charge, effects=journal.count, schedules=["duplicate"], timeout=0.1)


def test_an_unknown_is_honest_only_where_a_call_was_cut_off(journal: Journal) -> None:
    def charge(key: str) -> None:
        raise OutcomeUnknown(key)

    with pytest.raises(NotIdempotentError, match="although no call was cut off"):
        assert_idempotent(charge, effects=journal.count, schedules=["duplicate"])
    assert_idempotent(charge, effects=journal.count, schedules=["killed"])


def test_an_unknown_does_not_excuse_a_second_effect(journal: Journal) -> None:
    def charge(key: str) -> str:
        journal.write(key)
        return "unknown"

    with pytest.raises(NotIdempotentError, match="effects instead of 1"):
        assert_idempotent(
            charge, effects=journal.count, schedules=["killed"], unknown=lambda answer: answer == "unknown"
        )


def test_a_call_without_a_key_needs_a_reset(journal: Journal) -> None:
    done: list[str] = []

    def charge() -> int:
        done.append("charged") if not done else None
        return len(done)

    with pytest.raises(UnusableCallError, match="or pass reset="):
        assert_idempotent(charge, effects=journal.count)
    report = assert_idempotent(charge, effects=lambda: len(done), reset=done.clear, schedules=["duplicate", "lost"])
    assert report.runs == {"duplicate": 1, "lost": 1}


def test_a_call_with_more_places_than_the_limit_is_refused(journal: Journal) -> None:
    def charge(key: str) -> None:
        journal.once(key)
        for number in range(5):
            point(str(number))

    with pytest.raises(UnusableCallError, match="more than 3 places"):
        assert_idempotent(charge, effects=journal.count, schedules=["killed"], max_places=3)


def test_a_schedule_that_is_not_known_is_refused(journal: Journal) -> None:
    with pytest.raises(ValueError, match="use duplicate, lost, concurrent, killed"):
        assert_idempotent(lambda key: None, effects=journal.count, schedules=["twice"])


def test_in_a_running_loop_the_way_out_is_named(journal: Journal) -> None:
    async def charge(key: str) -> None:
        journal.once(key)

    async def test() -> Any:
        with pytest.raises(UnusableCallError, match="to_thread"):
            assert_idempotent(charge, effects=journal.count)
        return await asyncio.to_thread(assert_idempotent, charge, effects=journal.count)

    assert set(asyncio.run(test()).runs) == {"duplicate", "lost", "concurrent", "killed"}


def test_effects_may_be_counted_by_a_coroutine(journal: Journal) -> None:
    async def count() -> int:
        return journal.count()

    assert_idempotent(journal.once, effects=count)


def test_no_thread_is_left_behind(journal: Journal) -> None:
    lock = threading.Lock()

    def charge(key: str) -> None:
        with lock:
            journal.once(key)

    before = threading.active_count()
    assert_idempotent(charge, effects=journal.count)
    assert threading.active_count() == before
