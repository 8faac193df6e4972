"""JSON as text: what can be said of it, and cut out of it, without changing a byte.

Depth is measured on the text before anything recursive sees it, so no input can exhaust the stack. All work
is linear in the length of the input.
"""

from __future__ import annotations

import json
from itertools import accumulate
from typing import NoReturn, TypeAlias

from semel.kernel.json_error import JsonError, JsonKind

MAX_DEPTH = 64

# What a text means once it is parsed.
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # as signed bytes: one level up, one level down
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_PIECE = 4_096
_SPLIT_BYTES = 64 * 1024
"""A text is split in pieces of this length: the parts of a large one would take 15 times its length."""


def decode(raw: bytes) -> str:
    """The characters of strict UTF-8 without a byte order mark."""
    refuse_byte_order_mark(raw)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise not_utf8(error.start) from None


def refuse_byte_order_mark(raw: bytes) -> None:
    """JSON is sent without one."""
    if raw.startswith(_BYTE_ORDER_MARK):
        raise JsonError(JsonKind.UTF8, "The text begins with a byte order mark; leave it out.")


def not_utf8(byte: int) -> JsonError:
    """The refusal of a text that is not UTF-8 from this byte on."""
    return JsonError(JsonKind.UTF8, f"The text is not UTF-8 at byte {byte}.")


def refuse_deep(raw: bytes, levels: int = MAX_DEPTH) -> None:
    """Refuse a text nested deeper than `levels`, whether or not it is JSON."""
    if raw.count(b"[") + raw.count(b"{") <= levels:
        return  # fewer brackets than levels, even counting those inside strings
    if _depth(outside_strings(raw), levels) > levels:
        raise too_deep()


def depth_of(raw: bytes) -> int:
    """How deep a text is nested, whether or not it is JSON."""
    return _depth(outside_strings(raw), len(raw))


def too_deep() -> JsonError:
    """The refusal of deep nesting, in a text or in a value."""
    return JsonError(JsonKind.DEPTH, f"The value is nested more than {MAX_DEPTH} levels deep.")


def outside_strings(text: bytes) -> bytes:
    """The text without its strings: brackets, commas, colons, numbers, literals and white space.

    Exact for JSON, and for a text that stops being JSON somewhere, exact up to there. A backslash occurs only
    in strings. Dropping pairs of them from the left leaves one only where it escapes the character after it;
    dropping those before a quote as well leaves exactly the quotes that open and close strings.
    """
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    if len(text) <= _SPLIT_BYTES:
        return b"".join(text.split(b'"')[::2])
    found: list[bytes] = []
    is_inside = False
    for start in range(0, len(text), _SPLIT_BYTES):
        parts = text[start : start + _SPLIT_BYTES].split(b'"')
        found.append(b"".join(parts[is_inside::2]))
        is_inside ^= len(parts) % 2 == 0
    return b"".join(found)


def without_escapes(text: bytes) -> bytes:
    """The text with other letters for escaped backslashes and quotes: as long, and each quote is an end of a string."""
    return text.replace(b"\\\\", b"__").replace(b'\\"', b"__") if b"\\" in text else text


def brackets_of(outside: bytes) -> bytes:
    """The brackets of a text without strings, in their order."""
    return outside.translate(None, _NOT_BRACKETS)


def bracket_steps(outside: bytes) -> memoryview:
    """For each bracket of a text without strings, one level up or down."""
    return memoryview(outside.translate(_STEPS, _NOT_BRACKETS)).cast("b")


def refuse_constant(token: str) -> NoReturn:
    """NaN, Infinity and -Infinity are not JSON, though Python's parser reads them."""
    raise JsonError(JsonKind.NOT_A_NUMBER, f"{token} is not JSON; send null or a string.")


def syntax_error(error: json.JSONDecodeError) -> JsonError:
    """What Python's parser says of a text, without the text itself, which its error carries."""
    return not_json(error.pos, syntax_reason(error))


def syntax_reason(error: json.JSONDecodeError) -> str:
    """What Python's parser finds wrong, as a part of a sentence."""
    reason = error.msg.removesuffix(" at").removesuffix(" starting").rstrip(": ")  # some end in mid-sentence
    return reason[:1].lower() + reason[1:]


def _depth(outside: bytes, enough: int) -> int:
    """The depth, or the first depth found above `enough`. In pieces, so that other threads get their turn between."""
    steps = bracket_steps(outside)
    deepest = level = 0
    for start in range(0, len(steps), _PIECE):
        piece = list(accumulate(steps[start : start + _PIECE], initial=level))
        deepest, level = max(deepest, *piece), piece[-1]
        if deepest > enough:
            break
    return deepest


def not_json(character: int, reason: str) -> JsonError:
    """The refusal of a text that stops being JSON at this character."""
    return JsonError(JsonKind.SYNTAX, f"The text is not JSON at character {character}: {reason}.")
