"""Places as arguments: ORG for an organization's own chain, ORG/VAULT for that of a vault."""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from urllib.parse import quote

import click

from semel.cli.ledger.asking import ROOT

_SLUG = re.compile(r"0|[1-9][0-9]{0,19}")


class Scope(NamedTuple):
    """An organization, or a vault of it."""

    org: str
    vault: str | None

    @property
    def path(self) -> str:
        """Its path on the server."""
        below = "" if self.vault is None else f"/vaults/{self.vault}"
        return f"{ROOT}/{self.org}{below}"

    def named(self, collection: str, name: str, call: str = "") -> str:
        """The path of something in it that has a name, or of a call on that."""
        return f"{self.path}/{collection}/{quote(name, safe='', errors='surrogateescape')}" + (
            f"/{call}" if call else ""
        )

    @property
    def numbers(self) -> tuple[int, int]:
        """The two slugs, as in headers."""
        return int(self.org), int(self.vault or 0)

    def __str__(self) -> str:
        return self.org if self.vault is None else f"{self.org}/{self.vault}"


class ScopeType(click.ParamType[Scope]):
    """An argument that names a place."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Scope:
        """The place, or a usage error."""
        if isinstance(value, Scope):
            return value
        org, slash, vault = str(value).partition("/")
        if not _SLUG.fullmatch(org) or (slash and not _SLUG.fullmatch(vault)):
            self.fail("a place is ORG or ORG/VAULT, by their numbers.", param, ctx)
        return Scope(org, vault if slash else None)


class OrgType(ScopeType):
    """An argument that names an organization."""

    name = "org"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Scope:
        """The organization, or a usage error."""
        scope = super().convert(value, param, ctx)
        if scope.vault is not None:
            self.fail("name the organization alone, by its number.", param, ctx)
        return scope


class VaultType(ScopeType):
    """An argument that names a vault."""

    name = "vault"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Scope:
        """The vault, or a usage error."""
        scope = super().convert(value, param, ctx)
        if scope.vault is None:
            self.fail("name a vault as ORG/VAULT, by their numbers.", param, ctx)
        return scope
