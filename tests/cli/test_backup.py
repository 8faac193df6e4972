"""`semel backup` and `semel restore`: what they write, say and refuse."""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from semel.engine.clock import SystemWorld
from semel.server import offline_backup
from semel.store import backup_mark
from semel.store.backup_file import MAGIC
from semel.store.open import inspect_store, open_store
from semel.store.protocol import Changes, CommitUnknownError, Store, StoreError
from semel.surfaces.epoch import EPOCH, EPOCH_KEY, FIRST_EPOCH, EpochRow
from semel.surfaces.events.tables import EMPTY_LOG, EVENT_GAP, EVENT_HEAD, HEAD_KEY, EventHeadRow
from semel.surfaces.ledger.tables import ALONE, LEDGER_TERM, NO_TERM
from semel.surfaces.schema import MIGRATIONS, TABLES
from semel.surfaces.streams.tables import CHUNK, RECEIPT, ChunkRow, ReceiptRow
from tests.backup.spoiled import SPOILED
from tests.cli.command import Semel
from tests.cli.places import is_nothing_there
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer
from tests.harness.together import here_only
from tests.store.test_backup_rows import contents

NOW = SystemWorld().wall_ms()
DAY_MS = 86_400_000
ROWS = 2_506
HEAD = EventHeadRow(b"", 57, NOW - DAY_MS, 3)


@pytest.fixture
def semel() -> Semel:
    return Semel("http://127.0.0.1:1")


def opened(url: str) -> Store:
    return open_store(url, TABLES, MIGRATIONS, SystemWorld().wall_ms)


def fill(url: str, head: EventHeadRow = HEAD, epoch: EpochRow = FIRST_EPOCH) -> None:
    """Rows of both generations, more than a page of some, and those that a new epoch changes."""
    receipts = [
        ReceiptRow(b"s", b"%d" % number, b"id", b"\x00\xff", 9, 204, number, 0, None, None) for number in range(3)
    ]
    with closing(opened(url)) as store:
        tx = store.begin(())
        tx.flush(Changes({RECEIPT: receipts[:1]}, {}, {}))
        tx.rotate(RECEIPT)
        tx.flush(Changes({RECEIPT: receipts[1:], EVENT_HEAD: [head], EPOCH: [epoch]}, {}, {}))
        tx.flush(Changes({CHUNK: [ChunkRow(b"id", end, bytes(2_000), 1, 1) for end in range(2_500)]}, {}, {}))
        tx.flush(Changes({LEDGER_TERM: [NO_TERM._replace(term=4)]}, {}, {}))
        tx.commit()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    made = f"sqlite:{tmp_path}/data" if request.param == "sqlite" else fresh_url()
    fill(made)
    return made


@pytest.fixture
def file(semel: Semel, tmp_path: Path) -> Path:
    """A backup."""
    fill(f"sqlite:{tmp_path}/source")
    run = semel.here("backup", str(tmp_path / "file"), "--data", str(tmp_path / "source"))
    assert run.code == 0, run.err
    return tmp_path / "file"


def test_a_backup_and_its_restore_say_what_they_did(semel: Semel, url: str, tmp_path: Path) -> None:
    path, before = tmp_path / "file", SystemWorld().wall_ms()
    run = semel.here("backup", str(path), "--store", url)
    assert (run.code, run.err) == (0, "Writing the backup\n")
    assert re.fullmatch(rf"Wrote {ROWS:,} rows of .* to {path}: [0-9,]+ bytes, SHA-256 [0-9a-f]{{64}}\.\n", run.out)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir() if ".part" in one.name] == []
    facts = semel.here("backup", "verify", str(path), "--json").facts
    assert (facts["rows"], facts["bytes"], facts["schema"]) == (ROWS, path.stat().st_size, MIGRATIONS[-1].number)
    assert facts["sha256"] in run.out
    assert facts["source"] == ("sqlite" if url.startswith("sqlite") else "postgresql")

    target = f"sqlite:{tmp_path}/target"
    dry = semel.here("restore", str(path), "--store", target, "--dry-run")
    assert (dry.code, f"Would restore {ROWS:,} rows into {target}." in dry.out) == (0, True)
    assert "The epoch would be raised from 0 to " in dry.out
    assert is_nothing_there(target)
    done = semel.here("restore", str(path), "--store", target, "--json").facts
    assert (done["rows"], done["epoch_before"], done["last_committed_id"], done["dry_run"]) == (ROWS, 0, 57, False)
    assert (done["epoch"] >= before, done["new_last_committed_id"]) == (True, done["epoch"] * 1_000)
    with closing(opened(url)) as source, closing(opened(target)) as restored:
        old, new = contents(source, TABLES), contents(restored, TABLES)
        assert {name for name in old if old[name] != new[name]} == {"event_head", "event_gap", "ledger_term", "epoch"}
        assert (len(new["receipt (older)"]), len(new["receipt (younger)"])) == (1, 2)
        with restored.read() as snapshot:
            assert (snapshot.get(EPOCH, EPOCH_KEY) or FIRST_EPOCH).number == done["epoch"]
            assert (snapshot.get(EVENT_HEAD, HEAD_KEY) or EMPTY_LOG).last_id == done["new_last_committed_id"]
            assert (snapshot.get(LEDGER_TERM, ALONE) or NO_TERM).term == done["ledger_term"] == done["epoch"]
            assert snapshot.get(EVENT_GAP, (done["new_last_committed_id"],)) is not None


