"""A service is killed (-9) at every named point, started again, and asked again: how often was charged?"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psycopg
import pytest

from semel import once
from tests.guardian import guard
from tests.once.conftest import fresh_schema
from tests.once.houses import CHARGES, COUNT
from tests.once.payments import POINTS
from tests.running import HOST, free_port
from tests.together import eventually

ROOT = Path(__file__).parent.parent.parent


class Service:
    """The payment service, which may be started again."""

    def __init__(self, folder: Path, way: str) -> None:
        guard()
        self.database = fresh_schema()
        with psycopg.connect(self.database, autocommit=True) as connection:
            connection.execute(CHARGES.encode())
            connection.execute(once.ddl("postgresql").encode())
        self._way = way
        self._receipts = str(folder / "receipts.db")
        self._url = ""
        self._process: subprocess.Popen[bytes] | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start it, and end it if it is still there."""
        port = free_port()
        self._url = f"http://{HOST}:{port}"
        words = [sys.executable, "-m", "tests.once.payments", str(port), self.database, self._receipts, self._way]
        self._process = subprocess.Popen(words, cwd=ROOT)
        eventually(self._answers, "the service listens")
        try:
            yield
        finally:
            self._process.kill()
            self._process.wait()

    def pay(self, point: str = "") -> httpx.Response | None:
        """Ask for a charge; None when the service died."""
        headers = {"Idempotency-Key": "order-7", **({"X-Die": point} if point else {})}
        with suppress(httpx.TransportError):
            return httpx.post(f"{self._url}/charges", json={"amount": 5}, headers=headers, timeout=25)
        assert self._process is not None
        self._process.wait(25)
        return None

    def charges(self) -> int:
        """How often was charged."""
        with psycopg.connect(self.database) as connection:
            row = connection.execute(COUNT).fetchone()
            assert row is not None
            return int(row[0])

    def _answers(self) -> bool:
        with suppress(httpx.TransportError):
            httpx.get(self._url)
            return True
        assert self._process is not None
        return self._process.poll() is not None


@pytest.mark.parametrize("point", POINTS)
def test_a_joined_transaction_has_one_effect_wherever_the_service_dies(tmp_path: Path, point: str) -> None:
    service = Service(tmp_path, "transaction")
    with service.running():
        assert service.pay(point) is None
    for _ in range(2):
        with service.running():
            answer = service.pay()
            assert answer is not None
            assert (answer.status_code, answer.json()) == (201, {"charge": 5})
    assert service.charges() == 1


@pytest.mark.parametrize(("point", "charges"), [("begun", 0), ("effect", 0), ("committed", 1), ("answered", 1)])
def test_a_plain_handler_has_one_effect_or_an_honest_unknown(tmp_path: Path, point: str, charges: int) -> None:
    service = Service(tmp_path, "plain")
    with service.running():
        assert service.pay(point) is None
    time.sleep(0.6)
    with service.running():
        answer = service.pay()
        assert answer is not None
        if point == "answered":
            assert (answer.status_code, answer.json()) == (201, {"charge": 5})
        else:
            assert (answer.status_code, answer.json()["code"]) == (409, "outcome_unknown")
    assert service.charges() == charges
