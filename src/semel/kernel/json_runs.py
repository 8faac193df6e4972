"""Where a large JSON text may be cut without being parsed: the commas between whole elements of its large containers.

A parser builds values, and `[[],[],...]` of 1 MB are 30 MB of them. So a large text is looked through once, in pieces
of PIECE_BYTES, and for each container that reaches over the end of a piece some of its own commas are noted. What lies
between two of them is a run of whole elements of about a piece, or one element that is a large container itself:

    [1,[2,3, ... ,4],5,6]       runs of the outer one: `1`, `[2,3, ... ,4]` and `5,6`

Nothing is judged here but brackets. A text that is no JSON has runs that are none: a caller that parses all runs
strictly, and the brackets around them, has read the whole text strictly, wherever it was cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import NamedTuple

from semel.kernel.json_pieces import characters
from semel.kernel.json_text import bracket_steps, not_json, without_escapes

PIECE_BYTES = 32 * 1024
MOST_LEVELS = 255
"""Containers below this level are not told apart: no contract takes any that deep."""

_BRACKET = re.compile(rb"[\[\]{}]")
_LETTERS = re.compile(rb'(?:[^"\\]{1,65536}+|\\.){1,4096}+', re.DOTALL)


class Run(NamedTuple):
    """Whole elements of a container, without the commas around them."""

    start: int
    end: int
    opens: int | None
    """Where the large container opens that is the only element here, behind its name in an object; None without one."""


class JsonRuns:
    """The large containers of a text."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.levels = 0
        """How deep it is nested."""
        self._cuts: dict[int, list[int]] = {}
        self._inner: dict[int, list[int]] = {}
        """Where large containers open, by the one that they stand in."""
        self._ends: dict[int, int] = {}
        self._level = 0
        self._open: list[int] = []
        self._waits: int | None = None
        """The container in which a large one has just ended: the next comma is its own."""
        at = 0
        while at < len(text):
            plain, behind = self._plain(at)
            self._look_at(plain, at)
            at = behind

    def end_of(self, start: int) -> int | None:
        """Behind the closing bracket of the large container that opens here; None when there is none, or no end."""
        return self._ends.get(start)

    def is_open(self, start: int) -> bool:
        """Whether a container opens here that has no end."""
        return start in self._open

    def runs(self, start: int) -> Iterator[Run]:
        """The elements of a large container."""
        end = self._ends[start] - 1
        inner = [*self._inner.get(start, ()), end]
        number = 0
        for before, after in pairwise([start, *self._cuts.get(start, ()), end]):
            opens = inner[number] if inner[number] < after else None
            yield Run(before + 1, after, opens)
            while inner[number] < after:
                number += 1

    def _plain(self, at: int) -> tuple[bytes, int]:
        """The next piece with other letters in its strings, as long as it was; and where the following one begins."""
        stop = min(at + PIECE_BYTES, len(self.text))
        parts = without_escapes(self.text[at:stop]).split(b'"')  # those with an odd number are strings
        if len(parts) % 2 == 0:  # the last one goes on behind the piece, and is left out
            stop = self._end_of_string(stop - len(parts.pop()))
        parts[1::2] = [b"s" * len(part) for part in parts[1::2]]
        return b'"'.join(parts), stop

    def _end_of_string(self, at: int) -> int:
        while found := _LETTERS.match(self.text, at):
            at = found.end()
        return at + 1

    def _look_at(self, plain: bytes, at: int) -> None:
        """Note where containers end in a piece, and the cuts of those that are open before or behind it."""
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
        for level in range(before, lowest, -1):  # closed here
            number = marks.find(level - 1)
            self._ends[self._open[level - 1]] = places[number]
            self._cut_first(self._open[level - 2] if level > 1 else None, between, places, number)
        del self._open[lowest:]
        for level in range(lowest + 1, marks[-1] + 1):  # opened here, and not closed
            number = marks.rfind(level - 1)
            self._open.append(places[number] + len(between[number]))
            if level > 1:
                self._inner.setdefault(self._open[-2], []).append(self._open[-1])
        for level, start in enumerate(self._open, 1):
            self._cut_last(start, level, marks, between, places)

    def _cut_first(self, start: int | None, between: list[bytes], places: list[int], number: int) -> None:
        """Note the comma behind a large container that has ended, for the one around it; it may be in another piece."""
        self._waits = None
        if start is None:
            return
        comma = between[number].find(b",")
        if comma >= 0:
            self._cut(start, places[number] + comma)
        elif number == len(between) - 1:
            self._waits = start

    def _cut_last(self, start: int, level: int, marks: bytes, between: list[bytes], places: list[int]) -> None:
        """Note the last comma of a container in a piece: it stands before what is open behind it, or one value back."""
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
