"""Starts servers without loading them anew: a process that has imported `semel serve` forks for each one.

Most of a server's start is imports, 0.7 s of CPU, and the tests start servers by the hundred. What the fork runs is the
command itself with the arguments, environment and output it would have had. It is a child of the process that forks,
which tells its end. A server whose environment would change how Python itself starts is not for this.

At its end a fork waits for its threads and runs what is registered for the exit, but does not take its modules apart.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tests.harness.guardian import guard
from tests.harness.serve_with_faults import has_fault
from tests.harness.serve_with_faults import main as run_with_fault

ROOT = Path(__file__).parents[2]
MAX_MESSAGE = 131_072
"""Less than what a socket of this kind takes at once."""
ENABLED = "TEST_WARM_START"
START_SECONDS = 90.0
READ_AT_START = ("PYTHON", "LD_", "MALLOC_", "TZ", "LC_", "LANG", "GRPC_", "TMP")
"""Beginnings of variables that a process reads before or while it imports."""


class Process(Protocol):
    """What tests need of a process; `subprocess.Popen` has it."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int) -> None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


class WarmProcess:
    """A forked server, as far as a `subprocess.Popen` is used for one."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = threading.Event()

    def end(self, code: int) -> None:
        """It has ended, with this code; minus a signal's number for one that was killed."""
        self.returncode = code
        self._ended.set()

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, when it has ended."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired("semel serve", timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """A signal, unless it has ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, sig)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


class Nursery:
    """The process that forks, seen from the tests."""

    def __init__(self) -> None:
        guard()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "tests.harness.warm_start", str(theirs.fileno())]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        theirs.close()
        self._lock = threading.Lock()
        self._started = threading.Condition(self._lock)
        self._numbers = itertools.count()
        self._answers: dict[int, int] = {}
        """The process of each start, by its number: threads start servers side by side."""
        self._servers: dict[int, WarmProcess] = {}
        self._begun: dict[int, WarmProcess] = {}
        """Those that their test does not have yet; such a one may have ended already."""
        threading.Thread(target=self._listen, name="warm start", daemon=True).start()

    def start(self, arguments: Sequence[str], env: Mapping[str, str], output: int) -> WarmProcess:
        """Fork a server; its output goes to this file."""
        number = next(self._numbers)
        wanted = {"number": number, "arguments": list(arguments), "env": dict(env), "cwd": str(Path.cwd())}
        message = json.dumps(wanted).encode()
        assert len(message) < MAX_MESSAGE, "an environment of that size needs a start of its own"
        with self._started:
            socket.send_fds(self._socket, [message], [output])
            deadline = time.monotonic() + START_SECONDS
            while number not in self._answers and time.monotonic() < deadline and self._process.poll() is None:
                self._started.wait(1.0)
            assert number in self._answers, "the process that forks servers does not answer"
            return self._begun.pop(self._answers.pop(number))

    def _listen(self) -> None:
        while data := self._socket.recv(MAX_MESSAGE):
            told = json.loads(data)
            with self._started:
                pid = told["pid"]
                if "code" in told:
                    self._servers.pop(pid).end(told["code"])
                else:
                    self._servers[pid] = self._begun[pid] = WarmProcess(pid)
                    self._answers[told["number"]] = pid
                    self._started.notify_all()


@functools.cache
def nursery() -> Nursery:
    """The one of this process."""
    return Nursery()


def enable() -> None:
    """Have servers forked from now on: in tests, and not where a start or a whole process is measured."""
    os.environ[ENABLED] = "1"


def can_be_warm(env: Mapping[str, str]) -> bool:
    """Whether a server with this environment may be forked."""
    changed = {name for name in {*env, *os.environ} if env.get(name) != os.environ.get(name)}
    is_usual = not any(name.startswith(READ_AT_START) for name in changed)
    return is_usual and sys.platform == "linux" and ENABLED in os.environ


def _forks(tests: socket.socket) -> dict[str, Any] | None:
    """Fork for each message until the tests are gone; in a fork, what it is to run."""
    woken, wakes = socket.socketpair()
    for end in (woken, wakes):
        end.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([tests, woken], [], [])
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                woken.recv(4_096)
            _tell_ends(tests)
        if tests not in ready:
            continue
        data, files, _, _ = socket.recv_fds(tests, MAX_MESSAGE, 1)
        if not data:
            return None
        told: dict[str, Any] = json.loads(data)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for end in (tests, woken, wakes):
                end.close()
            return told | {"output": files[0]}
        os.close(files[0])
        tests.send(json.dumps({"pid": pid, "number": told["number"]}).encode())


def _tell_ends(tests: socket.socket) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            tests.send(json.dumps({"pid": pid, "code": os.waitstatus_to_exitcode(status)}).encode())


def _run(told: Mapping[str, Any]) -> None:
    """Be the server."""
    os.dup2(told["output"], 1)
    os.dup2(told["output"], 2)
    os.close(told["output"])
    os.chdir(told["cwd"])
    os.environ.clear()
    os.environ.update(told["env"])
    sys.argv[:] = [str(ROOT / "src/semel/__main__.py"), *told["arguments"]]
    try:
        if has_fault(os.environ):
            run_with_fault()
        else:
            from semel.cli import run  # noqa: PLC0415

            run()
    except SystemExit as ended:
        if isinstance(ended.code, str):
            raise
        _end(ended.code or 0)
    _end(0)


def _end(code: int) -> None:
    """End as Python does, but for taking every module apart: that would copy all memory the fork shares."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """Import the server, then fork."""
    import semel.cli.serve  # noqa: F401, PLC0415 - so that no fork has to

    gc.collect()
    gc.freeze()
    told = _forks(socket.socket(fileno=int(sys.argv[1])))
    if told is not None:
        _run(told)


if __name__ == "__main__":
    main()
