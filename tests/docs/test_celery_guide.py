"""The page for users of Celery is true: its example runs, and each line of its table is run or cited."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import celery
import pytest

from semel.client import Client, InvalidArgumentError, Worker
from semel.client.identity import JobKey
from tests.harness.server import RunningServer
from tests.harness.together import eventually
from tests.recipes.place import redis_in

ROOT = Path(__file__).parent.parent.parent
GUIDE = (ROOT / "docs/guide/celery.md").read_text("utf-8")
EXAMPLE = ROOT / "examples/celery_migration.py"
SECONDS = 60
SOURCES = (
    "https://docs.celeryq.dev/en/",
    "https://procrastinate.readthedocs.io/en/",
    "https://github.com/celery/celery/",
    "https://github.com/procrastinate-org/procrastinate/",
    "https://github.com/sbdchd/celery-types",
)
CELERY = ("-m", "celery", "--app", "{app}", "worker", "--pool", "solo", "--without-mingle", "--without-gossip")

TWICE = """
import os
from pathlib import Path
from celery import Celery
app = Celery("twice", broker=os.environ["BROKER_URL"])
@app.task
def count(n: int):
    with Path(os.environ["RUNS"]).open("a") as runs:
        runs.write(f"{n!r}\\n")
@app.task
async def coroutine():
    with Path(os.environ["RUNS"]).open("a") as runs:
        runs.write("coroutine\\n")
"""


MEMORY = """
import os, sys, time
from pathlib import Path
from celery.contrib.testing.worker import start_worker
from twice import app, count, coroutine
if sys.argv[1] == "send":
    count.delay("of a process that has ended")
    sys.exit()
with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=30):
    count.apply_async((1,), task_id="a")
    count.apply_async((1,), task_id="a")
    coroutine.delay()
    count.delay("no number")
    until = time.monotonic() + 30
    while "no number" not in (Path(os.environ["RUNS"]).read_text() if Path(os.environ["RUNS"]).exists() else ""):
        assert time.monotonic() < until
        time.sleep(0.05)
