"""`semel deltas clients`: list and forget the clients of a gateway."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.deltas.asking import Facts, Server, admin_path
from semel.cli.deltas.names import GatewayType
from semel.cli.jobs.asking import with_retries
from semel.cli.output import printable, say, with_json

PAGE = 1_000
REMOVED_AT_ONCE = 100


@click.group()
def clients() -> None:
    """Clients that have pushed to a gateway: list and forget them."""


@clients.command("ls")
@click.argument("gateway", type=GatewayType())
@with_retries
@with_json
@with_connection
def list_clients(connection: Connection, gateway: str, retries: int, as_json: bool) -> None:
    """List the clients of a gateway, with the hour of the last call of each. Needs the admin role."""
    is_empty = True
    for client in _all(Server(connection, retries), gateway):
        is_empty = False
        if as_json:
            click.echo(json.dumps(client))
            continue
        name = client.get("clientId")
        shown = f"(long id, key {client.get('key')})" if name is None else str(name)
        click.echo(printable(f"{_when(client.get('lastSeenMs'))}  {shown}"))
    if is_empty and not as_json:
        click.echo("There are no clients that have pushed.", err=True)


@clients.command("rm")
@click.argument("gateway", type=GatewayType())
@click.argument("names", metavar="CLIENT...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Print which clients would be forgotten, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_retries
@with_json
@with_connection
def remove_clients(
    connection: Connection, gateway: str, names: tuple[str, ...], dry_run: bool, yes: bool, retries: int, as_json: bool
) -> None:
    """Forget clients of a gateway. Their writes stay; a client that comes back gets again what it may have missed."""
    if not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("Say --yes to forget clients if standard input is not a terminal.")
    about = printable(f"{len(names)} client{'' if len(names) == 1 else 's'} of {gateway}: {', '.join(names)}")
    if dry_run:
        say(as_json, {"gateway": gateway, "clients": list(names), "dry_run": True}, f"Would forget {about}.")
        return
    if not yes:
        click.confirm(f"Forget {about}?", abort=True, err=True)
    server, count = Server(connection, retries), 0
    for place in range(0, len(names), REMOVED_AT_ONCE):
        body = json.dumps({"clients": names[place : place + REMOVED_AT_ONCE]}).encode()
        forgotten = server.send(admin_path("forget-clients", gateway), body).get("forgotten")
        if not isinstance(forgotten, int):
            raise server.stranger()
        count += forgotten
    facts = {"gateway": gateway, "clients": list(names), "forgotten": count, "dry_run": False}
    say(as_json, facts, f"Forgot {count} of {about}.")


def _all(server: Server, gateway: str) -> Iterator[Facts]:
    after: str | None = None
    while True:
        query: dict[str, object] = {"limit": PAGE} | ({} if after is None else {"after": after})
        page = server.get(admin_path("clients", gateway), query)
        found = page.get("clients")
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise server.stranger()
        yield from found
        if page.get("hasMore") is not True:
            return
        following = page.get("next")
        if not isinstance(following, str) or following == after:
            raise server.stranger()
        after = following


def _when(ms: object) -> str:
    if not isinstance(ms, int):
        return "not noted        "
    return datetime.fromtimestamp(ms / 1_000, UTC).strftime("%Y-%m-%d %H:00 UTC")
