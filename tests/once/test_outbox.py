"""`Outbox` over real sockets: durable, ordered, at least once with one key, and what it does when things go wrong."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import re
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from semel import once
from semel.once import EnvSecret, InvalidKey, Outbox, UnsupportedConnection
from semel.once.dispatcher import Dispatcher
from semel.once.message_table import FIRST_BEHIND_MS
from semel.once.messages import Delivery
from semel.once.outbox_store import LOOK_SECONDS
from semel.once.table import Statement
from tests.harness.server import HOST, free_port
from tests.harness.together import eventually
from tests.once.conftest import fresh_schema
from tests.once.counter import BROKEN, CERTIFICATE, DRIP, ENDLESS, LOST, CounterService, counting

QUICK: dict[str, Any] = {"longest_wait": 0.02}


class Clock:
    """Two clocks that a test sets."""

    def __init__(self) -> None:
        self.wall = 1_800_000_000.0
        self.monotonic = 10_000.0


@pytest.fixture
def service() -> Iterator[CounterService]:
    """A service that counts."""
    with counting() as found:
        yield found


Open = Callable[..., Outbox]


@pytest.fixture(params=["sqlite", "postgresql"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the same outbox, as often as it is called."""
    place = str(tmp_path / "outbox.db")
    if request.param == "postgresql":
        place = fresh_schema()
        with psycopg.connect(place, autocommit=True) as connection:
            connection.execute(once.outbox_ddl("postgresql").encode())
    boxes: list[Outbox] = []

    def open_box(**options: Any) -> Outbox:
        boxes.append(Outbox(place, **(QUICK | options)))
        return boxes[-1]

    yield open_box
    for box in boxes:
        box.close()


def test_a_message_is_delivered_with_its_key_its_headers_and_its_bytes(opened: Open, service: CounterService) -> None:
    box = opened()
    url = f"{service.url}/charges?a=1"
    assert box.post(url, json={"b": 1, "a": [2]}, headers={"X-Tenant": "t"}, key="charge 7") == ("charge 7", True)
    assert box.state("charge 7") == "queued"
    assert box.flush_sync() == once.Flushed(1, 0, 0, 0)
    assert box.state("charge 7") is once.MessageState.DONE
    [one] = service.arrived
    assert (one.method, one.path, one.key, one.body) == ("POST", "/charges?a=1", '"charge 7"', b'{"a":[2],"b":1}')
    assert (one.headers["Content-Type"], one.headers["X-Tenant"]) == ("application/json", "t")
    found = box.status("charge 7")
    assert found is not None
    assert (found.status, found.attempts, found.url) == (201, 1, f"{service.url}/charges")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_every_method_goes_and_a_body_may_be_bytes_or_text(
    tmp_path: Path, service: CounterService, method: str
) -> None:
    box = Outbox(tmp_path / "outbox.db")
    for data in (b"\x00\xff", "\u00e9", None):
        box.post(f"{service.url}/x", data=data, method=method, order_by="x")
    box.flush_sync()
    assert [(one.method, one.body) for one in service.arrived] == [
        (method, b"\x00\xff"),
        (method, b"\xc3\xa9"),
        (method, b""),
    ]
    assert len(set(service.keys())) == 3
    box.close()


def test_the_same_key_is_the_same_message_and_with_another_request_a_mismatch(
    opened: Open, service: CounterService
) -> None:
    box = opened()
    assert box.post(f"{service.url}/x", json=1, key="k").fresh
    for _ in range(2):
        assert not box.post(f"{service.url}/x", json=1, key="k").fresh
        with pytest.raises(once.KeyMismatch):
            box.post(f"{service.url}/x", json=2, key="k")
        box.flush_sync()
    assert service.keys() == ['"k"']


def test_every_try_has_the_same_bytes_and_the_same_key(opened: Open, service: CounterService) -> None:
    service.answer("/x", 500, LOST, 503, 429, 409, LOST)
    box = opened()
    box.post(f"{service.url}/x", json={"amount": 5}, key="k", headers={"B": "2", "A": "1"})
    assert box.flush_sync(20) == once.Flushed(1, 6, 0, 0)
    assert len(service.arrived) == 7
    assert len({(one.key, one.body, str(one.headers)) for one in service.arrived}) == 1
    assert len(service.effects) == 1


