"""A full outbox refuses posts without looking at its whole backlog for each."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from semel import once
from semel.once import Outbox
from semel.once.messages import Delivery
from semel.once.outbox_store import FULL_LOOK_SECONDS
from semel.once.table import Statement
from tests.once.conftest import fresh_schema

REFUSED = 50


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_posts_that_are_refused_do_not_count_each_time(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, counts = [0.0], list[str]()
    place = str(tmp_path / "outbox.db")
    if kind == "postgresql":
        place = fresh_schema()
        migrate(place)

    def opened() -> Outbox:
        transport = lambda message, deadline: Delivery(status=200)  # noqa: E731
        return Outbox(place, max_messages=2, monotonic=lambda: now[0], transport=transport)

    box, other = opened(), opened()
    for key in ("a", "b"):
        box.post("http://x/", json=1, key=key)
    run = box.store.run

    def counting_run(statement: Statement, *patience: float) -> Any:
        counts.extend([statement.sql] * statement.sql.endswith("AS open"))
        return run(statement, *patience)

    monkeypatch.setattr(box.store, "run", counting_run)

    def is_refused() -> bool:
        with suppress(once.OutboxFull):
            box.post("http://x/", json=1)
            return False
        return True

    assert all(is_refused() for _ in range(REFUSED))
    assert len(counts) == 1
    other.drop("a")
    assert is_refused()  # it was counted a moment ago
    now[0] += FULL_LOOK_SECONDS
    assert (is_refused(), is_refused()) == (False, True)
    assert box.flush_sync(20).delivered == 2
    assert (is_refused(), is_refused(), is_refused()) == (False, False, True)  # what it removes itself is known
    assert len(counts) < 6
    box.close()
    other.close()


def migrate(url: str) -> None:
    """Create the table of an outbox."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(once.outbox_ddl("postgresql").encode())
