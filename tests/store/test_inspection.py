"""A look at a place tells its version and whether there are rows, and changes nothing there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from semel.store.open import inspect_store, place_of
from semel.store.protocol import StoreError, StoreInspection
from tests.harness.postgres.shared import fresh_url, shared_cluster
from tests.store.conformance import (
    MIGRATIONS,
    PARCEL,
    TABLES,
    THING,
    TICKET,
    ParcelRow,
    PersistentPlace,
    SqlitePlace,
    TicketRow,
    rotate,
    thing,
    write,
)

NOTHING = StoreInspection(0, None)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_nothing_is_there_and_nothing_is_made(lasting: PersistentPlace, tmp_path: Path) -> None:
    assert inspect_store(lasting.url, TABLES) == NOTHING
    assert list(tmp_path.iterdir()) == []
    schema = lasting.url.partition("schema=")[2]
    if schema:
        assert shared_cluster().execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)) == []


def test_a_memory_store_has_nothing() -> None:
    assert inspect_store("memory:", TABLES) == NOTHING


def test_versions(lasting: PersistentPlace) -> None:
    lasting.open((), ())
    assert inspect_store(lasting.url, TABLES) == NOTHING
    lasting.reopen()
    assert inspect_store(lasting.url, TABLES) == StoreInspection(len(MIGRATIONS), None)
    lasting.close()
    assert inspect_store(lasting.url, TABLES) == StoreInspection(len(MIGRATIONS), None)


@pytest.mark.parametrize("is_open", [True, False])
def test_rows(lasting: PersistentPlace, is_open: bool) -> None:
    write(lasting.open(), [(PARCEL, ParcelRow(1, b"", b""))])
    if not is_open:
        lasting.close()
    assert inspect_store(lasting.url, TABLES) == StoreInspection(1, "parcel")
    assert inspect_store(lasting.url, (THING, TICKET)) == StoreInspection(1, None)
    assert inspect_store(lasting.url, ()) == StoreInspection(1, None)


def test_rows_of_both_generations_but_no_dropped_ones(lasting: PersistentPlace) -> None:
    store = lasting.open()
    write(store, [(TICKET, TicketRow(b"t", 1, 1))])
    for occupied in ("ticket", "ticket", None):
        assert inspect_store(lasting.url, TABLES) == StoreInspection(1, occupied)
        rotate(store)


def test_a_folder_is_left_as_it_was(exclusive: PersistentPlace) -> None:
    write(exclusive.open(), [(THING, thing())])
    exclusive.close()
    before = files(exclusive.folder)
    assert inspect_store(exclusive.url, TABLES) == StoreInspection(1, "thing")
    assert files(exclusive.folder) == before
    assert not [name for name in before if name.endswith(("-wal", "-shm"))]


def test_what_a_crash_left_in_the_log_is_seen(exclusive: PersistentPlace) -> None:
    command = [sys.executable, "-m", "tests.store.committer", exclusive.url, "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"1\n"
        child.kill()
    before = files(exclusive.folder)
    assert before["semel.db-wal"]
    assert inspect_store(exclusive.url, TABLES).occupied is not None
    after = files(exclusive.folder)
    assert {name: after[name] for name in after if not name.endswith("-shm")} == {
        name: before[name] for name in before if not name.endswith("-shm")
    }


def test_a_folder_name_with_special_characters(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path / "a b%20#ü")
    place.open()
    place.close()
    assert inspect_store(place.url, TABLES) == StoreInspection(1, None)


@pytest.mark.parametrize("url", ["mysql://host/db", "sqlite:", "nothing"])
def test_a_place_of_no_kind_is_refused(url: str) -> None:
    with pytest.raises(StoreError, match="There is no store"):
        inspect_store(url, TABLES)
    with pytest.raises(StoreError, match="There is no store"):
        place_of(url)


def test_what_cannot_be_read_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "semel.db").write_bytes(b"not a database, but long enough to be taken for one" * 100)
    with pytest.raises(StoreError, match="cannot be read"):
        inspect_store(f"sqlite:{tmp_path}", TABLES)
    with pytest.raises(StoreError, match="cannot be read"):
        inspect_store(f"sqlite:{tmp_path}/semel.db", TABLES)
    with pytest.raises(StoreError, match="PostgreSQL"):
        inspect_store("postgresql://127.0.0.1:1/db", TABLES)


def test_two_spellings_of_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert place_of("sqlite:data") == place_of(f"sqlite://{tmp_path}/x/../data?vfs={os.name}")
    assert place_of("sqlite:data") != place_of("sqlite:data2")
    url = "postgresql://me:secret@one/db?schema=a"
    assert place_of(url) == place_of("postgres://you@one:5432/db?lanes=2&schema=a")
    for other in ("postgresql://one/db?schema=b", "postgresql://two/db?schema=a", "postgresql://one:1/db?schema=a"):
        assert place_of(url) != place_of(other)
    assert place_of(fresh_url()) != place_of(fresh_url())
