"""`semel epoch`: shown beside a server, raised without one; a raise that would keep no promise is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from semel.engine.clock import SystemWorld
from semel.engine.contract import EngineError, NotStoredError, OutcomeUnknownError
from semel.server import offline_store
from semel.store.migrations import Migration
from semel.store.open import inspect_store, open_store
from semel.store.protocol import Changes, Store
from semel.surfaces.epoch import EPOCH, EPOCH_KEY, FIRST_EPOCH, EpochRow
from semel.surfaces.epoch_raise import MAX_RAISES
from semel.surfaces.events.limits import MAX_COMMITTED_ID
from semel.surfaces.events.tables import EMPTY_LOG, EVENT_HEAD, HEAD_KEY, EventHeadRow
from semel.surfaces.schema import MIGRATIONS, TABLES
from tests.backup.clone import clone
from tests.cli.command import Finished, Semel
from tests.cli.places import is_nothing_there
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer
from tests.harness.together import eventually

NOW = SystemWorld().wall_ms()
DAY_MS = 86_400_000


@pytest.fixture
def semel() -> Semel:
    return Semel("http://127.0.0.1:1")


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def place(kind: str, folder: Path) -> str:
    """Where nothing is yet."""
    return f"sqlite:{folder}" if kind == "sqlite" else fresh_url()


@pytest.fixture
def url(kind: str, tmp_path: Path) -> str:
    return place(kind, tmp_path / "data")


def opened(url: str) -> Store:
    return open_store(url, TABLES, MIGRATIONS, SystemWorld().wall_ms)


def write_rows(url: str, head: EventHeadRow, epoch: EpochRow = FIRST_EPOCH) -> None:
    with closing(opened(url)) as store:
        tx = store.begin(())
        tx.flush(Changes({EVENT_HEAD: [head], EPOCH: [epoch]}, {}, {}))
        tx.commit()


def head(url: str) -> EventHeadRow:
    with closing(opened(url)) as store, store.read() as snapshot:
        return snapshot.get(EVENT_HEAD, HEAD_KEY) or EMPTY_LOG


def epoch(url: str) -> int:
    with closing(opened(url)) as store, store.read() as snapshot:
        return (snapshot.get(EPOCH, EPOCH_KEY) or FIRST_EPOCH).number


@contextmanager
def serving(url: str, folder: Path, **env: str) -> Iterator[RunningServer]:
    with RunningServer(folder / "unused", env={"SEMEL_STORE": url, **env}) as server:
        yield server


def test_c_epoch_a_raise_says_what_it_would_do_and_does_it(semel: Semel, url: str) -> None:
    write_rows(url, EventHeadRow(b"", 57, NOW - DAY_MS, 3))
    before = SystemWorld().wall_ms()
    dry = semel.here("epoch", "raise", "--store", url, "--dry-run")
    assert (dry.code, dry.err) == (0, "")
    assert ": epoch 0, the last committed_id of events is 57. Would raise it to " in dry.out
    facts = semel.here("epoch", "raise", "--store", url, "--dry-run", "--yes", "--json").facts
    assert (facts["epoch_before"], facts["last_committed_id"], facts["raised"], facts["dry_run"]) == (
        0,
        57,
        False,
        True,
    )
    assert (epoch(url), head(url).last_id) == (0, 57)

    done = semel.here("epoch", "raise", "--store", url, "--yes")
    assert (done.code, done.err) == (0, "")
    first = epoch(url)
    assert before <= facts["epoch"] <= first
    assert done.out.endswith(f" Raised to {first}.\n")
    after = head(url)
    assert (after.last_id, after.updated_at >= before, after.pruned_to) == (first * 1_000, True, 3)

    again = semel.here("epoch", "raise", "--store", url, "--yes", "--json").facts
    assert (again["epoch_before"], again["epoch"] > first, again["raised"]) == (first, True, True)
    assert again["new_last_committed_id"] == head(url).last_id > after.last_id
    shown = semel.here("epoch", "show", "--store", url, "--json").facts
    assert [one["epoch"] for one in shown["raises"]] == [first, again["epoch"]]
    assert shown["epoch"] == again["epoch"]


def test_c_epoch_a_backup_that_is_restored_twice_gets_two_epochs(semel: Semel, kind: str, tmp_path: Path) -> None:
    backup = place(kind, tmp_path / "backup")
    write_rows(backup, EventHeadRow(b"", 57, NOW - DAY_MS, 3))
    numbers = []
    for name in ("one", "two"):
        target = place(kind, tmp_path / name)
        clone(backup, target)
        numbers.append(semel.here("epoch", "raise", "--store", target, "--yes", "--json").facts["epoch"])
    assert numbers[0] < numbers[1]


def test_c_epoch_it_is_shown_while_a_server_runs(semel: Semel, url: str, tmp_path: Path) -> None:
    with serving(url, tmp_path):
        run = semel.here("epoch", "show", "--store", url)
        assert (run.code, run.out.endswith(": epoch 0, never raised.\n")) == (0, True)


def test_c_epoch_a_raise_asks_at_a_terminal_and_nowhere_else(semel: Semel, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/data"
    write_rows(url, EventHeadRow(b"", 57, NOW - DAY_MS, 0))
    silent = semel.here("epoch", "raise", "--store", url)
    assert (silent.code, silent.raw, "give --yes" in silent.err) == (2, b"", True)
    no = semel.on_terminal("epoch", "raise", "--store", url, typed=b"n\n")
    assert (no.code, b"the last committed_id of events is 57." in no.raw, b"Start a new epoch?" in no.raw) == (
        1,
        True,
        True,
    )
    assert epoch(url) == 0
    yes = semel.on_terminal("epoch", "raise", "--store", url, typed=b"y\n")
    assert (yes.code, b"Raised to " in yes.raw) == (0, True)
    assert epoch(url) > 0


@pytest.mark.parametrize("flag", ["--yes", "--dry-run"])
def test_c_epoch_a_raise_of_a_store_in_use_is_refused(
    semel: Semel, url: str, kind: str, tmp_path: Path, flag: str
) -> None:
    with serving(url, tmp_path, SEMEL_SWEEP_INTERVAL_MS="10") as server:
        assert httpx.get(f"{server.url}/readyz").status_code == 200
        runs: list[Finished] = []

        def is_refused() -> bool:
            runs.append(semel.here("epoch", "raise", "--store", url, flag))
            return runs[-1].code == 1

        eventually(is_refused, "it is refused")  # a node over PostgreSQL leads a moment after its start
        run = runs[-1]
        assert run.raw == b""
        who = f"Another server (process {server.pid}) is using " if kind == "sqlite" else "A server is using "
        assert run.err.startswith(f"Error: {who}")
        assert "stop" in run.err


def test_c_epoch_what_is_not_there_or_not_up_to_date_is_left_alone(
    semel: Semel, url: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in (["raise", "--yes"], ["show"]):
        run = semel.here("epoch", *command, "--store", url)
        assert (run.code, run.err.startswith("Error: There is no data in ")) == (1, True)
        assert is_nothing_there(url)
    old = place(kind, tmp_path / "old")
    open_store(old, (), MIGRATIONS, lambda: 0).close()
    monkeypatch.setattr(offline_store, "MIGRATIONS", (*MIGRATIONS, Migration(MIGRATIONS[-1].number + 1, "later", ())))
    for command in (["raise", "--yes"], ["show"]):
        run = semel.here("epoch", *command, "--store", old)
        told = f"is of the older schema version {MIGRATIONS[-1].number}: run `semel migrate` on it first."
        assert (run.code, told in run.err) == (1, True)
    assert inspect_store(old, ()).version == MIGRATIONS[-1].number


def test_c_epoch_the_store_is_the_one_that_a_server_would_use(
    semel: Semel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("data", "one"):
        semel.here("migrate", "--data", folder)
    Path("semel.toml").write_text('data = "one"\nhost = "0.0.0.0"\n')
    for command in (["show"], ["raise", "--dry-run"]):
        assert "sqlite:data: " in semel.here("epoch", *command).out
        assert "sqlite:one: " in semel.here("epoch", *command, env={"SEMEL_DATA": "one"}).out
        assert "sqlite:one: " in semel.here("epoch", *command, env={"SEMEL_CONFIG": "semel.toml"}).out
        assert "sqlite:data: " in semel.here("epoch", *command, "--store", "sqlite:data", env={"SEMEL_DATA": "one"}).out


@pytest.mark.parametrize(
    ("log", "number", "sentence"),
    [
        (EventHeadRow(b"", 57, NOW + DAY_MS, 0), FIRST_EPOCH, "the last event: set the clock right first."),
        (EventHeadRow(b"", 57, NOW, 0), EpochRow(b"", NOW + DAY_MS, b""), "last raise: set the clock right first."),
        (
            EventHeadRow(b"", MAX_COMMITTED_ID - 1_000, NOW, 0),
            FIRST_EPOCH,
            "There are not enough ids of events left above 9007199254739991 for a new epoch.",
        ),
        (
            EventHeadRow(b"", 57, NOW, 0),
            EpochRow(b"", NOW, bytes(8) * (MAX_RAISES - 1)),
            f"was raised {MAX_RAISES} times, which is the most.",
        ),
    ],
    ids=["a clock behind the log", "a clock behind the raise", "too few ids", "too many raises"],
)
@pytest.mark.parametrize("flag", ["--yes", "--dry-run"])
def test_c_epoch_a_raise_that_would_keep_no_promise_is_refused(
    semel: Semel, tmp_path: Path, flag: str, log: EventHeadRow, number: EpochRow, sentence: str
) -> None:
    url = f"sqlite:{tmp_path}/data"
    write_rows(url, log, number)
    run = semel.here("epoch", "raise", "--store", url, flag)
    assert (run.code, run.raw, sentence in run.err) == (1, b"", True)
    assert (head(url), epoch(url)) == (log, number.number)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OutcomeUnknownError("The commit failed."), "raising it twice does no harm."),
        (NotStoredError("The disk is full."), "The epoch was not raised."),
    ],
)
def test_c_epoch_failures_of_a_raise_are_told_as_they_are(
    semel: Semel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: EngineError, sentence: str
) -> None:
    url = f"sqlite:{tmp_path}/data"
    write_rows(url, EventHeadRow(b"", 57, NOW, 0))

    def fail(store: Store) -> None:
        raise error

    monkeypatch.setattr(offline_store, "raise_epoch", fail)
    run = semel.here("epoch", "raise", "--store", url, "--yes")
    assert (run.code, run.raw) == (1, b"")
    assert run.err.startswith(f"Error: {error} ")
    assert run.err.endswith(f"{sentence}\n")


def test_c_epoch_errors_are_one_sentence(semel: Semel, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for args, sentence in (
        (["--store", "memory:"], "it cannot be restored from a backup."),
        (["--store", "nothing:x"], "There is no store 'nothing'"),
        (["--data", str(tmp_path / "file")], "cannot be read: Not a directory."),
        (["--store", "postgresql://me:secret@127.0.0.1:1/db"], "PostgreSQL: "),
        (["--config", str(tmp_path / "none.toml")], "cannot be read"),
    ):
        run = semel.here("epoch", "raise", "--yes", *args)
        assert (run.code, run.raw) == (1, b"")
        assert run.err.startswith("Error: ")
        assert run.err.count("\n") == 1
        assert sentence in run.err
        assert "secret" not in run.err
