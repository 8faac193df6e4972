"""`semel worker` as a user runs it: in a process that is asked to stop, frozen, or killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from semel.cli.main import main
from tests.client.jobs_room import open_jobs
from tests.client.names import PATIENCE_SECONDS, TOKEN, fresh, until
from tests.harness.server import RunningServer
from tests.harness.together import LateError, in_time

MODULE = """
import os
import sys
import threading
import time
from pathlib import Path

from semel.client import Worker

lease = int(os.environ.get("LEASE", "60"))
worker = Worker(lease=lease, grace=10.0, concurrency=1)
not_a_worker = 7
looked_at = time.monotonic()

def look():
    global looked_at
    before, looked_at = looked_at, time.monotonic()
    if looked_at - before > lease / 2:
        Path(f"late-{os.getpid()}").touch()

def look_on():
    while __name__ in sys.modules:
        look()
        time.sleep(0.02)

@worker.job("KIND")
def handle(job):
    once = job.once("effect", lambda: os.getpid())
    look()
    # Only then: the tests freeze and kill the process as soon as they see the line, and the step is to be kept by then.
    with Path("runs").open("a") as runs:
        runs.write(f"{os.getpid()} {job.attempt}\\\\n")
    while not (Path("go").exists() or job.is_stopping):
        time.sleep(0.02)
    return {"pid": os.getpid(), "once": once}

