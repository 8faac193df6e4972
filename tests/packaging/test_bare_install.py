"""`pip install semel`: the wheel alone, in an environment without any other package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from zipfile import ZipFile

import click
import pytest

ROOT = Path(__file__).parent.parent.parent
SECONDS = 120
COMMANDS = ("serve", "once", "proxy", "outbox", "worker", "--help")
PROGRAM = """
import sqlite3, sys
from semel import Once, OnceError, Outbox, __version__, once
connection = sqlite3.connect("shop.db")
connection.executescript("CREATE TABLE charges (amount);" + once.ddl("sqlite"))
for _ in range(2):
    with once.transaction(connection, "order-7", {"amount": 5}, scope=None) as attempt:
        if attempt.fresh:
            connection.execute("INSERT INTO charges VALUES (5)")
            attempt.result = {"charged": 5}
    connection.commit()
store = Once("receipts.db")
@store.once(key=lambda number: number)
def charge(number):
    connection.execute("INSERT INTO charges VALUES (5)")
    return number
async def app(scope, receive, send): ...
once.Middleware(app, store, scope=None), once.WsgiMiddleware(app, store, scope=None)
box = Outbox("outbox.db")
box.post("http://127.0.0.1:9/charges", json={"amount": 5}, key="charge-7")
from semel.testing import assert_idempotent
print(charge(7), charge(7), attempt.result, box.state("charge-7").value)
print(connection.execute("SELECT count(*) FROM charges").fetchall())
box.close(); store.close(); connection.close()
own = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names - {"semel", "__main__", "__mp_main__"}
print(sorted(name for name in own if not name.startswith("_")))
"""


PROTOS = (
    "surfaces/ledger/proto/ledger",
    "server/grpc/proto/health",
    "surfaces/deltas/proto/sync",
)
"""Descriptions that the wheel has: two of gRPC services, one of the frames of deltas."""


def run(words: Sequence[str | Path], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command outside of this repository, without what its environment would lend."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))} | more
    return subprocess.run(words, cwd=folder, env=own, capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this source, without the code of the protobuf messages, which only the server needs."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    own = os.environ | {"HATCH_BUILD_NO_HOOKS": "true"}
    subprocess.run(command, cwd=ROOT, env=own, check=True, capture_output=True, timeout=SECONDS)
    [path] = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def programs(wheel: Path) -> Path:
    """The folder of programs of a fresh environment in which the wheel alone is installed."""
    place = wheel.parent / "fresh"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True, timeout=SECONDS)
    programs = place / ("Scripts" if os.name == "nt" else "bin")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(programs / "python")]
    # With its dependencies, and without a place to get them from: it has none.
    done = run([*pip, "install", "--no-index", "--quiet", str(wheel)], place)
    assert done.returncode == 0, done.stderr
    return programs


def test_the_library_works_with_the_standard_library_alone(programs: Path, tmp_path: Path) -> None:
    done = run([programs / "python", "-W", "error", "-c", PROGRAM], tmp_path)
    assert done.stdout.splitlines() == ["7 7 {'charged': 5} queued", "[(2,)]", "[]"], done.stderr


@pytest.mark.parametrize("word", COMMANDS)
def test_a_command_says_in_one_line_which_extra_brings_it(programs: Path, tmp_path: Path, word: str) -> None:
    done = run([programs / "semel", word], tmp_path)
    said = done.stderr.splitlines()
    assert done.returncode != 0
    assert len(said) == 1
    assert "pip install 'semel[server]'" in said[0]
    assert run([programs / "python", "-m", "semel", word], tmp_path).stderr == done.stderr


def test_a_program_that_has_click_has_the_commands_that_need_no_more(programs: Path, tmp_path: Path) -> None:
    """As beside FastAPI: uvicorn brings click, and nothing else of what the server needs."""
    (tmp_path / "lent").mkdir()
    (tmp_path / "lent" / "click").symlink_to(Path(click.__file__).parent)

    def semel(*words: str) -> subprocess.CompletedProcess[str]:
        return run([programs / "semel", *words], tmp_path, PYTHONPATH=str(tmp_path / "lent"))

    made = semel("once", "init", "shop.db")
    assert (made.returncode, made.stdout) == (0, "The table semel_once is ready.\n"), made.stderr
    for words in (("serve", "--port", "1"), ("worker", "a:b"), ("proxy", "--help"), ("jobs", "submit", "a")):
        done = semel(*words)
        assert done.returncode == 1
        assert re.fullmatch(
            rf"Error: semel {words[0]} needs the package \w+: run pip install 'semel\[(server|proxy)\]'.\n", done.stderr
        )
    listed = semel("--help")
    assert listed.returncode == 0, listed.stderr
    assert re.search(r"^  serve +Needs pip install 'semel\[server\]'\.$", listed.stdout, re.M)
    assert re.search(r"^  once +The receipts of semel.once", listed.stdout, re.M)


def test_a_framework_that_is_missing_is_named(programs: Path, tmp_path: Path) -> None:
    for name in ("fastapi", "django"):
        done = run([programs / "python", "-c", f"import semel.once.{name}"], tmp_path)
        assert f"No module named '{name}'" in done.stderr.splitlines()[-1]


def test_the_wheel_tells_checkers_that_it_is_typed(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as content:
        assert "semel/py.typed" in content.namelist()


def test_the_wheel_has_every_file_of_the_console(wheel: Path) -> None:
    static = ROOT / "src" / "semel" / "server" / "console" / "static"
    files = {f"semel/{path.relative_to(ROOT / 'src' / 'semel').as_posix()}" for path in static.rglob("*.*")}
    with zipfile.ZipFile(wheel) as content:
        assert files <= set(content.namelist())
        assert len(files) > 5


def test_the_wheel_has_the_descriptions_of_grpc_and_of_frames(wheel: Path) -> None:
    """So that a client in any language can be made from the package."""
    with ZipFile(wheel) as packed:
        described = [packed.read(f"semel/{name}.proto") for name in PROTOS]
    assert [re.search(rb"^service (\w+)", text, re.M) is not None for text in described] == [True, True, False]
