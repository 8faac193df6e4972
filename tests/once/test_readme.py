"""The first lines of the README do what it says of them."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from semel import once
from tests.harness.together import at_once

README = Path(__file__).parent.parent.parent / "README.md"
ORDER = {"amount": 5}


def test_the_first_lines_charge_once(tmp_path: Path) -> None:
    words: dict[str, Any] = {}
    exec(README.read_text().partition("```python\n")[2].partition("```")[0], words)
    path = tmp_path / "shop.db"

    def opened() -> sqlite3.Connection:
        return sqlite3.connect(path, timeout=60, isolation_level="IMMEDIATE")

    connection = opened()
    connection.executescript("CREATE TABLE charges (amount);" + once.ddl("sqlite"))

    def place() -> dict[str, int]:
        own = opened()
        try:
            found: dict[str, int] = words["place_order"](own, "order-7", ORDER, "customer-3")
            return found
        finally:
            own.close()

    assert at_once([place] * 8) == [{"charged": 5}] * 8
    assert connection.execute("SELECT amount FROM charges").fetchall() == [(5,)]
    with pytest.raises(once.KeyMismatch):
        words["place_order"](connection, "order-7", {"amount": 6}, "customer-3")
    connection.close()
