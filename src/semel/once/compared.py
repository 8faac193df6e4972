"""What two requests with one key must have in common: what was asked, and not how it was written.

| body | is compared by |
|---|---|
| JSON | its value: members in any order, any spacing, numbers by their exact value |
| JSON with a member twice, or text that is not strict JSON | its bytes |
| `multipart/form-data` | its parts in order, each with its headers and its bytes; the boundary is left out |
| anything else | its bytes |

The parameters of the content type are left out. Numbers are compared by their digits and not as floats:
9007199254740993 and 9007199254740992 are two numbers, 1.0 and 1 are one.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation
from email.message import Message
from typing import Any

from semel.once.exchange import request_fingerprint

_MULTIPART = b"multipart/form-data"
_JSON = re.compile(rb"application/(?:[a-z0-9!#$&^_.-]+\+)?json|text/json")
MAX_DIGITS = 4_096
"""Digits of a number; text with longer ones is compared by its bytes."""


def content_fingerprint(method: str, path: bytes, query: bytes, content_type: bytes, body: bytes) -> bytes:
    """The fingerprint of a request by what it asks."""
    kind = content_type.partition(b";")[0].strip().lower()
    content = None
    if _JSON.fullmatch(kind):
        content = _json_text(body)
    elif kind == _MULTIPART:
        content = _parts_text(content_type, body)
    # Each form has a prefix of its own, so that no bytes pass for the value of another body.
    return request_fingerprint(method, path, query, kind, b"bytes:" + body if content is None else content)


class _NotComparableError(ValueError):
    """The text has no single value."""


def _json_text(body: bytes) -> bytes | None:
    """One text for all spellings of a JSON value; None if it is not strict JSON."""
    try:
        value = _decoder.decode(body.decode())
        return b"json:" + _encoder.encode(value).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return None


def _number(text: str) -> dict[str, Any]:
    """A number as an object with a member name that marks it; an object that is written so becomes another one."""
    if len(text) > MAX_DIGITS:
        raise _NotComparableError
    try:
        sign, digits, exponent = Decimal(text).as_tuple()
    except InvalidOperation:
        raise _NotComparableError from None
    written = "".join(map(str, digits))
    plain = written.rstrip("0")
    value = f"{'-' if sign else ''}{plain.lstrip('0')}e{int(exponent) + len(written) - len(plain)}" if plain else "0"
    return {_MARK: value}


_MARK = "\ue000number"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs) or _MARK in found:
        raise _NotComparableError
    return found


def _constant(_: str) -> Any:
    raise _NotComparableError


_decoder = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_number, parse_int=_number, parse_constant=_constant, strict=True
)
_encoder = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, sort_keys=True)


def _parts_text(content_type: bytes, body: bytes) -> bytes | None:
    """The parts of a form without their boundary, each with its length; None if the form is malformed."""
    head = Message()
    head["Content-Type"] = content_type.decode("latin-1")
    boundary = head.get_boundary()
    if not boundary:
        return None
    mark = b"--" + boundary.encode("latin-1", "replace")
    pieces = (b"\r\n" + body).split(b"\r\n" + mark)
    if len(pieces) < 2 or pieces[0] or not pieces[-1].startswith(b"--"):
        return None
    found = [b"form:"]
    for piece in pieces[1:-1]:
        head_text, blank, content = piece.partition(b"\r\n\r\n")
        if not blank or not head_text.startswith(b"\r\n"):
            return None
        fields = sorted(_field(line) for line in head_text[2:].split(b"\r\n"))
        found.append(b"%d;" % len(fields))
        for part in (*fields, content):
            found.append(b"%d:" % len(part))
            found.append(part)
    return b"".join(found)


def _field(line: bytes) -> bytes:
    name, _, value = line.partition(b":")
    return name.strip().lower() + b":" + value.strip()
