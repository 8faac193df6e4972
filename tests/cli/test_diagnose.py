"""One file with everything that helps, from a server or from its data, and no secret in it."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import httpx
import pytest

from semel.server.ops import diagnosis_bundle
from semel.server.ops.logs import MAX_LINE_BYTES
from semel.server.settings_loader import make_settings
from tests.cli.command import Semel
from tests.harness.server import RunningServer

SECRETS = {
    "SEMEL_TOKEN_ACTIVE": "planted-active-token",
    "SEMEL_TOKEN_NEXT": "planted-next-token",
    "SHERATAN_RESULT_HMAC_KEY": "planted-hmac-key",
    "SHERATAN_HUB_TOKEN": "planted-alias-token",
    "UNRELATED_PASSWORD": "planted-password",
}
JOB = {"kind": "k", "params": {"p": "planted-param"}, "idempotency_key": "planted-idempotency-key"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folder of a server that has stopped, and the bundle that was made while it ran."""
    folder = tmp_path_factory.mktemp("diagnose")
    with RunningServer(folder / "data", env=SECRETS) as server:
        bearer = {"Authorization": f"Bearer {SECRETS['SEMEL_TOKEN_ACTIVE']}"}
        httpx.post(server.url + "/v1/jobs", json=JOB, headers=bearer).raise_for_status()
        assert httpx.get(server.url + "/metrics", headers={"X-Semel-Token": "planted-wrong-token"}).status_code == 401
        semel = Semel(server.url, {"SEMEL_TOKEN": SECRETS["SEMEL_TOKEN_ACTIVE"]})
        (folder / "live").mkdir()
        (folder / "busy").mkdir()
        live = Path(semel.here("diagnose", "--output", str(folder / "live"), "--json").facts["file"])
        refused = Semel(server.url).here("diagnose", "--output", str(folder))
        assert refused.code != 0
        assert "UNAUTHORIZED" in refused.err
        busy = semel.here("diagnose", "--data", str(server.data), "--output", str(folder / "busy"), "--json")
        assert "jobs.json" not in parts_of(Path(busy.facts["file"]))
    return server.data, live


def parts_of(file: Path) -> dict[str, str]:
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name).decode() for name in archive.namelist()}


def assert_clean(parts: dict[str, str]) -> None:
    assert [name for name, text in parts.items() if "planted" in text] == []


def test_from_a_running_server(data: tuple[Path, Path]) -> None:
    parts = parts_of(data[1])
    assert_clean(parts)
    wanted = "about configuration doctor environment health jobs metrics self_check store"
    assert {f"{one}.json" for one in wanted.split()} | {"metrics.txt", "logs/server.log", "logs/audit.jsonl"} == set(
        parts
    )
    jobs = json.loads(parts["jobs.json"])
    assert (jobs["by_state"]["queued"], jobs["by_queue"], jobs["by_kind"]) == (1, {"default": 1}, {"k": 1})
    (oldest,) = jobs["oldest_ready"]
    assert oldest["job_id"].startswith("job_")
    assert (oldest["attempt"], oldest["age_ms"] >= 0) == (0, True)
    assert json.loads(parts["store.json"])["idempotency_records"] == 1
    assert json.loads(parts["store.json"])["files"]["semel.db"] > 0
    assert json.loads(parts["metrics.json"])["queue_depth"] == 1
    assert "AUTH_FAILURE" in parts["logs/audit.jsonl"]
    assert [check["is_ok"] for check in json.loads(parts["doctor.json"])] == [True] * 4
    if sys.platform != "win32":
        assert data[1].stat().st_mode & 0o077 == 0


