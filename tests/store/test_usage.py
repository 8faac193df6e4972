"""What a store says of itself: the bytes of its files, the rows of its log tables, and its replicas."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from semel.store.postgres.address import parse
from semel.store.postgres.pipeline import Filled, Rows
from semel.store.postgres.usage import usage_of
from semel.store.protocol import Changes, Store
from semel.store.usage import StoreUsage
from tests.harness.together import eventually
from tests.store.conformance import KINDS, PostgresPlace
from tests.store.log_tables import LOG_MIGRATIONS, LOG_TABLES, STUB, stub

ROWS = 5


def filled(store: Store) -> None:
    tx = store.begin(())
    tx.flush(Changes({STUB: [stub(number) for number in range(ROWS)]}, {}, {}))
    tx.commit()


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_store_tells_its_size_and_the_rows_of_its_log_tables(kind: str, tmp_path: Path) -> None:
    place = KINDS[kind](tmp_path / "data")
    store = place.open(LOG_TABLES, LOG_MIGRATIONS)
    try:
        filled(store)
        eventually(lambda: store.usage().log_rows["stub"] == ROWS, "the rows are counted")
        assert [bool(one) for one in store.usage()[:3]] == {
            "memory": [False, False, False],
            "sqlite": [True, True, True],
            "postgres": [True, True, False],  # the role of the tests may see the log; the disk is another machine's
        }[kind]
        assert store.usage().replicas == (0 if kind == "postgres" else None)
    finally:
        place.close()


def test_a_role_without_rights_gets_no_numbers_and_no_error(tmp_path: Path) -> None:
    place = PostgresPlace(tmp_path / "data")
    with psycopg.connect(parse(place.url).conninfo, autocommit=True) as admin:
        admin.execute("CREATE ROLE plain_usage")
        try:
            admin.execute("SET ROLE plain_usage")

            def ask(*statements: Filled) -> Sequence[Any]:
                return [admin.execute(sql.encode()).fetchall() for sql, _ in statements]

            usage = usage_of(ask, {})
            assert usage.database_bytes
            assert usage == StoreUsage(database_bytes=usage.database_bytes, replicas=0)
        finally:
            admin.execute("RESET ROLE")
            admin.execute("DROP ROLE plain_usage")


def test_the_lag_is_that_of_the_slowest_replica_if_the_role_may_see_it() -> None:
    def told(replicas: tuple[int, int, float, int]) -> StoreUsage:
        answers: list[Rows] = [[(1,)], [(False,)], [replicas], []]
        return usage_of(lambda *asked: answers, {})

    assert told((2, 2, 1.5, 700))[5:] == (2, 1.5, 700)
    assert told((2, 0, 0.0, 0))[5:] == (2, None, None)
