"""`semel deltas stats`: counts of a gateway."""

from __future__ import annotations

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.deltas.asking import Server, admin_path
from semel.cli.deltas.names import GatewayType
from semel.cli.jobs.asking import with_retries
from semel.cli.output import say, with_json

_WORDS = {
    "deltaCount": "deltas pushed",
    "logSize": "entries delivered",
    "indexSize": "rows, those that are gone too",
    "byteSize": "bytes pushed",
}


@click.command()
@click.argument("gateway", type=GatewayType())
@with_retries
@with_json
@with_connection
def stats(connection: Connection, gateway: str, retries: int, as_json: bool) -> None:
    """Show the numbers of rows, deltas and clients of a gateway. Needs the admin role."""
    server = Server(connection, retries)
    facts = server.get(admin_path("metrics", gateway))
    numbers = {name: facts.get(name) for name in _WORDS}
    if not all(isinstance(number, int) for number in numbers.values()):
        raise server.stranger()
    lines = [f"{number:>15,} {_WORDS[name]}" for name, number in numbers.items()]
    say(as_json, {"gateway": gateway, **facts}, "\n".join(lines))
