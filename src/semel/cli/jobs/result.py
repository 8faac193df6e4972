"""`semel jobs result`: print the result of a job, after its hash has been checked."""

from __future__ import annotations

import json
from hashlib import sha256

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.failures import not_semel
from semel.cli.jobs.asking import SURFACE, Facts, Server, job_path, with_retries
from semel.cli.jobs.ending import COMPLETED, FAILED
from semel.cli.jobs.finding import Wanted, with_wanted
from semel.cli.output import with_json
from semel.kernel.job_report import parsed_bytes, report_bytes

_CODES = f"Exit code {COMPLETED}: completed, {FAILED}: failed."


@click.command(epilog=_CODES)
@with_wanted
@with_retries
@with_json
@with_connection
def result(connection: Connection, wanted: Wanted, retries: int, as_json: bool) -> None:
    """Print the result of a job as JSON, or the error of a failed one. JOB is its id or its request id.

    With --json the whole answer of the server is printed. A result that does not match its SHA-256 is not printed.
    """
    server = Server(connection, retries)
    found = server.get(job_path(wanted.find(server), "result"))
    ok = found["ok"] is True
    if "result" not in found and "error" not in found:
        raise not_semel(connection.address, SURFACE)
    value = found["result"] if ok else found["error"]
    _check(found, ok, value)
    click.echo(json.dumps(found if as_json else value, ensure_ascii=False))
    click.get_current_context().exit(COMPLETED if ok else FAILED)


def _check(found: Facts, ok: bool, value: object) -> None:
    integrity = found.get("integrity")
    told = integrity.get("sha256") if isinstance(integrity, dict) else None
    digest = sha256(report_bytes(str(found.get("job_id")), ok, parsed_bytes(value))).hexdigest()
    if told != digest:
        raise click.ClickException(f"The result of {found.get('job_id')} does not match its SHA-256: it was changed.")
