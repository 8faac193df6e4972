"""The doctor on a good set-up and on broken ones; it leaves everything as it was."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from semel.cli.main import main
from semel.server.ops.self_check import (
    LOCK_NAME,
    DoctorCheck,
    check_clock,
    check_folder,
    check_python,
    check_settings,
    check_space,
    check_speedups,
    judge_sqlite,
)
from semel.store.sqlite import store
from semel.store.sqlite.schema import OLDEST_LIBRARY
from tests.cli.command import Finished, Semel
from tests.cli.scripted import Line, scripted
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer
from tests.harness.together import here_only

EVERYTHING = ["python", "sqlite", "speedups", "clock", "settings", "data folder", "disk space", "fsync", "lock"]
EVERYTHING += ["server", "readiness", "credential", "upkeep", "streams", "events", "jobs", "ledger", "deltas"]


def found(run: Finished) -> dict[str, str]:
    return {check["name"]: check["found"] for check in run.facts["checks"]}


def test_a_good_set_up(server: RunningServer, semel: Semel) -> None:
    shown = semel.here("doctor", "--data", str(server.data))
    assert shown.code == 0, shown.out
    assert [line.split("  ")[0].strip() for line in shown.out.splitlines()[:-1]] == ["ok"] * len(EVERYTHING)
    assert shown.out.endswith("No problems found.\n")
    assert "\x1b" not in shown.out


def test_as_json(server: RunningServer, semel: Semel) -> None:
    run = semel.here("doctor", "--json", env={"SEMEL_DATA": str(server.data)})
    assert run.facts["ok"] is True
    assert [check["name"] for check in run.facts["checks"]] == EVERYTHING
    assert all(set(check) == {"name", "ok", "found", "advice"} for check in run.facts["checks"])
    assert found(run)["lock"] == f"held: a server is running on this folder (process {server.pid})"
    assert found(run)["server"].startswith("version ")
    assert found(run)["fsync"].partition(" ms each")[1]


def test_colours_at_a_terminal(semel: Semel) -> None:
    assert b"\x1b[32mok" in semel.on_terminal("doctor").raw
    assert b"\x1b" not in semel.on_terminal("doctor", env={"NO_COLOR": "1"}).raw


def test_a_broken_set_up(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        semel = Semel(f"http://127.0.0.1:{taken.getsockname()[1]}", {"SEMEL_TYPO": "1"})
        run = semel.here("doctor", "--data", str(tmp_path / "file" / "data"))
    assert run.code == 1
    problems = [line.split()[1] for line in run.out.splitlines() if line.startswith("problem")]
    assert problems == ["settings", "data", "server"]
    assert f"{tmp_path / 'file'} is not a folder" in run.out
    assert "There is no setting SEMEL_TYPO" in run.out
    assert "`semel serve`" in run.out
    assert run.out.endswith("There are 3 problems.\n")


def test_leaves_a_folder_as_it_was(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as server:
        semel = Semel(server.url)
        semel.here("streams", "create", "s", "--data", "x")
        url = server.url
    before = contents(tmp_path / "data")
    run = Semel(url).here("doctor", "--data", str(tmp_path / "data"), "--json")
    assert run.code == 1
    assert "free: no server is running on this folder" in run.out
    assert contents(tmp_path / "data") == before
    absent = tmp_path / "not" / "yet"
    assert [check.is_ok for check in check_folder(absent)] == [True] * 4
    assert not absent.parent.exists()


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def test_a_server_that_stops_or_is_another(tmp_path: Path) -> None:
    alive = Line(200, {}, b'{"status": "ok", "version": "9.9"}')
    with scripted(alive, Line(503, {}, b"{}"), Line(401, {}, b"{}")) as stopping:
        run = CliRunner().invoke(main, ["doctor", "--data", str(tmp_path), "--url", stopping.url])
    assert run.exit_code == 1
    assert "version 9.9" in run.stdout
    assert "problem  readiness" in run.stdout
    assert "problem  credential" in run.stdout
    with scripted(Line(200, {}, b"<html>")) as other:
        run = CliRunner().invoke(main, ["doctor", "--data", str(tmp_path), "--url", other.url])
    assert (run.exit_code, "is not Semel" in run.stdout) == (1, True)


@pytest.mark.parametrize(
    "check",
    [
        check_python((3, 10)),
        judge_sqlite("3.40.1", OLDEST_LIBRARY),
        judge_sqlite("3.51.2", OLDEST_LIBRARY),
        check_speedups(("uvloop", "no_such_module")),
        check_clock(0.0),
        check_settings({"SEMEL_PORT": "many"}),
        check_space(1_000),
    ],
    ids=lambda check: check.name,
)
def test_every_problem_comes_with_advice(check: DoctorCheck) -> None:
    assert not check.is_ok
    assert check.advice


def test_versions_are_compared_as_numbers() -> None:
    assert judge_sqlite("3.51.10", OLDEST_LIBRARY).is_ok
    assert not judge_sqlite("3.9.0", OLDEST_LIBRARY).is_ok


def test_a_disk_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(handle: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", here_only(fail, os.fsync))
    by_name = {check.name: check for check in check_folder(tmp_path)}
    assert (by_name["fsync"].is_ok, by_name["fsync"].found) == (False, "failed: Input/output error")


def test_a_folder_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", here_only(refuse, tempfile.TemporaryFile))
    (only,) = check_folder(tmp_path)
    assert (only.is_ok, "cannot be written to: Permission denied" in only.found) == (False, True)


def test_the_lock_has_the_store_s_name() -> None:
    assert LOCK_NAME == store.LOCK_NAME
    assert shutil.disk_usage("/").free > 0


def test_a_database_that_serves(semel: Semel) -> None:
    told = semel.here("doctor", "--store", fresh_url())
    assert told.code == 0, told
    assert "ok       store" in told.out
    assert "tables will be created at the first start" in told.out
    assert "data folder" not in told.out


def test_a_database_that_is_not_there(semel: Semel) -> None:
    told = semel.here("doctor", "--store", "postgresql://me:secret@127.0.0.1:1/db")
    assert told.code == 1
    assert "problem  store" in told.out
    assert "Connection refused" in told.out
    assert "secret" not in told.out + told.err
    assert "Traceback" not in told.err
