"""HTTP calls of the ledger commands, with retries; answers as JSON objects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

import click

from semel.cli.connection import Answer, Connection
from semel.cli.failures import RequestError, not_semel
from semel.cli.output import printable
from semel.cli.retries import RETRIES, send_until_answered

ROOT = "/ledger/v1/orgs"
SURFACE = "ledger"
PAGE = 1_000
"""The most that a server lists in one answer."""

Facts = dict[str, Any]


class Told(NamedTuple):
    """An answer, and whether it is that to an earlier request of the same name."""

    facts: Facts
    is_replayed: bool


class Ledger(NamedTuple):
    """Whom to ask, and how often a request is sent again."""

    connection: Connection
    retries: int = RETRIES

    def get(self, path: str, query: Mapping[str, object] | None = None) -> Facts:
        """A GET, which may be repeated."""
        asked = {name: value for name, value in (query or {}).items() if value is not None}
        return self.send("GET", f"{path}?{encoded(asked)}" if asked else path).facts

    def send(self, method: str, path: str, body: Facts | bytes | None = None, key: str | None = None) -> Told:
        """The answer to a request that takes effect once, by its own identity or by a key in its header."""
        headers: dict[str, bytes] = {}
        if body is not None:
            headers["Content-Type"] = b"application/json"
        if key is not None:
            headers["Idempotency-Key"] = key.encode("utf-8", "surrogateescape")
        content = json.dumps(body).encode() if isinstance(body, dict) else body
        answer = send_until_answered(lambda: self.connection.request(method, path, headers, content), self.retries)
        return Told(self._facts(answer), answer.is_true("Idempotency-Replayed"))

    def make(self, path: str, body: Facts, key: str) -> Told:
        """Create something, once for a key; where it is unknown whether it was made, the error names the key."""
        try:
            return self.send("POST", path, body, key)
        except RequestError as error:
            if not error.is_unsettled:
                raise
            advice = f"It may be made: run this again with --key {printable(key)}, and one is made."
            raise click.ClickException(f"{error.message} {advice}") from error

    def pages(self, path: str, member: str, filters: Facts, most: int | None) -> Iterator[list[Facts]]:
        """A list page by page, at most `most` items; None is all."""
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
        """The error for an answer that a ledger does not give."""
        return not_semel(self.connection.address, SURFACE)

    def _facts(self, answer: Answer) -> Facts:
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
