"""A backup is exact or it is refused: pages, damage in every byte, other versions, and restores that fail."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from semel.store import backup, backup_file
from semel.store.backup import TargetNotEmptyError, restore_backup, verify_backup, write_backup
from semel.store.backup_file import MAGIC, BackupFileError, BackupHeader, BackupReader, BackupSummary, BackupWriter
from semel.store.protocol import Changes, Lock, Store, Tx
from semel.store.table import Table
from tests.store.conformance import (
    LOCKS,
    TABLES,
    THING,
    MemoryPlace,
    Pair,
    PersistentPlace,
    ThingRow,
    made_pair,
    thing,
    write,
)
from tests.store.test_backup_rows import HEADER, PAGE_BYTES, PAGE_ROWS, contents, fill, ignore

SCHEMA = 1


@pytest.fixture
def target(tmp_path: Path) -> Iterator[PersistentPlace]:
    """A place that is empty."""
    made = made_pair(tmp_path, "sqlite to sqlite")
    yield made.target
    made.target.close()


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few rows are many pages."""
    monkeypatch.setattr(backup, "PAGE_ROWS", PAGE_ROWS)
    monkeypatch.setattr(backup, "PAGE_BYTES", PAGE_BYTES)


def backup_of(store: Store) -> tuple[bytes, BackupSummary]:
    """A backup in memory."""
    sink = io.BytesIO()
    with store.read() as snapshot:
        summary = write_backup(snapshot, TABLES, HEADER, sink, ignore)
    return sink.getvalue(), summary


def reader_of(data: bytes) -> BackupReader:
    reader = BackupReader(io.BytesIO(data), TABLES)
    reader.refuse_other_schema(SCHEMA)
    return reader


def verify(data: bytes) -> BackupSummary:
    return verify_backup(reader_of(data), ignore).summary


def nothing(_: Tx) -> None:
    pass


def restore(data: bytes, store: Store) -> None:
    restore_backup(reader_of(data), store, TABLES, ignore, LOCKS, nothing)


def small_backup(tmp_path: Path) -> bytes:
    """A few hundred bytes with all kinds of frames."""
    place = MemoryPlace(tmp_path)
    store = place.open()
    write(store, [(THING, thing(number=number, note=b"note")) for number in range(3)])
    return backup_of(store)[0]


def resealed(data: bytes) -> bytes:
    """The same frames with checksums that are right again."""
    made, place = data[: len(MAGIC) + 1], len(MAGIC) + 1
    while place < len(data):
        end = place + 5 + int.from_bytes(data[place + 1 : place + 5], "big")
        made += data[place:end]
        made += sha256(made).digest()
        place = end + 32
    return made


def test_a_restored_store_has_every_row_in_its_place(pair: Pair) -> None:
    source, target = pair.source.open(), pair.target.open()
    fill(source)
    before = contents(source)
    assert all(before.values())
    data, summary = backup_of(source)
    assert (summary.total, summary.size) == (sum(map(len, before.values())), len(data))
    assert {part.name: rows for part, rows in summary.rows.items()} == {
        name: len(rows) for name, rows in before.items()
    }
    assert verify(data) == summary
    told: list[int] = []
    restore_backup(reader_of(data), target, TABLES, told.append, LOCKS, nothing)
    assert contents(target) == before
    assert contents(source) == before
    assert (sum(told), max(told)) == (summary.total, PAGE_ROWS)
    assert contents(pair.target.reopen()) == before


def test_an_empty_store_is_restored_as_an_empty_one(pair: Pair) -> None:
    data, summary = backup_of(pair.source.open())
    assert summary.total == 0
    restore(data, pair.target.open())
    assert not any(contents(pair.target.reopen()).values())


def test_the_last_checksum_is_that_of_all_bytes_before_it(tmp_path: Path) -> None:
    data = small_backup(tmp_path)
    assert verify(data).sha256 == sha256(data[:-32]).hexdigest() == data[-32:].hex()


def test_verifying_keeps_the_rows_of_small_tables_and_tells_every_byte(tmp_path: Path) -> None:
    data, told = small_backup(tmp_path), list[int]()
    found = verify_backup(reader_of(data), told.append, [THING])
    assert found.get(THING, (b"a", 2, 1)) == thing(number=2, note=b"note")
    assert found.get(THING, (b"a", 3, 1)) is None
    assert sum(told) == len(data)


def test_a_change_of_any_byte_is_refused(tmp_path: Path) -> None:
    data = small_backup(tmp_path)
    for place in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[place] ^= flip
            with pytest.raises(BackupFileError):
                verify(bytes(damaged))


def test_a_backup_that_is_cut_anywhere_or_goes_on_is_refused(tmp_path: Path) -> None:
    data = small_backup(tmp_path)
    for end in range(len(data)):
        with pytest.raises(BackupFileError, match="not complete" if end > len(MAGIC) else "not a backup"):
            verify(data[:end])
    for more in (b"\0", data):
        with pytest.raises(BackupFileError, match="the file goes on"):
            verify(data + more)


