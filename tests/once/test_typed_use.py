"""What a user's own checker of types makes of `semel`: mypy and Pyright, strict, in a folder that is not this one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from semel import once

PROGRAMS = Path(__file__).parent / "typed"
SOURCE = Path(once.__file__).parents[2]
"""The sources under test, which may be others than the installed ones."""
MYPY = "[mypy]\nstrict = True\n[mypy-django.*]\nignore_missing_imports = True\n"
SECONDS = 250

HEAD = """\
import sqlite3
import psycopg
from django.http import HttpRequest, HttpResponse
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session
import semel
from semel import Once, Outbox, once
from semel.once.django import once_per_key
from semel.testing import assert_idempotent
store = Once("app.db")
box = Outbox("outbox.db")
@store.once(key=str)
def charge(amount: int) -> int:
    return amount
@store.once(key=str)
async def charge_async(amount: int) -> int:
    return amount
@once_per_key(scope=None)
def view(request: HttpRequest, number: int) -> HttpResponse:
    return HttpResponse(request.path.encode())
class Shop:
    @store.once(key=str)
    def sell(self, number: int) -> str:
        return ""
def later() -> tuple[AsyncSession, AsyncConnection, psycopg.AsyncConnection]:
    raise NotImplementedError
def now() -> tuple[Session, sqlite3.Connection, psycopg.Connection]:
    raise NotImplementedError
async def app(scope: object, receive: object, send: object) -> None: ...
async def use() -> None:
    async_session, async_connection, async_psycopg = later()
    session, lite, sync_psycopg = now()
"""
WRONG = (
    'charge("5")',
    "charge(amount=5, other=6)",
    "text: str = charge(5)",
    "number: int = charge_async(5)",
    'await charge_async("5")',
    "store.once()",
    'store.once(key=str, on_crash="twice")',
    "store.once(key=str, remember=ValueError)",
    "once.transaction(box, 7, scope=None, keeps=5)",
    "once.transaction()",
    "with once.transaction(async_session, 'k', scope=None): pass",
    "with once.transaction(async_connection, 'k', scope=None): pass",
    "with once.transaction(async_psycopg, 'k', scope=None): pass",
    "async with once.transaction(session, 'k', scope=None): pass",
    "async with once.transaction(lite, 'k', scope=None): pass",
    "async with once.transaction(sync_psycopg, 'k', scope=None): pass",
    "Shop().sell('seven')",
    "once.Middleware(app, store)",
    'once.Middleware(app, "app.db", scope=None)',
    "once.Middleware(app, store, scope=None, max_bodies=5)",
    'once.Middleware(app, store, scope=None, on_crash="ask")',
    "once.WsgiMiddleware(app, store)",
    "once_per_key()",
    'view(HttpRequest(), "seven")',
    "box.post()",
    "box.post('https://pay.example', headers={'X': 5})",
    "assert_idempotent(lambda key: 1)",
    "once.nothing",
    "semel.nothing",
    "Once.memory(clock='now')",
)
RIGHT = (
    "charge(5)",
    "await charge_async(5)",
    "view(HttpRequest(), 7)",
    "once.Middleware(app, store, scope=None)",
    "async with once.transaction(async_session, 'k', scope=None) as attempt: attempt.result = 5",
    "async with once.transaction(async_connection, 'k', scope=None) as attempt: attempt.result = 5",
    "async with once.transaction(async_psycopg, 'k', scope=None) as attempt: attempt.result = 5",
    "with once.transaction(session, 'k', scope=None) as attempt: attempt.result = 5",
    "with once.transaction(lite, 'k', scope=None) as attempt: attempt.result = 5",
    "with once.transaction(sync_psycopg, 'k', scope=None) as attempt: attempt.result = 5",
    "word: str = Shop().sell(7)",
)
"""Lines of the same program that no checker may mind: else the ones above would prove nothing."""


def found(folder: Path) -> dict[str, list[tuple[str, int, str]]]:
    """What each checker says of the programs in a folder: file, line and words."""
    (folder / "mypy.ini").write_text(MYPY)
    # Pyright alone: what its fork adds is not asked for.
    rules: dict[str, object] = {"typeCheckingMode": "strict", "extraPaths": [str(SOURCE)]}
    rules |= {"venvPath": str(Path(sys.prefix).parent), "venv": Path(sys.prefix).name}
    (folder / "pyrightconfig.json").write_text(json.dumps(rules))
    tools = {"mypy": ["-m", "mypy", "--cache-dir=cache"], "pyright": ["-m", "basedpyright"]}

    def run(words: list[str]) -> list[tuple[str, int, str]]:
        command = [sys.executable, *words, *sorted(path.name for path in folder.glob("*.py"))]
        said = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert not said.stderr, said.stderr
        lines = re.findall(r"(\w+\.py):(\d+)(?::\d+)?(?: -|:) error: (.*)", said.stdout)
        assert bool(lines) == bool(said.returncode), said.stdout
        return [(name, int(number), words) for name, number, words in lines]

    with ThreadPoolExecutor(len(tools)) as pool:
        return dict(zip(tools, pool.map(run, tools.values()), strict=True))


def test_types_are_kept_and_wrong_uses_are_errors(tmp_path: Path) -> None:
    for program in PROGRAMS.glob("*program.py"):
        shutil.copy(program, tmp_path)
    (tmp_path / "wrong.py").write_text(
        f"# pyright: standard\n{HEAD}" + "".join(f"    {one}\n" for one in WRONG + RIGHT)
    )
    first = HEAD.count("\n") + 2
    for tool, errors in found(tmp_path).items():
        assert not [one for one in errors if one[0] != "wrong.py"], tool
        minded = {WRONG[number - first] for _, number, _ in errors if first <= number < first + len(WRONG)}
        assert not [one for one in WRONG if one not in minded], tool
        assert not [one for one in errors if not first <= one[1] < first + len(WRONG)], tool
