"""`semel deltas clients`, `flush`, `gateways`, `pull`, `rules`, `schema` and `stats`."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, BinaryIO, get_args

import click

from semel.cli.command import AT_LEAST_1, Opt, ParsedType, Positional, Retrying, Sure, command, group
from semel.cli.deltas.arguments import TABLE, CutShortError, Gateway, standard_output
from semel.cli.output import Listing, Said, printable
from semel.cli.source import read_whole
from semel.client.deltas.admin import READER, ColumnType, GatewayClient
from semel.kernel.hlc import MAX_HLC

clients = group("clients", "Clients that have pushed to a gateway: list and forget them.")


@command(clients, "ls")
def list_clients(client: Retrying, gateway: Gateway) -> Listing[GatewayClient]:
    """List the clients of a gateway with the hour of their last call. Needs the admin role."""
    found = client.deltas_admin.clients(gateway)
    return Listing(found, (), lambda one: (_client_words(one),), "No client has pushed yet.")


def _client_words(one: GatewayClient) -> str:
    name = f"(long id, key {one.key})" if one.client_id is None else one.client_id
    if one.last_seen_ms is None:
        return f"{'unknown':<20}  {name}"
    return f"{datetime.fromtimestamp(one.last_seen_ms / 1_000, UTC):%Y-%m-%d %H:00 UTC}  {name}"


@command(clients, "rm")
def remove_clients(
    client: Retrying, gateway: Gateway, names: Annotated[tuple[str, ...], Positional("CLIENT...")], sure: Sure
) -> Said:
    """Forget clients of a gateway. Their writes stay; a client that returns receives everything it may have missed."""
    sure.refuse_silence("Standard input is not a terminal", "give --yes to forget clients")
    about = printable(f"{len(names)} client{'' if len(names) == 1 else 's'} of {gateway}: {', '.join(names)}")
    facts: dict[str, Any] = {"gateway": gateway, "clients": list(names)}
    if sure.dry_run:
        return Said({**facts, "dry_run": True}, f"Would forget {about}.")
    sure.ask(f"Forget {about}?")
    count = client.deltas_admin.forget_clients(names, gateway)
    return Said({**facts, "forgotten": count, "dry_run": False}, f"Forgot {count} of {about}.")


@command()
def flush(client: Retrying, gateway: Gateway) -> Said:
    """Wait until all writes of a gateway are on disk; acknowledged ones always are. Nothing is deleted."""
    client.deltas_admin.flush(gateway)
    return Said({"gateway": gateway, "flushed": True}, f"All writes of {gateway} are on disk.")


@command()
def gateways(client: Retrying) -> Listing[str]:
    """List the gateways. Needs the admin role."""
    found = client.deltas_admin.gateways()
    return Listing(
        found, (), lambda name: (name,), "There are no gateways.", lambda name: json.dumps({"gateway": name})
    )


@command()
def pull(
    client: Retrying,
    gateway: Gateway,
    since: Annotated[
        int, Opt("Start after this cursor; 0 is the beginning.", "", "CURSOR", click.IntRange(0, MAX_HLC))
    ] = 0,
    limit: Annotated[int | None, Opt("Maximum entries to print.", "", "N", AT_LEAST_1)] = None,
    follow: Annotated[bool, Opt("Wait for new entries until Control-C.")] = False,
    every: Annotated[float, Opt("With --follow: seconds between two requests.", type=click.FloatRange(min=0.05))] = 1.0,
    client_id: Annotated[str, Opt("Client id to pull as.", "--client", "ID", show_default=True)] = READER,
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
def rules(client: Retrying, gateway: Gateway, file: Annotated[BinaryIO, Positional()]) -> Said:
    """Set the sync rules of a gateway from a FILE of JSON; - is standard input.

    They replace the existing rules. Clients that may see more rows from now on must pull from 0 again. Needs the admin
    role.
    """
    client.deltas_admin.save_rules(read_whole(file), gateway)
    return Said({"gateway": gateway, "saved": True}, f"The rules of {gateway} are saved.")


def _column(text: str) -> tuple[str, ColumnType]:
    """NAME:TYPE of a column; the server checks the name."""
    name, _, wanted = text.partition(":")
    types: tuple[ColumnType, ...] = get_args(ColumnType)
    found = next((kind for kind in types if kind == wanted), None)
    if found is None:
        raise ValueError(f"a column must be NAME:TYPE, with a type of {', '.join(types)}.")
    return name, found


COLUMN = ParsedType("column", _column)


@command()
def schema(
    client: Retrying,
    gateway: Gateway,
    table: Annotated[str, Positional(type=TABLE)],
    columns: Annotated[tuple[tuple[str, ColumnType], ...], Positional("NAME:TYPE...", COLUMN)],
) -> Said:
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
    return Said(facts, f"The columns of {table} in {gateway} are saved: others are refused.")


@command()
def stats(client: Retrying, gateway: Gateway) -> Said:
    """Show the numbers of rows, deltas and clients of a gateway. Needs the admin role."""
    found = client.deltas_admin.stats(gateway)
    numbers = {
        "deltas pushed": found.deltas,
        "entries delivered": found.entries,
        "rows, including deleted ones": found.rows,
        "bytes pushed": found.pushed_bytes,
    }
    lines = [f"{number:>15,} {words}" for words, number in numbers.items()]
    return Said({"gateway": gateway, **found.facts}, lines)
