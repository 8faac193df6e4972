"""`semel events jump`: a restored log goes on above every id that its lost future gave out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from semel.cli.events import jumping
from semel.contracts.events.limits import MAX_COMMITTED_ID
from semel.contracts.events.tables import EMPTY_LOG, EVENT_HEAD, HEAD_KEY, EventHeadRow
from semel.contracts.schema import MIGRATIONS, TABLES
from semel.engine.contract import EngineError, NotStoredError, OutcomeUnknownError
from semel.server.world import SystemWorld
from semel.store.open import look_at, open_store
from semel.store.protocol import Changes, Store
from tests.cli.command import Finished, Semel
from tests.cli.places import is_nothing_there
from tests.postgres.shared import fresh_url
from tests.running import RunningServer
from tests.together import eventually

NOTE = '{"type": "note.added"}'
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


def write_head(url: str, last_id: int, updated_at: int) -> None:
    with closing(opened(url)) as store:
        tx = store.begin(())
        tx.flush(Changes({EVENT_HEAD: [EventHeadRow(b"", last_id, updated_at, 3)]}, {}, {}))
        tx.commit()


def head(url: str) -> EventHeadRow:
    with closing(opened(url)) as store, store.read() as snapshot:
        return snapshot.get(EVENT_HEAD, HEAD_KEY) or EMPTY_LOG


@contextmanager
def serving(url: str, folder: Path, **env: str) -> Iterator[RunningServer]:
    with RunningServer(folder / "unused", env={"SEMEL_STORE": url, **env}) as server:
        yield server


def submit(server: RunningServer, *names: str) -> list[int]:
    events = [{"id": name, "partitions": ["p"], "event": {"type": "t"}} for name in names]
    results = httpx.post(f"{server.url}/v1/events", json={"events": events}).json()["results"]
    assert {one["status"] for one in results} == {"committed"}
    return [one["committed_id"] for one in results]


def test_no_id_of_the_lost_future_is_given_again(semel: Semel, url: str, kind: str, tmp_path: Path) -> None:
    with serving(url, tmp_path) as server:
        kept = submit(server, "kept-1", "kept-2")
    backup = place(kind, tmp_path / "backup")
    assert semel.here("copy", "--from", url, "--to", backup).code == 0
    with serving(url, tmp_path) as server:
        lost = submit(server, *(f"lost-{number}" for number in range(40)))

    done = semel("events", "jump", "--store", backup, "--yes", "--json").facts
    assert (done["last_committed_id"], done["jumped"], done["dry_run"]) == (kept[-1], True, False)
    jumped_to = done["new_last_committed_id"]
    assert jumped_to > max(lost)
    assert head(backup).last_id == jumped_to

    with serving(backup, tmp_path) as server:
        page = httpx.get(f"{server.url}/v1/events", params={"partition": "p", "since": lost[-1]}).json()
        assert (page["events"], page["has_more"]) == ([], False)
        assert (page["next_since_committed_id"], page["sync_to_committed_id"]) == (lost[-1], jumped_to)
        assert submit(server, "kept-1", "kept-2") == kept
        new = submit(server, "lost-0", "new")
        assert new == [jumped_to + 1, jumped_to + 2]
        there = Semel(server.url)
        assert [json.loads(line)["committed_id"] for line in read(there, "0")] == [*kept, *new]
        assert [json.loads(line)["committed_id"] for line in read(there, str(lost[-1]))] == new


def read(semel: Semel, since: str) -> list[str]:
    return semel.here("events", "read", "--partition", "p", "--all", "--since", since).out.splitlines()


def test_it_says_what_it_would_do_and_does(semel: Semel, url: str) -> None:
    write_head(url, 57, SystemWorld().wall_ms() - DAY_MS)  # not when this file was read, which may be long ago
    before = head(url)
    dry = semel("events", "jump", "--store", url, "--dry-run")
    assert (dry.code, dry.err) == (0, "")
    assert ": the last committed_id is 57, given at " in dry.out
    assert ". Would go on above 86" in dry.out
    facts = semel.here("events", "jump", "--store", url, "--dry-run", "--yes", "--json").facts
    assert (facts["last_committed_id"], facts["jumped"], facts["dry_run"]) == (57, False, True)
    assert head(url) == before

    done = semel("events", "jump", "--store", url, "--yes")
    assert (done.code, done.err) == (0, "")
    after = head(url)
    assert after.last_id >= facts["new_last_committed_id"] > 57 + DAY_MS * 1_000
    assert (after.updated_at >= NOW, after.pruned_to) == (True, before.pruned_to)
    assert done.out.endswith(f" Jumped: the next event gets an id above {after.last_id}.\n")
    assert semel.here("events", "jump", "--store", url, "--yes").code == 0
    assert head(url).last_id > after.last_id


def test_it_asks_at_a_terminal_and_nowhere_else(semel: Semel, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/data"
    write_head(url, 57, NOW - DAY_MS)
    nobody = semel("events", "jump", "--store", url)
    assert (nobody.code, nobody.raw, "say --yes" in nobody.err) == (2, b"", True)
    no = semel.on_terminal("events", "jump", "--store", url, typed=b"n\n")
    assert (no.code, b"the last committed_id is 57, given at " in no.raw, b"Go on above " in no.raw) == (1, True, True)
    assert head(url).last_id == 57
    yes = semel.on_terminal("events", "jump", "--store", url, typed=b"y\n")
    assert (yes.code, b"Jumped: " in yes.raw) == (0, True)
    assert head(url).last_id > 57


@pytest.mark.parametrize("flag", ["--yes", "--dry-run"])
def test_an_empty_log_has_nothing_to_go_on_from(semel: Semel, url: str, flag: str) -> None:
    semel.here("migrate", "--store", url)
    run = semel.here("events", "jump", "--store", url, flag)
    assert (run.code, run.err) == (0, "")
    assert run.out.startswith("There were never events in ")
    assert run.out.count("\n") == 1
    assert semel.here("events", "jump", "--store", url, flag, "--json").facts["jumped"] is False
    assert head(url) == EMPTY_LOG


@pytest.mark.parametrize("flag", ["--yes", "--dry-run"])
def test_a_store_in_use_is_refused(semel: Semel, url: str, kind: str, tmp_path: Path, flag: str) -> None:
    with serving(url, tmp_path, SEMEL_SWEEP_INTERVAL_MS="10") as server:
        submit(server, "one")
        runs: list[Finished] = []

        def is_refused() -> bool:
            runs.append(semel.here("events", "jump", "--store", url, flag))
            return runs[-1].code == 1

        eventually(is_refused, "it is refused")  # a node over PostgreSQL leads a moment after its start
        run = runs[-1]
        assert run.raw == b""
        who = f"Another server (process {server.pid}) is using " if kind == "sqlite" else "A server is using "
        assert run.err.startswith(f"Error: {who}")
        assert "stop" in run.err


def test_what_is_not_there_or_not_up_to_date_is_left_alone(semel: Semel, url: str, kind: str, tmp_path: Path) -> None:
    run = semel.here("events", "jump", "--store", url, "--yes")
    assert (run.code, run.err.startswith("Error: There is no data in ")) == (1, True)
    assert is_nothing_there(url)
    old = place(kind, tmp_path / "old")
    open_store(old, (), MIGRATIONS[:1], lambda: 0).close()
    run = semel.here("events", "jump", "--store", old, "--yes")
    assert (run.code, "is of the older schema version 1: run `semel migrate` on it first." in run.err) == (1, True)
    assert look_at(old, ()).version == 1


def test_the_store_is_the_one_that_a_server_would_use(
    semel: Semel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("data", "one"):
        semel.here("migrate", "--data", folder)
    Path("semel.toml").write_text('data = "one"\nhost = "0.0.0.0"\n')
    jump = ("events", "jump", "--dry-run")
    assert "in sqlite:data," in semel(*jump).out
    assert "in sqlite:one," in semel(*jump, env={"SEMEL_DATA": "one"}).out
    assert "in sqlite:one," in semel(*jump, env={"SEMEL_CONFIG": "semel.toml"}).out
    assert "in sqlite:data," in semel(*jump, "--store", "sqlite:data", env={"SEMEL_DATA": "one"}).out


@pytest.mark.parametrize(
    ("last_id", "updated_at", "sentence"),
    [
        (57, NOW + DAY_MS, "set the clock right first."),
        (MAX_COMMITTED_ID - 1_000, NOW, "There are not enough ids left above 9007199254739991 for a jump."),
    ],
    ids=["a clock behind", "too few ids"],
)
@pytest.mark.parametrize("flag", ["--yes", "--dry-run"])
def test_a_jump_that_would_keep_no_promise_is_refused(
    semel: Semel, tmp_path: Path, flag: str, last_id: int, updated_at: int, sentence: str
) -> None:
    url = f"sqlite:{tmp_path}/data"
    write_head(url, last_id, updated_at)
    run = semel.here("events", "jump", "--store", url, flag)
    assert (run.code, run.raw, sentence in run.err) == (1, b"", True)
    assert head(url).last_id == last_id


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OutcomeUnknownError("The commit failed."), "a second jump does no harm."),
        (NotStoredError("The disk is full."), "The log has not jumped."),
    ],
)
def test_failures_are_told_as_they_are(
    semel: Semel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: EngineError, sentence: str
) -> None:
    url = f"sqlite:{tmp_path}/data"
    write_head(url, 57, NOW)

    async def fail(store: Store) -> None:
        raise error

    monkeypatch.setattr(jumping, "_jump", fail)
    run = semel.here("events", "jump", "--store", url, "--yes")
    assert (run.code, run.raw) == (1, b"")
    assert run.err.startswith(f"Error: {error} ")
    assert run.err.endswith(f"{sentence}\n")


def test_errors_are_one_sentence(semel: Semel, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for args, sentence in (
        (["--store", "memory:"], "there is nothing to jump over."),
        (["--store", "nothing:x"], "There is no store 'nothing'"),
        (["--data", str(tmp_path / "file")], "cannot be read: Not a directory."),
        (["--store", "postgresql://me:secret@127.0.0.1:1/db"], "PostgreSQL: "),
        (["--config", str(tmp_path / "none.toml")], "cannot be read"),
    ):
        run = semel("events", "jump", "--yes", *args)
        assert (run.code, run.raw) == (1, b"")
        assert run.err.startswith("Error: ")
        assert run.err.count("\n") == 1
        assert sentence in run.err
        assert "secret" not in run.err
