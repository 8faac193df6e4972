"""`semel deltas clients`, `flush`, `gateways`, `pull`, `rules`, `schema` and `stats`."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, BinaryIO, get_args

import click

from semel.cli.command import RETRIES, DryRun, Json, Opt, Positional, Retries, Yes, command, group
from semel.cli.deltas.arguments import CutShortError, Gateway, TableType, standard_output
from semel.cli.output import printable, say
from semel.cli.source import read_whole
from semel.client import Client
from semel.client.deltas.admin import READER, ColumnType, GatewayClient
from semel.kernel.hlc import MAX_HLC

clients = group("clients", "Clients that have pushed to a gateway: list and forget them.")


@command(clients, "ls")
def list_clients(client: Client, gateway: Gateway, retries: Retries = RETRIES, as_json: Json = False) -> None:
    """List the clients of a gateway with the hour of their last call. Needs the admin role."""
    is_empty = True
    for one in client.deltas_admin.clients(gateway):
        is_empty = False
        click.echo(json.dumps(one.facts) if as_json else printable(_client_words(one)))
    if is_empty and not as_json:
        click.echo("No client has pushed yet.", err=True)


def _client_words(one: GatewayClient) -> str:
    name = f"(long id, key {one.key})" if one.client_id is None else one.client_id
    if one.last_seen_ms is None:
        return f"{'unknown':<20}  {name}"
    return f"{datetime.fromtimestamp(one.last_seen_ms / 1_000, UTC):%Y-%m-%d %H:00 UTC}  {name}"


@command(clients, "rm")
def remove_clients(
    client: Client,
    gateway: Gateway,
    names: Annotated[tuple[str, ...], Positional("CLIENT...")],
    dry_run: DryRun = False,
    yes: Yes = False,
    retries: Retries = RETRIES,
    as_json: Json = False,
) -> None:
    """Forget clients of a gateway. Their writes stay; a client that returns receives everything it may have missed."""
    if not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("Standard input is not a terminal: give --yes to forget clients.")
    about = printable(f"{len(names)} client{'' if len(names) == 1 else 's'} of {gateway}: {', '.join(names)}")
    facts: dict[str, Any] = {"gateway": gateway, "clients": list(names)}
    if dry_run:
        say(as_json, {**facts, "dry_run": True}, f"Would forget {about}.")
        return
    if not yes:
        click.confirm(f"Forget {about}?", abort=True, err=True)
    count = client.deltas_admin.forget_clients(names, gateway)
    say(as_json, {**facts, "forgotten": count, "dry_run": False}, f"Forgot {count} of {about}.")


@command()
def flush(client: Client, gateway: Gateway, retries: Retries = RETRIES, as_json: Json = False) -> None:
    """Wait until all writes of a gateway are on disk; acknowledged ones always are. Nothing is deleted."""
    client.deltas_admin.flush(gateway)
    say(as_json, {"gateway": gateway, "flushed": True}, printable(f"All writes of {gateway} are on disk."))


@command()
def gateways(client: Client, retries: Retries = RETRIES, as_json: Json = False) -> None:
    """List the gateways. Needs the admin role."""
    is_empty = True
    for name in client.deltas_admin.gateways():
        click.echo(json.dumps({"gateway": name}) if as_json else printable(name))
        is_empty = False
    if is_empty and not as_json:
        click.echo("There are no gateways.", err=True)


@command()
def pull(
    client: Client,
    gateway: Gateway,
    since: Annotated[
        int,
        Opt("Start after this cursor; 0 is the beginning.", metavar="CURSOR", type=click.IntRange(0, MAX_HLC)),
    ] = 0,
    limit: Annotated[int | None, Opt("Maximum entries to print.", metavar="N", type=click.IntRange(min=1))] = None,
    follow: Annotated[bool, Opt("Wait for new entries until Control-C.")] = False,
    every: Annotated[float, Opt("With --follow: seconds between two requests.", type=click.FloatRange(min=0.05))] = 1.0,
    client_id: Annotated[str, Opt("Client id to pull as.", "--client", "ID", show_default=True)] = READER,
    retries: Retries = RETRIES,
) -> None:
    """Print the entries of a gateway in order, one JSON object per line.

    The next cursor is printed to standard error at the end. Do not use the --client of an active replica: the server
    would count these entries as delivered to it.
    """
    if follow and limit is not None:
        raise click.UsageError("Give --follow or --limit, not both: --follow does not end.")
    pages = client.deltas_admin.log(
        gateway, since=since, limit=limit, client_id=client_id, every=every if follow else None
    )
    # Control-C is the usual way to stop, so it is not a failure.
    try:
        with suppress(KeyboardInterrupt), standard_output() as out:
            for page in pages:
                out.write("".join(f"{entry}\n" for entry in page.texts).encode())
                out.flush()
                since = page.cursor
    except CutShortError:
        # It is unknown how much the reader got, so no cursor is printed.
        click.echo("The output is incomplete: standard output was closed early.", err=True)
        return
    click.echo(f"Continue with --since {since}.", err=True)


@command()
def rules(
    client: Client,
    gateway: Gateway,
    file: Annotated[BinaryIO, Positional()],
    retries: Retries = RETRIES,
    as_json: Json = False,
) -> None:
    """Set the sync rules of a gateway from a FILE of JSON; - is standard input.

    They replace the existing rules. Clients that may see more rows from now on must pull from 0 again. Needs the admin
    role.
    """
    client.deltas_admin.save_rules(read_whole(file), gateway)
    say(as_json, {"gateway": gateway, "saved": True}, printable(f"The rules of {gateway} are saved."))


class ColumnArgument(click.ParamType[tuple[str, ColumnType]]):
    """An argument NAME:TYPE of a column; the server checks the name."""

    name = "column"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ColumnType]:
        """The name and the type, or a usage error."""
        name, _, wanted = str(value).partition(":")
        types: tuple[ColumnType, ...] = get_args(ColumnType)
        found = next((kind for kind in types if kind == wanted), None)
        if found is None:
            self.fail(f"a column must be NAME:TYPE, with a type of {', '.join(types)}.", param, ctx)
        return name, found


@command()
def schema(
    client: Client,
    gateway: Gateway,
    table: Annotated[str, Positional(type=TableType())],
    columns: Annotated[tuple[tuple[str, ColumnType], ...], Positional("NAME:TYPE...", ColumnArgument())],
    retries: Retries = RETRIES,
    as_json: Json = False,
) -> None:
    """Set the columns of a table: later deltas with another column are refused.

    Name all columns. Columns can be added later, but not removed or changed. A type is string, number, boolean, json or
    null; it is sent to clients and not enforced. Needs the admin role.
    """
    named = dict(columns)
    if len(named) < len(columns):
        raise click.UsageError("A column is named twice: give each column once.")
    client.deltas_admin.save_schema(table, named, gateway)
    listed = [{"name": name, "type": kind} for name, kind in columns]
    facts = {"gateway": gateway, "table": table, "columns": listed, "saved": True}
    say(as_json, facts, printable(f"The columns of {table} in {gateway} are saved: others are refused."))


@command()
def stats(client: Client, gateway: Gateway, retries: Retries = RETRIES, as_json: Json = False) -> None:
    """Show the numbers of rows, deltas and clients of a gateway. Needs the admin role."""
    found = client.deltas_admin.stats(gateway)
    numbers = {
        "deltas pushed": found.deltas,
        "entries delivered": found.entries,
        "rows, including deleted ones": found.rows,
        "bytes pushed": found.pushed_bytes,
    }
    lines = "\n".join(f"{number:>15,} {words}" for words, number in numbers.items())
    say(as_json, {"gateway": gateway, **found.facts}, lines)
