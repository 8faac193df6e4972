"""The examples do what their first lines say: repeated, raced, killed and started again."""

from __future__ import annotations

import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.harness.guardian import guard
from tests.harness.server import HOST, free_port
from tests.harness.together import at_once, eventually
from tests.once.conftest import fresh_schema

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
IMPORTER = EXAMPLES / "csv_importer.py"
SECONDS = 60
CLIENT = httpx.Client(
    limits=httpx.Limits(max_keepalive_connections=0)
)  # one for all: to make one takes longer than a request
ROWS = 4_000
DEATH = """
import os, signal
from pathlib import Path
def die_once():
    if Path("die").exists():
        Path("die").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
"""
DYING_FASTAPI = """
from death import die_once
from fastapi_payments import app as inner
async def app(scope, receive, send):
    async def passed(message):
        if message["type"] == "http.response.start":
            die_once()
        await send(message)
    await inner(scope, receive, passed)
"""
DYING_DJANGO = """
import runpy, sys
from death import die_once
from django.core.handlers.wsgi import WSGIHandler
real = WSGIHandler.get_response
def get_response(self, request):
    response = real(self, request)
    die_once()
    return response
WSGIHandler.get_response = get_response
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


class Service:
    """An example that is a service; it dies behind its commit and before its answer, when it is told to."""

    def __init__(self, folder: Path, words: Sequence[str], path: str, database: str = "") -> None:
        guard()
        (folder / "death.py").write_text(DEATH)
        (folder / "dying_fastapi.py").write_text(DYING_FASTAPI)
        (folder / "dying_django.py").write_text(DYING_DJANGO)
        self._folder, self._words, self._path = folder, words, path
        self._env = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{EXAMPLES}"}
        if database:
            self._env["DATABASE_URL"] = database
        self._url = ""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start it, and end it if it is still there."""
        port = free_port()
        self._url = f"http://{HOST}:{port}"
        words = [sys.executable, *(word.format(port=port) for word in self._words)]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(words, cwd=self._folder, env=self._env, stdout=quiet, stderr=quiet)
        try:
            eventually(self._answers, "it listens", SECONDS)
            yield
        finally:
            process.kill()
            process.wait()

    def post(self, body: object, key: str = "order-7", user: str = "ada") -> httpx.Response:
        """Ask for a charge."""
        headers = {"Idempotency-Key": key, "X-User": user}
        return CLIENT.post(f"{self._url}{self._path}", json=body, headers=headers, timeout=25)

    def die(self) -> None:
        """Ask for a charge, and see the connection break."""
        (self._folder / "die").touch()
        with pytest.raises(httpx.TransportError):
            self.post({"amount": 5})

    def _answers(self) -> bool:
        with suppress(httpx.TransportError):
            CLIENT.get(self._url)
            return True
        return False


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_payments_over_fastapi_charge_once(tmp_path: Path, database: str) -> None:
    url = fresh_schema().replace("postgresql:", "postgresql+psycopg:") if database == "postgresql" else ""
    service = Service(tmp_path, ["-m", "uvicorn", "dying_fastapi:app", "--port", "{port}"], "/payments", url)
    with service.running():
        service.die()
    with service.running():
        answers = at_once([lambda: service.post({"amount": 5})] * 8)
        assert {(one.status_code, one.text) for one in answers} == {(201, '{"payment":1,"amount":5}')}
        assert {one.headers["Idempotency-Replayed"] for one in answers} == {"true"}
        assert service.post({"amount": 6}).status_code == 422
        assert service.post({"amount": 5}, key="").status_code == 400
        assert {one.status_code for one in at_once([lambda: service.post({"amount": 7}, key="b")] * 8)} == {201}
        assert service.post({"amount": 5}, user="bea").json() == {"payment": 3, "amount": 5}
        found = CLIENT.get(f"{service._url}/payments", headers={"X-User": "ada"}).json()
    assert found == [{"payment": 1, "amount": 5}, {"payment": 2, "amount": 7}]