def test_frames_that_are_missing_doubled_or_swapped_are_refused_even_with_right_checksums(tmp_path: Path) -> None:
    store = MemoryPlace(tmp_path).open()
    fill(store)
    data = backup_of(store)[0]
    frames, place = list[bytes](), len(MAGIC) + 1
    while place < len(data):
        end = place + 5 + int.from_bytes(data[place + 1 : place + 5], "big") + 32
        frames.append(data[place:end])
        place = end
    start, (header, *pages, last) = data[: len(MAGIC) + 1], frames
    assert len(pages) > 4
    for wrong, sentence in (
        ([header, *pages[1:], last], "the numbers of its rows"),
        ([header, pages[0], *pages, last], "the numbers of its rows"),
        ([header, *pages[::-1], last], "wrong order"),
        ([header, header, *pages, last], "is damaged at byte"),
        ([header, *pages, last, last], "the file goes on"),
        ([header, *pages], "not complete"),
        ([*pages, last], "is damaged at byte"),
    ):
        with pytest.raises(BackupFileError):
            verify(start + b"".join(wrong))
        with pytest.raises(BackupFileError, match=sentence):
            verify(resealed(start + b"".join(wrong)))
    assert verify(resealed(data)).total


def test_files_of_other_programs_and_of_other_formats_are_refused(tmp_path: Path) -> None:
    data = small_backup(tmp_path)
    for foreign in (b"", b"\x89", b"SQLite format 3\0" * 100, MAGIC[:-1]):
        with pytest.raises(BackupFileError, match=r"This is not a backup of Semel\."):
            verify(foreign)
    for version in (1, 3):
        other = MAGIC + bytes([version]) + data[len(MAGIC) + 1 :]
        sentence = f"has the format version {version}, but this Semel reads version 2 only"
        with pytest.raises(BackupFileError, match=sentence):
            verify(other)


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (2, "of the newer schema version 2: use Semel 1.2.3, which wrote it, or a newer one."),
        (0, "of the older schema version 0: restore it with Semel 1.2.3, which wrote it, then run `semel migrate`"),
    ],
)
def test_rows_of_another_schema_version_are_refused(schema: int, sentence: str) -> None:
    sink = io.BytesIO()
    BackupWriter(sink, HEADER._replace(schema=schema), TABLES).finish()
    with pytest.raises(BackupFileError) as refused:
        reader_of(sink.getvalue())
    assert sentence in str(refused.value)


def test_tables_of_another_build_are_refused() -> None:
    other = Table("thing", ThingRow, key=2)
    for tables in ((other, *TABLES[1:]), TABLES[1:], TABLES[::-1]):
        sink = io.BytesIO()
        BackupWriter(sink, HEADER, tables).finish()
        with pytest.raises(BackupFileError, match=r"not those of this build: restore it with Semel 1\.2\.3"):
            reader_of(sink.getvalue())


def test_a_page_that_is_larger_than_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = small_backup(tmp_path)
    monkeypatch.setattr(backup_file, "MAX_CONTENT_BYTES", 100)
    with pytest.raises(BackupFileError, match="is damaged at byte"):
        verify(data)
    writer = BackupWriter.__new__(BackupWriter)
    with pytest.raises(BackupFileError, match="more than a backup can hold"):
        writer._frame(b"P", bytes(101))


def test_a_restore_of_a_damaged_backup_leaves_the_target_empty(target: PersistentPlace, tmp_path: Path) -> None:
    source = MemoryPlace(tmp_path).open()
    fill(source)
    data, store = bytearray(backup_of(source)[0]), target.open()
    data[-100] ^= 1
    with pytest.raises(BackupFileError):
        restore(bytes(data), store)
    assert not any(contents(store).values())
    assert not any(contents(target.reopen()).values())


def test_what_a_restore_adds_is_one_transaction_with_the_rows(target: PersistentPlace, tmp_path: Path) -> None:
    data, store = small_backup(tmp_path), target.open()
    extra = thing(b"extra")

    def fail(tx: Tx) -> None:
        tx.flush(Changes({THING: [extra]}, {}, {}))
        raise RuntimeError("no")

    def add(tx: Tx) -> ThingRow:
        loaded = tx.load({THING: [(b"a", 1, 1)]}, ()).rows[THING]
        tx.flush(Changes({THING: [extra]}, {}, {}))
        found: ThingRow = loaded[(b"a", 1, 1)]
        return found

    with pytest.raises(RuntimeError):
        restore_backup(reader_of(data), store, TABLES, ignore, [Lock(b"one")], fail)
    assert not any(contents(store).values())
    row = restore_backup(reader_of(data), store, TABLES, ignore, [Lock(b"one")], add)
    assert row == thing(number=1, note=b"note"), "rows of the backup are seen by what comes after them"
    assert len(contents(store)["thing"]) == 4
    with pytest.raises(TargetNotEmptyError):
        restore(data, store)


def test_the_header_is_json_for_people_and_programs(tmp_path: Path) -> None:
    data = small_backup(tmp_path)
    length = int.from_bytes(data[len(MAGIC) + 2 : len(MAGIC) + 6], "big")
    header = json.loads(data[len(MAGIC) + 6 :][:length])
    assert BackupHeader(**{name: header[name] for name in BackupHeader._fields}) == HEADER
    assert [one[:2] for one in header["parts"]] == [["thing", 0], ["ticket", 1], ["ticket", 0], ["parcel", 0]]
