"""What holds for every command, made from the commands themselves: help, unknown options, values out of bounds, files
that are not there, no server, another server, no credential and a wrong one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from shlex import split
from typing import Any

import click
import pytest

from semel.cli.main import main
from tests.cli.command import Finished, Semel, commands
from tests.cli.scripted import Line, scripted
from tests.harness.server import HOST, RunningServer, free_port
from tests.harness.tokens import token_file

NOTE = '{"type": "t"}'
JOB = "job_" + "0" * 32
TX = "0" * 32
TOKEN = "a-token-that-nobody-must-see"

LINES = f"""
deltas clients ls g
deltas clients rm g c --yes
deltas flush g
deltas gateways
deltas pull g
deltas schema g t a:string
deltas stats g
events get e
events partitions
events read --partition p
events submit p --event '{NOTE}'
events tail --partition p --since 0
find k
jobs cancel {JOB}
jobs close {JOB}
jobs dead
jobs list
jobs members {JOB}
jobs queue list
jobs queue rm q
jobs queue set q 1
jobs queue show q
jobs release k
jobs requeue {JOB}
jobs result {JOB}
jobs schedule list
jobs schedule rm n --yes
jobs schedule set n '@daily' k
jobs show {JOB}
jobs submit k
jobs wait {JOB}
ledger block 1/2
ledger org create shop
ledger org delete 1 --yes
ledger org list
ledger org set 1 --ttl 60
ledger org show 1
ledger proof 1/2 {TX} -o -
ledger read 1/2 k
ledger state 1/2 app
ledger vault create 1
ledger vault delete 1/2 --yes
ledger vault list 1
ledger vault set 1/2 --status active
ledger vault show 1/2
ledger write 1/2 --client app --set a=1
streams append s x --type text/plain
streams close s
streams create s
streams fork s t
streams ls
streams producers s
streams read s
streams rm s --yes
streams subscriptions create n --wake-stream w --pattern x
streams subscriptions link n s
streams subscriptions ls
streams subscriptions rm n --yes
streams subscriptions show n
streams subscriptions unlink n s
streams tail s
token create ada
token list
token revoke {"0" * 16} --yes
token rotate {"0" * 16}
"""
"""A line of each command that asks a server."""
ELSEWHERE = {
    "deltas rules": "it needs a file, and asks as `deltas schema` does",
    "diagnose": "tests/cli/test_diagnose.py",
    "doctor": "tests/cli/test_doctor.py: it tells what it found in a table",
    "worker": "tests/client/test_worker_command.py",
}


COMMANDS: Mapping[str, click.Command] = {" ".join(path): one for path, one in commands(main)}
ASKING = {name for name, one in COMMANDS.items() if any(param.name == "url" for param in one.params)}
NAMED: Mapping[str, list[str]] = {
    next(name for name in sorted(COMMANDS, key=len, reverse=True) if line.startswith(name)): split(line)
    for line in LINES.strip().splitlines()
}


def patient(name: str) -> list[str]:
    """The line of a command, which asks once."""
    has_retries = any(one.name == "retries" for one in COMMANDS[name].params)
    return [*NAMED[name], *(["--retries", "0"] if has_retries else [])]


def faults_of(run: Finished, *codes: int) -> Iterator[str]:
    """What is wrong with a refusal: it has one of these codes, prints nothing, and says why in one line."""
    if run.code not in codes:
        yield f"code {run.code}: {run.out}{run.err}"
    if run.raw:
        yield f"printed {run.raw!r:.200}"
    if not re.search(r"^Error: .+", run.err, re.MULTILINE):
        yield f"said {run.err!r:.300}"
    if "Traceback" in run.err or TOKEN in run.err:
        yield "told more than it should"


def test_every_command_that_asks_a_server_is_here() -> None:
    assert {*NAMED, *ELSEWHERE} == ASKING


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_explains_itself_and_refuses_what_it_does_not_know(name: str) -> None:
    semel, words = Semel("http://127.0.0.1:1"), name.split()
    shown = semel.here(*words, "--help")
    assert (shown.code, shown.err, shown.out.startswith(f"Usage: main {name}")) == (0, "", True)
    assert list(faults_of(semel.here(*words, "--no-such-option"), 2)) == []
    if any(one.required for one in COMMANDS[name].params):
        assert list(faults_of(semel.here(*words), 2)) == []
    if all(one.nargs == 1 for one in COMMANDS[name].params if isinstance(one, click.Argument)):
        assert list(faults_of(semel.here(*NAMED.get(name, words), *["x"] * 9), 2)) == []


def bad_values(kind: click.ParamType[Any]) -> list[str]:
    """Values that an option of a kind does not take."""
    if isinstance(kind, click.IntRange | click.FloatRange):
        low = [] if kind.min is None else [str(kind.min - 1)]
        return ["many", "", *low, *([] if kind.max is None else [str(kind.max + 1)])]
    if isinstance(kind, click.Choice):
        return ["no-such-choice", ""]
    return ["/no/such/file"] if isinstance(kind, click.File) else []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_refuses_values_out_of_its_bounds(name: str) -> None:
    semel, wrong = Semel("http://127.0.0.1:1"), []
    for one in COMMANDS[name].params:
        if not isinstance(one, click.Option) or one.nargs != 1:
            continue
        for value in bad_values(one.type):
            run = semel.here(*NAMED.get(name, name.split()), f"{one.opts[0]}={value}")
            wrong += [f"{one.opts[0]}={value}: {fault}" for fault in faults_of(run, 2)]
    assert wrong == []


BAD_URLS = ("ftp://x", "127.0.0.1:8788", "http://", "http://u:p@host", "http://h/?q=1", "http://h:99999", "http://h é")


@pytest.mark.parametrize("name", sorted(ASKING))
def test_what_is_no_url_is_a_usage_error(name: str) -> None:
    runs = {url: Semel("").here(*NAMED.get(name, name.split()), "--url", url) for url in BAD_URLS}
    assert {url: list(faults_of(run, 2)) for url, run in runs.items() if list(faults_of(run, 2))} == {}


@pytest.mark.parametrize("name", [name for name in NAMED if name != "events tail"])  # it waits until there is one
def test_no_server_is_one_sentence_that_says_how_to_start_one(name: str) -> None:
    port = free_port()
    run = Semel(f"http://{HOST}:{port}").here(*patient(name))
    assert list(faults_of(run, 1)) == []
    assert f"No server answers at http://{HOST}:{port}: start one with `semel serve --port {port}`" in run.err


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("guarded")
    env = {"SEMEL_STORE": "memory:", "SEMEL_TOKENS": str(token_file(folder, {"boss": (TOKEN, ["admin"], [])}))}
    with RunningServer(folder / "data", env=env) as running:
        yield running


@pytest.mark.parametrize("name", NAMED)
def test_without_or_with_a_wrong_credential(guarded: RunningServer, name: str) -> None:
    for env in ({}, {"SEMEL_TOKEN": f"{TOKEN}-not"}):
        run = Semel(guarded.url, env).here(*patient(name))
        assert list(faults_of(run, 1)) == []
        assert re.search(r"\[(UNAUTHORIZED|unauthorized|auth_failed|AUTH_ERROR|UNAUTHENTICATED)\]", run.err), run.err


@pytest.mark.parametrize("token", [f"{TOKEN} {TOKEN}", f"{TOKEN}\nX-Evil: 1", f"{TOKEN}é"])
def test_what_is_not_a_token_is_refused_without_showing_it(tmp_path: Path, token: str) -> None:
    (tmp_path / "token").write_text(token, "utf-8")
    wrong: dict[str, list[str]] = {}
    for name in NAMED:
        for run in (
            Semel("http://127.0.0.1:1", {"SEMEL_TOKEN": token}).here(*patient(name)),
            Semel("http://127.0.0.1:1").here(*patient(name), "--token-file", str(tmp_path / "token")),
        ):
            faults = list(faults_of(run, 1)) + ([] if "must hold one token" in run.err else [run.err])
            wrong |= {name: faults} if faults else {}
    assert wrong == {}


STRANGE = {
    "a page": b"<html>",
    "a list": b"[]",
    "nothing": b"{}",
    "numbers": b'{"results": {}, "blocks": 1, "height": 2, "value": 3, "success": 4, "jobs": 5, "deltas": 6}',
}
ANY_CONTENT = (
    *("streams read", "streams rm", "streams append", "streams close", "ledger org delete", "ledger vault delete"),
    *(f"streams subscriptions {word}" for word in ("rm", "link", "unlink")),
)
"""Commands that take what an answer has in it for content, or need no more than its status."""


@pytest.mark.parametrize("body", STRANGE)
@pytest.mark.parametrize("name", NAMED)
def test_what_answers_but_is_not_semel(name: str, body: str) -> None:
    with scripted(Line(200, {"Content-Type": "text/html"}, STRANGE[body])) as server:
        run = Semel(server.url).here(*patient(name))
    if name in ANY_CONTENT and run.code == 0:
        return
    assert list(faults_of(run, 1)) == []
    said = ("does not speak this protocol: check the URL.", "The server's answer is incomplete", "proof is not valid")
    assert any(one in run.err for one in said), run.err
    assert run.err.count("\n") == 1


def test_the_token_goes_nowhere_but_into_its_header() -> None:
    for name in NAMED:
        with scripted(Line(400, {}, b"no")) as server:
            run = Semel(server.url, {"SEMEL_TOKEN": TOKEN}).here(*patient(name))
        assert (run.code, TOKEN in run.err) == (1, False), name
        assert {seen.headers["Authorization"] for seen in server.seen} == {f"Bearer {TOKEN}"}, name
        assert not any(TOKEN in seen.path + json.dumps(seen.body.decode()) for seen in server.seen), name
