"""`semel top`: rates of a running server, on a terminal and as lines."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import termios
import time
from dataclasses import replace
from pathlib import Path

import pytest

from semel.cli.top_screen import LiveRates, LiveSample, duration, quantile, screen
from semel.client import Client
from tests.cli.command import Semel
from tests.harness.server import RunningServer

SECONDS = 30


def sample(at_ms: int, fresh: int = 0, replay: int = 0, started_ms: int = 0) -> LiveSample:
    return LiveSample(
        now_ms=at_ms,
        started_ms=started_ms,
        version="1",
        is_ready=True,
        writes={"streams": {"fresh": fresh, "replay": replay}, "jobs": {}},
        doubles=replay,
        commits=fresh,
        bounds=[0.001, 0.01],
        buckets=[fresh, 0, 0],
        queue_writes=2,
        queue_bytes=300,
        oldest_seconds=0.004,
        readers=1,
        connections=5,
    )


# The screen


def test_a_rate_is_the_difference_of_two_samples() -> None:
    lines = screen([sample(1_000, 10, 1), sample(3_000, 110, 5)], "http://here", 80)
    assert "up 0 min 3 s   ready" in lines[0]
    assert lines[2].split()[:2] == ["writes", "52/s"]
    assert lines[3].split() == ["doubles", "2.0/s", "5", "prevented", "since", "the", "start"]
    assert lines[4].split()[:2] == ["commits", "50/s"]
    assert lines[4].endswith("p50 up to 1 ms, p99 up to 1 ms")
    assert lines[5] == "queue        2 writes, 300 bytes, the oldest 4 ms"
    assert lines[8].split() == ["surface", "fresh/s", "replay/s", "since", "start"]
    assert lines[9].split() == ["streams", "50", "2.0", "115"]
    assert lines[10].split() == ["jobs", "0", "0", "0"]


def test_samples_of_two_runs_of_the_server_are_not_compared() -> None:
    restarted = sample(2_000, 3, started_ms=1_500)
    lines = screen([sample(1_000, 500), restarted], "http://here", 80)
    assert lines[2].split() == ["writes", "-/s"]
    assert lines[9].split() == ["streams", "-", "-", "3"]
    lines = screen([sample(1_000, 500), restarted, replace(restarted, now_ms=3_000)], "http://here", 80)
    assert lines[2].split()[:2] == ["writes", "0/s"]


def test_a_verdict_that_occurred_has_a_column_and_lines_fit() -> None:
    refused = replace(sample(2_000), writes={"streams": {"refused": 4}})
    lines = screen([sample(1_000), refused], "http://" + "a" * 200, 80)
    assert "refused/s" in lines[8]
    assert "gap/s" not in lines[8]
    assert lines[9].split() == ["streams", "0", "0", "4.0", "4"]
    assert max(map(len, lines)) <= 80


def test_the_history_is_as_wide_as_the_terminal() -> None:
    samples = [sample(1_000 * n, n * n) for n in range(1, 200)]
    history = screen(samples, "http://here", 60)[2].split()[-1]
    assert (len(history), history[-1]) == (30, "█")


def test_a_server_that_is_not_ready_says_so() -> None:
    assert screen([replace(sample(1), is_ready=False)], "u", 80)[0].endswith("NOT READY: run semel doctor")


@pytest.mark.parametrize(
    ("counts", "share", "found"),
    [([0, 0, 0], 0.5, None), ([1, 1, 0], 0.5, 0.001), ([1, 1, 0], 0.99, 0.01), ([0, 0, 1], 0.5, 0.01)],
)
def test_a_quantile_is_the_bound_of_its_bucket(counts: list[int], share: float, found: float | None) -> None:
    assert quantile([0.001, 0.01], counts, share) == found


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0 min 0 s"), (61, "1 min 1 s"), (7_380, "2 h 3 min"), (90_000, "1 d 1 h")]
)
def test_a_time_span_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_rates_for_programs_have_every_verdict() -> None:
    facts = LiveRates.between(sample(0), sample(1_000, 7)).facts
    assert facts["writes_per_second"]["streams"]["fresh"] == 7
    assert set(facts["writes_per_second"]["jobs"].values()) == {0}


# A running server


def test_lines_of_json_have_the_rates_of_the_interval(server: RunningServer, semel: Semel) -> None:
    with Client(server.url) as client, semel.start("top", "--json", "--count", "100", "--interval", "0.2") as process:
        assert process.stdout is not None
        lines = [json.loads(process.stdout.readline())]
        client.streams.create("top/json", content_type="application/json")
        for _ in range(3):
            client.streams.append("top/json", {"a": 1}, key="one")
        while lines[-1]["doubles_prevented"] - lines[0]["doubles_prevented"] < 2:
            lines.append(json.loads(process.stdout.readline()))
        process.terminate()
    assert [("rates" in line) for line in lines] == [False, *[True] * (len(lines) - 1)]
    before, after = lines[0]["writes"]["streams"], lines[-1]["writes"]["streams"]
    assert after.get("replay", 0) - before.get("replay", 0) == 2
    assert any(line["rates"]["doubles_prevented_per_second"] > 0 for line in lines[1:])
    assert any(line["rates"]["writes_per_second"]["streams"]["fresh"] > 0 for line in lines[1:])


def test_without_a_terminal_it_looks_once(semel: Semel) -> None:
    run = semel("top")
    assert run.code == 0, run.err
    assert [line.split()[0] for line in run.out.splitlines()[9:]] == ["streams", "events", "jobs", "ledger", "deltas"]
    assert "\x1b" not in run.out


def test_without_a_server_it_says_what_to_do() -> None:
    run = Semel("http://127.0.0.1:1")("top")
    assert (run.code, run.out) == (1, "")
    assert "start one with `semel serve" in run.err


def test_on_a_terminal_it_survives_a_restart_and_q_ends_it(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as server:
        ours, theirs = pty.openpty()
        before = termios.tcgetattr(theirs)
        command = [sys.executable, "-m", "semel", "top", "--interval", "0.2"]
        process = subprocess.Popen(command, env=Semel(server.url).env, stdin=theirs, stdout=theirs, stderr=theirs)
        try:
            shown = _read_until(ours, b"ready")
            assert shown.startswith(b"\x1b[?1049h")
            server.kill()
            _read_until(ours, b"Trying again.")
            server.start()
            _read_until(ours, b"since start")
            os.write(ours, b"q")
            assert process.wait(SECONDS) == 0
            assert _read_until(ours, b"\x1b[?1049l")
            assert termios.tcgetattr(theirs) == before, "the terminal is as it was"
        finally:
            process.kill()
            process.wait(SECONDS)
            os.close(ours)
            os.close(theirs)


def _read_until(terminal: int, wanted: bytes) -> bytes:
    shown, until = b"", time.monotonic() + SECONDS
    while wanted not in shown:
        assert time.monotonic() < until, shown
        shown += os.read(terminal, 65_536)
    return shown
