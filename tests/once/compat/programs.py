"""Programs and packages that no wheel of the environment holds, fetched into `build/` when a test first needs them.

`make clean` removes them. Two processes may fetch at the same time: the first one to end puts its folder into place.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.harness.account import own, own_folder, spawn
from tests.harness.debian import unpack
from tests.harness.server import HOST, free_port
from tests.harness.together import eventually
from tests.once.compat.places import found_at

ROOT = Path(__file__).parents[3]
BUILD = ROOT / "build"
FETCH_SECONDS = 240
SERVER_CONNECTIONS = 4
"""Of PgBouncer to PostgreSQL: fewer than its clients, so that a transaction gets one that another client had."""


def fetched(name: str, fetch: Callable[[Path], None]) -> Path:
    """A folder below `build`, filled once."""
    place = BUILD / name
    if not place.exists():
        BUILD.mkdir(exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=BUILD))
        fetch(folder)
        with suppress(OSError):  # another process was first
            folder.rename(place)
        shutil.rmtree(folder, ignore_errors=True)
    return place


class Django(NamedTuple):
    """A Django, and the interpreter of an environment that has it."""

    version: str
    python: str


PIP = "-m pip --disable-pip-version-check install --quiet --require-hashes --requirement"
NEEDED = ("asgiref", "django", "djangorestframework", "psycopg", "psycopg-binary", "sqlparse", "typing-extensions")


def _pins() -> list[tuple[str, str, str]]:
    """Name, version and text of each pin of the lock file that Django needs. The text is without its marker."""
    blocks = re.split(r"^(?=\w)", (ROOT / "requirements-dev.lock").read_text(), flags=re.MULTILINE)
    found = []
    for block in blocks:
        named = re.match(r"([\w.-]+)(?:\[\w+\])?==(\S+)([^\\\n]*)", block)
        if named is not None and named[1] in NEEDED:
            found.append((named[1], named[2], block.replace(named[3], " ", 1)))
    return found


def _newer_python() -> str | None:
    """An interpreter for the newest Django, which needs Python 3.12: on the path, or beside the one of this process."""
    named = [shutil.which(f"python3.{minor}") for minor in (14, 13, 12)]
    beside = sorted(str(one) for one in Path(sys.base_prefix).parent.glob("3.1[2-9]*/bin/python3"))
    look = "import ensurepip, sqlite3, sys, venv; sys.exit(sys.version_info < (3, 12))"
    for python in [*named, *beside]:
        if python and subprocess.run([python, "-c", look], capture_output=True, check=False).returncode == 0:
            return python
    return None


def other_django() -> Django | None:
    """The Django of the lock file that this environment does not have; None if no Python of the machine can run it."""
    here = importlib.metadata.version("django")
    [version] = [version for name, version, _ in _pins() if name == "django" and version != here]
    python = sys.executable if sys.version_info >= (3, 12) else _newer_python()
    return None if python is None else Django(version, python)


def installed(wanted: Django) -> Django:
    """The same Django with the interpreter of an environment of its own."""

    def install(folder: Path) -> None:
        texts = [text for name, version, text in _pins() if name != "django" or version == wanted.version]
        (folder / "pins.txt").write_text("".join(texts))
        subprocess.run([wanted.python, "-m", "venv", folder], check=True, timeout=FETCH_SECONDS)
        python, pins = folder / "bin" / "python", folder / "pins.txt"
        subprocess.run([python, *PIP.split(), pins], check=True, timeout=FETCH_SECONDS)

    return wanted._replace(python=str(fetched(f"django-{wanted.version}", install) / "bin/python"))


@contextmanager
def pooled(url: str) -> Iterator[str]:
    """The URL of a PgBouncer in transaction mode before a database."""
    folder, port, database = own_folder("semel-pgbouncer-"), free_port(), urlsplit(url)
    program = shutil.which("pgbouncer")
    if program is None:
        source, program = (
            fetched("pgbouncer", lambda place: unpack(["pgbouncer"], place)),
            str(folder / "root/usr/sbin/pgbouncer"),
        )
        shutil.copytree(source, folder / "root", symlinks=True)  # the account may not reach the folder of the project
    config = folder / "pgbouncer.ini"
    config.write_text(
        f"[databases]\n* = host={database.hostname} port={database.port} user={database.username}\n"
        f"[pgbouncer]\nlisten_addr = {HOST}\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        f"pool_mode = transaction\nmax_client_conn = 200\ndefault_pool_size = {SERVER_CONNECTIONS}\n"
    )
    own(config)
    libraries = os.pathsep.join(str(one) for one in (folder / "root/usr/lib").glob("*-linux-gnu"))
    with (folder / "log").open("wb") as log:
        process = spawn([program, str(config)], log, {"LD_LIBRARY_PATH": libraries})
    place = f"postgresql://{database.username}@{HOST}:{port}{database.path}"
    try:
        eventually(lambda: _answers(place), f"PgBouncer answers: {(folder / 'log').read_text()}")
        yield place
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder)


def _answers(place: str) -> bool:
    with suppress(Exception):
        return found_at(place, "SELECT 1") == [(1,)]
    return False
