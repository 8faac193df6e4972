"""Rows of cached tables: a transaction sees its own changes, others the committed rows, whatever is in memory."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import pytest

from semel.store.migrations import CreateTable, Migration
from semel.store.protocol import Changes, Touch
from semel.store.sqlite.row_cache import MAX_ROW_BYTES, MAX_ROWS, UNKNOWN, RowCache
from semel.store.sqlite.store import SqliteFileStore
from semel.store.table import Table


class HeadRow(NamedTuple):
    """A row that is needed often."""

    name: bytes
    value: int
    seen_at: int = 0
    payload: bytes = b""


HEAD = Table("head", HeadRow, key=1, cached=True)
NAMES = tuple(b"n%d" % number for number in range(6))


def opened(folder: Path) -> SqliteFileStore:
    """A store with one table."""
    return SqliteFileStore(folder, [HEAD], [Migration(1, "first", (CreateTable(HEAD.shape),))], lambda: 0)


def random_changes(chance: random.Random, known: dict[bytes, HeadRow]) -> tuple[Changes, dict[bytes, HeadRow]]:
    """Changes that fit the known rows, and the rows after them."""
    after = dict(known)
    inserts, updates, deletes, touches = [], [], [], []
    for name in chance.sample(NAMES, 3):
        row = HeadRow(name, chance.randrange(100), 0, bytes(chance.choice((0, MAX_ROW_BYTES + 1))))
        if name not in known:
            inserts.append(row)
            after[name] = row
        elif chance.random() < 0.3:
            deletes.append((name,))
            del after[name]
        elif chance.random() < 0.5:
            updates.append(row)
            after[name] = row
        else:
            value = known[name].seen_at + 1
            touches.append(Touch(HEAD, (name,), "seen_at", value))
            after[name] = known[name]._replace(seen_at=value)
    return Changes({HEAD: inserts}, {}, {HEAD: deletes}, touches, {HEAD: updates}), after


@pytest.mark.parametrize("seed", range(8))
def test_loads_see_what_a_store_without_a_cache_would_see(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    store, rows = opened(tmp_path), dict[bytes, HeadRow]()
    for _ in range(120):
        tx = store.begin(())
        seen = dict(rows)
        try:
            for _ in range(chance.randrange(1, 4)):
                wanted = chance.sample(NAMES, 4)
                loaded = tx.load({HEAD: [(name,) for name in wanted]}, ()).rows[HEAD]
                assert loaded == {(name,): seen[name] for name in wanted if name in seen}
                changes, seen = random_changes(chance, seen)
                tx.flush(changes)
            if chance.random() < 0.6:
                tx.commit()
                rows = seen
        finally:
            tx.rollback()
        if chance.random() < 0.05:
            store.close()
            store = opened(tmp_path)
    store.close()


def test_a_row_in_memory_is_read_without_a_statement(tmp_path: Path) -> None:
    store = opened(tmp_path)
    tx = store.begin(())
    tx.flush(Changes({HEAD: [HeadRow(b"a", 1)]}, {}, {}))
    tx.commit()
    asked: list[str] = []

    def trace(cursor: object, sql: str, values: object) -> bool:
        asked.append(sql)
        return True

    tx = store.begin((), wait=False)
    store._writer.exec_trace = trace
    assert tx.load({HEAD: [(b"a",)]}, ()).rows[HEAD] == {(b"a",): HeadRow(b"a", 1)}
    tx.rollback()
    assert asked == ["ROLLBACK"]
    store._writer.exec_trace = None
    store.close()


def test_the_cache_is_bounded_and_forgets_the_least_recently_used() -> None:
    cache = RowCache()
    for number in range(MAX_ROWS + 1):
        cache.set((HEAD, (b"%d" % number,)), HeadRow(b"%d" % number, number))
        cache.find((HEAD, (b"0",)))
    assert len(cache) == MAX_ROWS
    assert cache.find((HEAD, (b"0",))) == HeadRow(b"0", 0)
    assert cache.find((HEAD, (b"1",))) is UNKNOWN


@pytest.mark.parametrize("others", [{"generational": True}, {"log": True}, {"bulky": True}, {"heavy": True}])
def test_only_an_ordinary_table_can_be_cached(others: dict[str, bool]) -> None:
    with pytest.raises(TypeError):
        Table("head", HeadRow, key=1, cached=True, **others)  # type: ignore[arg-type]
