"""One append under one key, with retries under that key, so that it is stored once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import click

from semel.cli.connection import Answer, Connection
from semel.cli.failures import RefusedError
from semel.cli.retries import send_until_answered
from semel.cli.streams.resource import describe, header_value, stream_path


class Target(NamedTuple):
    """The stream that is written to, and how often a request is sent again."""

    connection: Connection
    name: str
    content_type: str
    retries: int

    def append(self, key: str, content: bytes | None, headers: Mapping[str, bytes]) -> Answer:
        """Store content, or with no content only what the headers ask for."""
        sent = {"Idempotency-Key": header_value("--key", key), **headers}
        if content is not None:
            sent["Content-Type"] = header_value("--type", self.content_type)
        path = stream_path(self.name)
        return send_until_answered(lambda: self.connection.request("POST", path, sent, content), self.retries)


def find_content_type(connection: Connection, name: str, retries: int) -> str:
    """The stream's own type."""
    try:
        return send_until_answered(lambda: describe(connection, name), retries).content_type
    except RefusedError as error:
        if error.status == 403:
            raise click.ClickException(f"{error.message} With --type it need not be read.") from error
        raise
