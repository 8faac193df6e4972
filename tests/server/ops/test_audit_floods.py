"""Floods of audit lines: they are paced and counted, and what matters stays on record whatever else is noted."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel.server.ops import audit_log, audit_rate_limit
from semel.server.ops.audit_log import FILE_NAME, IMPORTANT_NAME, PACED_LINES, AuditLog
from semel.server.ops.rotated_file import KEPT, MAX_BYTES
from tests.cli.command import Semel
from tests.engine.toy import ToyWorld
from tests.harness.server import RunningServer
from tests.harness.together import at_once

ALL_FILES_BYTES = MAX_BYTES * (KEPT + 1)
LINE_BYTES = 150
"""Less than any line that is noted here."""
COLLISION: dict[str, Any] = {"key_prefix": "k", "job_id": "job_1", "remote_addr": "192.0.2.1"}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk is not given up because this machine stood still."""
    monkeypatch.setattr(audit_log, "WAIT_SECONDS", 60.0)


def lines(folder: Path) -> list[dict[str, Any]]:
    """Every line of every audit file."""
    files = sorted(folder.glob("audit*.jsonl*"))
    return [json.loads(line) for file in files for line in file.read_bytes().splitlines()]


def counted(found: list[dict[str, Any]]) -> Counter[tuple[str, str, str]]:
    """How many happened of each kind, by address and reason: each line stands for itself and for those left out."""
    total: Counter[tuple[str, str, str]] = Counter()
    for line in found:
        details = line["details"]
        key = line["event"], details.get("remote_addr", ""), details.get("reason", "")
        total[key] += 1 + details.get("suppressed", 0)
    return total


