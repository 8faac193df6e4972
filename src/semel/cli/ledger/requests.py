"""Requests to the ledger surface: scopes (ORG or ORG/VAULT), JSON answers, and their values as text.

Values of the server are not trusted: characters that do not print are escaped.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import click

from semel.cli.connection import CliAnswer, CliConnection, RequestError, not_semel
from semel.cli.output import printable, table
from semel.cli.requests import RETRIES, send_until_answered

ROOT = "/ledger/v1/orgs"
SURFACE = "ledger"
PAGE = 1_000
"""Maximum items that a server lists in one answer."""

Facts = dict[str, Any]


class CliLedgerAnswer(NamedTuple):
    """An answer, and whether it is a replay."""

    facts: Facts
    is_replayed: bool


class CliLedger(NamedTuple):
    """The connection and the number of retries."""

    connection: CliConnection
    retries: int = RETRIES

    def get(self, path: str, query: Mapping[str, object] | None = None) -> Facts:
        """A GET, which may be repeated."""
        asked = {name: value for name, value in (query or {}).items() if value is not None}
        return self.send("GET", f"{path}?{encoded(asked)}" if asked else path).facts

    def send(
        self, method: str, path: str, body: Facts | bytes | None = None, key: str | None = None
    ) -> CliLedgerAnswer:
        """Send a request that takes effect once, by its own identity or by an Idempotency-Key header."""
        headers: dict[str, bytes] = {}
        if body is not None:
            headers["Content-Type"] = b"application/json"
        if key is not None:
            headers["Idempotency-Key"] = key.encode("utf-8", "surrogateescape")
        content = json.dumps(body).encode() if isinstance(body, dict) else body
        answer = send_until_answered(lambda: self.connection.request(method, path, headers, content), self.retries)
        return CliLedgerAnswer(self._facts(answer), answer.is_true("Idempotency-Replayed"))

    def make(self, path: str, body: Facts, key: str) -> CliLedgerAnswer:
        """Create something once per key. If the outcome is unknown, the error names the key."""
        try:
            return self.send("POST", path, body, key)
        except RequestError as error:
            if not error.is_unsettled:
                raise
            advice = f"It may be created: run this again with --key {printable(key)} to create it exactly once."
            raise click.ClickException(f"{error.message} {advice}") from error

    def pages(self, path: str, member: str, filters: Facts, most: int | None) -> Iterator[list[Facts]]:
        """A list page by page, at most `most` items; None means all."""
        token = ""
        while most is None or most > 0:
            limit = PAGE if most is None else min(most, PAGE)
            page = self.get(path, {**filters, "limit": limit, "pageToken": token or None})
            listed, following = page.get(member, []), page.get("nextPageToken")
            goes_round = bool(token) and following == token
            if not isinstance(listed, list) or not isinstance(following, str) or goes_round:
                raise self.stranger()
            yield listed
            if not following:
                return
            token = following
            most = None if most is None else most - len(listed)

    def stranger(self) -> Exception:
        """The error for an answer that is not from a ledger."""
        return not_semel(self.connection.address, SURFACE)

    def _facts(self, answer: CliAnswer) -> Facts:
        try:
            facts = json.loads(answer.body)
        except ValueError as error:
            raise self.stranger() from error
        if not isinstance(facts, dict):
            raise self.stranger()
        return facts


def encoded(query: Mapping[str, object]) -> str:
    """An encoded query string."""
    return urlencode(query, errors="surrogateescape")


_SLUG = re.compile(r"0|[1-9][0-9]{0,19}")


class CliLedgerScope(NamedTuple):
    """An organization, or a vault in it."""

    org: str
    vault: str | None

    @property
    def path(self) -> str:
        """The path on the server."""
        below = "" if self.vault is None else f"/vaults/{self.vault}"
        return f"{ROOT}/{self.org}{below}"

    def named(self, collection: str, name: str, call: str = "") -> str:
        """The path of a named item, or of a call on it."""
        return f"{self.path}/{collection}/{quote(name, safe='', errors='surrogateescape')}" + (
            f"/{call}" if call else ""
        )

    @property
    def numbers(self) -> tuple[int, int]:
        """The two slugs, as in headers."""
        return int(self.org), int(self.vault or 0)

    def __str__(self) -> str:
        return self.org if self.vault is None else f"{self.org}/{self.vault}"


class ScopeType(click.ParamType[CliLedgerScope]):
    """An argument that names a place."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> CliLedgerScope:
        """The place, or a usage error."""
        if isinstance(value, CliLedgerScope):
            return value
        org, slash, vault = str(value).partition("/")
        if not _SLUG.fullmatch(org) or (slash and not _SLUG.fullmatch(vault)):
            self.fail("write the place as ORG or ORG/VAULT, with their numbers.", param, ctx)
        return CliLedgerScope(org, vault if slash else None)


class OrgType(ScopeType):
    """An argument that names an organization."""

    name = "org"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> CliLedgerScope:
        """The organization, or a usage error."""
        scope = super().convert(value, param, ctx)
        if scope.vault is not None:
            self.fail("give only the number of the organization.", param, ctx)
        return scope


class VaultType(ScopeType):
    """An argument that names a vault."""

    name = "vault"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> CliLedgerScope:
        """The vault, or a usage error."""
        scope = super().convert(value, param, ctx)
        if scope.vault is None:
            self.fail("write the vault as ORG/VAULT, with their numbers.", param, ctx)
        return scope


SHOWN_CHARACTERS = 60


def inner(facts: object, *names: str) -> object:
    """The value at a path of names, or None if one is missing."""
    for name in names:
        facts = facts.get(name) if isinstance(facts, Mapping) else None
    return facts


def hex_of(value: object) -> str:
    """Base64 bytes in hexadecimal; a question mark for anything else."""
    if not isinstance(value, str):
        return "?"
    try:
        return b64decode(value, validate=True).hex()
    except (Base64Error, ValueError):
        return "?"


def octets_of(value: object) -> bytes | None:
    """Base64 bytes, or None for anything else."""
    try:
        return b64decode(value, validate=True) if isinstance(value, str) else None
    except (Base64Error, ValueError):
        return None


def content_words(value: object) -> str:
    """A value in one short line: as text, or its size if it is binary."""
    content = octets_of(value)
    if content is None:
        return "?"
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return f"({len(content)} bytes)"
    return shortened(printable(text)) if text else "(empty)"


def shortened(text: str) -> str:
    """A text cut to one line."""
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def bare(status: object, prefix: str) -> str:
    """The short form of an enum value: `read-only` for `VAULT_STATUS_READ_ONLY`."""
    return str(status).removeprefix(prefix).lower().replace("_", "-")


def show_table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]], none: str) -> None:
    """Print a table, or a sentence to standard error if there are no rows."""
    cells = [tuple(printable(str(cell)) for cell in row) for row in rows]
    if not cells:
        click.echo(none, err=True)
        return
    for line in table(head, cells):
        click.echo(line)


def committed_words(success: Facts) -> str:
    """A committed transaction as text."""
    height, sequence = success.get("blockHeight"), success.get("assignedSequence")
    return printable(f"{hex_of(inner(success, 'txId', 'id'))} at height {height}, sequence {sequence}")
