"""Requests for one stream: its path, its headers, HEAD, and an append with one key."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

import click

from semel.cli.connection import CliAnswer, CliConnection, CliRefusedError
from semel.cli.requests import send_until_answered

ROOT = "/v1/stream/"


def stream_path(name: str) -> str:
    """The path of a stream: slashes stay, other reserved characters are encoded."""
    return ROOT + quote(os.fsencode(name), safe="/")


def header_value(option: str, text: str) -> bytes:
    """An option's text as a header value."""
    if any(char < " " or char == "\x7f" for char in text):
        raise click.BadParameter("control characters are not allowed.", param_hint=option)
    return os.fsencode(text)


def describe(connection: CliConnection, name: str) -> CliAnswer:
    """Content type, offset and state of a stream."""
    path = stream_path(name)
    try:
        return connection.request("HEAD", path)
    except CliRefusedError as error:
        if error.may_pass:
            raise
        # A refused HEAD has no body, and so no sentence; a GET without content is refused with one.
        return connection.request("GET", f"{path}?offset=now")


def is_json(content_type: str) -> bool:
    """Whether the stream has JSON messages."""
    return content_type.partition(";")[0].strip().lower() == "application/json"


class CliStreamTarget(NamedTuple):
    """The stream to write to, and the number of retries."""

    connection: CliConnection
    name: str
    content_type: str
    retries: int

    def append(self, key: str, content: bytes | None, headers: Mapping[str, bytes]) -> CliAnswer:
        """Append content; without content, only apply the headers."""
        sent = {"Idempotency-Key": header_value("--key", key), **headers}
        if content is not None:
            sent["Content-Type"] = header_value("--type", self.content_type)
        path = stream_path(self.name)
        return send_until_answered(lambda: self.connection.request("POST", path, sent, content), self.retries)


def find_content_type(connection: CliConnection, name: str, retries: int) -> str:
    """The content type of the stream."""
    try:
        return send_until_answered(lambda: describe(connection, name), retries).content_type
    except CliRefusedError as error:
        if error.status == 403:
            raise click.ClickException(f"{error.message} Give --type to skip this request.") from error
        raise