def test_b2_a_flood_larger_than_all_files_leaves_a_collision_and_adds_up(tmp_path: Path) -> None:
    flood = ALL_FILES_BYTES // LINE_BYTES + 1
    world = ToyWorld(1_709_164_800_000)

    async def work() -> None:
        log = AuditLog(tmp_path, world)
        log.note("IDEMPOTENCY_KEY_COLLISION", COLLISION)
        await log.written()
        for number in range(flood):
            address = f"192.0.2.{number % 3}"
            log.note("AUTH_FAILURE", {"reason": "bad_token", "path": "/v1/jobs/claim", "remote_addr": address})
            if number % 10_000 == 0:
                world.pass_ms(1_000)
                await log.written()
        for number in range(100_000):
            log.note("IDEMPOTENCY_HIT", {"key_prefix": "k", "status": "queued", "job_id": f"job_{number}"}, "192.0.2.9")
        log.close()

    asyncio.run(work())
    found = lines(tmp_path)
    assert [line["details"] for line in found if line["event"] == "IDEMPOTENCY_KEY_COLLISION"] == [COLLISION]
    total = counted(found)
    assert sum(count for (event, _, _), count in total.items() if event == "AUTH_FAILURE") == flood
    assert {total["AUTH_FAILURE", f"192.0.2.{one}", "bad_token"] for one in range(3)} == {flood // 3, flood // 3 + 1}
    assert total["IDEMPOTENCY_HIT", "", ""] == 100_000
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < MAX_BYTES
    assert not list(tmp_path.glob("*.1"))


def test_b2_sources_are_told_apart_within_bounds_and_nothing_goes_uncounted(tmp_path: Path) -> None:
    callers, each = 20_000, 3
    world = ToyWorld(1_709_164_800_000)
    log = AuditLog(tmp_path, world)
    for _ in range(each):
        for number in range(callers):
            address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
            log.note("AUTH_FAILURE", {"reason": "bad_token", "path": "/" * 10_000, "remote_addr": address})
    assert len(log._pace._accounts) <= audit_rate_limit.MAX_SOURCES + 1
    log.close()
    total = counted(lines(tmp_path))
    assert sum(total.values()) == callers * each
    assert len(lines(tmp_path)) <= audit_rate_limit.MAX_SOURCES * each + PACED_LINES.burst + 1


def test_b2_quiet_sources_make_room_for_new_ones() -> None:
    pace = audit_rate_limit.LinePace()
    for turn in range(3):
        now = turn * PACED_LINES.burst * PACED_LINES.refill_ms
        for number in range(audit_rate_limit.MAX_SOURCES):
            source = audit_rate_limit.source_of("AUTH_FAILURE", f"{turn}-{number}", "bad_token")
            assert pace.take(source, PACED_LINES, now, now, [{}]) == [0]
        assert len(pace._accounts) <= audit_rate_limit.MAX_SOURCES + 1


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_b2_the_addresses_of_one_network_are_one_source(one: str, other: str, is_same: bool) -> None:
    sources = {audit_rate_limit.source_of("AUTH_FAILURE", address, "bad_token") for address in (one, other)}
    assert len(sources) == (1 if is_same else 2)


def test_lines_that_are_noted_together_are_those_that_are_noted_one_by_one(tmp_path: Path) -> None:
    chance = random.Random(1)
    worlds = [ToyWorld(1_709_164_800_000) for _ in range(2)]
    one_by_one, together = (AuditLog(tmp_path / name, world) for name, world in zip("ab", worlds, strict=True))
    number = 0
    for _ in range(200):
        many = [{"key_prefix": "k", "job_id": f"job_{number + one}"} for one in range(chance.randrange(1, 40))]
        number += len(many)
        address = chance.choice(("192.0.2.1", "192.0.2.2", "2001:db8::1"))
        for details in many:
            one_by_one.note("IDEMPOTENCY_HIT", details, address)
        together.note_all("IDEMPOTENCY_HIT", many, address)
        passed_ms = chance.choice((0, 1, 500, 30_000))
        for world, log in zip(worlds, (one_by_one, together), strict=True):
            world.pass_ms(passed_ms)
            log._tell_held(is_end=False)
    one_by_one.close()
    together.close()
    assert lines(tmp_path / "a") == lines(tmp_path / "b")
    assert sum(counted(lines(tmp_path / "b")).values()) == number
    assert len(lines(tmp_path / "b")) < number / 2


def test_b2_the_rate_of_a_source(tmp_path: Path) -> None:
    """A burst, then one line in ten seconds; other reasons and addresses are not held up by it."""
    world = ToyWorld(1_709_164_800_000)
    log = AuditLog(tmp_path, world)

    def fail(reason: str = "bad_token", address: str = "192.0.2.1") -> None:
        log.note("AUTH_FAILURE", {"reason": reason, "remote_addr": address})

    for _ in range(PACED_LINES.burst + 100):
        fail()
    for _ in range(10):
        fail("missing_token")
        fail(address="192.0.2.2")
    world.pass_ms(PACED_LINES.refill_ms)
    fail()
    fail()
    world.pass_ms(PACED_LINES.refill_ms)
    log._tell_held(is_end=False)
    world.pass_ms(1)
    fail()
    log.close()
    found = [line["details"] for line in lines(tmp_path)]
    assert len(found) == PACED_LINES.burst + 10 + 10 + 3
    assert [one["suppressed"] for one in found if "suppressed" in one] == [100]
    assert sum(counted(lines(tmp_path)).values()) == PACED_LINES.burst + 100 + 20 + 3


def test_b2_important_lines_do_not_wait_behind_a_disk_that_others_fill(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).symlink_to("/dev/full")

    async def work() -> None:
        log = AuditLog(tmp_path, ToyWorld(1_709_164_800_000))
        for number in range(50_000):
            log.note("LEASE_REAP", {"job_id": f"job_{number}", "fill": "x" * 100})
        log.note("IDEMPOTENCY_KEY_COLLISION", COLLISION)
        await log.written()
        assert log.lost_lines > 0
        assert log.is_broken
        [line] = (tmp_path / IMPORTANT_NAME).read_bytes().splitlines()
        assert json.loads(line)["details"] == COLLISION
        (tmp_path / FILE_NAME).unlink()
        log.close()

    asyncio.run(work())


def test_b2_a_server_under_a_storm_keeps_the_collision_and_counts_the_rest(tmp_path: Path) -> None:
    """Refused credentials and repeats of one job, and a key that collided before; `semel audit watch` sees all."""
    strangers, repeats, threads = 400, 300, 4
    env = {"SEMEL_STORE": "memory:", "SEMEL_TOKEN_ACTIVE": "the-token"}
    known = {"Authorization": "Bearer the-token"}
    job = {"kind": "k", "params": {}, "idempotency_key": "the-key-of-the-job"}

    def storm(url: str) -> None:
        with httpx.Client(base_url=url) as client:
            for _ in range(strangers):
                assert client.get("/v1/streams", headers={"Authorization": "Bearer wrong"}).status_code == 401
            for _ in range(repeats):
                assert client.post("/v1/jobs", json=job, headers=known).status_code == 200

    with RunningServer(tmp_path / "data", env=env) as server:
        assert httpx.post(f"{server.url}/v1/jobs", json=job, headers=known).status_code in (200, 201)
        other = job | {"params": {"another": 1}}
        assert httpx.post(f"{server.url}/v1/jobs", json=other, headers=known).status_code == 409
        at_once([lambda: storm(server.url)] * threads)
    logs = server.data / "logs"
    important = [json.loads(line) for line in (logs / IMPORTANT_NAME).read_bytes().splitlines()]
    assert [line["event"] for line in important] == ["IDEMPOTENCY_KEY_COLLISION"]
    total = counted(lines(logs))
    assert total["AUTH_FAILURE", "127.0.0.1", "bad_token"] == strangers * threads
    assert total["IDEMPOTENCY_HIT", "", ""] == repeats * threads
    watched = Semel(server.url).here("audit", "watch", "--data", str(server.data), "--once", "--dry-run", "--json")
    alerts = [json.loads(line) for line in watched.out.splitlines()]
    assert {alert["event"] for alert in alerts} == {"BURST_AUTH_FAILURE"}
    one = Semel(server.url).here(
        "audit", "watch", "--data", str(server.data), "--once", "--dry-run", "--json", "--above", str(strangers)
    )
    assert "BURST_AUTH_FAILURE" in one.out, "what was left out is counted too"


def test_b2_a_burst_of_collisions_is_found_in_the_file_of_important_lines(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "logs", ToyWorld(1_709_164_800_000))
    for _ in range(21):
        log.note("IDEMPOTENCY_KEY_COLLISION", COLLISION)
        log.note("AUTH_FAILURE", {"reason": "bad_token", "path": "/", "remote_addr": "192.0.2.1"})
    log.close()
    run = Semel("http://127.0.0.1:9").here("audit", "watch", "--data", str(tmp_path), "--once", "--json")
    assert {json.loads(line)["event"] for line in run.out.splitlines()} == {"BURST_COLLISION", "BURST_AUTH_FAILURE"}
