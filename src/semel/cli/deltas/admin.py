"""`semel deltas clients`, `flush`, `gateways`, `rules`, `schema`, `stats`; and the requests of all deltas commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote, urlencode

import click

from semel.cli.connection import CliAnswer, CliConnection, not_semel
from semel.cli.deltas.arguments import GatewayType, TableType
from semel.cli.help import HelpGroup
from semel.cli.output import printable, say, with_json
from semel.cli.requests import RETRIES, send_until_answered, with_connection, with_retries
from semel.cli.source import read_whole

SURFACE = "deltas"

Facts = dict[str, Any]


class CliDeltaServer(NamedTuple):
    """The connection and the number of retries. All these requests are idempotent."""

    connection: CliConnection
    retries: int = RETRIES

    def ask(self, path: str, query: Mapping[str, object] | None = None) -> bytes:
        """The answer to a GET, unparsed."""
        asked = f"{path}?{urlencode(query, errors='surrogateescape')}" if query else path
        return send_until_answered(lambda: self.connection.request("GET", asked), self.retries).body

    def get(self, path: str, query: Mapping[str, object] | None = None) -> Facts:
        """The answer to a GET as an object."""
        return self._facts(self.ask(path, query))

    def post(self, path: str, body: bytes, member: str) -> Facts:
        """The answer to a POST that stores something. Raises an error unless its member confirms it."""
        facts = self.send(path, body)
        if facts.get(member) is not True:
            raise self.stranger()
        return facts

    def send(self, path: str, body: bytes) -> Facts:
        """The answer to a POST."""

        def send() -> CliAnswer:
            return self.connection.request("POST", path, {"Content-Type": b"application/json"}, body)

        return self._facts(send_until_answered(send, self.retries).body)

    def stranger(self) -> Exception:
        """The error for an answer that is not from a gateway."""
        return not_semel(self.connection.address, SURFACE)

    def _facts(self, body: bytes) -> Facts:
        try:
            facts = json.loads(body)
        except ValueError as error:
            raise self.stranger() from error
        if not isinstance(facts, dict):
            raise self.stranger()
        return facts


def sync_path(gateway: str, call: str) -> str:
    """The path of a client call."""
    return f"/v1/sync/{quote(gateway, safe='')}/{call}"


def admin_path(call: str, gateway: str) -> str:
    """The path of an administrator call."""
    return f"/v1/admin/{call}/{quote(gateway, safe='')}"


CLIENTS_PAGE = 1_000
REMOVED_AT_ONCE = 100


@click.group(cls=HelpGroup)
def clients() -> None:
    """Clients that have pushed to a gateway: list and forget them."""


@clients.command("ls")
@click.argument("gateway", type=GatewayType())
@with_retries
@with_json
@with_connection
def list_clients(connection: CliConnection, gateway: str, retries: int, as_json: bool) -> None:
    """List the clients of a gateway with the hour of their last call. Needs the admin role."""
    is_empty = True
    for client in _all_clients(CliDeltaServer(connection, retries), gateway):
        is_empty = False
        if as_json:
            click.echo(json.dumps(client))
            continue
        name = client.get("clientId")
        shown = f"(long id, key {client.get('key')})" if name is None else str(name)
        click.echo(printable(f"{_when(client.get('lastSeenMs'))}  {shown}"))
    if is_empty and not as_json:
        click.echo("No client has pushed yet.", err=True)


@clients.command("rm")
@click.argument("gateway", type=GatewayType())
@click.argument("names", metavar="CLIENT...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Print which clients would be forgotten, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_retries
@with_json
@with_connection
def remove_clients(
    connection: CliConnection,
    gateway: str,
    names: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    retries: int,
    as_json: bool,
) -> None:
    """Forget clients of a gateway. Their writes stay; a client that returns receives everything it may have missed."""
    if not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("Standard input is not a terminal: give --yes to forget clients.")
    about = printable(f"{len(names)} client{'' if len(names) == 1 else 's'} of {gateway}: {', '.join(names)}")
    if dry_run:
        say(as_json, {"gateway": gateway, "clients": list(names), "dry_run": True}, f"Would forget {about}.")
        return
    if not yes:
        click.confirm(f"Forget {about}?", abort=True, err=True)
    server, count = CliDeltaServer(connection, retries), 0
    for place in range(0, len(names), REMOVED_AT_ONCE):
        body = json.dumps({"clients": names[place : place + REMOVED_AT_ONCE]}).encode()
        forgotten = server.send(admin_path("forget-clients", gateway), body).get("forgotten")
        if not isinstance(forgotten, int):
            raise server.stranger()
        count += forgotten
    facts = {"gateway": gateway, "clients": list(names), "forgotten": count, "dry_run": False}
    say(as_json, facts, f"Forgot {count} of {about}.")


def _all_clients(server: CliDeltaServer, gateway: str) -> Iterator[Facts]:
    after: str | None = None
    while True:
        query: dict[str, object] = {"limit": CLIENTS_PAGE} | ({} if after is None else {"after": after})
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
        return "unknown          "
    return datetime.fromtimestamp(ms / 1_000, UTC).strftime("%Y-%m-%d %H:00 UTC")


@click.command()
@click.argument("gateway", type=GatewayType())
@with_retries
@with_json
@with_connection
def flush(connection: CliConnection, gateway: str, retries: int, as_json: bool) -> None:
    """Wait until all writes of a gateway are on disk; acknowledged ones always are. Nothing is deleted."""
    CliDeltaServer(connection, retries).post(admin_path("flush", gateway), b"{}", "flushed")
    say(as_json, {"gateway": gateway, "flushed": True}, printable(f"All writes of {gateway} are on disk."))


GATEWAYS_PATH = "/v1/admin/gateways"
GATEWAYS_PAGE = 1_000


@click.command()
@with_retries
@with_json
@with_connection
def gateways(connection: CliConnection, retries: int, as_json: bool) -> None:
    """List the gateways. Needs the admin role."""
    is_empty = True
    for name in _all_gateways(CliDeltaServer(connection, retries)):
        click.echo(json.dumps({"gateway": name}) if as_json else printable(name))
        is_empty = False
    if is_empty and not as_json:
        click.echo("There are no gateways.", err=True)


def _all_gateways(server: CliDeltaServer) -> Iterator[str]:
    after: str | None = None
    while True:
        page = server.get(GATEWAYS_PATH, {"limit": GATEWAYS_PAGE} | ({} if after is None else {"after": after}))
        names, has_more = page.get("gateways"), page.get("hasMore")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise server.stranger()
        yield from names
        if has_more is not True:
            return
        if not names or names[-1] == after:
            raise server.stranger()
        after = names[-1]


@click.command()
@click.argument("gateway", type=GatewayType())
@click.argument("file", type=click.File("rb"))
@with_retries
@with_json
@with_connection
def rules(connection: CliConnection, gateway: str, file: BinaryIO, retries: int, as_json: bool) -> None:
    """Set the sync rules of a gateway from a FILE of JSON; - is standard input.

    They replace the existing rules. Clients that may see more rows from now on must pull from 0 again. Needs the admin
    role.
    """
    CliDeltaServer(connection, retries).post(admin_path("sync-rules", gateway), read_whole(file), "saved")
    say(as_json, {"gateway": gateway, "saved": True}, printable(f"The rules of {gateway} are saved."))


TYPES = ("string", "number", "boolean", "json", "null")


class ColumnType(click.ParamType[Facts]):
    """An argument NAME:TYPE of a column; the server checks the name."""

    name = "column"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Facts:
        """The column of a schema, or a usage error."""
        if isinstance(value, dict):
            return value
        name, _, kind = str(value).partition(":")
        if kind not in TYPES:
            self.fail(f"a column must be NAME:TYPE, with a type of {', '.join(TYPES)}.", param, ctx)
        return {"name": name, "type": kind}


@click.command()
@click.argument("gateway", type=GatewayType())
@click.argument("table", type=TableType())
@click.argument("columns", type=ColumnType(), nargs=-1, required=True, metavar="NAME:TYPE...")
@with_retries
@with_json
@with_connection
def schema(
    connection: CliConnection, gateway: str, table: str, columns: tuple[Facts, ...], retries: int, as_json: bool
) -> None:
    """Set the columns of a table: later deltas with another column are refused.

    Name all columns. Columns can be added later, but not removed or changed. A type is string, number, boolean, json or
    null; it is sent to clients and not enforced. Needs the admin role.
    """
    body = json.dumps({"table": table, "columns": list(columns)}).encode()
    CliDeltaServer(connection, retries).post(admin_path("schema", gateway), body, "saved")
    facts = {"gateway": gateway, "table": table, "columns": list(columns), "saved": True}
    say(as_json, facts, printable(f"The columns of {table} in {gateway} are saved: others are refused."))


_WORDS = {
    "deltaCount": "deltas pushed",
    "logSize": "entries delivered",
    "indexSize": "rows, including deleted ones",
    "byteSize": "bytes pushed",
}


@click.command()
@click.argument("gateway", type=GatewayType())
@with_retries
@with_json
@with_connection
def stats(connection: CliConnection, gateway: str, retries: int, as_json: bool) -> None:
    """Show the numbers of rows, deltas and clients of a gateway. Needs the admin role."""
    server = CliDeltaServer(connection, retries)
    facts = server.get(admin_path("metrics", gateway))
    numbers = {name: facts.get(name) for name in _WORDS}
    if not all(isinstance(number, int) for number in numbers.values()):
        raise server.stranger()
    lines = [f"{number:>15,} {_WORDS[name]}" for name, number in numbers.items()]
    say(as_json, {"gateway": gateway, **facts}, "\n".join(lines))
