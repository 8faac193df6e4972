"""Following a stream: live, over restarts, and to its end."""

from __future__ import annotations

import itertools
import json
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cli.command import SECONDS, Finished, Semel
from tests.harness.server import RunningServer
from tests.harness.together import eventually


@contextmanager
def following(semel: Semel, *args: str) -> Iterator[subprocess.Popen[bytes]]:
    with semel.start("streams", "tail", *args) as run:
        try:
            yield run
        finally:
            run.kill()


def line(run: subprocess.Popen[bytes]) -> str:
    assert run.stdout is not None
    return run.stdout.readline().decode()


def has_said(run: subprocess.Popen[bytes], _: Finished) -> bool:
    """Whether it has printed anything soon after a command was run."""
    assert run.stdout is not None
    return bool(select.select([run.stdout], [], [], 0.1)[0])


def ended(run: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    out, err = run.communicate(timeout=SECONDS)
    return run.returncode, out, err


def test_sees_an_append_live_and_ends_with_the_stream(semel: Semel) -> None:
    semel.here("streams", "create", "live", "--type", "application/json", "--data", '["before"]')
    with following(semel, "live", "--from-start") as run:
        assert line(run) == '"before"\n'
        semel.here("streams", "append", "live", '[{"n": 1}, 2]')
        assert (line(run), line(run)) == ('{"n": 1}\n', "2\n")
        semel.here("streams", "append", "live", "3", "--close")
        assert ended(run) == (0, b"3\n", b"")


def test_begins_now_unless_told_otherwise(semel: Semel) -> None:
    semel.here("streams", "create", "now", "--type", "application/json", "--data", "0")
    with following(semel, "now") as run:
        numbers = itertools.count(1)
        # It begins whenever it has been started.
        eventually(lambda: has_said(run, semel.here("streams", "append", "now", str(next(numbers)))), "something comes")
        for number in (last := next(numbers), last + 1):
            semel.here("streams", "append", "now", str(number))
        semel.here("streams", "append", "now", "--close")
        code, out, _ = ended(run)
    seen = [int(number) for number in out.split()]
    assert code == 0
    assert seen == list(range(seen[0], last + 2))
    assert seen[0] > 0


def test_survives_the_end_of_connections_and_restarts(server: RunningServer, semel: Semel) -> None:
    """Connections end after 0.4 s here, so this goes over several, a stop and a crash; each message is seen once."""
    semel.here("streams", "create", "long", "--type", "application/json")
    with following(semel, "long", "--offset", "-1") as run:
        for number in range(9):
            semel.here("streams", "append", "long", str(number))
            assert line(run) == f"{number}\n"
            if number == 1:
                time.sleep(0.6)
            if number == 3:
                server.restart()
            if number == 6:
                server.kill()
                server.start()
        semel.here("streams", "append", "long", "--close")
        code, out, err = ended(run)
    assert (code, out) == (0, b"")
    assert err.count(b"Trying again.\n") == err.count(b"\n")


def test_as_json(semel: Semel) -> None:
    semel.here("streams", "create", "json", "--type", "application/json", "--data", "[1.0, 2]")
    semel.here("streams", "append", "json", "--close")
    whole = semel.here("streams", "tail", "json", "--from-start", "--json")
    assert '"messages": [1.0, 2]' in whole.out
    facts = json.loads(whole.out.splitlines()[-1])
    assert (facts["closed"], facts["content_type"]) == (True, "application/json")
    end = semel.here("streams", "tail", "json", "--json").facts
    assert (end["messages"], end["closed"], end["next_offset"]) == ([], True, facts["next_offset"])


@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream"])
def test_other_types_come_as_they_are(semel: Semel, kind: str) -> None:
    name = f"raw/{kind}"
    content = b" leading space\n\n  data: x\n\nevent: control\n" + (b"\xff\x00\r\n" if "octet" in kind else b"")
    semel.here("streams", "create", name, "--type", kind, "--file", "-")
    semel.here("streams", "append", name, "-", "--close", stdin=content)
    assert semel.here("streams", "tail", name, "--from-start").raw == content
    shown = [json.loads(one) for one in semel.here("streams", "tail", name, "--from-start", "--json").out.splitlines()]
    assert ("base64" in shown[0]) == ("octet" in kind)
    assert shown[-1]["closed"]


def test_control_c_is_quiet(semel: Semel) -> None:
    semel.here("streams", "create", "stop", "--type", "application/json", "--data", "1")
    with following(semel, "stop", "--from-start") as run:
        assert line(run) == "1\n"
        run.send_signal(signal.SIGINT)
        assert ended(run) == (0, b"", b"")


def test_a_reader_that_leaves_is_no_failure(semel: Semel) -> None:
    semel.here("streams", "create", "pipe", "--type", "application/json", "--data", "1")
    with following(semel, "pipe", "--from-start") as run:
        assert line(run) == "1\n"
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.close()
        semel.here("streams", "append", "pipe", "2")
        assert (run.wait(SECONDS), run.stderr.read()) == (0, b"")


def test_a_deleted_stream_ends_it(semel: Semel) -> None:
    semel.here("streams", "create", "gone", "--type", "application/json", "--data", "1")
    with following(semel, "gone", "--from-start") as run:
        assert line(run) == "1\n"
        semel.here("streams", "rm", "gone", "--yes")
        code, out, err = ended(run)
    assert (code, out) == (1, b"")
    assert err.endswith(b"[STREAM_NOT_FOUND]\n")
