"""The audit log: lines in time and in order, rare ones counted, and disks that fail without taking the server along."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
import pytest

from semel.server.ops import audit_log
from semel.server.ops.audit_log import FILE_NAME, MAX_LINE_BYTES, WAIT_SECONDS, AuditLog
from semel.server.ops.rotated_file import MAX_WAITING_BYTES, kept_name
from semel.server.settings_loader import make_settings
from tests.cli.command import Semel
from tests.engine.toy import ToyWorld
from tests.harness.server import RunningServer
from tests.harness.together import eventually

SECONDS = 60.0
FULL = Path("/dev/full")  # takes no byte, as a full disk does


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk is not given up because this machine stood still."""
    monkeypatch.setattr(audit_log, "WAIT_SECONDS", SECONDS)


def lines(folder: Path) -> list[dict[str, Any]]:
    content = (folder / FILE_NAME).read_bytes()
    assert content.endswith(b"\n")
    return [json.loads(line) for line in content.splitlines()]


def run(work: Callable[[AuditLog, ToyWorld], Awaitable[None]], folder: Path) -> AuditLog:
    """Do something with a log, which is closed afterwards."""

    async def whole() -> AuditLog:
        world = ToyWorld(1_709_164_800_007)
        log = AuditLog(folder, world)
        try:
            await work(log, world)
        finally:
            log.close()
        return log

    return asyncio.run(whole())


async def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def test_a_line_is_in_the_file_when_it_was_waited_for(tmp_path: Path) -> None:
    async def work(log: AuditLog, world: ToyWorld) -> None:
        await log.written()
        assert not tmp_path.joinpath("logs").exists(), "nothing is made for nothing"
        log.note("LEASE_REAP", {"job_id": "job_1", "attempt": 2})
        await log.written()
        assert lines(tmp_path / "logs") == [
            {
                "ts": "2024-02-29T00:00:00.007Z",
                "event": "LEASE_REAP",
                "details": {"job_id": "job_1", "attempt": 2},
            }
        ]

    log = run(work, tmp_path / "logs")
    assert (log.lines, log.lost_lines, log.write_errors, log.is_broken) == (1, 0, 0, False)


def test_the_others_are_written_by_the_task_and_the_rest_at_the_end(tmp_path: Path) -> None:
    async def work(log: AuditLog, world: ToyWorld) -> None:
        task = asyncio.create_task(log.run())
        log.note("A", {})
        await until((tmp_path / FILE_NAME).exists)
        task.cancel()
        log.note("B", {})

    assert run(work, tmp_path).lines == 2
    assert [line["event"] for line in lines(tmp_path)] == ["A", "B"]


def test_written_lines_are_synced_though_nothing_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[os.stat_result] = []
    sync = os.fsync

    def told(handle: int) -> None:
        sync(handle)
        synced.append(os.fstat(handle))

    def is_synced() -> bool:
        """Threads of other tests sync other files."""
        path = tmp_path / FILE_NAME
        return path.exists() and any(
            status.st_size and os.path.samestat(status, path.stat()) for status in list(synced)
        )

    async def work(log: AuditLog, world: ToyWorld) -> None:
        task = asyncio.create_task(log.run())
        log.note("A", {})
        await until(is_synced)
        task.cancel()

    monkeypatch.setattr(os, "fsync", told)
    run(work, tmp_path)


def test_many_threads_and_many_waiters_lose_and_double_nothing(tmp_path: Path) -> None:
    async def work(log: AuditLog, world: ToyWorld) -> None:
        async def collide(number: int) -> None:
            log.note("COLLISION", {"n": number})
            await log.written()
            assert f'"n":{number}}}' in (tmp_path / FILE_NAME).read_text()

        def shout() -> None:
            for number in range(500):
                log.note("SHOUT", {"n": number})

        threads = [threading.Thread(target=shout) for _ in range(4)]
        for thread in threads:
            thread.start()
        await asyncio.gather(*(collide(number) for number in range(100)))
        for thread in threads:
            thread.join()

    run(work, tmp_path)
    found = [(line["event"], line["details"]["n"]) for line in lines(tmp_path)]
    assert sorted(found) == sorted([("SHOUT", n) for n in range(500)] * 4 + [("COLLISION", n) for n in range(100)])


