"""The blocks of Python of a page, run one after the other in one process and one namespace, as a notebook runs them.

The page's process is this file itself, run as a script. It imports nothing of the project, so that a page stands alone.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import select
import signal
import subprocess
import sys
import traceback
import types
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

SECONDS = 60.0
_CUT = 65_536


class Printed(NamedTuple):
    """What a block left."""

    text: str
    """Its standard output, and the traceback if it raised."""
    error: str = ""
    """The end of its standard error, if it raised or ended the process."""


class Notebook:
    """The process of a page; its first block starts it."""

    def __init__(self, folder: Path, env: Mapping[str, str], notes: Path) -> None:
        self._out, self._err = notes / "notebook.out", notes / "notebook.err"
        here, there = os.pipe(), os.pipe()
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-u", __file__, str(here[0]), str(there[1])],
                cwd=folder,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                pass_fds=(here[0], there[1]),
                start_new_session=True,
            )
        os.close(here[0])
        os.close(there[1])
        self._blocks, self._ends = here[1], there[0]

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def run(self, code: str, name: str, line: int) -> Printed:
        """Run a block; its lines are those of the page behind this one."""
        before = self._out.stat().st_size, self._err.stat().st_size
        message = json.dumps({"code": code, "name": name, "line": line}) + "\n"
        with suppress(BrokenPipeError):
            os.write(self._blocks, message.encode())
        ready, _, _ = select.select([self._ends], [], [], SECONDS)
        raised = os.read(self._ends, _CUT).decode() if ready else f"still running after {SECONDS:.0f} s"
        if not ready:
            os.killpg(self.pid, signal.SIGKILL)
        elif not raised:
            raised = f"the program ended with {self._process.wait(SECONDS)}"
        printed = self._out.read_bytes()[before[0] :].decode(errors="replace")
        if raised == "done\n":
            return Printed(printed)
        said = self._err.read_bytes()[before[1] :].decode(errors="replace")
        return Printed(printed + said, said or raised)

    def end(self) -> None:
        """End the process and what it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(SECONDS)
        os.close(self._blocks)
        os.close(self._ends)


def _serve(blocks: int, ends: int) -> None:
    """Run each block that comes, until none does."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.path[0] = ""
    with asyncio.Runner() as runner, os.fdopen(blocks) as messages:
        for message in messages:
            told = json.loads(message)
            end = "done\n" if _run(told, vars(module), runner) else "raised\n"
            sys.stdout.flush()
            sys.stderr.flush()
            os.write(ends, end.encode())


def _run(told: Mapping[str, str | int], namespace: dict[str, object], runner: asyncio.Runner) -> bool:
    """Run one block; whether it ended well."""
    try:
        text = "\n" * int(told["line"]) + str(told["code"])
        code = compile(text, str(told["name"]), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            runner.run(eval(code, namespace))
        else:
            exec(code, namespace)
    except SystemExit as ended:
        if ended.code in (None, 0):
            return True
        traceback.print_exc()
        return False
    except BaseException as error:  # noqa: BLE001 - all that a program may raise
        behind = error.__traceback__.tb_next if error.__traceback__ else None
        while behind is not None and behind.tb_frame.f_code.co_filename != told["name"]:
            behind = behind.tb_next
        traceback.print_exception(type(error), error, behind)
        return False
    return True


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]))
