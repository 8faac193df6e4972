"""A data folder of every release opens, migrates, checks clean, and repeats its answers under the present code."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw
import httpx
import pytest

from semel.engine.clock import SystemWorld
from semel.store.open import open_store
from semel.surfaces.schema import MIGRATIONS, TABLES
from tests.cli.command import Semel
from tests.harness.serve_with_faults import CLOCK
from tests.harness.server import RunningServer
from tests.upgrades.fixture import CURRENT, DATABASE, all_fixtures, open_fixture
from tests.upgrades.known import send

MEND = (
    "The tables differ from those of a new store. Before the release of this schema version: run `make fixture` and "
    "commit the file. After it: add a migration, and leave the fixture as it is."
)


def schema_of(folder: Path) -> dict[str, object]:
    """Columns and indexes of every table, however they came to be."""
    with closing(apsw.Connection(str(folder / DATABASE), flags=apsw.SQLITE_OPEN_READONLY)) as connection:

        def ask(sql: str) -> list[tuple[object, ...]]:
            return [tuple(row) for row in connection.execute(sql)]

        names = ask("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        tables = {str(name): ask(f'PRAGMA table_info("{name}")') for (name,) in names}
        indexes = ask("SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL")
        return {**tables, **{str(name): sql for name, sql in indexes}}


@pytest.fixture(scope="module")
def new_schema(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("new")
    open_store(f"sqlite:{folder}", TABLES, MIGRATIONS, SystemWorld().wall_ms).close()
    return schema_of(folder)


def test_the_present_schema_has_a_fixture() -> None:
    assert CURRENT in all_fixtures(), "run `make fixture` and commit the file"


@pytest.mark.parametrize("path", all_fixtures(), ids=lambda path: path.name)
def test_an_older_data_folder_is_migrated_clean_and_repeats_its_answers(
    path: Path, new_schema: dict[str, object], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    known = open_fixture(path, data)
    semel = Semel("http://127.0.0.1:1")
    migrated = semel.here("migrate", "--data", str(data))
    assert migrated.code == 0, migrated.err
    assert schema_of(data) == new_schema, MEND
    checked = semel.here("check", "--data", str(data))
    assert checked.code == 0, checked.out
    # Keys and leases have not expired yet by the clock of the day on which the fixture was made.
    with (
        RunningServer(data, env={CLOCK: str(known["made_at_ms"] + 1_000)}) as server,
        httpx.Client(base_url=server.url, timeout=30) as http,
    ):
        for request, answer in zip(known["requests"], known["replayed"], strict=True):
            assert send(http, request) == answer, request
        text = http.get("/v1/stream/known", params={"offset": "-1"}).text
        assert text == "once\nproduced\n"
    checked = semel.here("check", "--data", str(data))
    assert checked.code == 0, checked.out