def test_the_view_of_django_charges_once(tmp_path: Path) -> None:
    words = ["dying_django.py", str(EXAMPLES / "django_view.py"), "runserver", "{port}", "--noreload"]
    service = Service(tmp_path, words, "/charges")
    with service.running():
        service.die()
    with service.running():
        answers = at_once([lambda: service.post({"amount": 5})] * 4)
        assert {(one.status_code, one.text) for one in answers} == {(201, '{"charges": 1, "total": 5}')}
        assert service.post({"amount": 6}).status_code == 422
        assert service.post([], key="other").status_code == 400
        assert service.post({"amount": 7}, key="third").json() == {"charges": 2, "total": 12}


def imported(folder: Path, *words: str) -> tuple[int, str]:
    """Run the importer: its status, and what it says."""
    command = [sys.executable, str(IMPORTER), "orders.csv", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    return done.returncode, done.stdout + done.stderr


def orders(folder: Path) -> tuple[int, int]:
    """How many there are, and their sum."""
    connection = sqlite3.connect(folder / "shop.db", timeout=60)
    try:
        count, total = connection.execute("SELECT count(*), sum(amount) FROM orders").fetchone()
    except sqlite3.OperationalError:
        return 0, 0  # it has not begun
    finally:
        connection.close()
    return int(count), int(total or 0)


def test_an_import_that_is_killed_and_started_again_imports_each_row_once(tmp_path: Path) -> None:
    guard()
    rows = "".join(f"order-{number},{number}\n" for number in range(ROWS))
    (tmp_path / "orders.csv").write_text(f"order_id,amount\n{rows}")
    known = 0
    for _ in range(2):
        with subprocess.Popen([sys.executable, str(IMPORTER), "orders.csv"], cwd=tmp_path) as process:
            eventually(lambda before=known: orders(tmp_path)[0] > before, "a batch is committed", SECONDS)  # type: ignore[misc]
            process.kill()
        assert process.returncode == -signal.SIGKILL
        known, _ = orders(tmp_path)
    assert imported(tmp_path, "--dry-run") == (0, f"dry run: imported {ROWS - known}, known {known}, refused 0\n")
    assert orders(tmp_path)[0] == known
    assert imported(tmp_path) == (0, f"imported {ROWS - known}, known {known}, refused 0\n")
    assert orders(tmp_path) == (ROWS, ROWS * (ROWS - 1) // 2)


def test_rows_that_cannot_be_imported_are_named_and_the_others_are_imported(tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("order_id,amount\na,1\nb,2\na,1\na,3\n,5\nc,x\nd\n")
    status, said = imported(tmp_path, "--dry-run")
    assert (status, said.splitlines()[0]) == (1, "dry run: imported 2, known 1, refused 4")
    assert not (tmp_path / "shop.db").exists()
    status, said = imported(tmp_path)
    assert (status, said.splitlines()[0]) == (1, "imported 2, known 1, refused 4")
    assert re.findall(r"line (\d+):", said) == ["5", "6", "7", "8"]
    assert orders(tmp_path) == (2, 3)
    (tmp_path / "orders.csv").unlink()
    assert imported(tmp_path)[1].startswith("orders.csv cannot be read: ")


def test_the_importer_shows_a_bar_on_a_terminal_alone(tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("order_id,amount\na,1\nb,2\n")
    ours, theirs = pty.openpty()
    command = [sys.executable, str(IMPORTER), "orders.csv"]
    said = subprocess.check_output(command, cwd=tmp_path, stderr=theirs, text=True, timeout=SECONDS)
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    os.close(theirs)
    assert said == "imported 2, known 0, refused 0\n"
    assert shown.endswith(f"[{'#' * 40}] 100 %\r\n")
    assert imported(tmp_path) == (0, "imported 0, known 2, refused 0\n")


@pytest.mark.parametrize("example", ["csv_importer", "django_view", "fastapi_payments"])
def test_an_example_says_how_it_is_run_in_two_commands(example: str) -> None:
    first = (EXAMPLES / f"{example}.py").read_text().split("\n\n")[1].splitlines()
    assert len(first) == 2
    assert first[0].startswith("pip install semel")
    assert example in first[1]
