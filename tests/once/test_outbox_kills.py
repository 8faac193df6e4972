"""A sender is killed (-9) at every named point, and another goes on: how often did it take effect elsewhere?"""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from semel import once
from semel.once import Outbox
from tests.harness.guardian import guard
from tests.once.conftest import fresh_schema
from tests.once.counter import counting
from tests.once.sender import LIMITS, POINTS

SHIFT = "UPDATE semel_outbox SET begun_at = begun_at - {0}, arrived_at = arrived_at - {0}"
KEPT_MS = 23 * 3_600_000
"""How long a message is repeated that may have arrived: 24 hours less one."""
ROOT = Path(__file__).parent.parent.parent
ARRIVALS = {"stored": 0, "leased": 0, "delivered": 1, "noted": 1}
"""How often the other side has seen the message when the sender dies."""


def killed_at(point: str, place: str, messages: list[dict[str, Any]]) -> None:
    """Run a sender until it dies there."""
    guard()
    words = [sys.executable, "-m", "tests.once.sender", place, point, json.dumps(messages)]
    ended = subprocess.run(words, cwd=ROOT, timeout=90, check=False)
    assert ended.returncode == -signal.SIGKILL


@pytest.mark.parametrize(("store", "point"), [*(("sqlite", point) for point in POINTS), ("postgresql", "delivered")])
def test_a_message_takes_effect_once_wherever_its_sender_dies(tmp_path: Path, store: str, point: str) -> None:
    place = place_of(store, tmp_path)
    with counting() as service:
        message = {"url": f"{service.url}/charges", "json": {"amount": 5}, "key": "charge-7", "order_by": "customer-7"}
        killed_at(point, place, [message])
        assert len(service.arrived) == ARRIVALS[point]
        box = Outbox(place, **LIMITS)
        assert box.state("charge-7") in ("done" if point == "noted" else ("queued", "sent"))
        assert not box.post(**message).fresh  # type: ignore[arg-type]
        box.post(f"{service.url}/charges", json=1, key="behind", order_by="customer-7")
        assert box.flush_sync(25).left == 0
        box.close()
        keys = ['"charge-7"'] * (2 if point == "delivered" else 1) + ['"behind"']
        assert service.keys() == keys
        assert len({one.body for one in service.arrived[:-1]}) == 1
        assert list(service.effects) == ['"charge-7"', '"behind"']
        assert service.overlaps == 0


def place_of(store: str, folder: Path) -> str:
    """An empty outbox."""
    if store == "sqlite":
        return str(folder / "outbox.db")
    place = fresh_schema()
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute(once.outbox_ddl("postgresql").encode())
    return place


def pass_time(place: str, milliseconds: int) -> None:
    """Let attempts be as much older."""
    if "://" in place:
        with psycopg.connect(place, autocommit=True) as connection:
            connection.execute(SHIFT.format(milliseconds).encode())
    else:
        with closing(sqlite3.connect(place)) as file:
            file.execute(SHIFT.format(milliseconds))
            file.commit()


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
@pytest.mark.parametrize("point", ["stored", "leased", "delivered"])
def test_what_a_killed_sender_may_have_sent_is_not_repeated_when_its_key_may_be_forgotten(
    tmp_path: Path, store: str, point: str
) -> None:
    place = place_of(store, tmp_path)
    with counting() as service:
        message: dict[str, Any] = {"url": f"{service.url}/x", "json": 5, "key": "charge-7", "order_by": "customer-7"}
        killed_at(point, place, [message])
        pass_time(place, KEPT_MS)
        before = len(service.arrived)
        box = Outbox(place, **LIMITS)
        box.post(f"{service.url}/x", json=1, key="behind", order_by="customer-7")
        if point == "stored":
            assert box.flush_sync(25) == once.Flushed(2, 0, 0, 0)
        else:
            assert box.flush_sync(25) == once.Flushed(0, 0, 0, 0, unknown=1)
            assert len(service.arrived) == before
            assert [(one.key, one.state) for one in box.messages("unknown")] == [("charge-7", "unknown")]
            assert "may have forgotten its key" in str(box.status("charge-7"))
            assert (box.state("behind"), box.flush_sync(25).delivered) == ("queued", 0)
            assert box.retry("charge-7")
            assert box.flush_sync(25).delivered == 2
        assert list(service.effects) == ['"charge-7"', '"behind"']
        box.close()


def test_what_a_killed_sender_may_have_sent_is_repeated_until_then(tmp_path: Path) -> None:
    place = place_of("sqlite", tmp_path)
    with counting() as service:
        killed_at("delivered", place, [{"url": f"{service.url}/x", "json": 5, "key": "k"}])
        pass_time(place, KEPT_MS - 60_000)
        box = Outbox(place, **LIMITS)
        assert box.flush_sync(25).delivered == 1
        assert (len(service.arrived), len(service.effects)) == (2, 1)
        box.close()