def test_a_backup_that_is_restored_twice_gets_two_epochs(semel: Semel, file: Path, tmp_path: Path) -> None:
    one, two = (
        semel.here("restore", str(file), "--data", str(tmp_path / name), "--json").facts["epoch"] for name in "ab"
    )
    assert one < two


def test_a_folder_gets_a_file_with_the_time_in_its_name(semel: Semel, url: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    facts = semel.here("backup", str(tmp_path / "folder"), "--store", url, "--json").facts
    [made] = (tmp_path / "folder").iterdir()
    assert re.fullmatch(r"semel-[0-9]{8}T[0-9]{6}Z\.backup", made.name)
    assert facts["file"] == str(made)


def test_a_folder_keeps_the_newest_backups_and_every_other_file(semel: Semel, url: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    old = ["semel-20260101T000000Z.backup", "semel-20251231T235959Z.backup", "semel-20260102T000000Z.backup"]
    others = ["notes", "semel-20240101T000000Z.backup.txt", "my-semel-20240101T000000Z.backup"]
    for name in (*old, *others):
        (folder / name).write_text("old")
    made = semel.here("backup", f"{folder}/", "--store", url, "--keep", "2", "--json").facts
    assert made["deleted"] == ["semel-20251231T235959Z.backup", "semel-20260101T000000Z.backup"]
    assert {path.name for path in folder.iterdir()} == {*others, old[2], Path(made["file"]).name}


def test_old_backups_stay_when_the_new_one_fails(
    semel: Semel, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "semel-20260101T000000Z.backup"
    old.write_text("old")

    def fail(*_: object, **named: object) -> None:
        raise StoreError("The disk is full.")

    monkeypatch.setattr(offline_backup, "back_up", fail)
    assert semel.here("backup", str(tmp_path), "--store", url, "--keep", "1").code == 1
    assert old.exists()


def test_keep_needs_a_folder_that_exists(semel: Semel, url: str, tmp_path: Path) -> None:
    refused = semel.here("backup", str(tmp_path / "file"), "--store", url, "--keep", "2")
    assert (refused.code, "--keep needs a folder" in refused.err) == (2, True)
    refused = semel.here("backup", f"{tmp_path}/absent/", "--store", url)
    assert (refused.code, "does not exist: create it first" in refused.err) == (1, True)
    assert semel.here("backup", str(tmp_path), "--store", url, "--keep", "0").code == 2


def test_a_dry_run_of_a_backup_writes_nothing(semel: Semel, url: str, tmp_path: Path) -> None:
    run = semel.here("backup", "--dry-run", str(tmp_path / "file"), "--store", url)
    assert (run.code, run.out.startswith(f"Would write {ROWS:,} rows of ")) == (0, True)
    assert not (tmp_path / "file").exists()


def test_an_existing_file_is_overwritten_only_when_asked(semel: Semel, url: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("precious")
    for more in ([], ["--dry-run"]):
        run = semel.here("backup", "create", str(path), "--store", url, *more)
        assert (run.code, run.raw, "exists: name another one, or give --force" in run.err) == (1, b"", True)
    assert path.read_text() == "precious"
    assert semel.here("backup", str(path), "--store", url, "--force").code == 0
    assert path.read_bytes().startswith(MAGIC)


def test_a_name_that_is_taken_while_the_backup_is_written_is_left_alone(
    semel: Semel, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, back_up = tmp_path / "file", offline_backup.back_up

    def meanwhile(*args: object, **named: object) -> object:
        path.write_text("precious")
        return back_up(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(offline_backup, "back_up", meanwhile)
    run = semel.here("backup", str(path), "--store", url)
    assert (run.code, run.raw, " exists: " in run.err) == (1, b"", True)
    assert path.read_text() == "precious"
    assert [one.name for one in tmp_path.iterdir() if ".part" in one.name] == []


def test_a_bar_at_a_terminal(semel: Semel, file: Path, tmp_path: Path) -> None:
    run = semel.on_terminal("backup", str(tmp_path / "other"), "--data", str(tmp_path / "source"))
    assert (run.code, "Writing the backup" in run.out, f"{ROWS}/{ROWS}" in run.out) == (0, True, True)
    run = semel.on_terminal("restore", str(file), "--data", str(tmp_path / "target"))
    assert (run.code, "Verifying the backup" in run.out, f"{ROWS}/{ROWS}" in run.out) == (0, True, True)


def test_a_backup_passes_through_a_pipe_checked_on_its_way(semel: Semel, file: Path, tmp_path: Path) -> None:
    data = file.read_bytes()
    assert semel.here("backup", "verify", "-", stdin=data).code == 0
    run = semel.here("restore", "-", "--data", str(tmp_path / "target"), stdin=data[:-1])
    assert (run.code, run.raw, "The backup is not complete" in run.err) == (1, b"", True)
    assert inspect_store(f"sqlite:{tmp_path}/target", TABLES).occupied is None
    assert semel.here("restore", "-", "--data", str(tmp_path / "target"), stdin=data).code == 0


@pytest.mark.parametrize("part", [0.0, 0.001, 0.3, 0.6, 0.9, 0.999], ids=str)
def test_a_damaged_file_is_refused_before_anything_is_made(
    semel: Semel, file: Path, tmp_path: Path, part: float
) -> None:
    data, target = bytearray(file.read_bytes()), f"sqlite:{tmp_path}/target"
    data[int(part * len(data))] ^= 0x40
    file.write_bytes(data)
    for command in (["backup", "verify"], ["restore", "--store", target], ["restore", "--store", target, "--dry-run"]):
        run = semel.here(*command, str(file))
        assert (run.code, run.raw) == (1, b"")
        assert run.err.startswith("Error: ")
        assert run.err.count("\n") == 1
    assert is_nothing_there(target)


@pytest.mark.parametrize("kind", SPOILED)
@pytest.mark.parametrize("is_in_folder", [False, True])
def test_a_spoiled_backup_creates_nothing(
    semel: Semel, file: Path, tmp_path: Path, kind: str, is_in_folder: bool
) -> None:
    if is_in_folder:
        folder = tmp_path / "daily"
        folder.mkdir()
        made = semel.here("backup", f"{folder}/", "--data", str(tmp_path / "source"), "--json")
        file = Path(made.facts["file"])
    whole = file.read_bytes()
    spoiled = SPOILED[kind](whole)
    assert spoiled != whole
    file.write_bytes(spoiled)
    target = f"sqlite:{tmp_path}/target"
    for command in (["backup", "verify"], ["restore", "--store", target]):
        run = semel.here(*command, str(file))
        assert (run.code, run.raw) == (1, b""), kind
        assert run.err.startswith("Error: ")
    assert is_nothing_there(target)


def test_a_target_with_rows_or_with_a_server_is_refused(semel: Semel, file: Path, url: str, tmp_path: Path) -> None:
    for more in ([], ["--dry-run"]):
        run = semel.here("restore", str(file), "--store", url, *more)
        assert (run.code, run.raw, "The target is not empty, there are rows in " in run.err) == (1, b"", True)
    with RunningServer(tmp_path / "busy"):
        run = semel.here("restore", str(file), "--data", str(tmp_path / "busy"))
        assert (run.code, run.raw) == (1, b"")


@pytest.mark.parametrize(
    ("log", "number", "sentence"),
    [
        (EventHeadRow(b"", 57, NOW + DAY_MS, 0), FIRST_EPOCH, "the last event: set the clock right first."),
        (HEAD, EpochRow(b"", NOW + DAY_MS, b""), "last raise: set the clock right first."),
    ],
    ids=["a clock behind the log", "a clock behind the raise"],
)
def test_a_clock_that_is_behind_is_told_before_the_first_row(
    semel: Semel, tmp_path: Path, log: EventHeadRow, number: EpochRow, sentence: str
) -> None:
    source, target, path = f"sqlite:{tmp_path}/source", f"sqlite:{tmp_path}/target", str(tmp_path / "file")
    fill(source, log, number)
    assert semel.here("backup", path, "--store", source).code == 0
    for more in (["--dry-run"], []):
        run = semel.here("restore", path, "--store", target, *more)
        assert (run.code, run.raw, sentence in run.err) == (1, b"", True)
    piped = semel.here("restore", "-", "--store", target, stdin=Path(path).read_bytes())
    assert (piped.code, sentence in piped.err) == (1, True)
    assert inspect_store(target, TABLES).occupied is None


def test_a_clock_behind_the_backup_is_told(
    semel: Semel, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SystemWorld, "wall_ms", lambda _: NOW - 1)
    for more in (["--dry-run"], []):
        run = semel.here("restore", str(file), "--data", str(tmp_path / "target"), *more)
        assert (run.code, "behind the time of the backup: set the clock right first." in run.err) == (1, True)
    assert inspect_store(f"sqlite:{tmp_path}/target", TABLES).occupied is None


def test_an_unknown_commit_of_a_restore_is_told_as_it_is(
    semel: Semel, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise CommitUnknownError("The commit failed.")

    monkeypatch.setattr(offline_backup, "restore", fail)
    run = semel.here("restore", str(file), "--data", str(tmp_path / "target"))
    assert (run.code, run.raw, "run this again; it is refused if it was." in run.err) == (1, b"", True)


def test_errors_are_one_sentence(semel: Semel, file: Path, tmp_path: Path) -> None:
    source, new = str(tmp_path / "source"), str(tmp_path / "new")
    for args, sentence in (
        (["backup", new, "--store", "memory:"], "there is nothing to back up or to restore."),
        (["backup", new, "--data", str(tmp_path / "none")], "There is no data in "),
        (["backup", new, "--store", "postgresql://me:secret@127.0.0.1:1/db"], "PostgreSQL: "),
        (["backup", f"{new}/file", "--data", source], "cannot be written: No such file or directory."),
        (["backup", "verify", new], "cannot be read: No such file or directory."),
        (["backup", "verify", source], "cannot be read: Is a directory."),
        (["backup", "verify", f"{source}/semel.db"], "This is not a backup of Semel."),
        (["restore", str(file), "--store", "memory:"], "there is nothing to back up or to restore."),
        (["restore", new, "--data", new], "cannot be read: No such file or directory."),
        (["restore", f"{source}/semel.db", "--data", new], "This is not a backup of Semel."),
    ):
        run = semel.here(*args)
        assert (run.code, run.raw) == (1, b""), args
        assert sentence in run.err, run.err
        assert "secret" not in run.err
        assert "Traceback" not in run.err


@pytest.mark.parametrize("step", ["fsync", "fdopen"])
def test_a_disk_that_is_full_is_told_and_leaves_no_file(
    semel: Semel, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """At the end, or as soon as the first byte is written."""

    def fail(*_: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def full(handle: int, *_: object) -> object:
        os.close(handle)
        return Path("/dev/full").open("wb", 0)

    monkeypatch.setattr(os, step, here_only(fail if step == "fsync" else full, getattr(os, step)))
    run = semel.here("backup", str(tmp_path / "new"), "--data", str(tmp_path / "source"))
    assert (run.code, run.raw, "cannot be written: No space left on device." in run.err) == (1, b"", True)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "source"]


def test_a_server_tells_the_age_of_the_last_backup(semel: Semel, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with RunningServer(data) as server:
        name = "semel_backup_age_seconds"
        assert name not in httpx.get(f"{server.url}/metrics").json()
        assert semel.here("backup", str(tmp_path / "file"), "--data", str(data)).code == 0
        assert 0 <= httpx.get(f"{server.url}/metrics").json()[name] < 60
        (data / "last-backup").write_text("nonsense")
        assert name not in httpx.get(f"{server.url}/metrics").json()
    backup_mark.write_mark(data, 5_000)
    assert (backup_mark.age_of_mark(data, 6_500), backup_mark.age_of_mark(data, 4_000)) == (1.5, 0)


def test_the_new_backup_is_kept_beside_one_of_a_clock_that_was_ahead(semel: Semel, url: str, tmp_path: Path) -> None:
    ahead = tmp_path / "semel-20990101T000000Z.backup"
    ahead.write_text("later")
    made = semel.here("backup", f"{tmp_path}/", "--store", url, "--keep", "1", "--json").facts
    assert made["deleted"] == [ahead.name]
    assert Path(made["file"]).exists()


def test_no_later_backup_deletes_the_file_of_a_move(semel: Semel, url: str, tmp_path: Path) -> None:
    assert semel.here("backup", f"{tmp_path}/", "--store", url, "--move", "--keep", "1").code == 2
    made = semel.here("backup", f"{tmp_path}/", "--store", url, "--move", "--json").facts
    assert re.fullmatch(r"semel-[0-9]{8}T[0-9]{6}Z\.move", Path(made["file"]).name)
    assert semel.here("backup", f"{tmp_path}/", "--store", url, "--keep", "1", "--json").facts["deleted"] == []
    assert Path(made["file"]).exists()