"""


def test_the_guide_shows_the_example() -> None:
    assert f"```python\n{EXAMPLE.read_text('utf-8')}```" in GUIDE


def rows() -> list[list[str]]:
    """The lines of the table of features: the feature, and what each of the three does."""
    table = GUIDE.partition("| feature |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def test_each_line_of_the_table_names_a_test_or_a_source() -> None:
    assert len(rows()) >= 15
    for feature, semel, *others in rows():
        assert len(others) == 2, feature
        tests = re.findall(r"`(tests/[\w/]+\.py)`", semel)
        assert tests, feature
        assert all((ROOT / one).exists() for one in tests), feature
        for cell in others:
            links = re.findall(r"\]\((\S+?)\)", cell)
            assert links or "tried" in cell, (feature, cell)
            assert "not described" not in cell, (feature, cell)
            assert all(link.startswith(SOURCES) for link in links), (feature, links)


@contextmanager
def running(*words: str, cwd: Path, env: dict[str, str]) -> Iterator[None]:
    quiet = subprocess.DEVNULL
    with subprocess.Popen([sys.executable, *words], cwd=cwd, env=env, stderr=quiet, stdout=quiet) as process:
        try:
            yield
        finally:
            process.terminate()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    with redis_in(tmp_path) as (_, url):
        yield url


def test_the_example_moves_messages_of_celery_to_jobs(tmp_path: Path, broker: str) -> None:
    own = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
    folder = EXAMPLE.parent
    with RunningServer(tmp_path / "data") as server:
        env = {**own, "SEMEL_URL": server.url, "BROKER_URL": broker}
        celery = [word.format(app="celery_migration") for word in CELERY]
        with (
            running(*celery, cwd=folder, env=env),
            running("-m", "semel", "worker", "celery_migration:worker", cwd=folder, env=env),
            Client(server.url) as client,
        ):
            asked = [sys.executable, EXAMPLE.name]
            out = subprocess.check_output(asked, cwd=folder, env=env, text=True, timeout=SECONDS)
            assert out == "billed 4712: 700 cents\nbilled 4711: 500 cents\n"
            [shown] = re.findall(r"^\$ python celery_migration\.py\n(.+?)^```", GUIDE, re.M | re.S)
            assert shown == out
            send = "import celery_migration as m; m.old_bill.apply_async(('4713', 5), task_id='m'); m.worker.close()"
            subprocess.check_call([sys.executable, "-c", send], cwd=folder, env=env, timeout=SECONDS)
            eventually(lambda: client.resolve(JobKey("celery-m")).is_committed, "Celery passed it on", SECONDS)
            assert len(client.jobs.list(kind="shop.bill").jobs) == 3


def test_celery_runs_one_id_twice_takes_any_argument_and_awaits_nothing(tmp_path: Path, broker: str) -> None:
    runs = tmp_path / "runs"
    (tmp_path / "twice.py").write_text(TWICE)
    env = {**os.environ, "BROKER_URL": broker, "RUNS": str(runs), "PYTHONPATH": str(tmp_path)}
    send = (
        "import twice; twice.count.apply_async((1,), task_id='a'); twice.count.apply_async((1,), task_id='a');"
        "twice.coroutine.delay(); twice.count.delay('no number')"
    )
    celery = [word.format(app="twice") for word in CELERY]
    with running(*celery, cwd=tmp_path, env=env):
        subprocess.check_call([sys.executable, "-c", send], cwd=tmp_path, env=env, timeout=SECONDS)
        eventually(lambda: runs.exists() and "no number" in runs.read_text(), "the last one ran", SECONDS)
    assert runs.read_text().splitlines() == ["1", "1", "'no number'"]


def test_celery_over_memory_does_the_same_and_loses_its_queue_with_the_process(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    (tmp_path / "twice.py").write_text(TWICE)
    (tmp_path / "memory.py").write_text(MEMORY)
    env = {**os.environ, "BROKER_URL": "memory://", "RUNS": str(runs), "PYTHONPATH": str(tmp_path)}
    celery = [word.format(app="twice") for word in CELERY]
    with running(*celery, cwd=tmp_path, env=env):  # a worker in another process gets nothing
        for part in ("send", "work"):
            subprocess.check_call([sys.executable, "memory.py", part], cwd=tmp_path, env=env, timeout=SECONDS)
    assert runs.read_text().splitlines() == ["1", "1", "'no number'"]


def test_celery_checks_the_number_of_arguments_and_has_no_types_for_a_checker() -> None:
    def count(n: int) -> int:
        return n

    task = celery.Celery("checked", broker="memory://", set_as_current=False).task(count)
    for args, kwargs in ((), {}), ((1, 2), {}), ((), {"m": 1}):
        with pytest.raises(TypeError, match="argument"):
            task.apply_async(args, kwargs)
    assert not (Path(celery.__file__).parent / "py.typed").exists()


@pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")  # Celery makes it
def test_celery_keeps_the_first_success_of_an_id(broker: str) -> None:
    app = celery.Celery("first", broker=broker, backend=broker, set_as_current=False)
    for result, state in (1, "SUCCESS"), (2, "SUCCESS"), (ValueError("late"), "FAILURE"):
        app.backend.store_result("a", result, state)
    assert (app.backend.get_state("a"), app.backend.get_result("a")) == ("SUCCESS", 1)
    app.close()


def test_semel_runs_one_key_once_and_refuses_a_wrong_argument(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as server:
        worker, ran = Worker(server.url), list[int]()

        @worker.job
        def count(n: int) -> None:
            ran.append(n)

        for _ in range(2):
            count.with_options(key="a").submit(1)
        with pytest.raises(InvalidArgumentError):
            count.submit("no number")  # type: ignore[arg-type]
        worker.run(until_idle=True)
        worker.close()
        assert ran == [1]
