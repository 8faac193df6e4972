"""One stream on a server: its path, its header values, and its properties from HEAD."""

from __future__ import annotations

import os
from urllib.parse import quote

import click

from semel.cli.connection import Answer, Connection
from semel.cli.failures import RefusedError

ROOT = "/v1/stream/"


def stream_path(name: str) -> str:
    """The path of a stream, whatever its name: slashes stay, all else that could mean something is encoded."""
    return ROOT + quote(os.fsencode(name), safe="/")


def header_value(option: str, text: str) -> bytes:
    """An option's text as a header carries it."""
    if any(char < " " or char == "\x7f" for char in text):
        raise click.BadParameter("control characters cannot be sent.", param_hint=option)
    return os.fsencode(text)


def describe(connection: Connection, name: str) -> Answer:
    """Content type, offset and state of a stream."""
    path = stream_path(name)
    try:
        return connection.request("HEAD", path)
    except RefusedError as error:
        if error.may_pass:
            raise
        # A refused HEAD has no body, and so no sentence; a read of nothing is refused for the same reason, in words.
        return connection.request("GET", f"{path}?offset=now")


def is_json(content_type: str) -> bool:
    """Whether the stream keeps messages apart."""
    return content_type.partition(";")[0].strip().lower() == "application/json"
