"""The content of an append: bytes, text, or JSON messages."""

from __future__ import annotations

import json
from typing import Any

from semel.client.errors import InvalidArgumentError

JSON, TEXT, BYTES = "application/json", "text/plain", "application/octet-stream"


def content_of(data: Any, content_type: str | None) -> tuple[bytes, str]:
    """The bytes of one append and their media type: bytes as they are, text as UTF-8, any other value as JSON.

    With a JSON media type, bytes are JSON text. A list is one message; `append_many` appends several.
    """
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data), content_type or BYTES
    if isinstance(data, str) and content_type is None:
        return data.encode(), TEXT
    if isinstance(data, str) and not is_json(content_type or ""):
        return data.encode(), content_type or TEXT
    return json_text([data] if isinstance(data, list | tuple) else data), content_type or JSON


def json_text(value: Any) -> bytes:
    """A value as JSON. Raises InvalidArgumentError for NaN, infinities and what JSON does not have."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"The content is not JSON: {error}.") from None


def is_json(content_type: str) -> bool:
    """Whether streams of this media type hold JSON messages."""
    return content_type.partition(";")[0].strip().lower() == JSON
