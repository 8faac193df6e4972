"""`semel audit watch`: follows both files of the audit log, and raises an alert for what happens too often.

It reads files and speaks to no server: stopping it changes nothing there, and a server needs no watcher. A start reads
all that is kept of the log, so what happened while no watcher ran is found as well, and only what is not in
`alerts.jsonl` yet is an alert.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from types import FrameType

import click

from semel.cli.audit.alerts import AlertFile, known_alerts
from semel.cli.audit.bursts import Alert, Bursts
from semel.cli.audit.following import Following
from semel.cli.output import content_out, printable, with_json
from semel.server.audit import FILE_NAME, IMPORTANT_NAME

ABOVE = 20
LOOK_SECONDS = 0.5


@click.command()
@click.option(
    "--data", type=click.Path(path_type=Path), envvar="SEMEL_DATA", default="data", help="Data folder of the server."
)
@click.option(
    "--file", type=click.Path(path_type=Path), help="Audit file to read, instead of the two of the data folder."
)
@click.option(
    "--above",
    type=click.IntRange(min=1),
    default=ABOVE,
    show_default=True,
    help="Alert when a kind happens more often than this a minute.",
)
@click.option("--exempt-loopback", is_flag=True, help="Ignore requests from loopback addresses.")
@click.option("--once", is_flag=True, help="Read the existing lines, and exit.")
@click.option("--dry-run", is_flag=True, help="Print alerts, and write none to alerts.jsonl.")
@with_json
def watch(
    data: Path, file: Path | None, above: int, exempt_loopback: bool, once: bool, dry_run: bool, as_json: bool
) -> None:
    """Raise alerts from the audit log.

    More than --above refused credentials, requests to the wrong port, or keys with another payload within a minute are
    an alert, once a minute while it lasts. Alerts are printed, and written to alerts.jsonl beside the log. Control-C
    ends it; no request is sent to the server.
    """
    # No event has lines in both, so the order within each file is all that the rule needs.
    paths = [data / "logs" / name for name in (IMPORTANT_NAME, FILE_NAME)] if file is None else [file]
    folder = paths[0].parent
    try:
        with _asked_to_stop() as asked, content_out() as out, closing(AlertFile(folder)) as alerts:
            bursts = Bursts(above, is_loopback_exempt=exempt_loopback, known=known_alerts(folder))
            if once:
                asked.set()
            for alert in _alerts(paths, bursts, asked):
                if not dry_run:
                    alerts.write(alert)
                out.write(f"{_shown(alert, as_json)}\n".encode())
                out.flush()
    except OSError as error:
        raise click.ClickException(f"{error.filename or folder}: {error.strerror}.") from error


def _alerts(paths: Sequence[Path], bursts: Bursts, asked: threading.Event) -> Iterator[Alert]:
    """The alerts of existing lines, and then of new ones, until stopped."""
    if not any(path.exists() for path in paths):
        click.echo(f"There is no {paths[-1]} yet; a server makes it with its first line.", err=True)
    files = [Following(path) for path in paths]
    yield from _found(files, bursts)
    while not asked.wait(LOOK_SECONDS):
        yield from _found(files, bursts)


def _found(files: Sequence[Following], bursts: Bursts) -> Iterator[Alert]:
    strange = 0
    for text in chain.from_iterable(one.new_lines() for one in files):
        try:
            alert = bursts.take(json.loads(text))
        except (ValueError, RecursionError):
            strange += 1
            continue
        if alert is not None:
            yield alert
    if strange:
        click.echo(f"{strange} lines cannot be read, and were left out.", err=True)


@contextmanager
def _asked_to_stop() -> Iterator[threading.Event]:
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _shown(alert: Alert, as_json: bool) -> str:
    if as_json:
        return json.dumps(alert.facts)
    facts = alert.facts
    where = "" if alert.remote_addr is None else f", the last from {printable(alert.remote_addr)}"
    return f"{facts['ts']}  {alert.event}  {alert.count} in a minute{where}"
