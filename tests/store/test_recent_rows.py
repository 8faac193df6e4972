"""Rows and floors in memory: a transaction sees its own changes, others the committed rows, whatever is in memory."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from semel.store.migrations import CreateTable, Migration
from semel.store.protocol import Changes, NarrowRows, Range, Touch
from semel.store.sqlite.recent_rows import MAX_RECENT_ROWS, RecentChanges, RecentRows
from semel.store.sqlite.store import SqliteFileStore
from semel.store.table import Below, Table

OPEN, HELD, ENDED = 0, 1, 2


class TaskRow(NamedTuple):
    """A row that is changed twice."""

    name: bytes
    phase: int
    due_at: int
    note: bytes = b""


TASK = Table(
    "task", TaskRow, key=1, indexes={"due": ("phase", "due_at")}, recent=Below("phase", ENDED), floors=("due",)
)
PLAIN = Table("plain", TaskRow, key=1)
"""None of its rows are kept."""
NAMES = tuple(b"n%d" % number for number in range(12))
Rows = dict[bytes, TaskRow]


def opened(folder: Path) -> SqliteFileStore:
    """A store with one table."""
    return SqliteFileStore(folder, [TASK], [Migration(1, "first", (CreateTable(TASK.shape),))], lambda: 0)


def random_changes(chance: random.Random, known: Rows) -> tuple[Changes, Rows]:
    """Changes that fit the known rows, and the rows after them."""
    after = dict(known)
    inserts, updates, narrow, deletes, touches = [], [], [], [], []
    for name in chance.sample(NAMES, 4):
        row = TaskRow(name, chance.choice((OPEN, HELD, ENDED)), chance.randrange(100), b"%d" % chance.randrange(9))
        before = known.get(name)
        if before is None:
            inserts.append(row)
            after[name] = row
        elif chance.random() < 0.2:
            deletes.append((name,))
            del after[name]
        elif chance.random() < 0.3:
            updates.append(row)
            after[name] = row
        elif chance.random() < 0.6:
            after[name] = row._replace(note=before.note)
            narrow.append(after[name])
        else:
            touches.append(Touch(TASK, (name,), "due_at", before.due_at + 9))
            after[name] = before._replace(due_at=before.due_at + 9)
    groups = {TASK: [NarrowRows(("phase", "due_at"), narrow)]} if narrow else {}
    return Changes({TASK: inserts}, {TASK: updates}, {TASK: deletes}, touches, narrow=groups), after


def check(tx: Any, known: Rows, chance: random.Random) -> None:
    """What a transaction loads is what a store without memory would load."""
    names = chance.sample(NAMES, 6)
    phase, stop = chance.choice((OPEN, HELD, ENDED)), chance.randrange(120)
    wanted = Range(TASK, "due", (phase,), chance.choice((1, 3, 20)), stop=(stop,))
    loaded = tx.load({TASK: [(name,) for name in names]}, [wanted])
    assert loaded.rows[TASK] == {(name,): known[name] for name in names if name in known}
    due = sorted((row.due_at, row.name) for row in known.values() if row.phase == phase and row.due_at < stop)
    assert [(row.due_at, row.name) for row in loaded.ranges[0]] == due[: wanted.limit]


@pytest.mark.parametrize("seed", range(12))
def test_loads_see_what_a_store_without_memory_would_see(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    store = opened(tmp_path)
    known: Rows = {}
    for _ in range(200):
        tx = store.begin(())
        check(tx, known, chance)
        after = known
        for _ in range(chance.randrange(3)):
            made, after = random_changes(chance, after)
            tx.flush(made)
            check(tx, after, chance)
        if chance.random() < 0.7:
            tx.commit()
            known = after
        tx.rollback()
    store.close()


def written(store: SqliteFileStore, changes: Changes, *, commits: bool = True) -> None:
    tx = store.begin(())
    tx.flush(changes)
    if commits:
        tx.commit()
    tx.rollback()


def test_only_changed_rows_that_have_not_ended_are_in_memory(tmp_path: Path) -> None:
    store = opened(tmp_path)
    rows = [TaskRow(name, OPEN, 1) for name in NAMES]
    written(store, Changes({TASK: rows}, {}, {}))
    assert store._recent.rows[TASK] == {}
    held = [row._replace(phase=HELD) for row in rows[:3]]
    written(store, Changes({}, {}, {}, narrow={TASK: [NarrowRows(("phase",), held)]}), commits=False)
    assert store._recent.rows[TASK] == {}
    written(store, Changes({}, {}, {}, narrow={TASK: [NarrowRows(("phase",), held)]}))
    assert list(store._recent.rows[TASK].values()) == held
    ended = held[0]._replace(phase=ENDED)
    written(store, Changes({}, {}, {}, narrow={TASK: [NarrowRows(("phase",), [ended])]}))
    assert list(store._recent.rows[TASK].values()) == held[1:]
    store.close()


def test_the_rows_in_memory_are_limited(tmp_path: Path) -> None:
    store = opened(tmp_path)
    rows = [TaskRow(b"%05d" % number, OPEN, 1) for number in range(MAX_RECENT_ROWS + 10)]
    written(store, Changes({TASK: rows}, {}, {}))
    written(store, Changes({}, {TASK: rows}, {}))
    assert list(store._recent.rows[TASK].values()) == rows[10:]
    store.close()


def test_a_range_below_the_floor_is_not_read(tmp_path: Path) -> None:
    store = opened(tmp_path)
    written(store, Changes({TASK: [TaskRow(b"a", HELD, 50)]}, {}, {}))
    wanted = Range(TASK, "due", (HELD,), 9, stop=(40,))
    statements: list[str] = []

    def trace(cursor: Any, sql: str, values: Any) -> bool:
        statements.append(sql)
        return True

    store._writer.exec_trace = trace
    for _ in range(2):
        tx = store.begin(())
        assert tx.load({}, [wanted]).ranges == [[]]
        tx.rollback()
    assert sum("FROM task" in sql for sql in statements) == 1
    written(store, Changes({TASK: [TaskRow(b"b", HELD, 30)]}, {}, {}), commits=False)
    written(store, Changes({TASK: [TaskRow(b"c", HELD, 39)]}, {}, {}))
    tx = store.begin(())
    assert [row.name for row in tx.load({}, [wanted]).ranges[0]] == [b"c"]
    tx.rollback()
    store._writer.exec_trace = None
    store.close()


def test_a_large_transaction_does_not_hold_the_rows_that_it_has_flushed() -> None:
    written, row = RecentChanges(RecentRows([TASK, PLAIN])), TaskRow(b"n", HELD, 1)
    written.flush(Changes({PLAIN: [row], TASK: [row]}, {PLAIN: [row]}, {PLAIN: [(b"m",)]}, steady={PLAIN: [row]}))
    assert written._written == []
    written.flush(Changes({PLAIN: [row]}, {PLAIN: [row], TASK: [row]}, {}))
    assert written._written == [Changes({}, {TASK: [row]}, {}, [], {})]
