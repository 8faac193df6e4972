"""Event streams: every piece of content in a data event, and behind each data event the control event that says where
to go on. A payload is split at every line end, so that none can forge an event.
"""

from __future__ import annotations

import re
from base64 import b64encode

import orjson

from semel.contracts.streams.media_type import is_text
from semel.contracts.streams.reading import Page
from semel.contracts.streams.rules.epochs import offset_at
from semel.contracts.streams.wire.responses import content_of

_LINE_END = re.compile(rb"\r\n|\r|\n")


def sse_headers(content_type: bytes) -> list[tuple[bytes, bytes]]:
    """The head of an event stream."""
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
    if not is_text(content_type):
        headers.append((b"stream-sse-data-encoding", b"base64"))
    return headers


def frames(page: Page, cursor: int) -> bytes:
    """The content of a page, if any, and its control event, in one piece."""
    return (data_event(page) if page.pieces else b"") + control_event(page, cursor)


def data_event(page: Page) -> bytes:
    """One event that can be decoded alone."""
    content = content_of(page)
    payload = content if is_text(page.stream.content_type) else b64encode(content)
    lines = _LINE_END.split(payload)
    return b"event: data\n" + b"".join(b"data:%s\n" % line for line in lines) + b"\n"


def control_event(page: Page, cursor: int) -> bytes:
    """Where the reader stands."""
    facts: dict[str, str | bool] = {"streamNextOffset": offset_at(page.stream, page.end).decode()}
    if page.is_final:
        facts["streamClosed"] = True
    else:
        facts["streamCursor"] = str(cursor)
    if page.at_tail:
        facts["upToDate"] = True
    return b"event: control\ndata:" + orjson.dumps(facts) + b"\n\n"
