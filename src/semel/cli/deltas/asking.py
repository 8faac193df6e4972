"""HTTP calls of the deltas commands, with retries; answers as JSON objects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from semel.cli.connection import Answer, Connection
from semel.cli.failures import not_semel
from semel.cli.retries import RETRIES, send_until_answered

SURFACE = "deltas"

Facts = dict[str, Any]


class Server(NamedTuple):
    """Whom to ask, and how often a request is sent again. Each of these has one effect, however often it is sent."""

    connection: Connection
    retries: int = RETRIES

    def ask(self, path: str, query: Mapping[str, object] | None = None) -> bytes:
        """The answer to a GET, unparsed."""
        asked = f"{path}?{urlencode(query, errors='surrogateescape')}" if query else path
        return send_until_answered(lambda: self.connection.request("GET", asked), self.retries).body

    def get(self, path: str, query: Mapping[str, object] | None = None) -> Facts:
        """The same as an object."""
        return self._facts(self.ask(path, query))

    def post(self, path: str, body: bytes, member: str) -> Facts:
        """The answer to something that is to be kept, if it is the right one: its member says so."""
        facts = self.send(path, body)
        if facts.get(member) is not True:
            raise self.stranger()
        return facts

    def send(self, path: str, body: bytes) -> Facts:
        """The answer to a POST."""

        def send() -> Answer:
            return self.connection.request("POST", path, {"Content-Type": b"application/json"}, body)

        return self._facts(send_until_answered(send, self.retries).body)

    def stranger(self) -> Exception:
        """The error for an answer that no gateway gives."""
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
    """The path of a call that clients make."""
    return f"/v1/sync/{quote(gateway, safe='')}/{call}"


def admin_path(call: str, gateway: str) -> str:
    """The path of a call that administrators make."""
    return f"/v1/admin/{call}/{quote(gateway, safe='')}"
