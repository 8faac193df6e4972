"""`semel top`: the overview of a running server in a terminal, drawn again every second.

It asks `GET /v1/live`, which reads no store. A server that restarts is waited for: its counts begin again.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import click

from semel.cli.command import Json, Opt, command
from semel.cli.output import printable
from semel.cli.session import sentence
from semel.cli.top_screen import LiveRates, LiveSample, screen
from semel.client import Client
from semel.client.errors import NoAnswerError

KEPT = 240
"""Samples that are kept for the history."""
_BEGIN, _END = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""To the alternate screen without a cursor, and back."""
_HOME, _REST = "\x1b[H", "\x1b[J"

Interval = Annotated[
    float, Opt("Seconds between two looks.", metavar="SECONDS", type=click.FloatRange(0.2, 60), show_default=True)
]


@command()
def top(
    client: Client,
    interval: Interval = 1.0,
    count: Annotated[
        int | None, Opt("Look this many times, then end.", metavar="NUMBER", type=click.IntRange(min=1))
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what the server does, every second.

    Writes a second by surface and verdict, doubles prevented, commit times, the queue, connections. q or Control-C
    ends. Without a terminal it prints plain text, once, or --count times.
    """
    is_screen = sys.stdout.isatty() and not as_json
    looks = count if count is not None or is_screen else 1
    with _full_screen() if is_screen else _plain() as asked_to_end:
        _watch(client, interval, looks, _Display(client.access.url, is_screen, as_json), asked_to_end)


class _Display:
    """Where samples go: a screen, lines of text, or lines of JSON."""

    def __init__(self, url: str, is_screen: bool, as_json: bool) -> None:
        self._url = url
        self._is_screen = is_screen
        self._as_json = as_json
        self._samples: deque[LiveSample] = deque(maxlen=KEPT)

    def show(self, sample: LiveSample) -> None:
        """Show one sample; the rates are those since the one before it."""
        self._samples.append(sample)
        if self._as_json:
            click.echo(json.dumps(self._facts()))
        else:
            self._draw(screen(self._samples, self._url, self._width()))

    def outage(self, error: NoAnswerError) -> None:
        """Show that no server answers. Without a screen that is the end of the command."""
        if not self._is_screen:
            raise error
        self._draw([f"{sentence(error)} Trying again.", "", "q ends."])

    def _draw(self, lines: list[str]) -> None:
        if self._is_screen:
            rows = shutil.get_terminal_size().lines - 1
            body = "".join(f"{printable(line)}\x1b[K\n" for line in lines[:rows])
            click.echo(f"{_HOME}{body}{_REST}", nl=False)
        else:
            click.echo("\n".join(map(printable, lines)))

    def _width(self) -> int:
        return shutil.get_terminal_size().columns if self._is_screen else 120

    def _facts(self) -> dict[str, object]:
        now = self._samples[-1]
        facts: dict[str, object] = {
            "now_ms": now.now_ms,
            "version": now.version,
            "ready": now.is_ready,
            "writes": now.writes,
            "doubles_prevented": now.doubles,
            "queue_writes": now.queue_writes,
            "oldest_seconds": now.oldest_seconds,
            "connections": now.connections,
            "live_readers": now.readers,
        }
        if len(self._samples) > 1 and now.follows(self._samples[-2]):
            facts["rates"] = LiveRates.between(self._samples[-2], now).facts
        return facts


def _watch(
    client: Client, interval: float, looks: int | None, display: _Display, asked_to_end: Callable[[float], bool]
) -> None:
    done = 0
    while True:
        started = time.monotonic()
        try:
            display.show(_sample(client))
        except NoAnswerError as error:
            display.outage(error)
        done += 1
        if looks is not None and done >= looks:
            return
        if asked_to_end(max(interval - (time.monotonic() - started), 0.0)):
            return


def _sample(client: Client) -> LiveSample:
    facts = client.server.live()
    try:
        return LiveSample.of(facts)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise click.ClickException(f"The server at {client.access.url} is of another version: use its own.") from error


@contextmanager
def _plain() -> Iterator[Callable[[float], bool]]:
    def wait(seconds: float) -> bool:
        time.sleep(seconds)
        return False

    yield wait


@contextmanager
def _full_screen() -> Iterator[Callable[[float], bool]]:
    """The alternate screen of the terminal, which is left as it was, also after an error or Control-C."""
    click.echo(_BEGIN, nl=False)
    try:
        with _keys() as pressed:
            yield pressed
    except KeyboardInterrupt:
        pass
    finally:
        click.echo(_END, nl=False)


@contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Called with a time in seconds, waits that long, and says whether `q` was pressed meanwhile."""
    try:
        import termios  # noqa: PLC0415 - not on Windows, where Control-C ends the command
        import tty  # noqa: PLC0415
    except ImportError:
        with _plain() as wait:
            yield wait
        return
    if not sys.stdin.isatty():
        with _plain() as wait:
            yield wait
        return
    stream = sys.stdin.fileno()
    before = termios.tcgetattr(stream)
    tty.setcbreak(stream)
    try:
        yield lambda seconds: bool(select.select([stream], [], [], seconds)[0]) and b"q" in os.read(stream, 64)
    finally:
        termios.tcsetattr(stream, termios.TCSADRAIN, before)
