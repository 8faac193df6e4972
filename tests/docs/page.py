"""Runs a page from its beginning, as a reader would: `python -m tests.docs.page docs/guide/streams.md`.

- Blocks of Python are one program; one that begins with `# name.py` is a file instead, and so is any other block that
  begins with the name of a file. A block of text behind Python, in the same section, is what that prints.
- Commands of a console are typed into bash. Those that serve run in the background until the page ends.
- A server is started when the first block needs one, unless the page starts it.
- Blocks of other languages are read by their tools. Nothing else stands in a fence.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.docs.answers import compared, put_in, values
from tests.docs.fences import FRESH, Fence, PageError, fences
from tests.docs.notebook import Notebook, Printed
from tests.docs.place import DEFAULT_PORT, UVICORN_PORT, Place
from tests.docs.readers import read
from tests.docs.shell import Command, Ended, Shell, commands
from tests.harness.guardian import guard
from tests.harness.processes import is_there
from tests.harness.server import HOST, RunningServer

ROOT = Path(__file__).parents[2]
SECONDS = 30.0
_ENVIRONMENT = r"(?:(?:export )?[A-Z_]+=\S* +)*"
_SERVE = re.compile(rf"{_ENVIRONMENT}semel serve\b(?!.*(?:--help|-h\b))")
_SERVICE = re.compile(
    rf"{_ENVIRONMENT}(?:semel (?:worker|proxy|outbox run)\b(?!.*(?:--once|--help|-h\b))|uvicorn |celery .*\bworker\b)"
)
_PORT_FLAG = re.compile(r"--port[ =](\d+)")
_NEEDS = re.compile(
    rf"\b{DEFAULT_PORT}\b|\bsemel (?:streams|events|jobs|worker|ledger|deltas|find|doctor|audit|token|diagnose)\b"
)
_CLIENT = re.compile(r"\b(?:Async)?Client\(|\bWorker\(")
_FILE = re.compile(r"(?:#|--|//) ([\w./-]+\.\w+)\n")
_NOT_FOUND = 127
_CANNOT_RUN = 126


class Failure(NamedTuple):
    """One thing that is not as the page says."""

    page: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.what}"


class Background(NamedTuple):
    """A command that goes on behind the page."""

    command: Command
    pid: int
    output: Path
    port: int | None


class Scene:
    """A page, or the part of it behind a mark `fresh`: one folder, one program, one bash, at most one server."""

    def __init__(self, page: str, parts: list[Fence], whole: str, folder: Path) -> None:
        self._page = page
        self._parts = parts
        self._place = Place(whole, folder)
        self._known: dict[str, str] = {}
        self._failures: list[Failure] = []
        self._server: RunningServer | None = None
        self._notebook: Notebook | None = None
        self._shell: Shell | None = None
        self._behind: list[Background] = []
        self._printed: tuple[Fence, Printed] | None = None
        self._temporary = tempfile.mkdtemp(prefix="page-")  # not below the folder: paths of sockets must be short
        self._env = self._environment()

    def _environment(self) -> dict[str, str]:
        (self._place.notes / ".curlrc").write_text("silent\nshow-error\n")
        own = {name: os.environ[name] for name in os.environ if not name.startswith(("SEMEL_", "PYTEST_", "COV_"))}
        (self._place.folder.parent / "home").mkdir()
        more = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{own['PATH']}",
            "HOME": str(self._place.folder.parent / "home"),
            "TMPDIR": self._temporary,
            "CURL_HOME": str(self._place.notes),
            "SEMEL_URL": f"http://{HOST}:{self._place.ports[DEFAULT_PORT]}",
            "PYTHONUNBUFFERED": "1",
            "TERM": "dumb",
            "TZ": "UTC",
            "LC_ALL": "C.UTF-8",
        }
        uvicorn = self._place.ports.get(UVICORN_PORT)
        return own | more | ({"UVICORN_PORT": str(uvicorn)} if uvicorn else {})

    def run(self) -> list[Failure]:
        """Run every fence in its order; what went wrong."""
        try:
            for fence in self._parts:
                self._fence(fence)
            self._finish_text()
            self._look_at_those_behind()
        finally:
            self._end()
        return self._failures

    def _fail(self, line: int, what: str) -> None:
        self._failures.append(Failure(self._page, line, what))

    def _fence(self, fence: Fence) -> None:
        if fence.language == "text" and self._printed and self._printed[0].section == fence.section:
            self._compare_text(*self._printed, fence)
            return
        self._finish_text()
        if fence.reason is not None:
            if fence.language == "python":
                self._compiles(fence)
        elif fence.language == "python" and not _FILE.match(fence.text):
            self._python(fence)
        elif fence.language == "console":
            self._console(fence)
        elif fence.language not in ("text", "http"):
            self._file(fence)

    # -- files and what is only read ----------------------------------------------------------------------------------

    def _file(self, fence: Fence) -> None:
        """Read a block by its tool, and write it if it names its file."""
        text = self._typed(fence.text)
        wrong = read(fence.language, fence.text) if fence.language != "python" else None
        if fence.language == "python":
            self._compiles(fence)
        if wrong:
            self._fail(fence.line, f"the block of {fence.language} cannot be read: {wrong}")
        named = _FILE.match(text)
        if named:
            path = self._place.folder / named[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")

    def _compiles(self, fence: Fence) -> None:
        try:
            compile(fence.text, self._page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        except SyntaxError as error:
            self._fail(fence.line + (error.lineno or 0), f"no Python: {error.msg}")

    # -- Python -------------------------------------------------------------------------------------------------------

    def _python(self, fence: Fence) -> None:
        self._need_server(fence.text, is_python=True)
        if self._notebook is None:
            self._notebook = Notebook(self._place.folder, self._env, self._place.notes)
        self._printed = fence, self._notebook.run(self._typed(fence.text), self._page, fence.line)

    def _finish_text(self) -> None:
        """A program whose output is not shown must have ended well."""
        if self._printed and self._printed[1].error:
            self._fail(self._printed[0].line, f"the program ended badly:\n{_indented(self._printed[1].error)}")
        self._printed = None

    def _compare_text(self, fence: Fence, printed: Printed, shown: Fence) -> None:
        said = self._place.shown(printed.text)
        if printed.error and "Traceback" not in shown.text:
            self._finish_text()
            return
        self._compare(shown.line, "the program", shown.text, said)
        self._printed = None

    # -- commands -----------------------------------------------------------------------------------------------------

    def _console(self, fence: Fence) -> None:
        found = list(commands(fence.text, fence.line))
        if not found:
            self._fail(fence.line, "a console without a command: a line that is typed begins with `$ `")
        for command in found:
            if _SERVE.match(command.text):
                self._serve(command)
                continue
            self._need_server(command.text)
            if command.text.rstrip().endswith(" &") or _SERVICE.match(command.text):
                self._start(command, self._typed(command.text), self._ports_of(command.text))
            else:
                self._type(command)

    def _bash(self, typed: str) -> Ended:
        if self._shell is None:
            self._shell = Shell(self._place.folder, self._env, self._place.notes)
        return self._shell.type(typed)

    def _type(self, command: Command) -> None:
        ended = self._bash(self._typed(command.text))
        said = self._place.shown(ended.said)
        name = f"$ {command.text}"
        if ended.code is None:
            self._shell_gone(command, said)
        elif ended.code in (_NOT_FOUND, _CANNOT_RUN) or (ended.code and not command.shown.strip()):
            self._fail(command.line, f"{name}\n  ended with {ended.code}:\n{_indented(said)}")
        elif command.shown.strip():
            self._compare(command.line, name, command.shown, said)

    def _shell_gone(self, command: Command, said: str) -> None:
        self._fail(command.line, f"$ {command.text}\n  did not end in time, or ended bash:\n{_indented(said)}")
        if self._shell is not None:
            self._shell.end()
        self._shell = None  # what comes next gets a new one, without variables of the old one

    def _serve(self, command: Command) -> None:
        """Start a server as the page does, in the place of one that listens there."""
        flag = _PORT_FLAG.search(command.text)
        shown = int(flag[1]) if flag else DEFAULT_PORT
        port = self._place.ports.get(shown, shown)
        self._make_room(port)
        line = self._typed(command.text).rstrip().removesuffix("&").rstrip()
        if flag is None:
            line = re.sub(r"\bsemel serve\b", f"semel serve --port {port}", line, count=1)
        grpc = f"SEMEL_LEDGER_GRPC_PORT={self._place.grpc_port} "
        self._start(command, ("" if "grpc-port" in line else grpc) + line, [port])

    def _make_room(self, port: int) -> None:
        if self._server is not None and self._server.port == port:
            self._server.kill()
            self._server = None
        for one in self._behind:
            if one.port == port and is_there(one.pid):
                self._bash(f"kill {one.pid}; wait {one.pid}; true")

    def _ports_of(self, line: str) -> list[int]:
        """The ports of this machine that a command may begin to listen to: those that it names, or else the usual."""
        typed = self._typed(line)
        named = [real for real in self._place.ports.values() if re.search(rf"(?<!\d){real}(?!\d)", typed)]
        usual = self._place.ports.get(UVICORN_PORT) if re.match(rf"{_ENVIRONMENT}uvicorn ", line) else None
        return named or ([usual] if usual else [])

    def _start(self, command: Command, line: str, ports: list[int]) -> None:
        """Start a command that goes on, and wait until it listens and has said what is shown."""
        closed = [port for port in ports if not _is_open(port)]
        ended = self._bash(line if line.rstrip().endswith("&") else f"{line} &")
        if ended.code is None or self._shell is None:
            self._shell_gone(command, ended.said)
            return
        one = Background(command, ended.child, self._shell.output, ports[0] if ports else None)
        self._behind.append(one)
        if closed and not self._wait(one, lambda: any(map(_is_open, closed))):
            said = self._place.shown(one.output.read_text("utf-8", errors="replace"))
            self._fail(command.line, f"$ {command.text}\n  does not listen:\n{_indented(said)}")
        elif command.shown.strip() and not self._wait(one, lambda: self._has_said(one)):
            said = one.output.read_text("utf-8", errors="replace")
            self._compare(command.line, f"$ {command.text}", command.shown, self._place.shown(said), is_open=True)

    def _wait(self, one: Background, is_done: Callable[[], bool]) -> bool:
        """Whether this becomes true before the process ends, within the time it is given."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            lives = is_there(one.pid)
            if is_done():
                return True
            if not lives:
                return False
            time.sleep(0.02)
        return False

    def _has_said(self, one: Background) -> bool:
        said = self._place.shown(one.output.read_text("utf-8", errors="replace"))
        learnt = compared(one.command.shown, said, self._known, is_open=True)
        self._known = self._known if learnt is None else learnt
        return learnt is not None

    def _look_at_those_behind(self) -> None:
        """What has ended by itself in the background must not have failed."""
        for one in self._behind:
            if self._shell is not None and not is_there(one.pid):
                ended = self._bash(f"wait {one.pid}")
                was_waited_for = "is not a child" in ended.said
                if 0 < (ended.code or 0) <= _NOT_FOUND and not was_waited_for:
                    said = _indented(one.output.read_text("utf-8", errors="replace"))
                    self._fail(one.command.line, f"$ {one.command.text}\n  ended with {ended.code}:\n{said}")

    # -- the server ---------------------------------------------------------------------------------------------------

    def _need_server(self, text: str, *, is_python: bool = False) -> None:
        """Start the server of the page, if this needs one and the page has started none."""
        port = self._place.ports[DEFAULT_PORT]
        if self._server is not None or any(one.port == port for one in self._behind):
            return
        named = [self._place.folder / word for word in re.findall(r"[\w./-]+\.(?:py|sh)\b", text)]
        all_text = "\n".join([text, *(one.read_text("utf-8") for one in named if one.is_file())])
        if not _NEEDS.search(all_text) and not ((is_python or named) and _CLIENT.search(all_text)):
            return
        env = {"SEMEL_LEDGER_GRPC_PORT": str(self._place.grpc_port)}
        server = RunningServer(self._place.folder / "data", port=port, env=env)
        server.output = self._place.notes / "server.stderr"
        server.start()
        self._server = server

    def _typed(self, text: str) -> str:
        typed = put_in(text, self._known)
        for shape, value in values(text):
            if shape.is_own:
                self._known.setdefault(value, value)
        return self._place.typed(typed)

    def _compare(self, line: int, name: str, shown: str, said: str, *, is_open: bool = False) -> None:
        learnt = compared(shown, said, self._known, is_open=is_open)
        if learnt is None:
            self._fail(line, f"{name}\n  is shown with:\n{_indented(shown)}\n  but this came out:\n{_indented(said)}")
        else:
            self._known = learnt

    def _end(self) -> None:
        """End everything that was started."""
        if self._notebook is not None:
            self._notebook.end()
        if self._shell is not None:
            self._shell.end()
        if self._server is not None:
            self._server.kill()
        shutil.rmtree(self._temporary, ignore_errors=True)


def _indented(text: str) -> str:
    return "\n".join(f"    | {line}" for line in text.rstrip("\n").split("\n"))


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def run(path: Path, folder: Path) -> list[Failure]:
    """Run a page in a folder that is empty; what went wrong."""
    guard()
    text = path.read_text("utf-8")
    name = str(path.resolve().relative_to(ROOT)) if path.resolve().is_relative_to(ROOT) else path.name
    try:
        parts = list(fences(text))
    except PageError as error:
        return [Failure(name, error.line, str(error))]
    found: list[Failure] = []
    scene: list[Fence] = []
    for number, fence in enumerate([*parts, Fence(FRESH, "", 0, 0)]):
        if fence.language != FRESH:
            scene.append(fence)
        elif scene:
            found += Scene(name, scene, text, folder / str(number)).run()
            scene = []
    return found


def main() -> None:
    """Run the pages that are named; the code is 1 if one of them fails."""
    failures: list[Failure] = []
    for name in sys.argv[1:]:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="page-") as folder:
            found = run(Path(name), Path(folder))
        for one in found:
            sys.stdout.write(f"{one}\n")
        sys.stdout.write(f"{name}: {len(found)} failures in {time.monotonic() - began:.1f} s\n")
        failures += found
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
