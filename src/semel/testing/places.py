"""Finds the places where a call may be interrupted, without changes to its code.

There is a place before and after each operation that another process can notice: a database statement or commit, a
write to a socket, a change of the file system; and wherever the code calls `point("name")`. A profile function
(`sys.setprofile`) finds them: the interpreter calls it around every Python and C function, so no class is patched, and
a driver that was imported under another name is seen too. Calls from one extension module to another are not seen.

| operation | seen as |
|---|---|
| `sqlite3`, `apsw`, `psycopg2` and other drivers in C | `execute` and its kind, `commit`, `rollback` |
| psycopg 3, aiosqlite | each exchange with the server, or with the thread of the connection |
| asyncpg, pure Python drivers, HTTP clients | each write to a socket |
| files | `rename`, `replace`, `unlink`, `link`, `mkdir`, `fsync` and the like of `os` |
"""

from __future__ import annotations

import dis
import linecache
import sys
from collections.abc import Callable
from pathlib import PurePath
from types import BuiltinFunctionType, FrameType, ModuleType
from typing import Any, NamedTuple

_DRIVERS = frozenset({"sqlite3", "apsw", "psycopg2", "MySQLdb", "pyodbc", "oracledb"})
_VERBS = frozenset({"execute", "executemany", "executescript", "commit", "rollback", "callproc", "__exit__"})
_SENDS = frozenset({"send", "sendall", "sendto", "sendmsg", "sendfile"})
_FILES = frozenset({"rename", "replace", "unlink", "remove", "link", "symlink", "mkdir", "rmdir", "fsync", "fdatasync"})
_C_NAMES = _VERBS | _SENDS | _FILES | {"write", "fork_exec"}
_PYTHON = {
    ("psycopg.connection", "Connection.wait"): "psycopg",
    ("psycopg.connection_async", "AsyncConnection.wait"): "psycopg",
    ("aiosqlite.core", "Connection._execute"): "aiosqlite",
}
_PYTHON_NAMES = frozenset({"wait", "_execute", "point"})
_LIBRARIES = frozenset(
    {"aiohttp", "aiosqlite", "anyio", "asyncpg", "django", "greenlet", "httpcore", "httpx", "psycopg", "psycopg_pool"}
    | {"pymysql", "redis", "requests", "semel", "sqlalchemy", "starlette", "urllib3", "uvicorn"}
)
_RETURNS = frozenset(dis.opmap[name] for name in ("RETURN_VALUE", "RETURN_CONST") if name in dis.opmap)
_LINE_CHARACTERS = 100
_LINES = 2
_TEST = "semel.testing.calls"
"""The function that makes the call; frames above it belong to the test."""


def point(name: str) -> None:
    """Mark a place in your code where `assert_idempotent` kills it or runs another call.

    It does nothing by itself: the test recognizes the call. Put it between two effects that no driver shows.
    """


class CodePlace(NamedTuple):
    """A place of a call: before or after an operation, or at a named point."""

    text: str
    where: str

    def __str__(self) -> str:
        return f"{self.text} ({self.where})" if self.where else self.text


class PlaceWatch:
    """A profile function that reports each place when it is reached."""

    def __init__(self, reached: Callable[[CodePlace], object]) -> None:
        self._reached = reached
        self._begun: set[FrameType] = set()

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        """Called by the interpreter."""
        if event == "call":
            if frame.f_code.co_name in _PYTHON_NAMES:
                self._called(frame)
        elif event == "return":
            if frame in self._begun:
                self._returned(frame)
        elif event != "c_exception" and arg.__name__ in _C_NAMES:
            operation = _operation(arg, frame)
            if operation is not None:
                self._tell("before" if event == "c_call" else "after", operation, frame)

    def _called(self, frame: FrameType) -> None:
        """Count the call of a coroutine once, although it is called again whenever it continues."""
        if frame.f_code is point.__code__:
            self._reached(CodePlace(f"at point({frame.f_locals['name']!r})", _where(frame.f_back)))
            return
        package = _PYTHON.get((frame.f_globals.get("__name__", ""), frame.f_code.co_qualname))
        if package is not None and frame not in self._begun:
            self._begun.add(frame)
            self._tell("before", _exchange(package, frame), frame)

    def _returned(self, frame: FrameType) -> None:
        """Count the return of a coroutine only when it has ended: it also returns whenever it waits."""
        if frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] in _RETURNS:
            self._begun.discard(frame)
            package = _PYTHON[frame.f_globals["__name__"], frame.f_code.co_qualname]
            self._tell("after", _exchange(package, frame), frame)

    def _tell(self, when: str, operation: str, frame: FrameType) -> None:
        self._reached(CodePlace(f"{when} {operation}", _where(frame)))


def _operation(function: BuiltinFunctionType, frame: FrameType) -> str | None:
    """The visible operation of a C function, or None."""
    owner, name = function.__self__, function.__name__
    if isinstance(owner, ModuleType):
        is_counted = owner.__name__ in ("posix", "nt") and name in _FILES
        return f"os.{name}" if is_counted else "the start of a process" if name == "fork_exec" else None
    for base in type(owner).__mro__:
        package = base.__module__.partition(".")[0]
        if package in _DRIVERS and name in _VERBS:
            return f"{package} {base.__name__}.{name}"
        if package == "_socket" and name in _SENDS:
            # A loop that another thread wakes through its own socket has no visible effect.
            return None if frame.f_code.co_name == "_write_to_self" else f"socket.{name}"
        if package == "_ssl" and name == "write":
            return "socket.write over TLS"
    return None


def _exchange(package: str, frame: FrameType) -> str:
    """The operation of a driver in Python, such as `psycopg commit`."""
    work = frame.f_locals.get("gen", frame.f_locals.get("fn"))
    name = getattr(work, "__name__", "")
    return f"{package} {name.removeprefix('_').removesuffix('_gen')}".rstrip()


def _where(frame: FrameType | None) -> str:
    """The nearest lines of the user's code, innermost first."""
    lines: list[str] = []
    inner = frame
    while frame is not None and len(lines) < _LINES:
        module = frame.f_globals.get("__name__", "")
        if module == _TEST:
            break
        if not is_library(module):
            lines.append(line_of(frame))
        frame = frame.f_back
    return ", called by ".join(lines) if lines or inner is None else line_of(inner)


def is_library(module: str) -> bool:
    """Whether a module belongs to the interpreter or a known library."""
    package = module.partition(".")[0]
    return package in _LIBRARIES or package in sys.stdlib_module_names


def line_of(frame: FrameType) -> str:
    """The current line of a function, for a report."""
    code = frame.f_code
    source = linecache.getline(code.co_filename, frame.f_lineno).strip()[:_LINE_CHARACTERS]
    return f"{PurePath(code.co_filename).name}:{frame.f_lineno} in {code.co_name}: {source}"
