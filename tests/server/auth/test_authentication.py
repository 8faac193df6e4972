"""A credential is judged once, counted once and, where it failed, on record; nothing of it is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from semel.server.auth.authentication import admit, watch_rotation
from semel.server.auth.principals import DEVELOPER, AuthOutcome, Principal, Principals, UnauthorizedError
from semel.server.auth.rotation import rotation_of
from semel.server.http.answer import Answer, StreamedAnswer
from semel.server.http.request import Request
from semel.server.ops import audit_log
from semel.server.ops.audit_log import AuditLog
from semel.server.ops.meter import Meter
from semel.server.quotas.accounts import QuotaAccount, Quotas

UNTIL_MS = 1_893_456_000_000


class Nowhere:
    """The connection of a request that is never answered."""

    account: QuotaAccount | None = None

    @property
    def connection(self) -> Nowhere:
        """It is its own connection."""
        return self

    def reply_late(self, answer: Answer, seconds: float) -> None:
        """Nothing is held back."""

    def reply(self, answer: Answer | StreamedAnswer) -> None:
        """Nothing is sent."""

    def later(self, work: Coroutine[Any, Any, Answer | StreamedAnswer]) -> None:
        """Nothing runs."""
        work.close()

    proceed = later

    def learn(self, make: Any, size: int, prefix: bytes = b"") -> None:
        """Nothing is learned."""

    async def read_piece(self) -> bytes:
        """There is no body."""
        return b""

    def bound_unsent(self, size: int) -> None:
        """There is no buffer."""

    def abort(self) -> None:
        """There is nothing to end."""


class HandClock:
    """A world whose time is set by hand."""

    def __init__(self) -> None:
        self.ms = UNTIL_MS - 60_000

    def wall_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms

    def random_bytes(self, count: int) -> bytes:
        return bytes(count)


@dataclass
class Door:
    """The real parts around one clock."""

    world: HandClock
    principals: Principals
    meter: Meter
    audit: AuditLog
    folder: Path

    @property
    def quotas(self) -> Quotas:
        """None is set."""
        return Quotas(self.audit, lambda: 0.0)

    def enter(self, **headers: str) -> Principal:
        pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        return admit(self, Request(Nowhere(), "GET", b"/v1/jobs", b"q=private", pairs, client=("192.0.2.7", 4_711)))

    def refused(self, **headers: str) -> AuthOutcome:
        with pytest.raises(UnauthorizedError) as refused:
            self.enter(**headers)
        return refused.value.outcome

    def lines(self) -> list[tuple[str, dict[str, str]]]:
        """What is on record, at the end."""
        self.audit.close()
        text = "".join(file.read_text() for file in sorted(self.folder.glob("audit*.jsonl")))
        assert "secret" not in text
        assert "private" not in text
        return [(line["event"], line["details"]) for line in map(json.loads, text.splitlines())]


def door(folder: Path, principals: Principals) -> Door:
    world = HandClock()
    return Door(world, principals, Meter(world.monotonic_ms), AuditLog(folder, world), folder)


@pytest.fixture
def rotating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    monkeypatch.setattr(audit_log, "WAIT_SECONDS", 60.0)  # a disk is not given up because this machine stood still
    made = door(tmp_path, Principals(rotation=rotation_of("old-secret", "new-secret", "2030-01-01T00:00:00Z")))
    yield made
    made.audit.close()


WHERE = {"path": "/v1/jobs", "remote_addr": "192.0.2.7"}


def test_through_a_rotation(rotating: Door) -> None:
    assert rotating.enter(authorization="Bearer old-secret").name == "default"
    assert rotating.enter(x_semel_token="new-secret") == DEVELOPER
    rotating.world.ms = UNTIL_MS
    assert rotating.refused(x_sheratan_token="old-secret") is AuthOutcome.RETIRED
    assert rotating.enter(x_semel_token="new-secret") == DEVELOPER
    assert rotating.meter.totals == {
        "auth_success_active": 1,
        "auth_success_next": 2,
        "auth_fail": 1,
        "auth_fail_old_token": 1,
    }
    assert rotating.lines() == [
        ("TOKEN_ACCEPTED_NEXT", WHERE),
        ("AUTH_FAILURE", {"reason": "retired_token", **WHERE}),
        ("TOKEN_RETIRED", WHERE),
    ]


def test_every_failure_is_counted_and_on_record(rotating: Door) -> None:
    assert rotating.refused() is AuthOutcome.MISSING
    assert rotating.refused(authorization="Bearer wrong-secret") is AuthOutcome.BAD
    assert rotating.refused(authorization="Basic secret") is AuthOutcome.BAD
    assert rotating.refused(authorization="Bearer old-secret", x_semel_token="new-secret") is AuthOutcome.BAD
    assert rotating.meter.totals == {"auth_fail": 4}
    reasons = [details["reason"] for event, details in rotating.lines() if event == "AUTH_FAILURE"]
    assert reasons == ["missing_token", "bad_token", "bad_token", "bad_token"]


def test_without_credentials_nothing_is_judged(tmp_path: Path) -> None:
    free = door(tmp_path, Principals())
    assert free.enter(authorization="Basic secret") is DEVELOPER
    assert not free.meter.totals
    free.audit.close()
    assert not (tmp_path / "audit.jsonl").exists()


def test_the_end_of_a_rotation_is_on_record_once(rotating: Door) -> None:
    async def pass_the_instant() -> None:
        rotating.world.ms = UNTIL_MS - 20
        watching = asyncio.create_task(watch_rotation(rotating))
        await asyncio.sleep(0.05)
        assert not watching.done()
        rotating.world.ms = UNTIL_MS
        await asyncio.wait_for(watching, 30)

    asyncio.run(pass_the_instant())
    assert rotating.lines() == [("TOKEN_ROTATION_FINALIZED", {})]
