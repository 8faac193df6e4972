"""The key indexes on disk: damage that would hide a key is found, and a sound store has none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from semel.store.open import file_flaws
from semel.store.protocol import StoreError
from tests.store.conformance import write
from tests.store.log_tables import ENTRY, LOG_TABLES, STUB, entry, open_logs, stub

ROWS = 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store whose older keys have left memory, of which some rows were deleted since."""
    with closing(open_logs(tmp_path, index_keys=10)) as store:
        write(store, [(STUB, stub(number)) for number in range(ROWS)])
        write(store, [(ENTRY, entry(number)) for number in range(ROWS)])
        for _ in range(200):
            store.tidy()
        gone = [(ENTRY, ENTRY.key_of(entry(number))) for number in range(3)]
        write(store, [(STUB, stub(ROWS))], deletes=[*gone, (STUB, STUB.key_of(stub(1)))])
    return tmp_path


def flaws(folder: Path) -> list[str]:
    """What the check of the files says."""
    return list(file_flaws(f"sqlite:{folder}", LOG_TABLES))


def runs_of(folder: Path) -> Iterator[tuple[str, int, bytes]]:
    """Every bucket: its table, number and entries."""
    with closing(apsw.Connection(str(folder / "semel.db"))) as connection:
        for name in ("stub_0", "entry"):
            rows = list(connection.execute(f"SELECT bucket, entries FROM {name}_run"))
            yield from ((name, bucket, entries) for bucket, entries in rows)


def run_sql(folder: Path, sql: str, *values: object) -> None:
    """Change the file without the store."""
    with closing(apsw.Connection(str(folder / "semel.db"))) as connection:
        connection.execute(sql, values)


def test_a_sound_index_has_no_flaw(folder: Path) -> None:
    assert len(list(runs_of(folder))) > ROWS
    assert flaws(folder) == []


@pytest.mark.parametrize("place", range(0, 16, 3))
def test_a_flipped_bit_of_an_entry_is_found(folder: Path, place: int) -> None:
    missed = 0
    for name, bucket, entries in runs_of(folder):
        spoiled = entries[:place] + bytes([entries[place] ^ 4]) + entries[place + 1 :]
        run_sql(folder, f"UPDATE {name}_run SET entries = ? WHERE bucket = ?", spoiled, bucket)
        missed += not flaws(folder)
        run_sql(folder, f"UPDATE {name}_run SET entries = ? WHERE bucket = ?", entries, bucket)
    assert missed <= 4, "more than the entries of the rows that were deleted"


@pytest.mark.parametrize(
    "sql",
    [
        # More buckets than rows were deleted, so that at least one of them leads to a row that is there.
        (
            "UPDATE entry_run SET bucket = bucket + 100000 WHERE bucket IN"
            " (SELECT bucket FROM entry_run ORDER BY bucket DESC LIMIT 4)"
        ),
        "DELETE FROM stub_0_run WHERE bucket IN (SELECT bucket FROM stub_0_run ORDER BY bucket DESC LIMIT 2)",
        "UPDATE semel_run SET boundary = boundary + 1000",
        "UPDATE semel_run SET seed = x'00112233445566778899aabbccddeeff'",
    ],
)
def test_other_damage_of_an_index_is_found(folder: Path, sql: str) -> None:
    run_sql(folder, sql)
    assert any("not found through its index" in said for said in flaws(folder))


def test_a_check_that_is_stopped_says_nothing(folder: Path) -> None:
    assert list(file_flaws(f"sqlite:{folder}", LOG_TABLES, lambda: True)) == []
    with pytest.raises(StoreError):
        list(file_flaws(f"sqlite:{folder / 'nothing'}", LOG_TABLES))
