"""The head of an answer as bytes: status lines and names are rendered once, values are checked."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from re import compile as compiled

from semel.server.http.answer import Header
from semel.server.http.request import Request

CLOSE_LINE = b"connection: close\r\n"
CHUNKED_LINE = b"transfer-encoding: chunked\r\n"
BODILESS = frozenset((204, 304))
"""Statuses whose answers have neither a body nor a length."""
KNOWN_NAMES = 1_024

_NAME = compiled(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROLS = bytes([*range(9), *range(10, 32), 127])


class FlawedAnswerError(RuntimeError):
    """The application returned an answer that HTTP does not allow; it is not sent."""


def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


STATUS_LINES = {status: _status_line(status) for status in range(100, 600)}

_names: dict[bytes, bytes] = {}
"""Names that passed the check, each with its colon."""


def _checked_name(name: bytes) -> bytes:
    if not _NAME.fullmatch(name):
        raise FlawedAnswerError("a header has a name that HTTP does not allow")
    if len(_names) >= KNOWN_NAMES:
        _names.clear()
    rendered = _names[name] = name + b": "
    return rendered


def head_of(status: int, headers: Sequence[Header], request: Request, date: bytes, framing: bytes) -> bytes:
    """The whole head, including the empty line at its end; `FlawedAnswerError` for a header that HTTP does not allow.

    `framing` are the lines that say where the answer ends.
    """
    known = _names
    lines = [STATUS_LINES[status], date]
    for name, value in headers:
        lines += (known.get(name) or _checked_name(name), value, b"\r\n")
    ends = 2 * len(headers) + (4 if date else 2)
    if request.id:
        lines += (b"x-request-id: ", request.id, b"\r\n")
        ends += 2
    own = b"".join(lines)
    if len(own.translate(None, _CONTROLS)) != len(own) - ends:
        raise FlawedAnswerError("a header has a value that HTTP does not allow")
    return b"".join((own, request.common, framing, b"\r\n"))


def length_of(headers: Sequence[Header]) -> int | None:
    """The `content-length` of a streamed answer; None if it has none."""
    return next((int(value) for name, value in headers if name == b"content-length"), None)
