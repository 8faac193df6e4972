"""What an append does when the server is not there, goes away at the worst moment, or asks for patience."""

from __future__ import annotations

import json
import re
import socket
import time
from pathlib import Path

import pytest

from tests.cli.command import SECONDS, Semel
from tests.cli.scripted import Line, scripted
from tests.harness.server import HOST, RunningServer
from tests.harness.together import eventually

STORED = Line(204, {"Stream-Next-Offset": "0000000000000000_0000000000000001"})
UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def busy(status: int, code: str) -> Line:
    body = json.dumps({"status": status, "code": code, "detail": f"This is {code}."}).encode()
    return Line(status, {"Content-Type": "application/problem+json", "Retry-After": "0"}, body)


def test_the_same_key_until_there_is_an_answer() -> None:
    gone, page = Line(0), Line(502, {}, b"<html>")
    with scripted(gone, busy(503, "OVERLOADED"), busy(429, "RATE_LIMITED"), page, STORED) as server:
        done = Semel(server.url)("streams", "append", "s", "text", "--type", "text/plain", "--json")
    assert not done.facts["replayed"]
    assert done.err == f"The connection to {server.url} was lost before the answer came. Trying again.\n"
    keys = {seen.headers["Idempotency-Key"] for seen in server.seen}
    assert (len(server.seen), keys) == (5, {done.facts["key"]})
    assert UUID7.fullmatch(keys.pop())
    assert {seen.body for seen in server.seen} == {b"text"}


def test_tries_are_bounded_and_the_key_is_told() -> None:
    with scripted(Line(0)) as server:
        failed = Semel(server.url)("streams", "append", "s", "text", "--type", "text/plain", "--retries", "2")
    assert failed.code == 1
    assert len(server.seen) == 3
    key = server.seen[0].headers["Idempotency-Key"]
    assert failed.err.endswith(f" It may be stored: run this again with --key {key} to store it exactly once.\n")


def test_a_definite_refusal_is_not_tried_again() -> None:
    with scripted(busy(409, "STREAM_CLOSED")) as server:
        refused = Semel(server.url)("streams", "append", "s", "text", "--type", "text/plain")
    assert (refused.code, refused.err) == (1, "Error: This is STREAM_CLOSED. [STREAM_CLOSED]\n")
    assert len(server.seen) == 1


def test_retry_after_is_honoured() -> None:
    wait = Line(503, {"Retry-After": "1"})
    with scripted(wait, STORED) as server:
        start = time.monotonic()
        assert Semel(server.url)("streams", "append", "s", "text", "--type", "text/plain").code == 0
    assert time.monotonic() - start > 1


def test_not_reachable_says_how_to_start_one() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        url = f"http://{HOST}:{taken.getsockname()[1]}"
        failed = Semel(url)("streams", "append", "s", "text", "--retries", "0")
    port = url.rpartition(":")[2]
    hint = f"start one with `semel serve --port {port}`, or give another --url."
    assert (failed.code, failed.err) == (1, f"Error: No server answers at {url}: {hint}\n")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.mark.parametrize(("point", "replayed"), [("flushed", False), ("committed", True)])
def test_a_server_killed_in_mid_append_stores_it_once(data: Path, point: str, replayed: bool) -> None:
    """Before the commit the retry stores it; after the commit, with the answer lost, the retry is a replay."""
    with RunningServer(data) as calm:
        semel = Semel(calm.url)
        semel.here("streams", "create", "s", "--type", "application/json")
    crash = {"SEMEL_CRASH_POINT": point, "SEMEL_CRASH_ONE_IN": "1"}
    doomed = RunningServer(data, port=calm.port, env=crash)
    doomed.start()
    run = semel.start("streams", "append", "s", "1", "--json", "--retries", "20")
    try:
        wait_until_nobody_listens(calm.port)
    finally:
        doomed.kill()
    with calm:
        out, err = run.communicate(timeout=SECONDS)
        assert run.returncode == 0, err
        assert json.loads(out)["replayed"] is replayed
        assert semel("streams", "read", "s").out == "1\n"


def wait_until_nobody_listens(port: int) -> None:
    def is_gone() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((HOST, port)) != 0

    eventually(is_gone, "the server crashes")
