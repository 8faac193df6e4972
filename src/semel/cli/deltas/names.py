"""Argument types for gateway and table names; an invalid one is a usage error."""

from __future__ import annotations

import re
from typing import Any

import click

from semel.contracts.deltas.limits import MAX_GATEWAY_CHARACTERS

_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


class GatewayType(click.ParamType[str]):
    """An argument that names a gateway."""

    name = "gateway"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name, or a usage error."""
        name = str(value)
        try:
            name.encode()
        except UnicodeEncodeError:
            self.fail("a gateway's name is UTF-8.", param, ctx)
        if not 1 <= len(name) <= MAX_GATEWAY_CHARACTERS:
            self.fail(f"a gateway's name has 1 to {MAX_GATEWAY_CHARACTERS} characters.", param, ctx)
        return name


class TableType(click.ParamType[str]):
    """An argument that names a table."""

    name = "table"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name, or a usage error."""
        name = str(value)
        if not _TABLE.fullmatch(name):
            self.fail("a table's name has up to 64 letters, digits and underscores, the first no digit.", param, ctx)
        return name
