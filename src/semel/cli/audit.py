"""`semel audit`: alerts for bursts of events in the audit log. Nothing is sent to a server."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import click

from semel.cli.command import AT_LEAST_1, Json, Opt, command, group
from semel.cli.output import content_out, printable
from semel.cli.store_options import StoreOptions
from semel.server.ops.audit_alerts import Alert, AlertFile, Bursts, alerts_of, known_alerts
from semel.server.ops.audit_log import NAMES
from semel.server.settings import ServerSettings
from semel.store.open import place_of
from semel.store.protocol import StoreError

audit = group("audit", "The audit log of a server.")

ABOVE = 20
LOOK_SECONDS = 0.5


@command(audit, errors=(StoreError,))
def watch(
    store: StoreOptions,
    file: Annotated[Path | None, Opt("Audit file to read, instead of the two of the server.")] = None,
    above: Annotated[
        int, Opt("Alert if a kind of event occurs more often than this per minute.", type=AT_LEAST_1, show_default=True)
    ] = ABOVE,
    exempt_loopback: Annotated[bool, Opt("Ignore requests from loopback addresses.")] = False,
    once: Annotated[bool, Opt("Read the existing lines, and exit.")] = False,
    dry_run: Annotated[bool, Opt("Print alerts, and write none to alerts.jsonl.")] = False,
    as_json: Json = False,
) -> None:
    """Raise alerts from the audit log.

    It alerts at most once a minute if more than --above refused credentials, requests to the wrong port, or keys with
    another payload occur within a minute. Alerts are printed and appended to alerts.jsonl next to the log. Control-C
    ends it; no request is sent to the server.
    """
    # No event has lines in both files, so only the order within each file matters.
    paths = [file] if file is not None else _files_of(store.settings())
    folder = paths[0].parent
    try:
        with _asked_to_stop() as asked, content_out() as out, closing(AlertFile(folder)) as alerts:
            bursts = Bursts(above, is_loopback_exempt=exempt_loopback, known=known_alerts(folder))
            if once:
                asked.set()
            if not any(path.exists() for path in paths):
                click.echo(f"There is no {paths[-1]} yet: a server creates it with its first line.", err=True)
            for alert in alerts_of(paths, bursts, lambda: asked.wait(LOOK_SECONDS), _tell_strange):
                if not dry_run:
                    alerts.write(alert)
                out.write(f"{_shown(alert, as_json)}\n".encode())
                out.flush()
    except OSError as error:
        raise click.ClickException(f"{error.filename or folder}: {error.strerror}.") from error


def _files_of(settings: ServerSettings) -> list[Path]:
    """The files of the server of a store. Raises `StoreError` for a malformed URL, beside which nothing would come."""
    place_of(settings.store_url)
    return [settings.logs / name for name in NAMES]


def _tell_strange(count: int) -> None:
    click.echo(f"{count} lines cannot be read and were skipped.", err=True)


@contextmanager
def _asked_to_stop() -> Iterator[threading.Event]:
    asked = threading.Event()
    before = {number: signal.signal(number, lambda *_: asked.set()) for number in (signal.SIGINT, signal.SIGTERM)}
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
