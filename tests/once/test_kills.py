"""A service is killed (-9) at every named point, started again, and asked again: how often was charged?"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psycopg
import pytest

from semel import once
from tests.harness.guardian import guard
from tests.harness.server import HOST, free_port
from tests.harness.together import eventually
from tests.once.conftest import fresh_schema
from tests.once.houses import CHARGES
from tests.once.payments import POINTS

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
        # A handler that joins has its receipts in the table of the middleware's own.
        self._receipts = str(folder / "receipts.db") if way == "plain" else self.database
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

    def pay(self, amount: int, point: str = "") -> httpx.Response | None:
        """Ask for a charge, whose amount is its key; None when the service died."""
        headers = {"Idempotency-Key": f"order-{amount}", **({"X-Die": point} if point else {})}
        with suppress(httpx.TransportError):
            return httpx.post(f"{self._url}/charges", json={"amount": amount}, headers=headers, timeout=25)
        assert self._process is not None
        self._process.wait(25)
        return None

    def charges(self) -> list[int]:
        """What was charged."""
        with psycopg.connect(self.database) as connection:
            return [int(amount) for (amount,) in connection.execute("SELECT amount FROM charges").fetchall()]

    def _answers(self) -> bool:
        with suppress(httpx.TransportError):
            httpx.get(self._url)
            return True
        assert self._process is not None
        return self._process.poll() is not None


RAN: dict[str, tuple[object, int]] = dict.fromkeys(POINTS, (201, 1))
"""Charged once, and told so."""
ROWS = {
    # A handler that was never reached has not said that it joins.
    "transaction": RAN | {"claimed": ("outcome_unknown", 0)},
    "transaction, retry": RAN,
    "plain": RAN
    | dict.fromkeys(("claimed", "begun", "effect"), ("outcome_unknown", 0))
    | dict.fromkeys(("committed", "noting"), ("outcome_unknown", 1)),
}
"""What retries are told, and how often was charged."""


@pytest.mark.parametrize("way", ROWS)
def test_one_effect_or_an_honest_unknown_wherever_the_service_dies(tmp_path: Path, way: str) -> None:
    service = Service(tmp_path, way)
    for amount, point in enumerate(POINTS):
        with service.running():
            assert service.pay(amount, point) is None
    told: dict[str, list[object]] = {point: [] for point in POINTS}
    for _ in range(2):
        with service.running():
            for amount, point in enumerate(POINTS):
                told[point].append(said(service.pay(amount), amount))
    charges = service.charges()
    found = {point: (told[point], charges.count(amount)) for amount, point in enumerate(POINTS)}
    assert found == {point: ([answer, answer], count) for point, (answer, count) in ROWS[way].items()}


def said(answer: httpx.Response | None, amount: int) -> object:
    """The code of a refusal, or the status of the answer that was expected."""
    assert answer is not None
    if answer.status_code != 201:
        return answer.json()["code"]
    assert answer.json() == {"charge": amount}
    return 201
