"""`semel check` as an operator runs it, beside a server under load, and as a chore of the server."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from semel.store import table_check
from tests.check.filled import ENV, fill
from tests.check.stores import copied, faults_of, sqlite_database
from tests.cli.command import Semel
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer

ROUNDS = 4


@pytest.fixture
def semel() -> Semel:
    return Semel("http://127.0.0.1:1")


def damaged(filled: Path, target: Path) -> Path:
    """A copy in which several events and a counter are wrong."""
    folder = copied(filled, target)
    with sqlite_database(folder) as database:
        database.run("UPDATE event SET committed_at = 0")
        database.run("UPDATE job_totals SET dead = 9")
    return folder


def test_a_clean_store_is_said_to_be_clean(semel: Semel, filled: Path) -> None:
    run = semel("check", "--data", str(filled))
    assert run.code == 0, run.err
    assert "clean; " in run.out
    assert " rows read in " in run.out
    told = json.loads(semel.here("check", "--data", str(filled), "--json").raw)
    assert told["faults"] == 0
    assert told["rows"] > 1_000


def test_faults_are_printed_and_counted(semel: Semel, filled: Path, tmp_path: Path) -> None:
    folder = damaged(filled, tmp_path / "damaged")
    run = semel.here("check", "--data", str(folder), "--limit", "3")
    assert run.code == 1
    *lines, last = run.out.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("jobs/job_totals: The row does not have its checksum"), lines
    assert all(line.startswith("events/event") for line in lines[1:]), lines
    assert "faults; " in last
    assert "more faults are not shown" in run.err
    run = semel.here("check", "--data", str(folder), "--surface", "jobs", "--json")
    assert run.code == 1
    *faults, last = map(json.loads, run.out.splitlines())
    places = [("jobs", "job_totals", ""), ("jobs", "job_totals", "dead")]
    assert [(one["surface"], one["table"], one["where"]) for one in faults] == places
    assert last["faults"] == 2
    assert semel.here("check", "--data", str(folder), "--surface", "ledger").code == 0


def test_what_cannot_be_checked_has_its_own_exit_code(semel: Semel, tmp_path: Path) -> None:
    for args in (["--data", str(tmp_path / "nothing")], ["--store", "memory:"]):
        run = semel.here("check", *args)
        assert run.code == 2
        assert run.err.splitlines()[-1].startswith("Error: The store cannot be checked. ")
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_store_under_load_is_clean(kind: str, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/data" if kind == "sqlite" else fresh_url()
    done = threading.Event()
    failures: list[BaseException] = []

    def load(server: RunningServer) -> None:
        try:
            for number in range(ROUNDS):
                fill(server, number)
        except BaseException as error:
            failures.append(error)
            raise
        finally:
            done.set()

    with RunningServer(tmp_path / "data", env={**ENV, "SEMEL_STORE": url}) as server:
        thread = threading.Thread(target=load, args=(server,))
        thread.start()
        checks = 0
        while not done.is_set():
            assert faults_of(url) == []
            checks += 1
        thread.join()
        assert failures == []
        assert faults_of(url) == []
    assert checks > ROUNDS


def test_passes_over_parts_of_the_keys_find_the_same(
    monkeypatch: pytest.MonkeyPatch, filled: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr(table_check, "PART_TOKENS", 3)
    monkeypatch.setattr(table_check, "PAGE_ROWS", 2)
    assert faults_of(f"sqlite:{filled}") == []
    folder = copied(filled, tmp_path / "damaged")
    with sqlite_database(folder) as database:
        database.run("DELETE FROM ledger_key WHERE key = (SELECT min(key) FROM ledger_key)")
        database.run("UPDATE stream SET forks = 5")
    said = [one.what for one in faults_of(f"sqlite:{folder}")]
    assert "The idempotency key of its transaction is not remembered." in said
    assert sum("It counts 5 forks" in what for what in said) > 5


def test_a_backup_carries_damage_along(semel: Semel, filled: Path, tmp_path: Path) -> None:
    folder = copied(filled, tmp_path / "damaged")
    with sqlite_database(folder) as database:
        [(place, data)] = database.ask("SELECT rowid, data FROM chunk WHERE data = ?", b"line 4\n")
        database.run("UPDATE chunk SET data = ? WHERE rowid = ?", data.replace(b"4", b"5"), place)
    found = faults_of(f"sqlite:{folder}")
    assert found[0].what.startswith("The row does not have its checksum")
    assert semel.here("backup", str(tmp_path / "file"), "--data", str(folder), "--move").code == 0
    restored = f"sqlite:{tmp_path / 'restored'}"
    assert semel.here("restore", str(tmp_path / "file"), "--store", restored).code == 0
    assert faults_of(restored) == found
