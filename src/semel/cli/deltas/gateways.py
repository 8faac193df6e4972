"""`semel deltas gateways`: list the gateways."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.deltas.asking import Server
from semel.cli.jobs.asking import with_retries
from semel.cli.output import printable, with_json

PATH = "/v1/admin/gateways"
PAGE = 1_000


@click.command()
@with_retries
@with_json
@with_connection
def gateways(connection: Connection, retries: int, as_json: bool) -> None:
    """List the gateways. Needs the admin role."""
    is_empty = True
    for name in _all(Server(connection, retries)):
        click.echo(json.dumps({"gateway": name}) if as_json else printable(name))
        is_empty = False
    if is_empty and not as_json:
        click.echo("There are no gateways.", err=True)


def _all(server: Server) -> Iterator[str]:
    after: str | None = None
    while True:
        page = server.get(PATH, {"limit": PAGE} | ({} if after is None else {"after": after}))
        names, has_more = page.get("gateways"), page.get("hasMore")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise server.stranger()
        yield from names
        if has_more is not True:
            return
        if not names or names[-1] == after:
            raise server.stranger()
        after = names[-1]
