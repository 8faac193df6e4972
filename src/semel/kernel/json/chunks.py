"""A large JSON text, cut into chunks that are parsed one by one: memory depends on the chunk, not on the text.

A parser builds values, and for `[[],[],...]` of 16 MB they take half a gigabyte. There are two ways to cut a text.

Pieces (`pieces_of`) have about PIECE_BYTES and end at commas outside strings. Each piece is parsed and freed before the
next one. The brackets that are open where a piece begins are added before it, and the brackets that are open where it
ends are closed after it, so that the parser gets a complete text:

[1,{"a":2,"b":[3,4]},5]     the text, cut after `2`, where `[{` are open
[1,{"a":2 ,"":0}]           the first piece and its added end
[{"":0, "b":[3,4]},5]       the second piece and its added beginning

The value added at each cut stands for the text on the other side: without it, `[1,` and `]` would pass as two arrays.
The text is JSON if and only if all of its pieces are. Every step works on one piece, so that reading a large text
yields to other threads every few milliseconds.

Runs (`JsonRuns`) are whole elements. The text is scanned once, in steps of RUN_BYTES. For each container that crosses
the end of a step, some of its own commas are noted. Between two noted commas there is a run of whole elements of about
one step, or one element that is a large container itself:

[1,[2,3, ... ,4],5,6]       runs of the outer array: `1`, `[2,3, ... ,4]` and `5,6`

Only brackets are checked here. If a text is not JSON, then one of its runs is not JSON either: a caller that parses all
runs strictly, and the brackets around them, has parsed the whole text strictly.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import NamedTuple

from semel.kernel.json.text import (
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
    """The text between two cuts, or between a cut and an end of the text."""

    start: int
    end: int
    before: bytes
    """The brackets that are open where the piece begins."""
    after: bytes
    """The brackets that are open where the piece ends."""
    shown: bytes
    """The text of the piece; long stretches without a comma are checked and then shortened here."""
    outside: bytes
    """The text of the piece without its strings."""
    dense: int = 0
    """Where the last part of the piece begins, outside strings: there is no comma before it."""
    climbed: int = 0
    """How many levels deeper the last part begins than the piece."""


class _Cut(NamedTuple):
    end: int
    shown: bytes
    outside: bytes
    dense: int
    climbed: int


def pieces_of(text: bytes, levels: int = MAX_DEPTH) -> Iterator[JsonPiece]:
    """The pieces of a text; a text that is nested more than `levels` deep is refused."""
    start, before = 0, b""
    while True:
        end, shown, outside, dense, climbed = _next_cut(text, start, levels)
        after = _open_brackets(before, outside, levels)
        if end == len(text):
            after = b""  # no text follows that could close the open brackets
        elif not after:
            shown += b","  # after the value: the parser refuses the comma
        yield JsonPiece(start, end, before, after, shown, outside, dense, climbed)
        if end == len(text):
            return
        start, before = end + 1, after


def _next_cut(text: bytes, start: int, levels: int) -> _Cut:
    """Cut at the last comma outside strings within about PIECE_BYTES, or at the end of the text."""
    shown: list[bytes] = []
    outside: list[bytes] = []
    climbed = 0
    at = start
    while True:
        stop = min(at + PIECE_BYTES, len(text))
        parts = without_escapes(text[at:stop]).split(b'"')  # parts with an odd index are strings
        end = stop if stop == len(text) else _cut_at_comma(parts, stop)
        if end is not None:
            shown.append(text[at:end])
            return _Cut(end, b"".join(shown), b"".join([*outside, *parts[::2]]), at, climbed)
        if len(parts) > 4 * levels or len(brackets_of(b"".join(parts[::2]))) > 2 * levels:
            refuse_deep(text[at:stop], levels)  # otherwise each level has at most one name and two brackets
            raise not_json(characters(text, at), "expecting ',' delimiter")
        if len(parts) % 2:
            shown.append(_without_long_runs(parts))
        else:  # the text stops inside a string
            quote = stop - len(parts[-1]) - 1
            shown += text[at:quote], b'""'
            stop = _end_of_string(text, quote)
        outside += parts[::2]  # long runs are shortened: a text may consist of them
        climbed += sum(map(sum, map(bracket_steps, parts[::2])))
        at = stop


def _cut_at_comma(parts: list[bytes], end: int) -> int | None:
    """The offset of the last comma outside strings, in parts that end at `end`; the parts after the comma are
    removed.
    """
    for number in range(len(parts) - 1, -1, -1):
        end -= len(parts[number])
        comma = -1 if number % 2 else parts[number].rfind(b",")
        if comma >= 0:
            parts[number:] = [parts[number][:comma]]
            return end + comma
        end -= 1
    return None


def _without_long_runs(parts: list[bytes]) -> bytes:
    """A text without a comma, shortened: only white space and numbers can be long here, and they stay valid."""
    parts[::2] = [_LONG_RUN.sub(rb"\1\2", part) for part in parts[::2]]
    return b'"'.join(parts)


def _end_of_string(text: bytes, quote: int) -> int:
    """Where a long string ends. The string is not built: a single wide character would make it four times as large."""
    at = quote + 1
    while found := _LETTERS.match(text, at):
        at = found.end()
    sign = text[at : at + 1]
    if sign == b'"':
        return at + 1
    reason = "unterminated string" if not sign else "invalid escape" if sign == b"\\" else "invalid control character"
    raise not_json(characters(text, at), reason)


def _open_brackets(before: bytes, outside: bytes, most: int) -> bytes:
    """The brackets that are open after a piece. The parser checks later that each is closed by its own kind."""
    brackets = before + brackets_of(outside)
    steps = bracket_steps(brackets)
    levels = [b"\0"]
    level = 0
    for start in range(0, len(steps), PIECE_BYTES):
        met = list(accumulate(steps[start : start + PIECE_BYTES], initial=level))
        if max(met) > most:
            raise too_deep()
        if min(met) < 0:
            return b""  # there are more closing than opening brackets, which every parser refuses
        levels.append(bytes(met[1:]))
        level = met[-1]
    # The bracket after the last place at each lower level opened the level above it.
    places = b"".join(levels)
    return bytes(brackets[places.rfind(below)] for below in range(level))


def refuse_wrong_characters(text: bytes) -> None:
    """Refuse a text that is not strict UTF-8 or has a byte order mark; it is checked in pieces."""
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
    """The number of characters before a byte offset."""
    return len(text[:end].translate(None, _CONTINUATION))


RUN_BYTES = 32 * 1024
MOST_LEVELS = 255
"""The deepest level at which containers are told apart; every contract refuses deeper nesting."""

_BRACKET = re.compile(rb"[\[\]{}]")
_RUN_LETTERS = re.compile(rb'(?:[^"\\]{1,65536}+|\\.){1,4096}+', re.DOTALL)


class JsonRun(NamedTuple):
    """Whole elements of a container, without the commas around them."""

    start: int
    end: int
    opens: int | None
    """Where the large container opens that is the only element of this run (in an object: after its name); None without
    one.
    """


class JsonRuns:
    """The large containers of a text, and the runs of each."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.levels = 0
        """The depth of the text."""
        self._cuts: dict[int, list[int]] = {}
        self._inner: dict[int, list[int]] = {}
        """For each large container, where the large containers inside it open."""
        self._ends: dict[int, int] = {}
        self._level = 0
        self._open: list[int] = []
        self._waits: int | None = None
        """The container in which a large one has just ended: the next comma belongs to it."""
        at = 0
        while at < len(text):
            plain, behind = self._plain(at)
            self._look_at(plain, at)
            at = behind

    def end_of(self, start: int) -> int | None:
        """The offset after the closing bracket of the large container that opens here; None if there is none, or no
        end.
        """
        return self._ends.get(start)

    def is_open(self, start: int) -> bool:
        """Whether a container opens here that is never closed."""
        return start in self._open

    def runs(self, start: int) -> Iterator[JsonRun]:
        """The runs of a large container."""
        end = self._ends[start] - 1
        inner = [*self._inner.get(start, ()), end]
        number = 0
        for before, after in pairwise([start, *self._cuts.get(start, ()), end]):
            opens = inner[number] if inner[number] < after else None
            yield JsonRun(before + 1, after, opens)
            while inner[number] < after:
                number += 1

    def _plain(self, at: int) -> tuple[bytes, int]:
        """The next piece with the contents of strings masked, in the same length; and where the following piece
        begins.
        """
        stop = min(at + RUN_BYTES, len(self.text))
        parts = without_escapes(self.text[at:stop]).split(b'"')  # parts with an odd index are strings
        if len(parts) % 2 == 0:  # the last part is a string that continues after the piece; it is left out
            stop = self._end_of_string(stop - len(parts.pop()))
        parts[1::2] = [b"s" * len(part) for part in parts[1::2]]
        return b'"'.join(parts), stop

    def _end_of_string(self, at: int) -> int:
        while found := _RUN_LETTERS.match(self.text, at):
            at = found.end()
        return at + 1

    def _look_at(self, plain: bytes, at: int) -> None:
        """Note which containers end in a piece, and the cuts of containers that reach over one of its ends."""
        between = _BRACKET.split(plain)
        places = list(accumulate(map(len, between), lambda place, length: place + length + 1, initial=at))
        levels = list(accumulate(bracket_steps(plain), initial=self._level))
        highest, lowest, before = max(levels), min(levels), len(self._open)
        self.levels, self._level = max(self.levels, highest), levels[-1]
        if lowest < 0:
            raise not_json(characters(self.text, places[levels.index(-1)] - 1), "extra data")
        marks = bytes(levels if highest <= MOST_LEVELS else [min(level, MOST_LEVELS) for level in levels])
        lowest = min(lowest, MOST_LEVELS)
        self._cut_first(self._waits, between, places, 0)
        for level in range(before, lowest, -1):  # closed in this piece
            number = marks.find(level - 1)
            self._ends[self._open[level - 1]] = places[number]
            self._cut_first(self._open[level - 2] if level > 1 else None, between, places, number)
        del self._open[lowest:]
        for level in range(lowest + 1, marks[-1] + 1):  # opened in this piece and not closed in it
            number = marks.rfind(level - 1)
            self._open.append(places[number] + len(between[number]))
            if level > 1:
                self._inner.setdefault(self._open[-2], []).append(self._open[-1])
        for level, start in enumerate(self._open, 1):
            self._cut_last(start, level, marks, between, places)

    def _cut_first(self, start: int | None, between: list[bytes], places: list[int], number: int) -> None:
        """Note the comma after a large container that has ended, for the container around it; it may be in a later
        piece.
        """
        self._waits = None
        if start is None:
            return
        comma = between[number].find(b",")
        if comma >= 0:
            self._cut(start, places[number] + comma)
        elif number == len(between) - 1:
            self._waits = start

    def _cut_last(self, start: int, level: int, marks: bytes, between: list[bytes], places: list[int]) -> None:
        """Note the last comma of a container in a piece: it precedes the containers still open there, or the last
        value.
        """
        stop = len(marks)
        for _ in range(2):
            number = marks.rfind(level, 0, stop)
            if number < 0 or places[number] <= start:
                return
            comma = between[number].rfind(b",")
            if comma >= 0:
                self._cut(start, places[number] + comma)
                return
            stop = number

    def _cut(self, start: int, comma: int) -> None:
        cuts = self._cuts.setdefault(start, [])
        if not cuts or cuts[-1] < comma:
            cuts.append(comma)
