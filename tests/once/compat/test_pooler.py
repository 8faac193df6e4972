"""PgBouncer in transaction mode: each transaction may be on another connection of the database."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from semel.once import Outbox
from tests.harness.postgres.shared import shared_cluster
from tests.once.compat.places import found_at, postgres_place
from tests.once.compat.programs import pooled
from tests.once.compat.run import RACERS, play_row
from tests.once.compat.table import BEHIND_POOLER, ON_POSTGRES, STORES
from tests.once.counter import counting

CALLS = 240
MESSAGES = 60


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    """A database behind a pooler."""
    with pooled(postgres_place(shared_cluster().url)) as url:
        yield url


@pytest.mark.parametrize("name", BEHIND_POOLER)
def test_through_a_pooler(place: str, name: str) -> None:
    row = ON_POSTGRES[name](place)
    try:
        play_row(row, name)
    finally:
        row.close()


@pytest.mark.parametrize("store", STORES)
def test_no_call_fails_or_is_unknown(place: str, store: str) -> None:
    row = ON_POSTGRES[f"function, {store}"](place)
    keys = [f"{store} {number}" for number in range(CALLS)]
    with ThreadPoolExecutor(RACERS) as pool:
        first = list(pool.map(row.call, keys))
        assert list(pool.map(row.call, keys)) == first
    row.close()
    assert found_at(place, f"SELECT count(*) FROM charges WHERE key LIKE '{store} %'") == [(CALLS,)]
    assert found_at(place, "SELECT * FROM semel_once WHERE state <> 'done'") == []


def test_an_outbox_posts_and_delivers_through_it(place: str) -> None:
    with counting() as bank, psycopg.connect(place, prepare_threshold=None) as connection:
        box = Outbox(place)
        for number in range(MESSAGES):
            box.post(f"{bank.url}/charges", json=number, key=f"mine {number}", using=connection)
            connection.commit()
            box.post(f"{bank.url}/charges", json=number, key=f"its own {number}")
        connection.execute("DELETE FROM semel_outbox WHERE url = 'http://127.0.0.1:1/'")  # rows of other tests
        connection.commit()
        flushed = box.flush_sync(25)
        box.close()
        assert (flushed.delivered, flushed.failed, flushed.left) == (2 * MESSAGES, 0, 0)
        assert len({*bank.effects}) == len(bank.effects) == 2 * MESSAGES
