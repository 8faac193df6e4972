"""Which server is asked, as whom, and what is said when that goes wrong. No token is ever shown."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from semel.cli.main import main
from tests.cli.command import Semel
from tests.cli.scripted import Line, scripted
from tests.harness.server import RunningServer

TOKEN = "a-token-that-nobody-must-see"
WRITER = "a-token-that-may-only-write"


def run(*args: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner(env={"SEMEL_URL": None, "SEMEL_TOKEN": None, **(env or {})}).invoke(main, args)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("guarded")
    entry = '[[token]]\nname = "{}"\nsha256 = "{}"\nroles = {}\n'
    known = [("everyone", TOKEN, '["read", "write"]'), ("writer", WRITER, '["write"]')]
    text = "".join(entry.format(name, sha256(token.encode()).hexdigest(), roles) for name, token, roles in known)
    (folder / "tokens.toml").write_text(text)
    with RunningServer(folder / "data", env={"SEMEL_TOKENS": str(folder / "tokens.toml")}) as running:
        yield running


def test_a_token_from_the_environment_or_a_file(guarded: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    made = run("streams", "create", "s", "--url", guarded.url, env={"SEMEL_TOKEN": TOKEN})
    again = run("streams", "create", "s", "--token-file", str(tmp_path / "token"), env={"SEMEL_URL": guarded.url})
    assert (made.exit_code, made.stdout.startswith("Created s ")) == (0, True)
    assert (again.exit_code, again.stdout.startswith("Already there: s ")) == (0, True)


def test_without_or_with_a_wrong_token(guarded: RunningServer) -> None:
    none = Semel(guarded.url).here("streams", "ls")
    wrong = Semel(guarded.url, {"SEMEL_TOKEN": f"{TOKEN}-not"}).here("streams", "append", "s", "x")
    assert (none.code, none.err) == (1, "Error: Send a bearer token in the Authorization header. [UNAUTHORIZED]\n")
    assert (wrong.code, wrong.err) == (1, "Error: This token is not known here. [UNAUTHORIZED]\n")


def test_a_token_that_may_not_read_can_append_with_a_type(guarded: RunningServer) -> None:
    run("streams", "create", "mine", "--type", "text/plain", "--url", guarded.url, env={"SEMEL_TOKEN": WRITER})
    env = {"SEMEL_URL": guarded.url, "SEMEL_TOKEN": WRITER}
    asked = run("streams", "append", "mine", "x", env=env)
    told = run("streams", "append", "mine", "x", "--type", "text/plain", env=env)
    assert (asked.exit_code, "[FORBIDDEN] Give --type to skip this request." in asked.stderr) == (1, True)
    assert told.exit_code == 0


def test_a_token_file_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    missing = run("streams", "ls", "--token-file", str(tmp_path / "missing"))
    empty = run("streams", "ls", "--token-file", str(tmp_path / "empty"))
    assert (missing.exit_code, "cannot be read: No such file or directory." in missing.stderr) == (1, True)
    assert (empty.exit_code, "is empty." in empty.stderr) == (1, True)


def test_a_server_behind_a_path() -> None:
    with scripted(Line(200, {"Stream-Next-Offset": "x", "Stream-Up-To-Date": "true"}, b"content")) as server:
        assert Semel(f"{server.url}/semel/").here("streams", "read", "a b").out == "content"
    assert server.seen[0].path == "/semel/v1/stream/a%20b?offset=-1"
