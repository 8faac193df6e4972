"""`semel deltas schema`: set the columns of a table."""

from __future__ import annotations

import json
from typing import Any

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.deltas.asking import Facts, Server, admin_path
from semel.cli.deltas.names import GatewayType, TableType
from semel.cli.jobs.asking import with_retries
from semel.cli.output import printable, say, with_json

TYPES = ("string", "number", "boolean", "json", "null")


class ColumnType(click.ParamType[Facts]):
    """An argument that names a column and its type; whether the name can be one is the server's to know."""

    name = "column"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Facts:
        """The column as a schema has it, or a usage error."""
        if isinstance(value, dict):
            return value
        name, _, kind = str(value).partition(":")
        if kind not in TYPES:
            self.fail(f"a column is NAME:TYPE, and a type one of {', '.join(TYPES)}.", param, ctx)
        return {"name": name, "type": kind}


@click.command()
@click.argument("gateway", type=GatewayType())
@click.argument("table", type=TableType())
@click.argument("columns", type=ColumnType(), nargs=-1, required=True, metavar="NAME:TYPE...")
@with_retries
@with_json
@with_connection
def schema(
    connection: Connection, gateway: str, table: str, columns: tuple[Facts, ...], retries: int, as_json: bool
) -> None:
    """Set the columns of a table: from now on a delta with another column is refused.

    Name all of them. Later, columns may be added, and none removed or given another type. A type is string, number,
    boolean, json or null; it is sent to clients and not enforced. Needs the admin role.
    """
    body = json.dumps({"table": table, "columns": list(columns)}).encode()
    Server(connection, retries).post(admin_path("schema", gateway), body, "saved")
    facts = {"gateway": gateway, "table": table, "columns": list(columns), "saved": True}
    say(as_json, facts, printable(f"The columns of {table} in {gateway} are saved: others are refused."))
