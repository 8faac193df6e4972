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
        gone = [(ENTRY, ENTRY.key_of(entry(number))) for number in range(3)]
        write(store, [(STUB, stub(ROWS))], deletes=[*gone, (STUB, STUB.key_of(stub(1)))])
    return tmp_path


def flaws(folder: Path) -> list[str]:
    """What the check of the files says."""
    return list(file_flaws(f"sqlite:{folder}", LOG_TABLES))


def moved(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Every entry: its table, hash and place."""
    with closing(apsw.Connection(str(folder / "semel.db"))) as connection:
        for name in ("stub_0", "entry"):
            rows = list(connection.execute(f"SELECT hash, place FROM {name}_moved"))
            yield from ((name, hashed, place) for hashed, place in rows)


def run_sql(folder: Path, sql: str, *values: object) -> None:
    """Change the file without the store."""
    with closing(apsw.Connection(str(folder / "semel.db"))) as connection:
        connection.execute(sql, values)


def test_a_sound_index_has_no_flaw(folder: Path) -> None:
    assert len(list(moved(folder))) > ROWS
    assert flaws(folder) == []


@pytest.mark.parametrize("column", ["hash", "place"])
def test_a_changed_entry_is_found(folder: Path, column: str) -> None:
    for name, hashed, place in moved(folder):
        kept, changed = (hashed, place), (hashed ^ 4, place) if column == "hash" else (hashed, place + 1_000)
        change = f"UPDATE {name}_moved SET hash = ?, place = ? WHERE hash = ? AND place = ?"
        run_sql(folder, change, *changed, *kept)
        assert flaws(folder) == [f"1 keys of {name.removesuffix('_0')} are not found through its index."]
        run_sql(folder, change, *kept, *changed)
    assert flaws(folder) == []


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM stub_0_moved WHERE place = (SELECT max(place) FROM stub_0_moved)",
        "UPDATE semel_moved_keys SET boundary = boundary + 1000",
        "UPDATE semel_moved_keys SET seed = x'00112233445566778899aabbccddeeff'",
    ],
)
def test_other_damage_of_an_index_is_found(folder: Path, sql: str) -> None:
    run_sql(folder, sql)
    assert any("not found through its index" in said for said in flaws(folder))


def test_an_entry_without_a_row_hides_nothing(folder: Path) -> None:
    run_sql(folder, "INSERT INTO stub_0_moved VALUES (7, 2)")
    assert flaws(folder) == []


def test_a_check_of_no_store_is_refused(folder: Path) -> None:
    with pytest.raises(StoreError):
        list(file_flaws(f"sqlite:{folder / 'nothing'}", LOG_TABLES))
