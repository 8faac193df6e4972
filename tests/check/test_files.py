"""Damage in the bytes of the database file is named; bytes that no checksum covers are found by their meaning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from tests.check.stores import FILE, copied, faults_of, lines_of, sqlite_database
from tests.cli.command import Semel

PAGE = 4_096


def root_of(folder: Path, name: str) -> int:
    """The number of the root page of a table or an index."""
    with sqlite_database(folder) as database:
        [(page,)] = database.ask("SELECT rootpage FROM sqlite_schema WHERE name = ?", name)
    return int(page)


def changed(folder: Path, change: Callable[[bytearray], None]) -> None:
    """Change the bytes of the file."""
    path = folder / FILE
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


def page_flip(name: str, at: int, mask: int) -> Callable[[Path], None]:
    """Flip bits of one byte of the root page of a table."""

    def plant(folder: Path) -> None:
        start = (root_of(folder, name) - 1) * PAGE

        def flip(data: bytearray) -> None:
            data[start + at] ^= mask

        changed(folder, flip)

    return plant


def zeroed(name: str) -> Callable[[Path], None]:
    """Overwrite the root page of a table with zeros."""

    def plant(folder: Path) -> None:
        start = (root_of(folder, name) - 1) * PAGE

        def zero(data: bytearray) -> None:
            data[start : start + PAGE] = bytes(PAGE)

        changed(folder, zero)

    return plant


def pages_swapped(one: str, two: str) -> Callable[[Path], None]:
    """Swap the root pages of two tables."""

    def plant(folder: Path) -> None:
        first, second = ((root_of(folder, name) - 1) * PAGE for name in (one, two))

        def swap(data: bytearray) -> None:
            kept = data[first : first + PAGE]
            data[first : first + PAGE] = data[second : second + PAGE]
            data[second : second + PAGE] = kept

        changed(folder, swap)

    return plant


def text_flip(text: bytes) -> Callable[[Path], None]:
    """Flip one bit in the last byte of a text, wherever the file has it."""

    def plant(folder: Path) -> None:
        def flip(data: bytearray) -> None:
            at = data.find(text)
            assert at >= 0
            while at >= 0:
                data[at + len(text) - 1] ^= 1
                at = data.find(text, at + 1)

        changed(folder, flip)

    return plant


def cut(folder: Path) -> None:
    """Cut the last pages of the file off."""
    path = folder / FILE
    path.write_bytes(path.read_bytes()[: -8 * PAGE])


def stale_index(folder: Path) -> None:
    """Delete a row behind the back of one index of its table."""
    with sqlite_database(folder) as database:
        connection = database.connection
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        connection.execute("PRAGMA writable_schema = ON")
        [(text,)] = database.ask("SELECT sql FROM sqlite_schema WHERE name = 'ledger_block_commit'")
        [row] = database.ask("SELECT type, name, tbl_name, rootpage FROM sqlite_schema WHERE sql = ?", text)
        connection.execute("DELETE FROM sqlite_schema WHERE name = 'ledger_block_commit'")
        connection.execute("PRAGMA writable_schema = RESET")
        connection.execute("DELETE FROM ledger_block WHERE height = 40")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", (*row, text))
        connection.execute("PRAGMA writable_schema = RESET")


def doubled_id(folder: Path) -> None:
    """Store a row of a log table twice: such a table has no index that would refuse it."""
    with sqlite_database(folder) as database:
        database.run(
            "INSERT INTO event_id SELECT 1000000, key, committed_id, committed_at, digest FROM event_id "
            "WHERE committed_id = 2"
        )


DAMAGED = {
    "the kind of a page flipped": (page_flip("chunk", 0, 0x05), "chunk"),
    "the number of cells flipped": (page_flip("job", 4, 0x04), "The database reports damage"),
    "a cell pointer flipped": (page_flip("event_place", 9, 0x40), "The database reports damage"),
    "a page zeroed": (zeroed("event"), "The database reports damage"),
    "two pages swapped": (pages_swapped("ledger_org", "job_line"), "The database reports damage"),
    "an index that does not fit": (stale_index, "The database reports damage"),
    "a row twice": (doubled_id, "The key is there twice"),
    "a bit of an event": (text_flip(b'"n":11'), "has other content"),
    "a bit of an operation": (text_flip(b"second-3"), "hash"),
    "a bit of a delta": (text_flip(b'"title","value":"u7"'), "the hash that is its id"),
    "a bit of a keyed append": (text_flip(b"line 7"), "not the one of this receipt"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_of_the_file_is_named(name: str, filled: Path, tmp_path: Path) -> None:
    plant, words = DAMAGED[name]
    folder = copied(filled, tmp_path / "damaged")
    plant(folder)
    said = lines_of(faults_of(f"sqlite:{folder}"))
    assert words in said, said


def spoiled(folder: Path) -> None:
    """Flip a bit of the first bytes of the file, which say that it is a database."""

    def spoil(data: bytearray) -> None:
        data[3] ^= 1

    changed(folder, spoil)


@pytest.mark.parametrize("plant", [cut, spoiled])
def test_a_file_that_cannot_be_read_cannot_be_checked(
    plant: Callable[[Path], None], filled: Path, tmp_path: Path
) -> None:
    folder = copied(filled, tmp_path / "damaged")
    plant(folder)
    run = Semel("http://127.0.0.1:1").here("check", "--data", str(folder))
    assert run.code == 2
    assert "The store cannot be checked." in run.err