def test_rare_ones_say_how_many_they_stand_for(tmp_path: Path) -> None:
    async def work(log: AuditLog, world: ToyWorld) -> None:
        for number in range(5):
            log.note_rarely("DROP", {"depth": number})
        log.note_rarely("OTHER", {})
        world.pass_ms(10_000)
        log.note_rarely("DROP", {"depth": 5})
        world.pass_ms(10_000)
        log.note_rarely("DROP", {"depth": 6})
        log.note_rarely("DROP", {"depth": 7})
        log.note_rarely("DROP", {"depth": 8})

    run(work, tmp_path)
    assert [(line["event"], line["details"]) for line in lines(tmp_path)] == [
        ("DROP", {"depth": 0}),
        ("OTHER", {}),
        ("DROP", {"depth": 5, "suppressed": 4}),
        ("DROP", {"depth": 6}),
        ("DROP", {"depth": 8, "suppressed": 1}),  # the end tells what was still held back
    ]


def test_what_was_held_back_is_told_though_nothing_follows(tmp_path: Path) -> None:
    async def work(log: AuditLog, world: ToyWorld) -> None:
        task = asyncio.create_task(log.run())
        log.note_rarely("DROP", {"depth": 1})
        world.pass_ms(1)
        log.note_rarely("DROP", {"depth": 2})
        await until(lambda: log.lines == 1)
        world.pass_ms(10_000)
        await until(lambda: log.lines == 2)
        task.cancel()

    run(work, tmp_path)
    assert lines(tmp_path)[1] == {"ts": "2024-02-29T00:00:00.008Z", "event": "DROP", "details": {"depth": 2}}


def test_no_detail_breaks_a_line(tmp_path: Path) -> None:
    strange: dict[str, Any] = {
        "surrogate": "\ud800",
        "large": 2**70,
        "bytes": b"\xff",
        "newline": "a\nb",
        "path": Path("x"),
    }

    async def work(log: AuditLog, world: ToyWorld) -> None:
        log.note("STRANGE", MappingProxyType(strange))
        log.note("LONG", {"path": "/" * 100_000, "remote_addr": "192.0.2.1"})
        log.note("HUGE", {"list": ["x"] * 100_000})

    run(work, tmp_path)
    found = {line["event"]: line["details"] for line in lines(tmp_path)}
    assert (found["STRANGE"]["large"], found["STRANGE"]["newline"]) == (2**70, "a\nb")
    assert found["LONG"] == {"path": "/" * 1_024, "remote_addr": "192.0.2.1"}, "what is long hides nothing beside it"
    assert found["HUGE"] == {"omitted": "too_large"}
    assert max(map(len, (tmp_path / FILE_NAME).read_bytes().splitlines())) <= MAX_LINE_BYTES


def test_a_full_disk_is_counted_and_lines_wait_for_it(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).symlink_to(FULL)

    async def work(log: AuditLog, world: ToyWorld) -> None:
        log.note("A", {})
        await log.written()
        assert (log.write_errors, log.is_broken) == (1, True)
        log.note("B", {})
        await log.written()
        assert (log.write_errors, log.lines) == (2, 0)
        (tmp_path / FILE_NAME).unlink()
        await log.written()
        assert not log.is_broken
        assert [line["event"] for line in lines(tmp_path)] == ["A", "B"]

    assert run(work, tmp_path).lines == 2


