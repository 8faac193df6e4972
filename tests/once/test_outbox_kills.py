"""A sender is killed (-9) at every named point, and another goes on: how often did it take effect elsewhere?"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
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
    place = str(tmp_path / "outbox.db")
    if store == "postgresql":
        place = fresh_schema()
        with psycopg.connect(place, autocommit=True) as connection:
            connection.execute(once.outbox_ddl("postgresql").encode())
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