threading.Thread(target=look_on, daemon=True).start()
"""


class Place:
    """A folder with a module, and the command in it."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.kind = fresh("kind")
        (folder / "tasks.py").write_text(MODULE.replace("KIND", self.kind).replace("\\\\n", "\\n"))
        own = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
        self._env = {**own, "SEMEL_URL": url}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run to the end."""
        command = [sys.executable, "-m", "semel", "worker", *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=self._env, capture_output=True, text=True, timeout=60, check=False
        )

    @contextmanager
    def running(self, lease: int = 60) -> Iterator[subprocess.Popen[str]]:
        """Leave it running; killed at the end if it still does. Only one that is to lose its job has a short lease."""
        command = [sys.executable, "-m", "semel", "worker", "tasks:worker"]
        pipe = subprocess.PIPE
        env = self._env | {"LEASE": str(lease)}
        process = subprocess.Popen(command, cwd=self.folder, env=env, stdout=pipe, stderr=pipe, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=PATIENCE_SECONDS)

    def runs(self) -> list[tuple[int, int]]:
        """The process and attempt of every run so far."""
        file = self.folder / "runs"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(int(pid), int(attempt)) for pid, attempt in (line.split() for line in lines)]

    def late(self) -> set[int]:
        """The processes that stood still for half a lease, by their own clocks."""
        return {int(file.name.removeprefix("late-")) for file in self.folder.glob("late-*")}

    def let_go(self) -> None:
        """Let the functions return."""
        (self.folder / "go").touch()


@pytest.fixture
def place(tmp_path: Path, server: RunningServer) -> Place:
    return Place(tmp_path, server.url)


def test_it_runs_what_is_ready_and_ends(place: Place, server: RunningServer) -> None:
    async def submitted(queue: str) -> str:
        async with open_jobs(server.url) as jobs:
            return (await jobs.submit(place.kind, {"queue": queue}, queue=queue)).job_id

    async def ended(job_id: str) -> bool:
        async with open_jobs(server.url) as jobs:
            return (await jobs.get(job_id)).has_ended

    ids = [asyncio.run(submitted(queue)) for queue in ("q1", "q2", "q3")]
    place.let_go()
    run = place.run("tasks:worker", "--once", "--queue", "q1", "--queue", "q2", "--concurrency", "2")
    assert (run.returncode, run.stdout) == (0, "Runs: 2 completed, 0 failed, 0 deferred, 0 dropped\n")
    assert f"{ids[0]} {place.kind}: completed" in run.stderr
    assert [asyncio.run(ended(job_id)) for job_id in ids] == [True, True, False]


MISTAKES = {
    "tasks": "MODULE:WORKER",
    "nowhere:worker": "There is no module nowhere in",
    "broken:worker": "The module broken cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all'",
    "wrong:worker": "The module wrong cannot be imported: ZeroDivisionError: division by zero",
    "tasks:nothing": "The module tasks has no nothing.",
    "tasks:not_a_worker": "The module tasks has a not_a_worker that is not a Worker.",
}


@pytest.fixture
def here(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """The folder as the current one of this process, whose modules are forgotten afterwards."""
    monkeypatch.chdir(place.folder)
    monkeypatch.setattr(sys, "path", sys.path[:])
    before = set(sys.modules)
    yield place
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) in {str(file) for file in place.folder.iterdir()}:
            del sys.modules[name]


def test_mistakes_are_told_in_one_sentence(here: Place, strict: RunningServer) -> None:
    (here.folder / "broken.py").write_text("import nowhere_at_all\n")
    (here.folder / "wrong.py").write_text("1 / 0\n")
    for argument, sentence in MISTAKES.items():
        run = CliRunner().invoke(main, ["worker", argument])
        assert run.exit_code in (1, 2)
        assert sentence in run.stderr
    (here.folder / "token").write_text("wrong")
    arguments = ["worker", "tasks:worker", "--url", strict.url, "--token-file", "token"]
    run = CliRunner(env={"SEMEL_TOKEN": TOKEN}).invoke(main, arguments)
    assert (run.exit_code, run.stdout) == (1, "")
    assert run.stderr.endswith("Check the token.\n")
    assert TOKEN not in run.stderr


def test_it_ends_in_peace_when_asked_to(place: Place, server: RunningServer) -> None:
    async def play() -> None:
        async with open_jobs(server.url) as jobs:
            job_id = (await jobs.submit(place.kind)).job_id
            with place.running() as process:
                await until(lambda: len(place.runs()) == 1)
                process.send_signal(signal.SIGTERM)
                out, err = await asyncio.to_thread(process.communicate, timeout=PATIENCE_SECONDS)
                assert (process.returncode, out) == (0, "Runs: 1 completed, 0 failed, 0 deferred, 0 dropped\n"), err
                assert "Stopping" in err
            assert (await jobs.result(job_id)).ok

    asyncio.run(play())


def test_the_job_of_a_killed_worker_and_of_a_frozen_one_goes_on_elsewhere(
    tmp_path: Path, server: RunningServer
) -> None:
    """Before they have got where they are frozen and killed, they must not lose the job for standing still."""

    def play(lease_seconds: float) -> None:
        folder = tmp_path / f"{lease_seconds}"
        folder.mkdir()
        asyncio.run(freeze_and_kill(Place(folder, server.url), server.url, round(lease_seconds)))

    in_time(play, 2)


async def freeze_and_kill(place: Place, url: str, lease: int) -> None:
    async with open_jobs(url) as jobs:
        job_id = (await jobs.submit(place.kind)).job_id

        async def until_run(number: int) -> None:
            await until(lambda: len(place.runs()) >= number)
            if place.late() - {pid for pid, _ in place.runs()[: number - 1]}:
                await jobs.cancel(job_id, force=True)
                raise LateError("a worker stood still")

        with place.running(lease) as frozen:
            await until_run(1)
            frozen.send_signal(signal.SIGSTOP)
            with place.running(lease) as killed:
                await until_run(2)
                killed.kill()
            with place.running() as alive:
                await until(lambda: len(place.runs()) == 3)
                frozen.send_signal(signal.SIGCONT)
                place.let_go()
                result = (await jobs.result(job_id, wait=20.0)).result
                assert result == {"pid": alive.pid, "once": frozen.pid}
                frozen.send_signal(signal.SIGTERM)
                out, err = await asyncio.to_thread(frozen.communicate, timeout=PATIENCE_SECONDS)
                assert out == "Runs: 0 completed, 0 failed, 0 deferred, 1 dropped\n", err
        assert place.runs() == [(frozen.pid, 1), (killed.pid, 2), (alive.pid, 3)]
        assert (await jobs.get(job_id)).attempt == 3