def test_what_waits_is_bounded_and_the_file_tells_of_the_lost(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).symlink_to(FULL)

    async def work(log: AuditLog, world: ToyWorld) -> None:
        log.note("A", {})
        await log.written()
        for _ in range(MAX_WAITING_BYTES // 1_000 + 100):
            log.note("B", {"fill": "x" * 1_000})
        assert 100 < log.lost_lines < 500
        (tmp_path / FILE_NAME).unlink()

    log = run(work, tmp_path)
    found = lines(tmp_path)
    assert found[-1]["event"] == "AUDIT_LINES_LOST"
    assert found[-1]["details"] == {"lines": log.lost_lines}
    assert len(found) == log.lines
    assert len(found) + log.lost_lines == 1 + MAX_WAITING_BYTES // 1_000 + 100 + 1


def test_a_disk_that_hangs_holds_up_nobody_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe that nobody reads takes 64 KiB and then stops."""
    monkeypatch.setattr(audit_log, "WAIT_SECONDS", WAIT_SECONDS)
    os.mkfifo(tmp_path / FILE_NAME)
    reader = os.open(tmp_path / FILE_NAME, os.O_RDONLY | os.O_NONBLOCK)

    async def work(log: AuditLog, world: ToyWorld) -> None:
        for _ in range(200):
            log.note("A", {"fill": "x" * 1_000})
        await log.written()
        assert (log.is_broken, log.lines) == (True, 0)
        monkeypatch.setattr(audit_log, "WAIT_SECONDS", SECONDS)
        os.set_blocking(reader, True)
        left = 200
        while left:
            left -= (await asyncio.to_thread(os.read, reader, 65_536)).count(b"\n")
        await log.written()
        assert (log.is_broken, log.lines) == (False, 200)

    run(work, tmp_path)
    os.close(reader)


def test_a_disk_that_answers_just_when_it_was_given_up_is_not_broken_for_good(tmp_path: Path) -> None:
    async def work(log: AuditLog, world: ToyWorld) -> None:
        log.note("A", {})
        await log.written()
        log._fail("the disk does not answer")  # as whoever waited says, a moment after the last line was written
        task = asyncio.create_task(log.run())
        await until(lambda: not log.is_broken)
        task.cancel()

    assert run(work, tmp_path).lines == 1


def test_a_closed_log_is_silent(tmp_path: Path) -> None:
    async def work(log: AuditLog, world: ToyWorld) -> None:
        log.close()
        log.note("A", {})
        await log.written()

    run(work, tmp_path)
    assert not (tmp_path / FILE_NAME).exists()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    """One whose folder of logs is a file, so that no audit line can be written."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "logs").write_bytes(b"in the way")
    tokens = tmp_path / "tokens.toml"
    hashed = sha256(b"planted").hexdigest()
    tokens.write_text(f'[[token]]\nsha256 = "{hashed}"\nname = "ops"\nroles = ["read", "write", "admin"]\n')
    with RunningServer(data, env={"SEMEL_STORE": "memory:", "SEMEL_TOKENS": str(tokens)}) as running:
        yield running


def test_a_server_goes_on_without_its_audit_disk_and_says_so(server: RunningServer) -> None:
    known = {"Authorization": "Bearer planted"}

    def metric(name: str) -> float:
        answer = httpx.get(server.url + "/metrics", headers=known)
        return float(answer.raise_for_status().json()[name])

    def wait_until(is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not is_so():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    assert httpx.get(server.url + "/health").json().get("audit") is None
    refused = httpx.get(server.url + "/metrics?secret=planted", headers={"Authorization": "Bearer wrong-and-secret"})
    assert refused.status_code == 401
    wait_until(lambda: metric("semel_audit_write_errors_total") > 1)
    assert metric("semel_audit_lines_total") == 0
    for path in ("/health", "/livez"):
        answer = httpx.get(server.url + path)
        assert (answer.status_code, answer.json()["status"], answer.json()["audit"]) == (200, "ok", "broken")
    made = httpx.put(server.url + "/v1/stream/s", headers=known | {"Content-Type": "application/json"})
    assert made.status_code == 201

    logs = server.data / "logs"
    logs.unlink()
    wait_until(lambda: metric("semel_audit_lines_total") == 1)
    wait_until(lambda: httpx.get(server.url + "/health").json().get("audit") is None)
    found = lines(logs)
    assert [line["event"] for line in found] == ["AUTH_FAILURE"]
    assert found[0]["details"] == {"reason": "bad_token", "path": "/metrics", "remote_addr": "127.0.0.1"}
    assert server.stop() == 0
    assert "secret" not in server.output_tail()


@pytest.mark.parametrize(
    ("given", "folder"),
    [
        ({}, "data"),
        ({"data": "/var/lib/semel"}, "/var/lib/semel"),
        ({"store": "sqlite:/srv/store?vfs=x", "data": "elsewhere"}, "/srv/store"),
        ({"store": "postgresql://db/semel", "data": "/var/lib/semel"}, "/var/lib/semel"),
        ({"store": "memory:"}, "data"),
    ],
)
def test_the_logs_are_beside_the_store_that_has_a_folder(given: dict[str, str], folder: str) -> None:
    settings = make_settings(**given)
    assert settings.logs.resolve() == Path(folder, "logs").resolve()
    assert settings.within("red").logs.resolve() == Path(folder, "ns_red/logs").resolve()


def test_a_server_writes_beside_its_store_and_moves_full_files_aside(tmp_path: Path) -> None:
    store = tmp_path / "store"
    env = {"SEMEL_STORE": f"sqlite:{store}", "SEMEL_TOKEN_ACTIVE": "planted", "SEMEL_AUDIT_FILE_BYTES": "4096"}
    with RunningServer(tmp_path / "data", env=env) as server:
        for _ in range(2):  # lines that wait together are written to one file
            for _ in range(25):
                wrong = {"Authorization": "Bearer wrong"}
                assert httpx.get(f"{server.url}/v1/streams", headers=wrong).status_code == 401
            eventually((store / "logs" / FILE_NAME).exists, "the first lines are written")
    assert list((tmp_path / "data").iterdir()) == []
    assert kept_name(store / "logs" / FILE_NAME, 1).stat().st_size <= 4_096
    watched = Semel(server.url).here("audit", "watch", "--store", f"sqlite:{store}", "--once", "--dry-run", "--json")
    assert watched.facts["event"] == "BURST_AUTH_FAILURE"
