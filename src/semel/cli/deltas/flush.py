"""`semel deltas flush`: returns when all earlier writes are on disk."""

from __future__ import annotations

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.deltas.asking import Server, admin_path
from semel.cli.deltas.names import GatewayType
from semel.cli.jobs.asking import with_retries
from semel.cli.output import printable, say, with_json


@click.command()
@click.argument("gateway", type=GatewayType())
@with_retries
@with_json
@with_connection
def flush(connection: Connection, gateway: str, retries: int, as_json: bool) -> None:
    """Wait until all writes of a gateway are on disk; acknowledged ones always are. Nothing is removed."""
    Server(connection, retries).post(admin_path("flush", gateway), b"{}", "flushed")
    say(as_json, {"gateway": gateway, "flushed": True}, printable(f"Everything of {gateway} is on disk."))
