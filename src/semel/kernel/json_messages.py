"""The messages of a JSON text: cut out of it without changing a byte, in memory that follows the text alone.

Promise: `split_messages` accepts exactly the texts of RFC 8259 (UTF-8, no byte order mark) nested at most MAX_DEPTH
deep. Its `data` is every message, byte for byte as the client wrote it, joined by commas. Numbers of any size,
duplicate names and escapes of lone surrogates are text like any other here.

A parser builds values, and `[[],[],...]` of 16 MB are half a gigabyte of them. So a text is cut at commas outside its
strings into pieces of about PIECE_BYTES, and each piece is parsed and forgotten before the next. A piece is made whole
for the parser by the brackets that are open where it begins and by those that close what is open where it ends:

    [1,{"a":2,"b":[3,4]},5]     cut behind `2`, where `[{` are open:
    [1,{"a":2 ,"":0}]           the first piece, and what ends it
    [{"":0, "b":[3,4]},5]       the second, and what begins it

The value beside each cut stands for the text on its other side: without it `[1,` and `]` would pass for two arrays. So
the text is JSON exactly when all of its pieces are. Every step works on one piece, so that a walk over a large text
gives way to other threads every few milliseconds.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from itertools import accumulate, compress, pairwise
from typing import Any, NamedTuple

import orjson

from semel.kernel.json_text import (
    MAX_DEPTH,
    bracket_steps,
    brackets_of,
    not_json,
    not_utf8,
    refuse_byte_order_mark,
    refuse_constant,
    refuse_deep,
    syntax_reason,
    too_deep,
    without_escapes,
)

PIECE_BYTES = 64 * 1024

_WHITE_SPACE = b" \t\n\r"
_NO_WHITE_SPACE = bytes(set(range(256)) - set(_WHITE_SPACE))
_SPACE_BETWEEN = (b", ", b" ,", b"[ ", b" ]")
_CONTINUATION = bytes(range(0x80, 0xC0))
_UTF8_PIECE_BYTES = 1024 * 1024
_LETTERS = re.compile(rb'(?:[^"\\\x00-\x1f]{1,65536}+|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})){1,4096}+')
_LONG_RUN = re.compile(rb"([0-9]{2})[0-9]{62,}+|([ \t\n\r])[ \t\n\r]{63,}+")
_BRACKET = re.compile(rb"[\[\]{}]")

_OPENS = {ord("["): b"[", ord("{"): b'{"":'}
_GOES_ON = {ord("["): b"0,", ord("{"): b'"":0,'}
_STOPS = {ord("["): b",0", ord("{"): b',"":0'}
_CLOSES = {ord("["): b"]", ord("{"): b"}"}

# Only the shape of a piece matters, so numbers are read in the one way that never raises at any size.
_lenient = json.JSONDecoder(parse_int=float, parse_float=float, parse_constant=refuse_constant)


class Messages(NamedTuple):
    """The texts of all messages, joined by commas, and their number."""

    data: bytes
    total: int


class TooManyMessagesError(Exception):
    """There are more messages than are taken at once."""


class _Piece(NamedTuple):
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


def split_messages(raw: bytes, most: int) -> Messages:
    """The elements of an array, or the one value of anything else, without the white space around them."""
    text = raw.strip(_WHITE_SPACE)
    small = _split_small(text)
    if small is not None and small.total <= most:
        return small
    _refuse_wrong_characters(text)
    if not text.startswith(b"["):
        for piece in _pieces(text):
            _parsed(text, piece)
        return Messages(text, 1)
    kept = _Kept(text)
    total = 0
    for piece in _pieces(text):
        total += len(_parsed(text, piece)) - bool(piece.before) - (len(piece.after) == 1)
        if total > most:
            raise TooManyMessagesError
        kept.add(piece)
    return Messages(kept.joined(), total)


def _split_small(text: bytes) -> Messages | None:
    """The messages of a text that needs no walk, as most do; None only means that the walk must decide."""
    if len(text) > PIECE_BYTES or text.count(b"[") + text.count(b"{") > MAX_DEPTH:
        return None
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not text.startswith(b"["):
        return Messages(text, 1)
    # A line end or a tab is never inside of a string.
    if b"\n" in text or b"\t" in text or b"\r" in text or any(pair in text for pair in _SPACE_BETWEEN):
        return None
    return Messages(text[1:-1], len(value))


def _pieces(text: bytes) -> Iterator[_Piece]:
    start, before = 0, b""
    while True:
        end, shown, outside = _next_cut(text, start)
        after = _open_brackets(before, outside)
        if end == len(text):
            after = b""  # nothing follows that could close what is open
        elif not after:
            shown += b","  # behind the value: the parser refuses it
        yield _Piece(start, end, before, after, shown, outside)
        if end == len(text):
            return
        start, before = end + 1, after


def _next_cut(text: bytes, start: int) -> tuple[int, bytes, bytes]:
    """The last comma outside strings within about a piece's length, or the end; what stands before it, with and without
    its strings.
    """
    shown: list[bytes] = []
    outside: list[bytes] = []
    at = start
    while True:
        stop = min(at + PIECE_BYTES, len(text))
        parts = without_escapes(text[at:stop]).split(b'"')  # those with an odd number are strings
        end = stop if stop == len(text) else _cut_at_comma(parts, stop)
        outside += parts[::2]
        if end is not None:
            shown.append(text[at:end])
            return end, b"".join(shown), b"".join(outside)
        if len(parts) > 4 * MAX_DEPTH or len(brackets_of(b"".join(parts[::2]))) > 2 * MAX_DEPTH:
            refuse_deep(text[at:stop])  # else a level has a name and two brackets, at most
            raise not_json(_characters(text, at), "expecting ',' delimiter")
        if len(parts) % 2:
            shown.append(_without_long_runs(parts))
        else:  # inside of a string
            quote = stop - len(parts[-1]) - 1
            shown += text[at:quote], b'""'
            stop = _end_of_string(text, quote)
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
    raise not_json(_characters(text, at), reason)


def _open_brackets(before: bytes, outside: bytes) -> bytes:
    """The brackets that are open behind a piece; whether each was closed by its like is left to the parser."""
    brackets = before + brackets_of(outside)
    steps = bracket_steps(brackets)
    levels = [b"\0"]
    level = 0
    for start in range(0, len(steps), PIECE_BYTES):
        met = list(accumulate(steps[start : start + PIECE_BYTES], initial=level))
        if max(met) > MAX_DEPTH:
            raise too_deep()
        if min(met) < 0:
            return b""  # more is closed than was opened, which no parser takes
        levels.append(bytes(met[1:]))
        level = met[-1]
    # The last time that the text stood at a level below the present one, it went up.
    places = b"".join(levels)
    return bytes(brackets[places.rfind(below)] for below in range(level))


def _parsed(text: bytes, piece: _Piece) -> Any:
    """The value of a piece that was made whole."""
    opening = b"".join(_OPENS.get(bracket, b"") for bracket in piece.before[:-1])
    for bracket in piece.before[-1:]:
        opening += _OPENS[bracket][:1] + _GOES_ON[bracket]
    closing = b"".join(_STOPS.get(bracket, b"") for bracket in piece.after[-1:])
    closing += b"".join(_CLOSES.get(bracket, b"") for bracket in reversed(piece.after))
    try:
        return orjson.loads(b"".join((opening, piece.shown, closing)))
    except orjson.JSONDecodeError:  # it also refuses numbers that overflow and lone surrogates
        return _parsed_slowly(text, piece, opening, closing)


def _parsed_slowly(text: bytes, piece: _Piece, opening: bytes, closing: bytes) -> Any:
    said = piece.shown.decode()
    try:
        return _lenient.decode(opening.decode() + said + closing.decode())
    except json.JSONDecodeError as error:
        inside = min(max(error.pos - len(opening), 0), len(said)) if len(piece.shown) == piece.end - piece.start else 0
        raise not_json(_characters(text, piece.start) + inside, syntax_reason(error)) from None


class _Kept:
    """What is kept of an array: all but its outer brackets and the white space around its elements."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._done: list[bytes] = []
        self._start = self._end = 0
        """What was met since then is kept as it stands, and need not be copied yet."""

    def add(self, piece: _Piece) -> None:
        """Take the next piece."""
        start, end = piece.start + (not piece.before), piece.end - (not piece.after)
        said = self._text[start:end]
        if piece.outside.translate(None, _NO_WHITE_SPACE):
            said = _squeezed(said, len(piece.before) or 1)
        if len(piece.before) <= 1:
            said = said.lstrip(_WHITE_SPACE)
        if len(piece.after) <= 1:
            said = said.rstrip(_WHITE_SPACE)
        if len(said) != end - start:
            self._copy()
            self._done.append(said)
        elif self._start == self._end:
            self._start, self._end = start, end
        else:
            self._end = end

    def joined(self) -> bytes:
        """All of it."""
        self._copy()
        return self._done[0] if len(self._done) == 1 else b",".join(self._done)

    def _copy(self) -> None:
        if self._start != self._end:
            self._done.append(self._text[self._start : self._end])
        self._start = self._end = 0


def _squeezed(said: bytes, level: int) -> bytes:
    """Without white space beside commas of the outermost level; the text begins inside so many containers."""
    parts = without_escapes(said).split(b'"')
    parts[1::2] = [b"s" * len(part) for part in parts[1::2]]
    plain = b'"'.join(parts)  # as long as the text, and what looks like structure is structure
    between = _BRACKET.split(plain)
    starts = accumulate(map(len, between), lambda place, length: place + length + 1, initial=0)
    levels = accumulate(bracket_steps(plain), initial=level)
    kept: list[bytes] = []
    kept_from = 0
    for place, outermost in compress(zip(starts, between, strict=False), map((1).__eq__, levels)):
        at = place
        for part, following in pairwise(outermost.split(b",")):
            kept.append(said[kept_from : at + len(part.rstrip(_WHITE_SPACE))])
            at += len(part) + 1
            kept_from = at + len(following) - len(following.lstrip(_WHITE_SPACE))
    kept.append(said[kept_from:])
    return b",".join(kept)


def _refuse_wrong_characters(text: bytes) -> None:
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


def _characters(text: bytes, end: int) -> int:
    return len(text[:end].translate(None, _CONTINUATION))
