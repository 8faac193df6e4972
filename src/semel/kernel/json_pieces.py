"""A JSON text cut into pieces of about PIECE_BYTES, at commas outside its strings.

A parser builds values, and `[[],[],...]` of 16 MB are half a gigabyte of them. So a large text is read piece by piece,
and each piece is parsed and forgotten before the next. A piece is made whole for the parser by the brackets that are
open where it begins and by those that close what is open where it ends:

    [1,{"a":2,"b":[3,4]},5]     cut behind `2`, where `[{` are open:
    [1,{"a":2 ,"":0}]           the first piece, and what ends it
    [{"":0, "b":[3,4]},5]       the second, and what begins it

The value beside each cut stands for the text on its other side: without it `[1,` and `]` would pass for two arrays. So
the text is JSON exactly when all of its pieces are. Every step works on one piece, so that a walk over a large text
gives way to other threads every few milliseconds.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from semel.kernel.json_text import (
    MAX_DEPTH,
    bracket_steps,
    brackets_of,
    not_json,
    not_utf8,
    refuse_byte_order_mark,
    refuse_deep,
    too_deep,
    without_escapes,
)

PIECE_BYTES = 64 * 1024

_CONTINUATION = bytes(range(0x80, 0xC0))
_UTF8_PIECE_BYTES = 1024 * 1024
_LETTERS = re.compile(rb'(?:[^"\\\x00-\x1f]{1,65536}+|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})){1,4096}+')
_LONG_RUN = re.compile(rb"([0-9]{2})[0-9]{62,}+|([ \t\n\r])[ \t\n\r]{63,}+")


class JsonPiece(NamedTuple):
    """A part of the text between two cuts, or between a cut and an end of the text."""

    start: int
    end: int
    before: bytes
    """The brackets that are open where it begins."""
    after: bytes
    """Those that are open where it ends."""
    shown: bytes
    """What it says; what is very long without a comma is shortened here, after it was looked at."""
    outside: bytes
    """The same without its strings."""
    dense: int = 0
    """Where its last part begins, outside strings: before that there is no comma."""
    climbed: int = 0
    """How many levels deeper that is than its beginning."""


class _Cut(NamedTuple):
    end: int
    shown: bytes
    outside: bytes
    dense: int
    climbed: int


def pieces_of(text: bytes, levels: int = MAX_DEPTH) -> Iterator[JsonPiece]:
    """The pieces of a text that is nested at most `levels` deep."""
    start, before = 0, b""
    while True:
        end, shown, outside, dense, climbed = _next_cut(text, start, levels)
        after = _open_brackets(before, outside, levels)
        if end == len(text):
            after = b""  # nothing follows that could close what is open
        elif not after:
            shown += b","  # behind the value: the parser refuses it
        yield JsonPiece(start, end, before, after, shown, outside, dense, climbed)
        if end == len(text):
            return
        start, before = end + 1, after


def _next_cut(text: bytes, start: int, levels: int) -> _Cut:
    """The last comma outside strings within about a piece's length, or the end."""
    shown: list[bytes] = []
    outside: list[bytes] = []
    climbed = 0
    at = start
    while True:
        stop = min(at + PIECE_BYTES, len(text))
        parts = without_escapes(text[at:stop]).split(b'"')  # those with an odd number are strings
        end = stop if stop == len(text) else _cut_at_comma(parts, stop)
        if end is not None:
            shown.append(text[at:end])
            return _Cut(end, b"".join(shown), b"".join([*outside, *parts[::2]]), at, climbed)
        if len(parts) > 4 * levels or len(brackets_of(b"".join(parts[::2]))) > 2 * levels:
            refuse_deep(text[at:stop], levels)  # else a level has a name and two brackets, at most
            raise not_json(characters(text, at), "expecting ',' delimiter")
        if len(parts) % 2:
            shown.append(_without_long_runs(parts))
        else:  # inside of a string
            quote = stop - len(parts[-1]) - 1
            shown += text[at:quote], b'""'
            stop = _end_of_string(text, quote)
        outside += parts[::2]  # without long runs: a text may have nothing else
        climbed += sum(map(sum, map(bracket_steps, parts[::2])))
        at = stop


def _cut_at_comma(parts: list[bytes], end: int) -> int | None:
    """Where the last comma outside strings is, in parts that end here; those behind it are dropped."""
    for number in range(len(parts) - 1, -1, -1):
        end -= len(parts[number])
        comma = -1 if number % 2 else parts[number].rfind(b",")
        if comma >= 0:
            parts[number:] = [parts[number][:comma]]
            return end + comma
        end -= 1
    return None


def _without_long_runs(parts: list[bytes]) -> bytes:
    """A text without a comma, shorter and as good: all that can be long here are white space and numbers."""
    parts[::2] = [_LONG_RUN.sub(rb"\1\2", part) for part in parts[::2]]
    return b'"'.join(parts)


def _end_of_string(text: bytes, quote: int) -> int:
    """Where a long string ends; it is never built, because a single wide character would make it four times as long."""
    at = quote + 1
    while found := _LETTERS.match(text, at):
        at = found.end()
    sign = text[at : at + 1]
    if sign == b'"':
        return at + 1
    reason = "unterminated string" if not sign else "invalid escape" if sign == b"\\" else "invalid control character"
    raise not_json(characters(text, at), reason)


def _open_brackets(before: bytes, outside: bytes, most: int) -> bytes:
    """The brackets that are open behind a piece; whether each was closed by its like is left to the parser."""
    brackets = before + brackets_of(outside)
    steps = bracket_steps(brackets)
    levels = [b"\0"]
    level = 0
    for start in range(0, len(steps), PIECE_BYTES):
        met = list(accumulate(steps[start : start + PIECE_BYTES], initial=level))
        if max(met) > most:
            raise too_deep()
        if min(met) < 0:
            return b""  # more is closed than was opened, which no parser takes
        levels.append(bytes(met[1:]))
        level = met[-1]
    # The last time that the text stood at a level below the present one, it went up.
    places = b"".join(levels)
    return bytes(brackets[places.rfind(below)] for below in range(level))


def refuse_wrong_characters(text: bytes) -> None:
    """Strict UTF-8 without a byte order mark, looked at in pieces."""
    if text.isascii():
        return
    refuse_byte_order_mark(text)
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(text), _UTF8_PIECE_BYTES):
        held_back = len(decoder.getstate()[0])
        stop = start + _UTF8_PIECE_BYTES
        try:
            decoder.decode(text[start:stop], stop >= len(text))
        except UnicodeDecodeError as error:
            raise not_utf8(start - held_back + error.start) from None


def characters(text: bytes, end: int) -> int:
    """How many characters stand before a byte."""
    return len(text[:end].translate(None, _CONTINUATION))
