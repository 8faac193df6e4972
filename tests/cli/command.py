"""The `semel` command as a user runs it: in a process of its own, with pipes or with a terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import click
from click.testing import CliRunner

from semel.cli.main import main

SECONDS = 60


class Finished(NamedTuple):
    """What a run left behind."""

    code: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        """Standard output as text."""
        return self.raw.decode()

    @property
    def facts(self) -> dict[str, Any]:
        """The one JSON object that was printed."""
        assert self.code == 0, self.err
        assert self.raw.endswith(b"\n")
        facts = json.loads(self.raw)
        assert isinstance(facts, dict)
        return facts


class Semel:
    """Runs the command against one server."""

    def __init__(self, url: str, env: Mapping[str, str] | None = None) -> None:
        # Variables of the developer's own shell must not reach the command under test.
        own = {name: value for name, value in os.environ.items() if not name.startswith(("SEMEL_", "NO_COLOR"))}
        self.env = {**own, "SEMEL_URL": url, **(env or {})}

    def __call__(self, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Finished:
        """Run to the end, with pipes."""
        run = subprocess.run(
            [sys.executable, "-m", "semel", *args],
            input=stdin,
            env={**self.env, **(env or {})},
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        return Finished(run.returncode, run.stdout, run.stderr.decode())

    def here(self, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Finished:
        """Run to the end inside this process: quicker, for what a process of its own adds nothing to."""
        ours = {name: None for name in os.environ if name.startswith("SEMEL_")}
        run = CliRunner(env={**ours, **self.env, **(env or {})}).invoke(main, args, input=stdin)
        if run.exception is not None and not isinstance(run.exception, SystemExit):
            raise run.exception
        return Finished(run.exit_code, run.stdout_bytes, run.stderr)

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        """Leave it running, with pipes."""
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", "semel", *args]
        # Without buffers of ours: `communicate` reads past them, and lines that wait in them would be lost.
        return subprocess.Popen(command, env=self.env, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)

    def on_terminal(self, *args: str, typed: bytes = b"", env: Mapping[str, str] | None = None) -> Finished:
        """Run to the end at a terminal, which shows both outputs."""
        ours, theirs = pty.openpty()
        try:
            command = [sys.executable, "-m", "semel", *args]
            both = {**self.env, **(env or {})}
            with subprocess.Popen(command, env=both, stdin=theirs, stdout=theirs, stderr=theirs) as run:
                os.close(theirs)
                os.write(ours, typed)
                shown = _read_all(ours)
                return Finished(run.wait(SECONDS), shown, "")
        finally:
            os.close(ours)


def _read_all(terminal: int) -> bytes:
    shown = b""
    with suppress(OSError):  # how Linux says that the other side is closed
        while piece := os.read(terminal, 65_536):
            shown += piece
    return shown


def commands(one: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command of `semel`, with its words."""
    if not isinstance(one, click.Group):
        yield path, one
        return
    context = click.Context(one)
    for name in one.list_commands(context):
        below = one.get_command(context, name)
        assert below is not None
        yield from commands(below, (*path, name))
