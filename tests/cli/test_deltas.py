"""`semel deltas` against a real server, as a script and a person use it; and against servers that are none."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest

from tests.cli.command import SECONDS, Finished, Semel
from tests.cli.scripted import Line, scripted
from tests.deltas.vectors import HLC, Message, columns, delta
from tests.harness.server import RunningServer

START = int(HLC)

Deltas = Callable[..., Finished]


@pytest.fixture
def deltas(semel: Semel) -> Deltas:
    return lambda *args, stdin=b"": semel.here("deltas", *args, stdin=stdin)


def push(server: RunningServer, gateway: str, numbers: range) -> None:
    made = [delta("INSERT", columns(n=number), row=f"r{number}", client="a", hlc=START + number) for number in numbers]
    path = f"{server.url}/v1/sync/{gateway}/push"
    httpx.post(path, json={"clientId": "a", "deltas": made}, timeout=SECONDS).raise_for_status()


def refused(run: Finished, sentence: str, code: int = 1) -> None:
    assert (run.code, run.raw) == (code, b"")
    assert sentence in run.err


def entries(run: Finished) -> list[Message]:
    assert run.code == 0, run.err
    return [json.loads(line) for line in run.out.splitlines()]


def rows(run: Finished) -> list[str]:
    return [entry["rowId"] for entry in entries(run)]


def cursor(run: Finished) -> str:
    found = re.fullmatch(r"Continue with --since (\d+)\.\n", run.err)
    assert found is not None, run.err
    return found[1]


def test_pull(server: RunningServer, semel: Semel, deltas: Deltas) -> None:
    push(server, "pulled", range(2_500))
    everything = semel.here("deltas", "pull", "pulled")
    assert rows(everything) == [f"r{number}" for number in range(2_500)]
    assert entries(everything)[0]["hlc"] == str(START)
    some = deltas("pull", "pulled", "--limit", "3")
    assert rows(some) == ["r0", "r1", "r2"]
    assert rows(deltas("pull", "pulled", "--limit", "1", "--since", cursor(some))) == ["r3"]
    push(server, "pulled", range(2_500, 2_502))
    assert rows(deltas("pull", "pulled", "--since", cursor(everything))) == ["r2500", "r2501"]
    assert rows(deltas("pull", "never")) == []


def test_following(server: RunningServer, semel: Semel) -> None:
    push(server, "followed", range(2))
    with semel.start("deltas", "pull", "followed", "--follow", "--every", "0.05") as run:
        assert run.stdout is not None
        found = [json.loads(run.stdout.readline())["rowId"] for _ in range(2)]
        push(server, "followed", range(2, 5))
        found += [json.loads(run.stdout.readline())["rowId"] for _ in range(3)]
        assert found == [f"r{number}" for number in range(5)]
        os.kill(run.pid, signal.SIGINT)
        _, err = run.communicate(timeout=SECONDS)
        assert run.returncode == 0
        assert b"Continue with --since " in err


def test_gateways_and_stats(server: RunningServer, deltas: Deltas) -> None:
    push(server, "one", range(3))
    push(server, "two", range(1))
    assert {"one", "two"} <= set(deltas("gateways").out.splitlines())
    assert {"gateway": "one"} in entries(deltas("gateways", "--json"))
    facts = deltas("stats", "one", "--json").facts
    assert (facts["deltaCount"], facts["logSize"], facts["indexSize"]) == (3, 3, 3)
    assert deltas("stats", "one").out.splitlines()[0] == "              3 deltas pushed"
    assert deltas("stats", "never", "--json").facts["deltaCount"] == 0


def test_all_pages_of_gateways() -> None:
    pages = [{"gateways": ["a", "b"], "hasMore": True}, {"gateways": ["c"], "hasMore": False}]
    with scripted(*(Line(200, {}, json.dumps(page).encode()) for page in pages)) as server:
        assert Semel(server.url).here("deltas", "gateways").out == "a\nb\nc\n"
        assert [seen.path for seen in server.seen] == [
            "/v1/admin/gateways?limit=1000",
            "/v1/admin/gateways?limit=1000&after=b",
        ]
    with scripted(Line(200, {}, b'{"gateways": [], "hasMore": false}')) as server:
        run = Semel(server.url).here("deltas", "gateways")
        assert (run.code, run.out, run.err) == (0, "", "There are no gateways.\n")


def test_a_schema(server: RunningServer, deltas: Deltas) -> None:
    run = deltas("schema", "shaped", "todos", "title:string", "done:boolean")
    assert run.out == "The columns of todos in shaped are saved: others are refused.\n"
    wider = deltas("schema", "shaped", "todos", "title:string", "done:boolean", "tags:json", "--json").facts
    assert wider["columns"][-1] == {"name": "tags", "type": "json"}
    refused(deltas("schema", "shaped", "todos", "title:string"), "[SCHEMA_ERROR]")
    made = delta("INSERT", columns(n=1), hlc=START)
    answer = httpx.post(f"{server.url}/v1/sync/shaped/push", json={"clientId": "a", "deltas": [made]})
    assert (answer.status_code, answer.json()["code"]) == (422, "SCHEMA_ERROR")


def test_rules(deltas: Deltas, tmp_path: Path) -> None:
    file = tmp_path / "rules.json"
    file.write_text('{"version": 1, "buckets": [{"name": "all", "tables": [], "filters": []}]}')
    assert deltas("rules", "ruled", str(file)).out == "The rules of ruled are saved.\n"
    assert deltas("rules", "ruled", "-", "--json", stdin=file.read_bytes()).facts["saved"] is True
    refused(deltas("rules", "ruled", "-", stdin=b'{"version": 0, "buckets": []}'), "[VALIDATION_ERROR]")


def test_flush(server: RunningServer, deltas: Deltas) -> None:
    push(server, "flushed", range(1))
    assert deltas("flush", "flushed").out == "All writes of flushed are on disk.\n"
    assert deltas("flush", "flushed", "--json").facts == {"gateway": "flushed", "flushed": True}
    assert rows(deltas("pull", "flushed")) == ["r0"]


def test_names_with_every_sign(server: RunningServer, deltas: Deltas) -> None:
    assert deltas("schema", "a b/ä?", "t", "x:string").code == 0
    assert "a b/ä?" in deltas("gateways").out.splitlines()
    assert deltas("stats", "a b/ä?").code == 0


def test_tokens(tmp_path: Path) -> None:
    secret, sub = "s" * 32, {"sub": "a", "gw": "one", "exp": 4_102_444_800}
    with RunningServer(tmp_path / "data", env={"SEMEL_DELTAS_JWT_SECRET": secret}) as server:
        semel = Semel(server.url)
        refused(semel.here("deltas", "pull", "one"), "[AUTH_ERROR]")
        semel.env["SEMEL_TOKEN"] = signed(sub, secret)
        assert semel.here("deltas", "pull", "one").code == 0
        refused(semel.here("deltas", "pull", "two"), "not for this gateway. [AUTH_ERROR]")
        refused(semel.here("deltas", "stats", "one"), "needs the role admin. [AUTH_ERROR]")
        semel.env["SEMEL_TOKEN"] = signed(sub | {"role": "admin"}, secret)
        assert semel.here("deltas", "stats", "one").code == 0


def signed(claims: dict[str, Any], secret: str) -> str:
    return jwt.encode(claims, secret, "HS256")


COMMANDS = [
    ("pull", "gw1"),
    ("gateways",),
    ("stats", "gw1"),
    ("schema", "gw1", "t", "a:string"),
    ("flush", "gw1"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_busy_server_is_asked_again(command: tuple[str, ...]) -> None:
    busy = Line(503, {}, b'{"error": "Busy.", "code": "BACKPRESSURE_ERROR", "requestId": "1"}')
    good = b'{"deltas": [], "serverHlc": "7", "hasMore": false, "gateways": [], "saved": true, "flushed": true,'
    good += b'"logSize": 1, "indexSize": 1, "byteSize": 1, "deltaCount": 1}'
    with scripted(busy, Line(0), Line(200, {}, good)) as server:
        run = Semel(server.url).here("deltas", *command)
        assert run.code == 0, run.err
        assert "Busy. [BACKPRESSURE_ERROR] Trying again." in run.err
        assert len(server.seen) == 3
