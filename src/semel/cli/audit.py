"""`semel audit`: alerts for bursts of events in the audit log, and its verification. Nothing is sent to a server."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import click

from semel.cli.command import AT_LEAST_1, Json, Opt, command, group
from semel.cli.output import content_out, printable
from semel.cli.store_options import StoreOptions
from semel.server.offline_audit import AuditReport, verify_audit
from semel.server.ops.audit_alerts import Alert, AlertFile, Bursts, alerts_of, known_alerts
from semel.server.ops.audit_log import FILE_NAME, IMPORTANT_NAME
from semel.server.ops.audit_verify import ChainReport
from semel.store.protocol import StoreError

audit = group("audit", "The audit log of a server.")

ABOVE = 20
LOOK_SECONDS = 0.5
CLEAN, FAULTY, NOT_CHECKED = 0, 1, 2


@command(audit)
def watch(
    data: Annotated[Path, Opt("Data folder of the server.", envvar="SEMEL_DATA")] = Path("data"),
    file: Annotated[Path | None, Opt("Audit file to read, instead of the two of the data folder.")] = None,
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
    paths = [data / "logs" / name for name in (IMPORTANT_NAME, FILE_NAME)] if file is None else [file]
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


@command(audit)
def verify(
    store: StoreOptions,
    archive: Annotated[
        tuple[Path, ...], Opt("Older audit file that was moved elsewhere; the oldest first.", metavar="FILE")
    ] = (),
    as_json: Json = False,
) -> None:
    """Verify that no line of the audit log was removed, changed, moved or cut off.

    Follows the hashes in both files and their rotated files, up to the line that the store remembers. A server may be
    running; nothing is changed. The exit code is 0 for a whole log, 1 if a line is bad, and 2 if it cannot be verified.
    """
    try:
        report = verify_audit(store.settings(), archive)
    except (StoreError, OSError) as error:
        said = f"{error.filename}: {error.strerror}." if isinstance(error, OSError) else str(error)
        click.echo(f"Error: The audit log cannot be verified. {said}", err=True)
        sys.exit(NOT_CHECKED)
    if as_json:
        click.echo(json.dumps(_facts(report)))
    else:
        for text in (*report.notes, *(text for chain in report.chains for text in _sentences(chain))):
            click.echo(printable(text))
    sys.exit(CLEAN if report.is_clean else FAULTY)


def _sentences(chain: ChainReport) -> Iterator[str]:
    yield from (f"{chain.name}: {note}" for note in chain.notes)
    found = chain.finding
    if found is not None:
        place = f"line {found.line} of {found.file}" if found.line else f"{found.file}"
        yield f"{chain.name}: BAD from number {found.seq}: {place} {found.what}."
    elif not chain.lines:
        yield f"{chain.name}: no lines yet."
    else:
        yield f"{chain.name}: whole, {chain.lines:,} lines from {chain.first} to {chain.last}."


def _facts(report: AuditReport) -> dict[str, object]:
    chains = [
        {**chain._asdict(), "finding": None if chain.finding is None else chain.finding._asdict()}
        for chain in report.chains
    ]
    return {"clean": report.is_clean, "notes": list(report.notes), "chains": chains}
