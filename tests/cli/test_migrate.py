"""`semel migrate` says what it does, and `--dry-run` does nothing."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from semel.server import offline_store
from semel.store.migrations import CreateTable, Migration
from semel.store.open import inspect_store, shown
from semel.store.table import ColumnKind, TableColumn, TableLayout
from semel.surfaces.schema import MIGRATIONS, TABLES
from tests.cli.command import Semel
from tests.cli.places import is_nothing_there
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer

LAST = MIGRATIONS[-1].number
DONE = [f"schema version 0 -> {LAST}: {MIGRATIONS[0].about}"]
UP_TO_DATE = f"up to date: version {LAST}"


@pytest.fixture
def semel() -> Semel:
    return Semel("http://127.0.0.1:1")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place where nothing is yet."""
    return f"sqlite:{tmp_path}/data" if request.param == "sqlite" else fresh_url()


def test_migrates_and_says_so(semel: Semel, url: str) -> None:
    assert semel.here("migrate", "--store", url).out.splitlines()[1:] == DONE
    assert inspect_store(url, TABLES).version == LAST
    assert semel.here("migrate", "--store", url).out.splitlines()[1:] == [UP_TO_DATE]
    assert semel.here("migrate", "--store", url, "--dry-run").out.splitlines()[1:] == [UP_TO_DATE]


def test_a_dry_run_changes_nothing_at_all(semel: Semel, url: str) -> None:
    for _ in range(2):
        run = semel.here("migrate", "--store", url, "--dry-run")
        assert (run.code, run.out.splitlines()[1:]) == (0, [f"would change {line}" for line in DONE])
        assert is_nothing_there(url)


def test_only_the_missing_migrations(semel: Semel, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    semel.here("migrate", "--store", url)
    later = [
        Migration(
            number, about, (CreateTable(TableLayout(f"later_{number}", (TableColumn("id", ColumnKind.BYTES),), 1)),)
        )
        for number, about in ((LAST + 1, "later"), (LAST + 2, "still later"))
    ]
    monkeypatch.setattr(offline_store, "MIGRATIONS", (*MIGRATIONS, *later))
    said = [
        f"schema version {LAST} -> {LAST + 1}: later",
        f"schema version {LAST + 1} -> {LAST + 2}: still later",
    ]
    dry = semel.here("migrate", "--store", url, "--dry-run")
    assert dry.out.splitlines()[1:] == [f"would change {line}" for line in said]
    assert inspect_store(url, ()).version == LAST
    assert semel.here("migrate", "--store", url).out.splitlines()[1:] == said
    assert inspect_store(url, ()).version == LAST + 2


@pytest.mark.parametrize("flags", [[], ["--dry-run"]])
def test_newer_data_is_refused_and_left_alone(
    semel: Semel, url: str, flags: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = Migration(
        LAST + 1, "newer", (CreateTable(TableLayout("newer", (TableColumn("id", ColumnKind.BYTES),), 1)),)
    )
    with monkeypatch.context() as patch:
        patch.setattr(offline_store, "MIGRATIONS", (*MIGRATIONS, newer))
        semel.here("migrate", "--store", url)
    run = semel.here("migrate", "--store", url, *flags)
    assert (run.code, run.raw) == (1, b"")
    assert run.err == (
        f"Error: {shown(url)} has schema version {LAST + 1}, but this Semel supports versions up to {LAST} only: "
        "start the Semel that wrote it, or a newer one.\n"
    )
    assert inspect_store(url, ()).version == LAST + 1


def test_the_store_is_the_one_that_a_server_would_use(
    semel: Semel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert semel.here("migrate").out.startswith("Store: sqlite:data\n")
    assert semel.here("migrate", env={"SEMEL_DATA": "one"}).out.startswith("Store: sqlite:one\n")
    assert semel.here("migrate", "--data", "two", env={"SEMEL_DATA": "one"}).out.startswith("Store: sqlite:two\n")
    assert semel.here("migrate", env={"SEMEL_STORE": "sqlite:three"}).out.startswith("Store: sqlite:three\n")
    Path("semel.toml").write_text('data = "four"\nhost = "0.0.0.0"\n')
    assert semel.here("migrate", env={"SEMEL_CONFIG": "semel.toml"}).out.startswith("Store: sqlite:four\n")
    for folder in ("data", "one", "two", "three", "four"):
        assert apsw.Connection(f"{folder}/semel.db").execute("SELECT version FROM semel_schema").get == LAST


def test_a_server_starts_on_what_was_migrated(semel: Semel, tmp_path: Path) -> None:
    semel.here("migrate", "--data", str(tmp_path / "data"))
    with RunningServer(tmp_path / "data"):
        # What is up to date needs no opening, so the server is not in the way.
        assert semel.here("migrate", "--data", str(tmp_path / "data")).out.splitlines()[1:] == [UP_TO_DATE]


def test_errors_are_one_sentence(semel: Semel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    for args, sentence in (
        (["--store", "memory:"], "nothing to migrate"),
        (["--store", "nothing:x"], "There is no store 'nothing'"),
        (["--data", str(tmp_path / "file")], "cannot be read: Not a directory."),
        (["--store", "postgresql://me:secret@127.0.0.1:1/db"], "PostgreSQL: "),
        (["--store", "postgresql://me:secret@127.0.0.1/db?schema=UP"], "The schema in the PostgreSQL URL"),
    ):
        run = semel.here("migrate", *args)
        assert (run.code, run.raw) == (1, b"")
        assert run.err.startswith("Error: ")
        assert run.err.count("\n") == 1
        assert sentence in run.err
        assert "secret" not in run.err


def test_a_folder_in_use_is_told_as_it_is(semel: Semel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = Migration(
        LAST + 1, "newer", (CreateTable(TableLayout("newer", (TableColumn("id", ColumnKind.BYTES),), 1)),)
    )
    with RunningServer(tmp_path / "data") as server:
        monkeypatch.setattr(offline_store, "MIGRATIONS", (*MIGRATIONS, newer))
        run = semel.here("migrate", "--data", str(tmp_path / "data"))
        assert run.code == 1
        assert f"Another server (process {server.pid}) is using" in run.err
