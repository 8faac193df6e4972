"""Log tables under kill -9 and beside readers: each acknowledged key is there, once."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

from semel.store.sqlite.store import SqliteFileStore
from tests.store.conformance import LOCKS, rotate, write
from tests.store.log_committer import INDEX_KEYS
from tests.store.log_tables import STUB, LogModel, open_logs, stub

KILLS = 12


def acknowledged(folder: Path, first: int, count: int) -> int:
    """Run a committer until it has told of some transactions, kill it; the last number that it told."""
    command = [sys.executable, "-m", "tests.store.log_committer", str(folder), str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        told = [int(child.stdout.readline()) for _ in range(count)]
        child.kill()
        rest = child.stdout.read()
    told += [int(line) for line in rest.split(b"\n")[:-1]]
    assert told == list(range(first, first + len(told)))
    return told[-1]


def test_every_acknowledged_key_survives_a_kill_and_is_stored_once(tmp_path: Path) -> None:
    last = -1
    for turn in range(KILLS):
        last = acknowledged(tmp_path, last + 1, random.Random(turn).randint(20, 120))
        with closing(open_logs(tmp_path, index_keys=INDEX_KEYS)) as store:
            rows = [stub(number) for number in range(last + 1)]
            tx = store.begin(LOCKS)
            found = tx.load({STUB: [STUB.key_of(row) for row in rows]}, []).rows[STUB]
            tx.rollback()
            assert found == {STUB.key_of(row): row for row in rows}
            with store.read() as snapshot:
                stored = snapshot.page_keys(STUB, 0, None, 1_000_000)
            assert len(stored) == len(set(stored))
            assert last + 1 <= len(stored) <= last + 2  # the last one may be stored and not told


def test_readers_beside_a_writer_find_what_was_acknowledged_before_they_began(tmp_path: Path) -> None:
    with closing(open_logs(tmp_path, index_keys=50)) as store:
        model, done, faults = LogModel(STUB), threading.Event(), list[str]()
        guard = threading.Lock()

        def read(seed: int) -> None:
            chance = random.Random(seed)
            while not done.is_set():
                with guard:
                    before = model.copy()
                with store.read() as snapshot:
                    keys = chance.sample(sorted(before.younger), min(len(before.younger), 20))
                    found = snapshot.find(STUB, keys)
                    again = snapshot.find(STUB, keys)
                # A row is never changed here, so one that was there is either still there or deleted since.
                gone = [key for key in keys if key not in found]
                with guard:
                    lost = [key for key in gone if model.get(key) is not None]
                if lost or again != found:
                    faults.append(f"{lost} {again == found}")

        readers = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
        for reader in readers:
            reader.start()
        try:
            _write_on(store, model, guard)
        finally:
            done.set()
            for reader in readers:
                reader.join()
        assert faults == []


def _write_on(store: SqliteFileStore, model: LogModel, guard: threading.Lock) -> None:
    for turn in range(300):
        rows = [stub(10 * turn + number) for number in range(10)]
        gone = [STUB.key_of(stub(10 * turn - 100 + number)) for number in range(3)] if turn > 10 else []
        with guard:
            for key in gone:
                model.delete(key)
        write(store, [(STUB, row) for row in rows], deletes=[(STUB, key) for key in gone], durable=False)
        with guard:
            for row in rows:
                model.put(row)
        if turn % 90 == 89:
            with guard:
                model.rotate()
                rotate(store, STUB)
        store.tidy()
