"""The records of a key store in a JSON file, in any of its layouts, each with its line number.

A file is a list of records, an object of records by their keys (by itself, or as the member `records`), one record a
line, or a single record. What breaks a line of a file of lines is that line's fault; elsewhere it breaks the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from semel.kernel.json_text import MAX_DEPTH, depth_of

RECORDS = "records"
_OWN = frozenset({"key", "payload_hash"})
_SPACE = re.compile(r"[ \t\r\n]*")
_LEVELS = MAX_DEPTH + 8
"""Of a whole file; a record's own depth is judged with the record."""

# Only where a value ends matters, so numbers are read in the way that takes any size.
_scanner = json.JSONDecoder(parse_int=float, parse_float=float)


class LayoutError(Exception):
    """The file holds no records; the message says where parsing stopped, and shows no content."""


class Entry(NamedTuple):
    """The text of one record, its position, and its name, if it has one."""

    line: int
    name: str | None
    text: str


def entries(raw: bytes) -> list[Entry]:
    """All records of a file in their order."""
    try:
        text = raw.decode("utf-8-sig")  # some editors begin a file with a mark
    except UnicodeDecodeError as error:
        raise LayoutError(f"it is not UTF-8 at byte {error.start}") from None
    if depth_of(raw) > _LEVELS:
        raise LayoutError(f"it is nested more than {_LEVELS} levels deep")
    start = _skip(text, 0)
    if text[start : start + 1] == "[":
        return list(_numbered(text, _elements(text, start)))
    if text[start : start + 1] != "{":
        raise LayoutError("it holds neither an object nor a list")
    if _is_lines(text, start):
        lines = enumerate(text.split("\n"), start=1)
        return [Entry(number, None, line.strip()) for number, line in lines if line.strip()]
    return list(_numbered(text, _object(text, start)))


class _Piece(NamedTuple):
    at: int
    name: str | None
    end: int


def _is_lines(text: str, start: int) -> bool:
    """Whether the first object is not all of the file; one that breaks off before its line ends is no line either."""
    try:
        end = _value(text, start)
    except LayoutError:
        line = text[start:].partition("\n")[0].rstrip()
        return line.endswith("}")
    return _skip(text, end) != len(text)


def _object(text: str, start: int) -> Iterator[_Piece]:
    """A single record, the records inside of one, or the records that it consists of."""
    members = list(_members(text, start))
    names = {piece.name for piece in members}
    inside = next((piece for piece in members if piece.name == RECORDS), None)
    if names >= _OWN:
        yield _Piece(start, None, _value(text, start))
    elif inside is not None and text[inside.at] == "[":
        yield from _elements(text, inside.at)
    elif inside is not None and text[inside.at] == "{":
        yield from _members(text, inside.at)
    else:
        yield from members


def _elements(text: str, start: int) -> Iterator[_Piece]:
    at = _skip(text, start + 1)
    while text[at : at + 1] != "]":
        end = _value(text, at)
        yield _Piece(at, None, end)
        at = _next(text, end, "]")


def _members(text: str, start: int) -> Iterator[_Piece]:
    at = _skip(text, start + 1)
    while text[at : at + 1] != "}":
        name, after = _string(text, at)
        colon = _skip(text, after)
        if text[colon : colon + 1] != ":":
            raise _broken(text, colon)
        begin = _skip(text, colon + 1)
        end = _value(text, begin)
        yield _Piece(begin, name, end)
        at = _next(text, end, "}")


def _next(text: str, end: int, bracket: str) -> int:
    """Where the next piece begins, or the closing bracket stands."""
    at = _skip(text, end)
    if text[at : at + 1] == ",":
        following = _skip(text, at + 1)
        if text[following : following + 1] != bracket:
            return following
    elif text[at : at + 1] == bracket:
        return at
    raise _broken(text, at)


def _string(text: str, at: int) -> tuple[str, int]:
    if text[at : at + 1] != '"':
        raise _broken(text, at)
    end = _value(text, at)
    name: str = json.loads(text[at:end])
    return name, end


def _value(text: str, at: int) -> int:
    try:
        return _scanner.raw_decode(text, at)[1]
    except json.JSONDecodeError as error:
        raise _broken(text, error.pos) from None


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return at if space is None else space.end()


def _broken(text: str, at: int) -> LayoutError:
    return LayoutError(f"it is not JSON at line {text.count(chr(10), 0, at) + 1}")


def _numbered(text: str, pieces: Iterator[_Piece]) -> Iterator[Entry]:
    line, counted = 1, 0
    for piece in pieces:
        line += text.count("\n", counted, piece.at)
        counted = piece.at
        yield Entry(line, piece.name, text[piece.at : piece.end])