def test_messages_of_one_order_arrive_in_order_whatever_fails_between_them(
    opened: Open, service: CounterService
) -> None:
    box = opened(concurrency=4)
    for number in range(12):
        order = f"customer-{number % 3}"
        service.answer(f"/{number}", *([503, LOST] if number % 2 else [500]))
        box.post(f"{service.url}/{number}", json=number, key=str(number), order_by=order)
    assert box.flush_sync(25).delivered == 12
    for rest in range(3):
        mine = [int(one.path[1:]) for one in service.arrived if int(one.path[1:]) % 3 == rest]
        assert mine == sorted(mine)
    assert len(service.effects) == 12


def test_other_messages_go_side_by_side_and_at_most_so_many(opened: Open, service: CounterService) -> None:
    box = opened(concurrency=4)
    service.hold_seconds = 0.1
    for number in range(12):
        box.post(f"{service.url}/x", json=number)
    assert box.flush_sync(25).delivered == 12
    assert 2 <= service.most_at_once <= 4


@pytest.mark.parametrize("status", [404, 302])
def test_poison_is_set_aside_holds_its_own_order_only_and_goes_on_after_retry_or_drop(
    opened: Open, service: CounterService, status: int
) -> None:
    box = opened()
    service.answer("/bad", status, status, headers={"Location": f"{service.url}/elsewhere"})
    box.post(f"{service.url}/bad", json=1, key="bad", order_by="a")
    box.post(f"{service.url}/behind", json=1, key="behind", order_by="a")
    box.post(f"{service.url}/other", json=1, key="other", order_by="b")
    box.post(f"{service.url}/free", json=1, key="free")
    assert box.flush_sync(20) == once.Flushed(2, 0, 1, 0)
    assert [(one.key, one.state, one.status) for one in box.messages()] == [
        ("bad", "poison", status),
        ("behind", "queued", None),
        ("other", "done", 201),
        ("free", "done", 201),
    ]
    assert not service.keys("/elsewhere")
    assert [one.key for one in box.messages("poison")] == ["bad"]
    assert box.retry("bad")
    assert box.flush_sync(20).poisoned == 1
    assert not service.keys("/behind")
    assert box.drop("bad")
    assert box.state("bad") is None
    assert box.flush_sync(20).delivered == 1
    assert service.keys("/behind") == ['"behind"']


def test_tries_end_after_max_attempts_and_a_409_that_says_never_is_final(opened: Open, service: CounterService) -> None:
    box = opened(max_attempts=3)
    service.answer("/ill", *[500] * 5)
    service.answer("/never", 409, body=b'{"code":"IDEMPOTENCY_MISMATCH","retry":"never"}')
    box.post(f"{service.url}/ill", json=1, key="ill")
    box.post(f"{service.url}/never", json=1, key="never")
    assert box.flush_sync(20) == once.Flushed(0, 2, 2, 0)
    assert (len(service.keys("/ill")), len(service.keys("/never"))) == (3, 1)
    assert box.status("ill").error == "refused with 500"  # type: ignore[union-attr]


def test_retry_after_is_obeyed_and_shown(opened: Open, service: CounterService) -> None:
    box = opened(longest_retry_after="500s")
    service.answer("/s", 503, headers={"Retry-After": "120"})
    service.answer("/d", 429, headers={"Retry-After": "Fri, 31 Dec 2100 12:00:00 GMT"})
    for path in "sd":
        box.post(f"{service.url}/{path}", json=1, key=path)
    assert box.flush_sync(20) == once.Flushed(0, 2, 0, 2)  # it is over when the next wait is longer than that
    waits = {one.key: one.wait_seconds for one in box.messages("queued")}
    assert 60 < waits["s"] <= 120 < waits["d"] <= 500
    assert box.flush_sync(0.1).failed == 0
    assert box.retry("s")
    assert box.flush_sync(20).delivered == 1


