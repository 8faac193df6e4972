"""`semel deltas rules`: set the sync rules of a gateway."""

from __future__ import annotations

from typing import BinaryIO

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.deltas.asking import Server, admin_path
from semel.cli.deltas.names import GatewayType
from semel.cli.jobs.asking import with_retries
from semel.cli.output import printable, say, with_json
from semel.cli.streams.source import read_whole


@click.command()
@click.argument("gateway", type=GatewayType())
@click.argument("file", type=click.File("rb"))
@with_retries
@with_json
@with_connection
def rules(connection: Connection, gateway: str, file: BinaryIO, retries: int, as_json: bool) -> None:
    """Set the sync rules of a gateway from a FILE of JSON; - is standard input.

    They replace the existing rules. Clients that should see more from now on must pull from 0 again. Needs the admin
    role.
    """
    Server(connection, retries).post(admin_path("sync-rules", gateway), read_whole(file), "saved")
    say(as_json, {"gateway": gateway, "saved": True}, printable(f"The rules of {gateway} are saved."))
