"""Offline commands with `--namespace`: each works on the store of that namespace, and on no other."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from semel.engine.clock import SystemWorld
from semel.kernel.namespace import url_within
from semel.store.backup import count_rows
from semel.store.open import inspect_store, open_store
from semel.store.protocol import Changes
from semel.surfaces.schema import MIGRATIONS, TABLES
from semel.surfaces.streams.tables import CHUNK, ChunkRow
from tests.cli.command import Semel
from tests.harness.postgres.shared import fresh_url


@pytest.fixture
def semel() -> Semel:
    return Semel("http://127.0.0.1:1")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:{tmp_path / 'data'}" if request.param == "sqlite" else fresh_url()


def fill(url: str, count: int) -> None:
    with closing(open_store(url, TABLES, MIGRATIONS, SystemWorld().wall_ms)) as store:
        tx = store.begin(())
        tx.flush(Changes({CHUNK: [ChunkRow(b"id", end, b"x", 1, 1) for end in range(count)]}, {}, {}))
        tx.commit()


def rows(url: str) -> int:
    with closing(open_store(url, TABLES, MIGRATIONS, SystemWorld().wall_ms)) as store, store.read() as snapshot:
        return sum(count_rows(snapshot, (CHUNK,)).values())


def test_backup_restore_check_and_epoch_of_one_namespace(semel: Semel, url: str, tmp_path: Path) -> None:
    fill(url, 2)
    fill(url_within(url, "red"), 3)
    file = str(tmp_path / "red.backup")
    made = semel.here("backup", "create", file, "--store", url, "--namespace", "red", "--json").facts
    assert made["rows"] == 3
    done = semel.here("restore", file, "--store", url, "--namespace", "blue", "--json").facts
    assert (done["rows"], rows(url_within(url, "blue")), rows(url)) == (3, 3, 2)
    checked = semel.here("check", "--store", url, "--namespace", "red", "--surface", "events", "--json")
    assert checked.code == 0, checked.err
    shown = semel.here("epoch", "show", "--store", url, "--namespace", "blue", "--json").facts
    assert shown["epoch"] == done["epoch"] > 0
    assert semel.here("epoch", "show", "--store", url, "--json").facts["epoch"] == 0
    again = semel.here("restore", file, "--store", url, "--namespace", "red")
    assert again.code == 1, "the store of red has rows"


@pytest.mark.parametrize("name", ["Red", "../x", "a b", ""])
def test_a_bad_name_is_refused_and_nothing_is_created(semel: Semel, tmp_path: Path, name: str) -> None:
    url = f"sqlite:{tmp_path / 'data'}"
    refused = semel.here("migrate", "--store", url, "--namespace", name)
    assert refused.code == 1
    assert "cannot be the name of a namespace: give a lower-case letter" in refused.err
    assert not (tmp_path / "data").exists()


def test_migrate_creates_the_store_of_a_namespace(semel: Semel, url: str) -> None:
    assert semel.here("migrate", "--store", url, "--namespace", "red").code == 0
    assert inspect_store(url_within(url, "red"), ()).version == MIGRATIONS[-1].number
    assert inspect_store(url, ()).version == 0