def test_a_flush_counts_a_failed_try_whose_sender_is_slow_to_end(
    opened: Open, service: CounterService, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = opened()
    service.answer("/x", 503, headers={"Retry-After": "120"})
    box.post(f"{service.url}/x", json=1, key="k")
    monkeypatch.setattr(Dispatcher, "_noted", slowly(Dispatcher._noted))
    assert box.flush_sync(20) == once.Flushed(0, 1, 0, 1)


def slowly(noted: Callable[[Dispatcher, Statement], bool]) -> Callable[[Dispatcher, Statement], bool]:
    """A note that is stored, and a thread that then has to wait for the processor."""

    def later(courier: Dispatcher, note: Statement) -> bool:
        is_noted = noted(courier, note)
        time.sleep(1.5)  # longer than the courier waits for its next look
        return is_noted

    return later


@pytest.mark.parametrize("how", [DRIP, BROKEN, ENDLESS])
def test_an_answer_that_drips_breaks_off_or_never_ends_holds_no_thread(
    tmp_path: Path, service: CounterService, how: int
) -> None:
    box = Outbox(tmp_path / "outbox.db", timeout=0.5, lease=5, **QUICK)
    service.answer("/x", how)
    box.post(f"{service.url}/x", json=1, key="k")
    found = box.flush_sync(20)
    # Of an endless one enough has come; the others are no answers, and the message goes again.
    assert (found.delivered, found.failed) == (1, 0 if how == ENDLESS else 1)
    assert set(service.keys()) == {'"k"'}
    box.close()


def test_a_side_that_does_not_answer_is_left_at_the_timeout(tmp_path: Path, service: CounterService) -> None:
    box = Outbox(tmp_path / "outbox.db", timeout=0.3, lease=5, **QUICK)
    service.gate.clear()
    box.post(f"{service.url}/x", json=1, key="k")
    box.flush_sync(0.5)
    eventually(lambda: box.status("k").error == "no answer: timed out", "it was given up")  # type: ignore[union-attr]
    service.gate.set()
    box.flush_sync(20)
    assert (box.state("k"), set(service.keys())) == ("done", {'"k"'})
    box.close()


def test_messages_wait_for_a_side_that_is_not_reached_and_never_are_poison(tmp_path: Path) -> None:
    port = free_port()
    box = Outbox(tmp_path / "outbox.db", max_attempts=1, longest_wait=0.01)
    for number in range(3):
        box.post(f"http://{HOST}:{port}/x", json=number, key=str(number), order_by="device")
    found = box.flush_sync(0.5)
    assert (found.delivered, found.poisoned, found.left) == (0, 0, 1)
    eventually(lambda: "Connection refused" in str(box.status("0")), "it was tried")
    eventually(lambda: not list(box.messages("sent")), "the try that was under way when the time was over has ended")
    with counting(port) as service:
        assert box.flush_sync(20).delivered == 3
        assert service.keys() == ['"0"', '"1"', '"2"']
    box.close()


def test_two_runners_send_each_message_once_and_never_at_once(opened: Open, service: CounterService) -> None:
    boxes = [opened(concurrency=3) for _ in range(3)]
    service.hold_seconds = 0.01
    for number in range(40):
        boxes[0].post(f"{service.url}/x", json=number, key=str(number), order_by=number % 5 if number % 2 else None)
    threads = [threading.Thread(target=box.run) for box in boxes]
    for thread in threads:
        thread.start()
    eventually(lambda: len(service.effects) == 40 and not list(boxes[0].messages("sent")), "all arrived")
    for box in boxes:
        box.stop()
    for thread in threads:
        thread.join(25)
    assert (len(service.arrived), service.overlaps) == (40, 0)


def test_a_message_is_not_dropped_or_sent_twice_while_it_is_being_sent(opened: Open, service: CounterService) -> None:
    box, other = opened(), opened()
    service.gate.clear()
    box.post(f"{service.url}/x", json=1, key="k")
    box.flush_sync(0.3)
    assert box.state("k") == "sent"
    assert other.flush_sync(0.3) == once.Flushed(0, 0, 0, 1)
    assert not box.drop("k")
    assert not box.retry("k")
    service.gate.set()
    assert other.flush_sync(20).left == 0
    assert (box.state("k"), len(service.arrived)) == ("done", 1)


def test_run_sends_what_is_posted_meanwhile_and_stops_on_request(opened: Open, service: CounterService) -> None:
    box = opened()
    thread = threading.Thread(target=box.run)
    thread.start()
    for number in range(3):
        box.post(f"{service.url}/x", json=number, key=str(number))
        eventually(lambda key=str(number): box.state(key) == "done", "it arrived")  # type: ignore[misc]
    box.stop()
    thread.join(25)
    assert not thread.is_alive()


def test_flush_leaves_the_loop_free(tmp_path: Path, service: CounterService) -> None:
    async def play() -> tuple[int, once.Flushed]:
        box = Outbox(tmp_path / "outbox.db")
        await box.post_async(f"{service.url}/x", json=1, key="k")
        task = asyncio.create_task(box.flush(timeout=20))
        ticks = 0
        while not task.done():
            ticks += 1
            await asyncio.sleep(0.01)
        found = await task
        box.close()
        return ticks, found

    service.hold_seconds = 0.2
    ticks, found = asyncio.run(play())
    assert found.delivered == 1
    assert ticks > 3


def test_a_full_outbox_takes_no_message_but_knows_those_it_has(opened: Open, service: CounterService) -> None:
    box = opened(max_messages=2)
    for key in ("a", "b"):
        box.post(f"{service.url}/x", json=1, key=key)
    with pytest.raises(once.OutboxFull, match="2 undelivered messages"):
        box.post(f"{service.url}/x", json=1, key="c")
    assert not box.post(f"{service.url}/x", json=1, key="a").fresh
    box.flush_sync(20)
    assert box.post(f"{service.url}/x", json=1, key="c").fresh


def test_the_limit_is_exact_in_a_process_and_sees_other_processes_after_a_while(opened: Open) -> None:
    clock = Clock()
    box, other = (opened(max_messages=5, monotonic=lambda: clock.monotonic) for _ in range(2))

    def posted(to: Outbox) -> int:
        """How many messages go in."""
        for number in itertools.count():
            try:
                to.post("http://x/", json=1)
            except once.OutboxFull:
                return number
        raise AssertionError

    box.post("http://x/", json=1, key="first")
    assert posted(other) == 4
    box.post("http://x/", json=1)  # it has counted before the other one posted
    clock.monotonic += LOOK_SECONDS
    assert (posted(box), posted(other)) == (0, 0)
    box.drop("first")
    assert (posted(box), posted(other)) == (0, 0)
    assert box.drop(next(box.messages()).key)
    assert (posted(box), posted(other)) == (1, 0)


def test_a_done_message_keeps_its_key_for_keep_and_is_removed_with_later_writes(
    tmp_path: Path, service: CounterService
) -> None:
    clock = Clock()
    box = Outbox(
        tmp_path / "outbox.db", keep="1h", clock=lambda: clock.wall, monotonic=lambda: clock.monotonic, **QUICK
    )
    for number in range(6):
        box.post(f"{service.url}/x", json=number, key=str(number), headers={"Authorization": "hunter2"})
    box.flush_sync(20)
    raw = (tmp_path / "outbox.db").read_bytes() + (tmp_path / "outbox.db-wal").read_bytes()
    assert b"hunter2" in raw  # it was stored, as the docs say
    with sqlite3.connect(tmp_path / "outbox.db") as look:
        assert look.execute("SELECT DISTINCT headers, length(body) FROM semel_outbox").fetchall() == [("{}", 0)]
    look.close()
    clock.wall += 3_601
    box.post(f"{service.url}/x", json=6, key="6")
    box.flush_sync(20)
    assert len(list(box.messages())) == 7  # the clock has jumped, and may jump back
    clock.monotonic += 3_601
    for number in range(7, 9):
        box.post(f"{service.url}/x", json=number, key=str(number))
        box.flush_sync(20)
    assert [one.key for one in box.messages()] == ["7", "8"]
    box.close()


@pytest.mark.parametrize("jump", [10_000_000.0, -10_000_000.0])
def test_a_system_clock_that_jumps_ends_no_lease_and_delays_no_message(
    tmp_path: Path, service: CounterService, jump: float
) -> None:
    clock = Clock()
    box, other = (Outbox(tmp_path / "outbox.db", clock=lambda: clock.wall, **QUICK) for _ in range(2))
    service.answer("/again", 429)
    box.post(f"{service.url}/again", json=1, key="again")
    assert other.state("again") == "queued"
    service.gate.clear()
    box.flush_sync(0.3)
    eventually(lambda: len(service.arrived) == 1, "it is being sent")
    clock.wall += jump
    assert other.flush_sync(0.3).left == 1
    assert len(service.arrived) == 1
    service.gate.set()
    assert other.flush_sync(20).left == 0
    assert (box.state("again"), len(service.arrived)) == ("done", 2)
    box.close()
    other.close()


def test_after_a_restart_of_the_machine_a_wait_is_at_most_as_long_as_it_was(tmp_path: Path) -> None:
    clock = Clock()
    sent: list[str] = []

    def transport(message: Any, _: float) -> Delivery:
        sent.append(message.key)
        return Delivery(503, retry_after=60.0) if len(sent) == 1 else Delivery(200)

    def reopened() -> Outbox:
        return Outbox(tmp_path / "outbox.db", transport=transport, monotonic=lambda: clock.monotonic)

    box = reopened()
    box.post("http://x/", json=1, key="k")
    box.flush_sync(20)
    box.close()
    clock.monotonic = 3.0  # it counts from the start of the machine
    box = reopened()
    assert box.flush_sync(20).delivered == 1
    box.close()


def test_a_secret_is_read_for_each_try_and_stored_nowhere(
    tmp_path: Path, service: CounterService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secrets: dict[str, str] = {}
    box = Outbox(tmp_path / "outbox.db", secret=secrets.get, **QUICK)
    box.post(f"{service.url}/x", json=1, key="k", headers={"Authorization": EnvSecret("PAY_TOKEN", "Bearer ")})
    assert box.flush_sync(0.3).delivered == 0
    assert "PAY_TOKEN is not set" in str(box.status("k").error)  # type: ignore[union-attr]
    assert not service.arrived
    service.answer("/x", 401, 400)
    for secret, seconds in (("hunter1\r\nX: y", 0.2), ("hunter2", 20)):
        secrets["PAY_TOKEN"] = secret
        box.flush_sync(seconds)
    assert {one.headers["Authorization"] for one in service.arrived} == {"Bearer hunter2"}
    assert box.state("k") == "poison"
    raw = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"hunter" not in raw
    assert "hunter" not in caplog.text + str(list(box.messages()))
    assert "was set aside: refused with 400" in caplog.text
    box.close()


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    Outbox(tmp_path / "outbox.db").close()
    assert (tmp_path / "outbox.db").stat().st_mode & 0o777 == 0o600


def test_a_full_disk_is_a_typed_error_and_stores_nothing(tmp_path: Path) -> None:
    box = Outbox(tmp_path / "outbox.db")
    connection = box.store._connection  # type: ignore[attr-defined]
    connection.execute("PRAGMA max_page_count = 10")
    with pytest.raises(once.StoreUnavailable, match="full"):
        box.post("http://x/", data=b"x" * 100_000, key="large")
    assert box.state("large") is None
    box.close()


def test_what_is_wrong_with_a_place_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(once.StoreUnavailable, match="cannot be opened"):
        Outbox(tmp_path / "no" / "outbox.db")
    with pytest.raises(once.InvalidKey, match="An outbox is a file path"):
        Outbox("redis://x")
    with pytest.raises(once.InvalidKey, match="lease must be longer than timeout"):
        Outbox(tmp_path / "outbox.db", lease="5s", timeout="5s")
    box = Outbox(fresh_schema())
    with pytest.raises(once.TableMissing, match="run `semel outbox init URL`"):
        box.post("http://x/", json=1)
    with pytest.raises(once.TableMissing):
        box.run()
    box.close()


def test_a_store_that_is_away_for_a_while_does_not_end_a_run(tmp_path: Path, service: CounterService) -> None:
    box = Outbox(tmp_path / "outbox.db")
    box.post(f"{service.url}/x", json=1, key="k")
    run, faults = box.store.run, iter([once.StoreUnavailable("away")])

    def flaky(statement: Any, patience: float = 10.0) -> Any:
        with suppress(StopIteration):
            raise next(faults)
        return run(statement)

    box.store.run = flaky  # type: ignore[method-assign]
    thread = threading.Thread(target=box.run)
    thread.start()
    eventually(lambda: len(service.effects) == 1, "it arrived")
    box.close()
    thread.join(25)
    assert not thread.is_alive()


def test_posting_loads_nothing_that_sends(tmp_path: Path) -> None:
    code = (
        "import sys; from semel import once; "
        f"once.Outbox({str(tmp_path / 'o.db')!r}).post('http://x/', json=1); assert 'http.client' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_receiver_that_is_down_or_full_makes_no_poison(opened: Open, service: CounterService) -> None:
    box = opened(max_attempts=1)
    service.answer("/x", 503, 429, 502, 504, 503)
    service.answer("/x", 500, headers={"Retry-After": "0"})
    box.post(f"{service.url}/x", json=1, key="k")
    assert box.flush_sync(20) == once.Flushed(1, 6, 0, 0)


@pytest.mark.parametrize("answer", [429, 503])
def test_what_never_took_effect_is_given_up_by_its_age_and_what_may_have_is_unknown(
    tmp_path: Path, answer: int
) -> None:
    clock = Clock()
    box = Outbox(
        tmp_path / "outbox.db",
        transport=lambda *_: Delivery(answer),
        clock=lambda: clock.wall,
        monotonic=lambda: clock.monotonic,
    )
    box.post("http://x/", json=1, key="k", order_by="a")
    box.post("http://x/", json=1, key="behind", order_by="a")
    for hours in (22, 40, 0):
        assert box.flush_sync(0.2).poisoned == 0
        clock.wall, clock.monotonic = clock.wall + 3_600 * hours, clock.monotonic + 3_600 * hours
    before = box.status("k")
    assert before is not None
    if answer == 503:
        assert (before.state, before.attempts, before.status) == ("unknown", 2, 503)
    else:
        assert (before.state, before.attempts, before.status) == ("queued", 3, 429)
        clock.wall, clock.monotonic = clock.wall + 36_000, clock.monotonic + 36_000
        assert box.flush_sync(0.2) == once.Flushed(0, 0, 1, 0)
        assert "not delivered in 259200 s" in str(box.status("k"))
        assert box.status("k").attempts == 3  # type: ignore[union-attr]
    assert box.state("behind") == "queued"
    assert box.retry("k")
    assert box.flush_sync(0.2) == once.Flushed(0, 1, 0, 1)
    assert box.drop("k")
    assert box.flush_sync(0.2) == once.Flushed(0, 1, 0, 1)
    assert box.status("behind").attempts == 1  # type: ignore[union-attr]
    box.close()


def test_a_retry_forgets_what_may_have_arrived_only_where_the_operator_was_told(tmp_path: Path) -> None:
    clock = Clock()
    answers = [Delivery(error="no answer"), Delivery(404)]
    box = Outbox(
        tmp_path / "outbox.db",
        transport=lambda *_: answers.pop(0) if answers else Delivery(200),
        clock=lambda: clock.wall,
        monotonic=lambda: clock.monotonic,
        longest_wait=0,
    )
    box.post("http://x/", json=1, key="k")
    assert box.flush_sync(1).poisoned == 1
    clock.wall, clock.monotonic = clock.wall + 86_400, clock.monotonic + 86_400
    assert box.retry("k")
    assert box.flush_sync(1) == once.Flushed(0, 0, 0, 0, unknown=1)
    assert box.retry("k")
    assert box.flush_sync(1).delivered == 1
    box.close()


def test_messages_behind_one_that_leaves_its_order_go_on_whoever_removes_it(
    opened: Open, service: CounterService
) -> None:
    box, other = opened(), opened()
    service.answer("/bad", 404)
    box.post(f"{service.url}/bad", json=1, key="bad", order_by="a")
    for number in range(3):
        box.post(f"{service.url}/x", json=number, key=str(number), order_by="a")
    assert box.flush_sync(20) == once.Flushed(0, 0, 1, 0)
    assert {one.wait_seconds for one in box.messages("queued")} == {0.0}
    assert other.drop("bad")
    assert box.flush_sync(20).delivered == 3
    assert service.keys("/x") == ['"0"', '"1"', '"2"']


def test_a_message_behind_is_looked_at_again_although_nothing_told_of_the_one_before(
    tmp_path: Path, service: CounterService
) -> None:
    clock = Clock()
    box = Outbox(tmp_path / "outbox.db", clock=lambda: clock.wall, monotonic=lambda: clock.monotonic)
    service.answer("/bad", 404)
    for path in ("bad", "x"):
        box.post(f"{service.url}/{path}", json=1, key=path, order_by="a")
    assert box.flush_sync(20).poisoned == 1
    with sqlite3.connect(tmp_path / "outbox.db") as file:
        file.execute("DELETE FROM semel_outbox WHERE key = 'bad'")  # as a crash between drop and its second statement
    file.close()
    assert box.flush_sync(20).delivered == 0
    clock.monotonic += FIRST_BEHIND_MS / 1_000
    assert box.flush_sync(20).delivered == 1
    box.close()


def test_a_table_of_an_older_form_is_refused_by_name_and_left_as_it_is(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "outbox.db") as file:
        old = re.sub(r"  (begun|arrived|retried)_at \w+,\n", "", once.outbox_ddl("sqlite"))
        file.executescript(old.partition("CREATE INDEX")[0])
        before = file.execute("SELECT * FROM sqlite_master").fetchall()
        with pytest.raises(once.TableMismatch, match=r"semel_outbox .*it lacks arrived_at, begun_at, retried_at"):
            Outbox(tmp_path / "outbox.db")
        assert file.execute("SELECT * FROM sqlite_master").fetchall() == before
    file.close()


def test_no_message_is_forgotten_behind_one_that_is_done_while_it_is_posted(opened: Open) -> None:
    box, *others = (opened(transport=lambda *_: Delivery(200), concurrency=4) for _ in range(3))
    runners = [threading.Thread(target=one.run) for one in (box, *others)]

    def write(number: int) -> None:
        for _ in range(60):
            others[number % 2].post("http://x/", json=1, order_by=number % 3)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in (*runners, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    eventually(
        lambda: not box.store.run(Statement("SELECT 1 FROM semel_outbox WHERE state = 'queued'")), "all were sent"
    )
    left = box.store.run(Statement("SELECT number FROM semel_outbox WHERE state = 'behind'"))
    for one in (box, *others):
        one.stop()
    for thread in runners:
        thread.join(25)
    assert left == []


def test_a_sender_that_comes_back_after_its_lease_changes_nothing(opened: Open) -> None:
    entered, go_on = threading.Event(), threading.Event()
    sent: list[str] = []

    def slow(message: Any, _: float) -> Delivery:
        sent.append(message.key)
        entered.set()
        go_on.wait(25)
        return Delivery(200)

    box = opened(transport=slow, timeout=0.05, lease=0.1)
    other = opened(transport=lambda *_: Delivery(404))
    box.post("http://x/", json=1, key="first")
    box.flush_sync(0.05)
    assert entered.wait(25)
    eventually(lambda: box.drop("first"), "its lease is over")
    other.post("http://x/", json=1, key="second")  # in a file it has the number of the first
    go_on.set()
    box.close()
    assert (sent, other.state("second")) == (["first"], "queued")
    assert other.flush_sync(20).poisoned == 1


def test_a_flush_tries_at_once_what_was_not_reached_and_lets_what_was_refused_wait(opened: Open) -> None:
    tries: list[str] = []
    found = {"unseen": Delivery(error="no connection", is_seen=False), "refused": Delivery(503, retry_after=900)}

    def transport(message: Any, _: float) -> Delivery:
        tries.append(message.key)
        return found[message.key]

    box = opened(transport=transport, longest_wait=900, chance=random.Random(1))
    for key in found:
        box.post("http://x/", json=1, key=key)
    for _ in range(4):
        box.flush_sync(0.3)  # it is over when the next wait is longer than that
    assert (tries.count("unseen"), tries.count("refused")) == (4, 1)


def test_https_is_checked_before_anything_is_sent(tmp_path: Path) -> None:
    file = tmp_path / "certificate.pem"
    file.write_text(CERTIFICATE)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(file)
    box = Outbox(tmp_path / "outbox.db", **QUICK)
    trusting = Outbox(tmp_path / "outbox.db", tls=ssl.create_default_context(cafile=str(file)), **QUICK)
    with counting(tls=theirs) as service:
        box.post(f"{service.url}/x", data=b"x" * 300_000, key="k")
        assert box.flush_sync(0.3).delivered == 0
        eventually(lambda: "certificate verify failed" in str(box.status("k")), "it was tried")
        eventually(lambda: box.state("k") == "queued", "no try is under way")
        assert not service.arrived
        assert trusting.flush_sync(20).delivered == 1
        assert [len(one.body) for one in service.arrived] == [300_000]
    box.close()
    trusting.close()


def test_a_key_that_is_missing_is_no_key_to_make_up(tmp_path: Path) -> None:
    """`key=order.number` of an order without a number would be another message at each retry."""
    with closing(Outbox(tmp_path / "outbox.db")) as box:
        for key in (None, object(), True):
            with pytest.raises(InvalidKey):
                box.post("http://x/", json=1, key=key)
            for act in (box.state, box.status, box.retry, box.drop):
                with pytest.raises(InvalidKey):
                    act(key)
        assert list(box.messages()) == []


def test_a_connection_is_no_place_of_an_outbox() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        for place in (connection, None, 5):
            with pytest.raises(UnsupportedConnection, match=r"Outbox.in_transaction takes your connection"):
                Outbox(place)  # type: ignore[arg-type]
