"""Event streams: every piece of content in a data event, and behind each data event the control event that says where
to go on. A payload is split at every line end, so that none can forge an event.
"""

from __future__ import annotations

from base64 import b64encode

import orjson

from semel.contracts.streams.media_type import is_text
from semel.contracts.streams.reading import Page
from semel.contracts.streams.rules.epochs import offset_at

PART_BYTES = 48 * 1024
"""Content of one part of an event: a multiple of three, so that parts of base64 fit together."""

_RETURN = ord("\r")


def sse_headers(content_type: bytes) -> list[tuple[bytes, bytes]]:
    """The head of an event stream."""
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
    if not is_text(content_type):
        headers.append((b"stream-sse-data-encoding", b"base64"))
    return headers


def parts_of(content: bytes) -> int:
    """How many parts the data event of this content has."""
    return max(1, -(-len(content) // PART_BYTES))


def event_part(content: bytes, content_type: bytes, number: int) -> bytes:
    """One part of the data event of a page's content. An event can be decoded alone; a part is only there to be sent.

    An event may be six times as long as its content, so that a large one is never made as a whole.
    """
    start, stop = number * PART_BYTES, (number + 1) * PART_BYTES
    piece = content[start:stop]
    if is_text(content_type):
        if start and piece.startswith(b"\n") and content[start - 1] == _RETURN:
            piece = piece[1:]  # the line ended with the part before
        piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\ndata:")
    else:
        piece = b64encode(piece)
    return (b"" if start else b"event: data\ndata:") + piece + (b"\n\n" if stop >= len(content) else b"")


def control_event(page: Page, cursor: int) -> bytes:
    """The control event: the next offset of the reader."""
    facts: dict[str, str | bool] = {"streamNextOffset": offset_at(page.stream, page.end).decode()}
    if page.is_final:
        facts["streamClosed"] = True
    else:
        facts["streamCursor"] = str(cursor)
    if page.at_tail:
        facts["upToDate"] = True
    return b"event: control\ndata:" + orjson.dumps(facts) + b"\n\n"
