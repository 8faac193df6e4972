"""The messages of a JSON text: cut out without changing a byte, in memory proportional to the text.

Promise: `split_messages` accepts exactly the texts of RFC 8259 (UTF-8, no byte order mark) nested at most MAX_DEPTH
deep. Its `data` is every message, byte for byte as the client wrote it, joined by commas. Numbers of any size,
duplicate names and escapes of lone surrogates are not changed and not refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import accumulate, compress, pairwise
from typing import Any, NamedTuple

import orjson

from semel.kernel.json.chunks import PIECE_BYTES, JsonPiece, characters, pieces_of, refuse_wrong_characters
from semel.kernel.json.text import MAX_DEPTH, bracket_steps, not_json, refuse_constant, syntax_reason, without_escapes

_WHITE_SPACE = b" \t\n\r"
_NO_WHITE_SPACE = bytes(set(range(256)) - set(_WHITE_SPACE))
_SPACE_BETWEEN = (b", ", b" ,", b"[ ", b" ]")
_SPACES = re.compile(rb"[ \t\n\r]{0,65536}+")
_BRACKET = re.compile(rb"[\[\]{}]")

_OPENS = {ord("["): b"[", ord("{"): b'{"":'}
_GOES_ON = {ord("["): b"0,", ord("{"): b'"":0,'}
_STOPS = {ord("["): b",0", ord("{"): b',"":0'}
_CLOSES = {ord("["): b"]", ord("{"): b"}"}

_CLOSING, _COMMA = b"]}", ord(",")
_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{},]', re.DOTALL)
"""A string as a whole, or one structural character outside of strings."""

# Only the shape of a piece matters, so numbers are parsed by a function that accepts any size.
_lenient = json.JSONDecoder(parse_int=float, parse_float=float, parse_constant=refuse_constant)


class Messages(NamedTuple):
    """The texts of all messages, joined by commas, and their number."""

    data: bytes
    total: int


class TooManyMessagesError(Exception):
    """The text has more messages than one request may carry."""


def split_messages(raw: bytes, most: int) -> Messages:
    """The elements of an array, or the single value of any other text, without the white space around them."""
    text = raw.strip(_WHITE_SPACE)
    small = _split_small(text)
    if small is not None and small.total <= most:
        return small
    refuse_wrong_characters(text)
    if not text.startswith(b"["):
        for piece in pieces_of(text):
            _parsed(text, piece)
        return Messages(text, 1)
    kept = _Kept(text)
    total = 0
    for piece in pieces_of(text):
        total += len(_parsed(text, piece)) - bool(piece.before) - (len(piece.after) == 1)
        if total > most:
            raise TooManyMessagesError
        kept.add(piece)
    return Messages(kept.joined(), total)


def single_message(raw: bytes) -> bytes | None:
    """The text of a small message that is one JSON value but no array; None leaves the text to `split_messages`."""
    text = raw.strip(_WHITE_SPACE)
    if len(text) > PIECE_BYTES or text[:1] == b"[" or text.count(b"[") + text.count(b"{") > MAX_DEPTH:
        return None
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return text


def first_messages(data: bytes, count: int) -> bytes:
    """The first messages of a text of messages joined by commas, as `Messages.data` is; `count` is at least 1."""
    left = count
    for piece in pieces_of(data):
        commas = sum(part.count(b",") for part in _outermost(piece.outside, len(piece.before)))
        if commas >= left:
            return data[: _place_of_comma(data, piece, left)]
        left -= commas
        if piece.end < len(data) and not piece.after:
            left -= 1
            if not left:
                return data[: piece.end]
    return data


def _outermost(outside: bytes, level: int) -> Iterator[bytes]:
    """The parts of a text without strings that are in no container; the text begins inside `level` containers."""
    levels = accumulate(bracket_steps(outside), initial=level)
    return compress(_BRACKET.split(outside), map((0).__eq__, levels))


def _place_of_comma(data: bytes, piece: JsonPiece, number: int) -> int:
    """The offset of a comma of a piece that is in no container, by its number from 1."""
    start, level = piece.start, len(piece.before)
    if piece.dense > start:
        start, level = piece.dense, level + piece.climbed
    for token in _STRUCTURE.finditer(data, start, piece.end):
        kind = data[token.start()]
        level += (kind in _OPENS) - (kind in _CLOSING)
        number -= kind == _COMMA and level == 0
        if not number:
            return token.start()
    raise AssertionError("the piece has fewer commas than were counted")


def _split_small(text: bytes) -> Messages | None:
    """The messages of a small text, which most are; None if the text has to be read in pieces."""
    if len(text) > PIECE_BYTES or text.count(b"[") + text.count(b"{") > MAX_DEPTH:
        return None
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not text.startswith(b"["):
        return Messages(text, 1)
    # A string never contains a raw line end or tab.
    if b"\n" in text or b"\t" in text or b"\r" in text or any(pair in text for pair in _SPACE_BETWEEN):
        return None
    return Messages(text[1:-1], len(value))


def _parsed(text: bytes, piece: JsonPiece) -> Any:
    """The value of a piece that was completed with brackets."""
    opening = b"".join(_OPENS.get(bracket, b"") for bracket in piece.before[:-1])
    for bracket in piece.before[-1:]:
        opening += _OPENS[bracket][:1] + _GOES_ON[bracket]
    closing = b"".join(_STOPS.get(bracket, b"") for bracket in piece.after[-1:])
    closing += b"".join(_CLOSES.get(bracket, b"") for bracket in reversed(piece.after))
    try:
        return orjson.loads(b"".join((opening, piece.shown, closing)))
    except orjson.JSONDecodeError:  # orjson also refuses numbers that overflow and lone surrogates
        return _parsed_slowly(text, piece, opening, closing)


def _parsed_slowly(text: bytes, piece: JsonPiece, opening: bytes, closing: bytes) -> Any:
    said = piece.shown.decode()
    try:
        return _lenient.decode(opening.decode() + said + closing.decode())
    except json.JSONDecodeError as error:
        inside = min(max(error.pos - len(opening), 0), len(said)) if len(piece.shown) == piece.end - piece.start else 0
        raise not_json(characters(text, piece.start) + inside, syntax_reason(error)) from None


class _Kept:
    """Collects the text of an array without its outer brackets and the white space around its elements."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._done = bytearray()
        self._has_done = False
        self._start = self._end = 0
        """The text in this range is kept unchanged and has not been copied yet."""

    def add(self, piece: JsonPiece) -> None:
        """Add the next piece."""
        start, end = piece.start + (not piece.before), piece.end - (not piece.after)
        if not piece.outside.translate(None, _NO_WHITE_SPACE):
            said = self._text[start:end]
        elif piece.dense > start:
            said = self._squeezed_behind(start, end, piece)
        else:
            said = _squeezed(self._text[start:end], len(piece.before) or 1)
        if len(piece.before) <= 1:
            said = said.lstrip(_WHITE_SPACE)
        if len(piece.after) <= 1:
            said = said.rstrip(_WHITE_SPACE)
        if len(said) != end - start:
            self._copy()
            self._put(said)
        elif self._start == self._end:
            self._start, self._end = start, end
        else:
            self._end = end

    def _squeezed_behind(self, start: int, end: int, piece: JsonPiece) -> bytes:
        """Squeeze a long piece that has no comma in its first part, which therefore needs no squeezing."""
        level = len(piece.before) + piece.climbed
        tail = _squeezed(self._text[piece.dense : end], level)
        if len(piece.after) <= 1:
            tail = tail.rstrip(_WHITE_SPACE)
        if len(piece.before) <= 1:
            start = _end_of_space(self._text, start, piece.dense)
        head = self._text[start : piece.dense]
        return (head.rstrip(_WHITE_SPACE) if level == 1 and tail.startswith(b",") else head) + tail

    def joined(self) -> bytes:
        """The complete text."""
        if not self._has_done:
            return self._text[self._start : self._end]
        self._copy()
        return bytes(self._done)

    def _copy(self) -> None:
        if self._start != self._end:
            self._put(self._text[self._start : self._end])
        self._start = self._end = 0

    def _put(self, said: bytes) -> None:
        if self._has_done:
            self._done += b","
        self._has_done = True
        self._done += said


def _end_of_space(text: bytes, start: int, stop: int) -> int:
    """The offset of the first character that is not white space."""
    while start < stop and text[start] in _WHITE_SPACE:
        start = min(_SPACES.match(text, start, stop).end(), stop)  # type: ignore[union-attr]
    return start


def _squeezed(said: bytes, level: int) -> bytes:
    """Remove white space beside commas of the outermost level; the text begins inside `level` containers."""
    parts = without_escapes(said).split(b'"')
    parts[1::2] = [b"s" * len(part) for part in parts[1::2]]
    plain = b'"'.join(parts)  # of the same length as the text, with structural characters only where they are structure
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
