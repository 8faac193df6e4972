"""`semel config`: the settings with their origins, and everything that would keep a server from starting."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from semel.server.settings_loader import setting_fields
from tests.cli.command import Finished, Semel
from tests.harness.server import RunningServer, free_port

SECRET = "a-secret-token"


def shown(semel: Semel, *args: str) -> dict[str, dict[str, Any]]:
    run = semel.here("config", "show", "--json", *args)
    assert run.code == 0, run.err
    return {line["name"]: line for line in json.loads(run.out)}


def checked(tmp_path: Path, *args: str, env: dict[str, str] | None = None) -> Finished:
    """Ports that nobody wants, and a data folder of its own, unless other ones are given."""
    own = {"SEMEL_PORT": "0", "SEMEL_DATA": str(tmp_path / "data"), "SEMEL_LEDGER_GRPC_PORT": "0"} | (env or {})
    return Semel("http://127.0.0.1:1", own).here("config", "check", *args)


def test_each_setting_has_its_value_and_the_source_that_wins(tmp_path: Path) -> None:
    file = tmp_path / "semel.toml"
    file.write_text('port = 1111\nqueue_writes = 7\nlog_level = "error"\n')
    env = {"SEMEL_PORT": "2222", "SEMEL_QUEUE_WRITES": "8", "SHERATAN_HUB_TOKEN": SECRET}
    lines = shown(Semel("http://127.0.0.1:1", env), "--config", str(file), "--port", "3333")
    assert list(lines) == [one.name for one in setting_fields()]
    origins = {name: (line["value"], line["origin"], line["place"]) for name, line in lines.items()}
    assert origins["port"] == (3333, "flag", "--port")
    assert origins["queue_writes"] == (8, "environment", "SEMEL_QUEUE_WRITES")
    assert origins["log_level"] == ("error", "file", f"in {file}")
    assert origins["host"] == ("127.0.0.1", "default", "")
    assert origins["token_active"] == ("(set, not shown)", "environment", "SHERATAN_HUB_TOKEN")


def test_no_secret_is_shown_and_defaults_can_be_left_out(tmp_path: Path) -> None:
    env = {"SEMEL_TOKEN_ACTIVE": SECRET, "SEMEL_STORE": "postgresql://user:the-password@db/semel"}
    run = Semel("http://127.0.0.1:1", env).here("config", "show", "--changed")
    assert run.code == 0
    assert [line.split()[0] for line in run.out.splitlines()] == ["token_active", "store"]
    assert SECRET not in run.out
    assert "the-password" not in run.out


def test_settings_that_a_server_would_start_with(tmp_path: Path) -> None:
    run = checked(tmp_path)
    assert (run.code, run.out) == (0, "A server would start with these settings.\n")
    assert not (tmp_path / "data").exists(), "nothing is created"


def test_all_problems_are_listed_and_not_the_first_alone(tmp_path: Path) -> None:
    file = tmp_path / "semel.toml"
    file.write_text('prot = 1111\nqueue_writes = 0\ntokens = "missing.toml"\ntls_certificate = "half.pem"\n')
    run = checked(tmp_path, "--config", str(file), "--host", "0.0.0.0", "--json", env={"SEMEL_SWEEEP_INTERVAL_MS": "5"})
    assert run.code == 1
    problems = "\n".join(json.loads(run.out)["problems"])
    for part in (
        f"There is no setting prot (in {file}); did you mean port?",
        "The setting queue_writes",
        "There is no setting SEMEL_SWEEEP_INTERVAL_MS; did you mean SEMEL_SWEEP_INTERVAL_MS?",
        "tls_certificate and tls_key belong together",
        "missing.toml cannot be read",
    ):
        assert part in problems


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (["--host", "0.0.0.0"], "without credentials would let anyone write"),
        (["--jwt-keys", "/missing.json"], "/missing.json"),
        (["--port", "4321", "--control-port", "4321"], "port and control_port are both 4321"),
        (["--control-port", "4321", "--ledger-grpc-port", "4321"], "control_port and ledger_grpc_port are both 4321"),
        (["--store", "sqlite:/dev/null/data"], "/dev/null"),
        (["--store", "oracle:db"], "There is no store 'oracle'"),
        (["--config", "/missing.toml"], "The configuration file /missing.toml cannot be read"),
        (["--host", "256.1.1.1", "--port", "4321", "--insecure"], "Cannot listen on 256.1.1.1"),
    ],
)
def test_what_would_stop_a_start_is_told_in_one_sentence(tmp_path: Path, args: list[str], part: str) -> None:
    run = checked(tmp_path, *args)
    assert run.code == 1
    assert part in run.out


def test_a_port_that_another_program_has_is_a_problem(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", free_port()))
        other.listen()
        run = checked(tmp_path, "--port", str(other.getsockname()[1]))
    assert run.code == 1
    assert "Address already in use. Choose another with --port." in run.out


def test_the_ports_of_the_running_server_itself_are_no_problem(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as server:
        assert checked(tmp_path, "--port", str(server.port)).code == 0
