"""Output of a stream's content: JSON as one message a line, everything else as it is; or as one JSON object."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable
from typing import Any

from semel.cli.streams.messages import messages


def as_lines(array: bytes) -> bytes:
    """The messages of a JSON array, one on each line."""
    return "".join(f"{message}\n" for message in messages(array)).encode()


def json_object(texts: Iterable[str], facts: dict[str, Any]) -> bytes:
    """`{"messages":[...], facts}`, with each message as the server gave it, so that no number changes."""
    rest = json.dumps(facts)[1:]
    return f'{{"messages": [{", ".join(texts)}], {rest}\n'.encode()


def raw_object(content: bytes, facts: dict[str, Any]) -> bytes:
    """`{"text":..., facts}`, or `"base64"` for what is not UTF-8."""
    try:
        shown = {"text": content.decode("utf-8")}
    except UnicodeDecodeError:
        shown = {"base64": b64encode(content).decode()}
    return json.dumps(shown | facts).encode() + b"\n"
