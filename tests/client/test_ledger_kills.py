"""A program with a durable writer, and its server, are killed (-9) at every named step: what is done, what is told?"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from semel.client.ledger.writer import POINTS
from semel.engine.engine import POINTS as SERVER_POINTS
from tests.client.both import BOTH
from tests.client.ledger_place import VaultRoom, new_place
from tests.client.ledger_writer_script import CLIENT, Log, is_refused
from tests.harness.guardian import guard
from tests.harness.server import RunningServer

ROOT = Path(__file__).parent.parent.parent
SECONDS = 120
LIVES = (
    ("noted", 1),
    ("recovering", 1),
    ("answered", 1),
    ("recorded", 1),
    ("noted", 2),
    ("answered", 3),
    ("recorded", 4),
    ("renumbered", 1),
    ("recovering", 1),
    ("answered", 1),
    ("renumbered", 2),
    ("recorded", 2),
    ("answered", 2),
)
"""The steps that lives end at, and how often they passed them before. A step comes after another that leads to it."""


def begun(
    kind: str, room: VaultRoom, folder: Path, tasks: int, point: str = "", nth: int = 0
) -> subprocess.Popen[bytes]:
    """Start a life."""
    guard()
    words = [kind, room.url, room.org, room.vault, str(folder), str(tasks), point, str(nth)]
    return subprocess.Popen([sys.executable, "-m", "tests.client.ledger_writer_script", *words], cwd=ROOT)


def judge(room: VaultRoom, folder: Path, tasks: int) -> None:
    """Sequences without a hole, each task once or refused, and every outcome told as it is."""
    chain = [(sequence, operations) for client, sequence, operations in room.transactions() if client == CLIENT]
    assert [sequence for sequence, _ in chain] == list(range(1, len(chain) + 1))
    done = {int(one["setEntity"]["key"].removeprefix("task-")): sequence for sequence, [one] in chain}
    assert len(done) == len(chain), "a task was executed twice"
    assert sorted(done) == [task for task in range(tasks) if not is_refused(task)]
    told = set(Log(folder).told())
    assert told == {(task, done.get(task, 0)) for task in range(tasks)}


def test_every_step_has_a_life_that_ends_at_it() -> None:
    assert {point for point, _ in LIVES} == set(POINTS)


@BOTH
def test_each_task_is_done_and_told_once_wherever_the_program_dies(
    server: RunningServer, kind: str, tmp_path: Path
) -> None:
    room, tasks = new_place(server.url), 60
    for point, nth in LIVES:
        assert begun(kind, room, tmp_path, tasks, point, nth).wait(SECONDS) == -signal.SIGKILL, (point, nth)
    assert begun(kind, room, tmp_path, tasks).wait(SECONDS) == 0
    judge(room, tmp_path, tasks)


@pytest.mark.parametrize("kind", ["blocking"])
def test_each_task_is_done_and_told_once_wherever_the_server_dies(kind: str, tmp_path: Path) -> None:
    server, tasks = RunningServer(tmp_path / "data"), 4_000
    server.start()
    room = new_place(server.url)
    server.kill()
    life = begun(kind, room, tmp_path, tasks)
    try:
        for point in SERVER_POINTS:
            server.launch({"SEMEL_CRASH_POINT": point, "SEMEL_CRASH_ONE_IN": "3"})
            assert server.wait_for_death(SECONDS) == -signal.SIGKILL, point
            assert life.poll() is None, "the program has ended before its server died"
    finally:
        life.kill()
        life.wait()
    with server:
        room_tasks = max((task for task, _ in Log(tmp_path).told()), default=0) + 10
        assert begun(kind, room, tmp_path, room_tasks).wait(SECONDS) == 0
        judge(room, tmp_path, room_tasks)
