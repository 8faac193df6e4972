"""Large JSON texts, parsed and printed strictly in memory proportional to the text: the whole value is never built.

The result equals that of `parse_marked` and `canonical`. A text is read in the runs of `JsonRuns`; each run is parsed
and freed before the next one. Only the order of an object's members needs more: if printed runs overlap, they are
merged member by member.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import pairwise
from json import JSONDecoder
from json import decoder as json_decoder
from operator import itemgetter
from typing import Any, NamedTuple

from semel.kernel.json.canonical import Integers, Surrogates, canonical_parsed
from semel.kernel.json.chunks import JsonRun, JsonRuns, characters, refuse_wrong_characters
from semel.kernel.json.parse import first_mark, parse_marked
from semel.kernel.json.text import MAX_DEPTH, JsonError, JsonKind, depth_of, is_flaw_of_value, not_json, shown, too_deep

SMALL_BYTES, WHOLE_BYTES = 64 * 1024, 2 * 1024 * 1024
"""A text up to SMALL_BYTES is parsed at once; one up to WHOLE_BYTES too, if its values take at most about
`LIGHT_BYTES`.
"""
LIGHT_BYTES = 4 * 1024 * 1024
_WEIGHTS = ((b"[", 100), (b"{", 150), (b":", 250), (b",", 60))
"""Bytes that an array, an object, a member and an element take at most while they are parsed, checked and printed."""
_WIDE = (b"\\ud", b"\\uD", *(bytes((first,)) for first in range(0xF0, 0xF5)))
"""The first bytes of a character beyond U+FFFF: with one of them, every character of the string takes four bytes."""
_LEVELS = MAX_DEPTH + 4
"""Deeper values are cut out of a part before it is parsed, and an error marker takes their place."""
_SPACE = re.compile(rb"[ \t\n\r]*+")
_NAME = re.compile(rb'[ \t\n\r]*+("(?:[^"\\]++|\\.)*+")[ \t\n\r]*+:[ \t\n\r]*+', re.DOTALL)
_MEMBERS_AT_ONCE = 1_024
_scan_string = json_decoder.scanstring  # type: ignore[attr-defined]
_scan_once = JSONDecoder(parse_int=float, parse_float=float).scan_once  # type: ignore[attr-defined]


class JsonPrinter(NamedTuple):
    """How values are printed: a function for the text, and the order of names."""

    text: Callable[[Any], bytes]
    """Print a small value, with the members of objects in order."""
    order: Callable[[str], Any]
    """The sort key of a name."""


class _Printed(NamedTuple):
    """Some members of an object, in order and without brackets."""

    first: Any
    last: Any
    text: bytes
    is_one: bool


class LargeJson:
    """A large array or object in a text."""

    def __init__(self, found: JsonRuns, start: int, level: int) -> None:
        self._found = found
        self._start = start
        self._level = level
        """The number of containers around this one."""

    @property
    def is_object(self) -> bool:
        """Whether this is an object; otherwise it is an array."""
        return self._found.text[self._start] == ord("{")

    @property
    def levels(self) -> int:
        """The depth of the whole text."""
        return self._found.levels

    def value(self) -> Any:
        """The whole value, for callers that know it is small."""
        for _ in self._runs():
            break  # the container is closed
        return _parsed(self._found.text, self._start, self._found.end_of(self._start) or 0)

    def check(self) -> None:
        """Raise `JsonError` for a text that is not JSON; a valid value beyond our limits is not an error here."""
        for run in self._runs():
            child = self._child(run)
            if child is None:
                self._values(run)
            else:
                child.check()

    def elements(self) -> Iterator[Any]:
        """The values of an array: large ones as `LargeJson`, and a `JsonError` in place of each value that is not
        accepted.
        """
        for run in self._runs():
            child = self._child(run)
            if child is None:
                yield from self._values(run)
            else:
                yield child

    def members(self, keep: Callable[[str], bool]) -> dict[str, Any]:
        """The members of an object with the given names. All others are parsed too, and freed."""
        kept: dict[str, Any] = {}
        names: list[_Printed] = []
        for run in self._runs():
            child = self._child(run)
            values = self._values(run) if child is None else {self._name(run): child}
            names.append(_printed(dict.fromkeys(values, 0), CANONICAL))
            kept.update(pair for pair in values.items() if keep(pair[0]))
            if child is not None and not keep(next(iter(values))):
                child.check()
        for _ in _in_order(names, CANONICAL):
            pass
        return kept

    def printed(self, printer: JsonPrinter, levels: int = MAX_DEPTH) -> bytes:
        """The text; `JsonError` for a value that is not accepted, after the whole text has been read."""
        flaw: JsonError | None = None
        runs: list[bytes] = []
        members: list[_Printed] = []
        for run in self._runs():
            try:
                child = self._child(run)
                if levels <= 0:
                    raise too_deep()
                if self.is_object:
                    members.append(self._printed_members(run, child, printer, levels))
                else:
                    runs.append(self._printed_elements(run, child, printer, levels))
            except JsonError as error:
                if not is_flaw_of_value(error):
                    raise
                flaw = flaw or error
        if flaw is not None:
            raise flaw
        return b"{%b}" % b",".join(_in_order(members, printer)) if self.is_object else b"[%b]" % b",".join(runs)

    def canonical(self, integers: Integers, surrogates: Surrogates) -> bytes:
        """The canonical text."""
        return self.printed(JsonPrinter(lambda value: canonical_parsed(value, integers, surrogates), _utf16))

    def _printed_elements(self, run: JsonRun, child: LargeJson | None, printer: JsonPrinter, levels: int) -> bytes:
        return self._text(run, printer, levels)[1:-1] if child is None else child.printed(printer, levels - 1)

    def _printed_members(self, run: JsonRun, child: LargeJson | None, printer: JsonPrinter, levels: int) -> _Printed:
        if child is None:
            values = self._values(run, levels)
            return _printed(values, printer)
        name = self._name(run)
        text = b"%b:%b" % (printer.text(name), child.printed(printer, levels - 1))
        return _Printed(printer.order(name), printer.order(name), text, True)

    def _text(self, run: JsonRun, printer: JsonPrinter, levels: int) -> bytes:
        return _text_of(self._values(run, levels), printer)

    def _runs(self) -> Iterator[JsonRun]:
        """The runs of this container; if there are several, none may be empty."""
        text, end = self._found.text, self._found.end_of(self._start)
        if end is None:
            raise not_json(characters(text, len(text)), "expecting ',' delimiter")
        if text[end - 1] != text[self._start] + 2:  # in ASCII, `]` and `}` come two places after `[` and `{`
            raise not_json(characters(text, end - 1), "expecting ',' delimiter")
        for run in self._found.runs(self._start):
            is_all = run.start == self._start + 1 and run.end == end - 1
            if not is_all and _behind_space(text, run.start, run.end) == run.end:
                raise not_json(characters(text, run.end), "expecting value")
            yield run

    def _child(self, run: JsonRun) -> LargeJson | None:
        """The large container that makes up a run, apart from its name."""
        if run.opens is None:
            return None
        text, end = self._found.text, self._found.end_of(run.opens)
        found = (_NAME if self.is_object else _SPACE).match(text, run.start, run.opens)
        if found is None or found.end() != run.opens:
            raise not_json(characters(text, run.opens), "expecting ',' delimiter")
        if end is None or _behind_space(text, end, run.end) != run.end:
            raise not_json(characters(text, run.end if end is None else end), "expecting ',' delimiter")
        return LargeJson(self._found, run.opens, self._level + 1)

    def _name(self, run: JsonRun) -> str:
        found = _NAME.match(self._found.text, run.start)
        assert found is not None
        name: str = _parsed(self._found.text, found.start(1), found.end(1))
        return name

    def _values(self, run: JsonRun, levels: int | None = None) -> Any:
        """The elements of a run, as an array or an object, nested at most `levels` deep if that is given."""
        text = self._found.text
        around = b"{}" if self.is_object else b"[]"
        may_be_deep = levels is not None and self._found.levels - self._level > levels
        if levels is not None and may_be_deep and depth_of(text[run.start : run.end]) >= levels:
            _parsed(text, run.start, run.end, around)
            raise too_deep()
        return _parsed(text, run.start, run.end, around)


def is_light(raw: bytes) -> bool:
    """Whether the values of a text take little memory."""
    size = len(raw)
    if size <= SMALL_BYTES:
        return True
    if size > WHOLE_BYTES or (size > LIGHT_BYTES // 8 and any(sign in raw for sign in _WIDE)):
        return False
    return sum(raw.count(sign) * weight for sign, weight in _WEIGHTS) <= LIGHT_BYTES


def read_json(raw: bytes) -> Any:
    """Parse a text: its value with an error marker for each value that is not accepted, or a `LargeJson` for a large
    text.
    """
    if is_light(raw):
        return parse_marked(raw, _LEVELS).value
    refuse_wrong_characters(raw)
    found = JsonRuns(raw)
    start = _behind_space(raw, 0)
    end = found.end_of(start)
    if end is None and not found.is_open(start):
        return _parsed(raw, 0, len(raw))
    if end is not None and _behind_space(raw, end) != len(raw):
        raise not_json(characters(raw, end), "extra data")
    return LargeJson(found, start, 0)


def _parsed(text: bytes, start: int, end: int, around: bytes = b"") -> Any:
    """The value of a part of a text, in brackets of its own."""
    try:
        return parse_marked(around[:1] + text[start:end] + around[1:], _LEVELS).value
    except JsonError as error:
        if error.kind is not JsonKind.SYNTAX:
            raise
        began = characters(text, start) - len(around[:1])
        raise JsonError(error.kind, f"Counted from character {began}: {error}" if began else str(error)) from None


def _behind_space(text: bytes, start: int, end: int | None = None) -> int:
    found = _SPACE.match(text, start, len(text) if end is None else end)
    assert found is not None
    return found.end()


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


def _text_of(value: Any, printer: JsonPrinter) -> bytes:
    """The text of a parsed value; an error marker in it is raised."""
    try:
        return printer.text(value)
    except TypeError:  # an error marker is not a JSON value
        mark = first_mark(value)
        if mark is None:
            raise
        raise mark from None


def _printed(values: dict[str, Any], printer: JsonPrinter) -> _Printed:
    keys = [printer.order(name) for name in values]
    return _Printed(min(keys, default=None), max(keys, default=None), _text_of(values, printer)[1:-1], len(keys) == 1)


def _in_order(runs: list[_Printed], printer: JsonPrinter) -> Iterator[bytes]:
    """The members of all runs in order, in chunks; a name that occurs twice is refused."""
    runs = [run for run in runs if run.text]
    runs.sort(key=itemgetter(0))
    if all(before.last < after.first for before, after in pairwise(runs)):
        yield from (run.text for run in runs)
        return
    some: list[str] = []
    last: Any = None
    for key, name, text in merge(*(_members_of(run, printer) for run in runs), key=itemgetter(0)):
        if key == last:
            raise JsonError(JsonKind.DUPLICATE_NAME, f"The name {shown(name)} occurs twice in one object.")
        last = key
        some.append(text)
        if len(some) == _MEMBERS_AT_ONCE:
            yield ",".join(some).encode()
            some.clear()
    if some:
        yield ",".join(some).encode()


def _members_of(run: _Printed, printer: JsonPrinter) -> Iterator[tuple[Any, str, str]]:
    """The members of a run, one by one: sort key, name and text."""
    text = run.text.decode()
    at = 0
    while at < len(text):
        name, end = _scan_string(text, at + 1)
        end = len(text) if run.is_one else _scan_once(text, end + 1)[1]
        yield printer.order(name), name, text[at:end]
        at = end + 1


CANONICAL = JsonPrinter(lambda value: canonical_parsed(value, Integers.EXACT, Surrogates.ESCAPE), _utf16)
"""Used to sort and print names only."""
