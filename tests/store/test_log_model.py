"""Log tables against a dictionary: random transactions, rollbacks, rotations, restarts, crashes and open snapshots."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from semel.store.protocol import AnyTable, Changes, Range, Row, Snapshot, Touch, Tx
from semel.store.sqlite.moved_keys import moved_flaws
from semel.store.sqlite.store import SqliteFileStore
from semel.store.table import Key
from tests.store.conformance import LOCKS, changes
from tests.store.log_tables import ENTRY, LOG_TABLES, NEVER, STUB, LogModel, entry, open_logs, stub

STEPS = 250
NUMBERS = 60
INDEX_KEYS = (4, 30, 1_000_000)

HASHES: dict[str, Callable[[Key], int]] = {
    "spread": hash,
    "seven values": lambda key: hash(key) % 7 - 3,
    "one value": lambda key: 5,
}

Models = dict[AnyTable, LogModel]


def made(table: AnyTable, number: int, value: int) -> Row:
    if table is STUB:
        return stub(number, used_at=value, label=b"x" * (value % 9))
    return entry(number, expires_at=value if value % 2 else NEVER, note=b"%d" % value if value % 3 else None)


def key_of(table: AnyTable, number: int) -> Key:
    return table.key_of(made(table, number, 0))


class Walk:
    """One random walk over a store and its model."""

    def __init__(self, folder: Path, seed: int, hash_key: Callable[[Key], int]) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.lives = 0
        self.hash_key = hash_key
        self.store = self.opened()
        self.models: Models = {table: LogModel(table) for table in LOG_TABLES}
        self.snapshots: list[tuple[Snapshot, Models]] = []

    def opened(self) -> SqliteFileStore:
        """The store, with a limit on the keys in memory that may be another one each time."""
        folder, index_keys = self.folder / str(self.lives), self.random.choice(INDEX_KEYS)
        return open_logs(folder, index_keys=index_keys, hash_key=self.hash_key)

    def some_keys(self, table: AnyTable) -> list[Key]:
        return [key_of(table, number) for number in self.random.sample(range(NUMBERS), self.random.randint(1, 8))]

    def transact(self) -> None:
        tx = self.store.begin(LOCKS, durable=self.random.random() < 0.2)
        models = {table: model.copy() for table, model in self.models.items()}
        for _ in range(self.random.randint(1, 3)):
            table = self.random.choice(LOG_TABLES)
            keys = self.some_keys(table)
            assert tx.load({table: keys}, []).rows[table] == models[table].find(keys)
            tx.flush(self.change(table, models[table]))
            if table is STUB and self.random.random() < 0.1:
                tx.rotate(STUB)
                models[STUB].rotate()
            self.check(tx, models)
        if self.random.random() < 0.25:
            tx.rollback()
        else:
            tx.commit()
            self.models = models

    def change(self, table: AnyTable, model: LogModel) -> Changes:
        """Random changes of rows; the model is changed alike."""
        rows: dict[str, list[tuple[AnyTable, Row]]] = {"inserts": [], "updates": [], "steady": []}
        deletes: list[tuple[AnyTable, Key]] = []
        touches: list[Touch] = []
        for key in self.some_keys(table):
            number = int(key[1].decode()) if table is STUB else -key[1]
            row, old = made(table, number, self.random.randint(1, 999)), model.get(key)
            what = self.random.choice(["put", "put", "steady", "delete", "touch"])
            if old is None and what != "delete":
                rows["inserts"].append((table, row))
                model.put(row)
            elif what == "delete":
                deletes.append((table, key))
                model.delete(key)
            elif old is not None and what == "steady":
                row = row if table is STUB else row._replace(expires_at=old.expires_at)
                rows["steady"].append((table, row))
                model.put(row)
            elif what == "touch" and table is ENTRY:
                touches.append(Touch(ENTRY, key, "seen_at", self.random.randint(1, 999)))
                model.put(touches[-1].raised(old))
            else:
                rows["updates"].append((table, row))
                model.put(row)
        return changes(rows["inserts"], rows["updates"], deletes, touches, rows["steady"])

    def check(self, tx: Tx, models: Models) -> None:
        keys = {table: [key_of(table, number) for number in range(NUMBERS)] for table in LOG_TABLES}
        found = tx.load(keys, [])
        for table, model in models.items():
            assert found.rows[table] == model.find(keys[table])

    def check_all(self) -> None:
        tx = self.store.begin(LOCKS)
        self.check(tx, self.models)
        [expiring] = tx.load({}, [Range(ENTRY, "expires", (), 1_000, stop=(NEVER,))]).ranges
        tx.rollback()
        rows = [row for row in self.models[ENTRY].younger.values() if row.expires_at < NEVER]
        assert list(expiring) == sorted(rows, key=lambda row: (row.expires_at, *row[:3]))
        for snapshot, models in self.snapshots:
            for table, model in models.items():
                keys = [key_of(table, number) for number in range(NUMBERS)]
                assert snapshot.find(table, keys) == model.find(keys)
                assert snapshot.get(table, keys[0]) == model.get(keys[0])

    def take_snapshot(self) -> None:
        if len(self.snapshots) < 3:
            snapshot: Snapshot = self.store.read()
            snapshot.__enter__()
            self.snapshots.append((snapshot, {table: model.copy() for table, model in self.models.items()}))

    def end_snapshot(self) -> None:
        if self.snapshots:
            snapshot, models = self.snapshots.pop(self.random.randrange(len(self.snapshots)))
            for table, model in models.items():
                for age, rows in enumerate((model.younger, model.older)):
                    page = snapshot.page(table, age, None, 1_000, 2**40)
                    # The older generation may still have rows that the younger one has replaced.
                    assert {table.key_of(row): row for row in page} == rows
            snapshot.__exit__(None, None, None)

    def restart(self) -> None:
        while self.snapshots:
            self.end_snapshot()
        self.store.close()
        self.store = self.opened()

    def crash(self) -> None:
        """Go on with the files as they are in the midst of a transaction."""
        tx = self.store.begin(LOCKS)
        tx.flush(self.change(STUB, self.models[STUB].copy()))
        self.lives += 1
        shutil.copytree(self.folder / str(self.lives - 1), self.folder / str(self.lives))
        tx.rollback()
        while self.snapshots:
            self.end_snapshot()
        self.store.close()
        self.store = self.opened()

    def check_moved(self) -> None:
        """Each row is in memory or among the moved keys as its place says, and nothing else is among them."""
        assert list(moved_flaws(self.store._writer, LOG_TABLES)) == []
        for log in self.store._logs.logs():
            name, state = log.made.name, log.moved.state
            counted = f"SELECT count(*), max(place) FROM {name}_moved"
            [(keys, highest)] = self.store._writer.execute(counted)
            assert (keys, log.rows) == (state.keys, self.count(name))
            assert (highest or 0) <= state.boundary

    def count(self, name: str) -> int:
        return int(self.store._writer.execute(f"SELECT count(*) FROM {name}").get)

    def run(self) -> None:
        steps = [self.transact] * 10 + [self.store_tidy] * 4
        steps += [self.take_snapshot, self.end_snapshot, self.restart, self.crash]
        for _ in range(STEPS):
            self.random.choice(steps)()
            self.check_all()
            self.check_moved()
        self.restart()
        self.check_all()
        self.store.close()

    def store_tidy(self) -> None:
        self.store.tidy()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("hash_key", HASHES)
def test_a_log_table_agrees_with_a_dictionary(tmp_path: Path, seed: int, hash_key: str) -> None:
    Walk(tmp_path, seed, HASHES[hash_key]).run()
