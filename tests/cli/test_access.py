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
    none = Semel(guarded.url)("streams", "ls")
    wrong = Semel(guarded.url, {"SEMEL_TOKEN": f"{TOKEN}-not"})("streams", "append", "s", "x")
    assert (none.code, none.err) == (1, "Error: Send a bearer token in the Authorization header. [UNAUTHORIZED]\n")
    assert (wrong.code, wrong.err) == (1, "Error: This token is not known here. [UNAUTHORIZED]\n")


def test_a_token_that_may_not_read_can_append_with_a_type(guarded: RunningServer) -> None:
    run("streams", "create", "mine", "--type", "text/plain", "--url", guarded.url, env={"SEMEL_TOKEN": WRITER})
    env = {"SEMEL_URL": guarded.url, "SEMEL_TOKEN": WRITER}
    asked = run("streams", "append", "mine", "x", env=env)
    told = run("streams", "append", "mine", "x", "--type", "text/plain", env=env)
    assert (asked.exit_code, "[FORBIDDEN] Give --type to skip this request." in asked.stderr) == (1, True)
    assert told.exit_code == 0


@pytest.mark.parametrize("token", [f"{TOKEN} {TOKEN}", f"{TOKEN}\nX-Evil: 1", f"{TOKEN}é"])
def test_what_is_not_a_token_is_refused_without_showing_it(tmp_path: Path, token: str) -> None:
    (tmp_path / "token").write_text(token, "utf-8")
    for refused in (
        run("streams", "ls", env={"SEMEL_TOKEN": token}),
        run("streams", "ls", "--token-file", str(tmp_path / "token")),
    ):
        assert refused.exit_code == 1
        assert "must hold one token" in refused.stderr
        assert TOKEN not in refused.output


def test_a_token_file_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    missing = run("streams", "ls", "--token-file", str(tmp_path / "missing"))
    empty = run("streams", "ls", "--token-file", str(tmp_path / "empty"))
    assert (missing.exit_code, "cannot be read: No such file or directory." in missing.stderr) == (1, True)
    assert (empty.exit_code, "is empty." in empty.stderr) == (1, True)


def test_the_token_goes_nowhere_but_into_its_header() -> None:
    with scripted(Line(500, {}, b"no")) as server:
        failed = Semel(server.url, {"SEMEL_TOKEN": TOKEN})("streams", "read", "s")
    assert (failed.code, failed.err) == (1, "Error: The server answered 500 Internal Server Error.\n")
    assert server.seen[0].headers["Authorization"] == f"Bearer {TOKEN}"
    assert TOKEN not in server.seen[0].path


@pytest.mark.parametrize(
    "url", ["ftp://x", "127.0.0.1:8788", "http://", "http://u:p@host", "http://h/?q=1", "http://h:99999", "http://h é"]
)
def test_what_is_not_a_url_is_a_usage_error(url: str) -> None:
    refused = run("streams", "ls", "--url", url)
    assert (refused.exit_code, "Invalid value for '--url'" in refused.stderr) == (2, True)


def test_a_server_behind_a_path() -> None:
    with scripted(Line(200, {"Stream-Next-Offset": "x", "Stream-Up-To-Date": "true"}, b"content")) as server:
        assert Semel(f"{server.url}/semel/")("streams", "read", "a b").out == "content"
    assert server.seen[0].path == "/semel/v1/stream/a%20b?offset=-1"


@pytest.mark.parametrize("command", ["create", "read", "ls", "append", "tail"])
def test_what_answers_but_is_not_semel(command: str) -> None:
    more = ["text"] if command == "append" else []
    name = [] if command == "ls" else ["s"]
    with scripted(Line(200, {"Content-Type": "text/html"}, b"<html>")) as server:
        failed = Semel(server.url).here("streams", command, *name, *more)
    assert (failed.code, failed.out) == (1, "")
    # A stream may have been created, and the error says so.
    end = "check the URL. The write may have taken effect.\n" if command == "create" else "check the URL.\n"
    assert failed.err.endswith(f"does not speak this protocol: {end}")


@pytest.mark.parametrize(
    "args",
    [
        ["streams", "append", "s"],
        ["streams", "append", "s", "text", "--file", "-"],
        ["streams", "append", "s", "-", "--lines", "--seq", "1"],
        ["streams", "append", "s", "x", "--type", "text/plain", "--key", "line\nend"],
        ["streams", "append", "s", "x", "--retries", "-1"],
        ["streams", "append", "s", "--file", "/no/such/file"],
        ["streams", "create", "s", "--data", "x", "-"],
        ["streams", "create", "s", "--ttl", "soon"],
        ["streams", "create", "s", "other"],
        ["streams", "create"],
        ["streams", "tail", "s", "--offset", "now", "--from-start"],
        ["streams", "rm", "s"],
        ["streams", "rm", "s", "--token", "x"],
        ["streams", "nothing"],
        ["nothing"],
    ],
    ids=" ".join,
)
def test_usage_errors_exit_with_2(args: list[str]) -> None:
    refused = run(*args)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "Error: " in refused.stderr


def test_help_lists_every_command() -> None:
    assert [word for word in ("doctor", "serve", "streams") if word not in run("--help").stdout] == []
    listed = run("streams", "--help").stdout
    assert [word for word in ("append", "create", "ls", "read", "rm", "tail") if word not in listed] == []