def test_from_the_data_alone(data: tuple[Path, Path], tmp_path: Path) -> None:
    folder = data[0]
    (folder / "logs" / "alerts.jsonl").write_text("".join(f'{{"n":{number}}}\n' for number in range(300)))
    log = tmp_path / "supervisor.log"
    log.write_text(f"started with {SECRETS['SEMEL_TOKEN_NEXT']} and went on\n")
    # But for the lock file: it names the last process that opened the folder, in as many digits as its number has.
    before = {path: path.stat().st_size for path in folder.rglob("*") if path.name != "semel.lock"}
    run = Semel("http://127.0.0.1:1", SECRETS).here(
        "diagnose", "--data", str(folder), "--log", str(log), "--output", str(tmp_path), "--json"
    )
    parts = parts_of(Path(run.facts["file"]))
    assert_clean(parts)
    assert parts["logs/0_supervisor.log"] == "started with [hidden] and went on\n"
    alerts = parts["logs/alerts.jsonl"].splitlines()
    assert (len(alerts), alerts[-1]) == (200, '{"n":299}')
    assert json.loads(parts["jobs.json"])["by_state"]["queued"] == 1
    assert json.loads(parts["configuration.json"])["jobs_result_hmac_key"] == "set"
    assert [check["ok"] for check in json.loads(parts["self_check.json"])] == [True]
    assert all(check["is_ok"] for check in json.loads(parts["doctor.json"]) if check["name"] != "disk space")
    assert {path: path.stat().st_size for path in folder.rglob("*") if path in before} == before


def test_settings_that_no_server_would_start_with_are_told(data: tuple[Path, Path], tmp_path: Path) -> None:
    env = {**SECRETS, "SEMEL_JOBS_MAX_INFLIGHT": "many"}
    run = Semel("http://127.0.0.1:1", env).here("diagnose", "--data", str(data[0]), "--output", str(tmp_path), "--json")
    parts = parts_of(Path(run.facts["file"]))
    assert_clean(parts)
    assert "SEMEL_JOBS_MAX_INFLIGHT" in json.loads(parts["configuration.json"])["error"]


def test_a_store_by_its_url(data: tuple[Path, Path], tmp_path: Path) -> None:
    args = ("diagnose", "--store", f"sqlite:{data[0]}", "--output", str(tmp_path))
    run = Semel("http://127.0.0.1:1", SECRETS).here(*args)
    assert run.code == 0, run.err
    (file,) = tmp_path.glob("diag_bundle_*.zip")
    assert run.out == f"{file} ({file.stat().st_size:,} bytes)\n"
    assert json.loads(parts_of(file)["jobs.json"])["is_complete"] is True


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), "--data"),
        (("--data", "/nowhere/at/all"), "There is no folder"),
        (("--log", "x"), "--log"),
        (("--output", "/nowhere/at/all"), "--output"),
    ],
)
def test_mistakes_are_told_in_a_sentence(args: tuple[str, ...], says: str) -> None:
    run = Semel("http://127.0.0.1:1").here("diagnose", *args)
    assert run.code != 0
    assert says in run.err


def test_no_file_is_replaced(data: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis_bundle, "file_name", lambda now_ms: "diag_bundle_20260101_000000.zip")
    taken = tmp_path / "diag_bundle_20260101_000000.zip"
    taken.write_text("mine")
    run = Semel("http://127.0.0.1:1").here("diagnose", "--data", str(data[0]), "--output", str(tmp_path))
    assert run.code == 1
    assert "already exists" in run.err
    assert taken.read_text() == "mine"


def test_the_end_of_a_log_is_bounded(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"first\n" + b"x" * (2 * diagnosis_bundle.MAX_TAIL_BYTES) + b"\nlast\n")
    assert diagnosis_bundle.tail(log) == b"last\n"
    log.write_bytes(b"y" * (MAX_LINE_BYTES + 1))
    assert diagnosis_bundle.tail(log) == b"y" * MAX_LINE_BYTES + b"\n"
    assert diagnosis_bundle.tail(tmp_path / "none.log").startswith(b"cannot be read")
    assert diagnosis_bundle.logs(tmp_path / "none") == {}


def test_a_password_in_the_address_of_a_store_is_not_shown() -> None:
    settings = make_settings(store="postgresql://semel:planted-password@db.example/semel?sslpassword=planted")
    assert b"planted" not in diagnosis_bundle.configuration(settings)
    assert b"planted" not in diagnosis_bundle.store_facts(settings, ())
    assert b"db.example" in diagnosis_bundle.configuration(settings)
