"""A large JSON text as values for the wanted members and as text elsewhere, in memory proportional to the text.

Promise: `outline` accepts and refuses the same texts as `parse_marked`, and its fragments equal what the printers would
make of the values. The text is read in pieces: values that are complete within a piece are parsed, printed and freed.
Each array or object that reaches beyond a piece has a frame, one for each level, which collects the printed text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any, NamedTuple

import orjson

from semel.kernel.json.canonical import Integers, Surrogates, canonical_parsed
from semel.kernel.json.chunks import JsonPiece, characters, pieces_of, refuse_wrong_characters
from semel.kernel.json.fragment import JsonFragment, JsonOutline, dump
from semel.kernel.json.parse import decode_marked, first_mark, load, prints_canonically, without_deep
from semel.kernel.json.sorted_members import SortedMembers, is_plain_name
from semel.kernel.json.text import JsonError, depth_of, not_json, syntax_reason

LIGHT_BYTES = 6 * 1024 * 1024
"""A text whose values take at most about this many bytes is parsed into values."""
_WEIGHTS = ((b"[", 100), (b"{", 150), (b":", 250), (b",", 60))
"""Bytes that an array, an object, a member and an element take at most while they are parsed, checked and printed."""
KEPT_ELEMENTS = 1_000
"""Limit on the elements of a list that are kept as values; later elements are replaced by constants of the same type.
The same limit holds for the number of distinct strings.
"""

_WHITE_SPACE = b" \t\n\r"
_OPEN_LIST = ord("[")
_AT_ONCE = 1_000
_NO_NAMES: frozenset[str] = frozenset()


class OutlinePlan(NamedTuple):
    """Which values of a text are kept as values and which as text."""

    levels: int
    """Values nested deeper than this are not accepted."""
    kept: int
    """The number of outer levels whose arrays and objects are kept; deeper levels are text. The last kept level has
    text too.
    """
    names: frozenset[str]
    """The members of objects that are kept."""
    lists: frozenset[str]
    """Members of the last level but one that are lists of values, without text."""
    integers: Integers
    surrogates: Surrogates
    has_canonical: bool = True
    """Whether texts are also made in canonical form."""
    left_out: Mapping[str, frozenset[str]] = {}
    """By name of an object of the last kept level: members that are left out of its text."""


def is_heavy(raw: bytes) -> bool:
    """Whether the values of a text may take much memory."""
    return sum(raw.count(sign) * weight for sign, weight in _WEIGHTS) > LIGHT_BYTES


def outline(raw: bytes, plan: OutlinePlan) -> Any:
    """The outline of one JSON text, with a `JsonError` in place of each value that is not accepted."""
    text = raw.strip(_WHITE_SPACE)
    refuse_wrong_characters(text)
    if depth_of(text) > plan.levels:
        text = without_deep(text.decode(), plan.levels).encode()
    walk = _Walk(text, plan)
    for piece in pieces_of(text, plan.levels):
        walk.take(piece)
    return walk.value


class _Parsed(NamedTuple):
    """The value of one piece, completed with brackets."""

    value: Any
    is_clean: bool
    """Whether it has no error marker."""
    is_canonical: bool
    """Whether orjson prints it in canonical form."""


class _Walk:
    """Reads the pieces of a text in order."""

    def __init__(self, text: bytes, plan: OutlinePlan) -> None:
        self._text = text
        self._plan = plan
        self._frames: list[_Frame] = []
        self._piece = JsonPiece(0, 0, b"", b"", b"", b"")
        self.value: Any = None

    def take(self, piece: JsonPiece) -> None:
        """Read the next piece; after the last piece, `value` is set."""
        self._piece = piece
        parsed = self._parse(piece)
        if isinstance(parsed.value, dict | list):
            self._enter(0, parsed.value, parsed, was_open=bool(piece.before), stays=bool(piece.after))
            if not piece.after:
                self.value = self._frames.pop().closed()
        else:
            self.value = parsed.value

    def _parse(self, piece: JsonPiece) -> _Parsed:
        said = self._text[piece.start : piece.end]
        if not piece.after and piece.end < len(self._text):
            said += b","  # after the value: the parser refuses the comma
        opening, closing = _wrapping(said, piece)
        whole = b"".join((opening, said, closing))
        loaded = load(whole)
        if loaded is not None:
            return _Parsed(loaded.value, True, prints_canonically(loaded.printed))
        try:
            return _Parsed(decode_marked(whole.decode()), False, False)
        except json.JSONDecodeError as error:
            inside = min(max(error.pos - len(opening.decode()), 0), len(said.decode()))
            raise not_json(characters(self._text, piece.start) + inside, syntax_reason(error)) from None

    def _enter(self, level: int, value: Any, parsed: _Parsed, *, was_open: bool, stays: bool, name: str = "") -> None:
        """Read an array or object of this piece; parts of it may be in earlier or later pieces."""
        if not was_open:
            self._frames.append(_Frame(self._plan, level, isinstance(value, dict), name))
        frame = self._frames[level]
        children: list[Any] = list(value.items()) if frame.is_object else value
        start, stop = 0, len(children)
        if was_open:
            start = 1  # a container continued from the piece before, or its placeholder
            if level + 1 < len(self._piece.before):
                is_last = stays and stop == 1 and level + 1 < len(self._piece.after)
                self._enter(level + 1, frame.inner(children[0]), parsed, was_open=True, stays=is_last)
                if is_last:
                    return
                self._frames[level].take_closed(self._frames.pop())
        tail = None
        if stays:
            stop -= 1  # the placeholder of the next piece, or a container that continues there
            tail = children[stop] if level + 1 < len(self._piece.after) else None
        frame.take(children[start:stop], parsed)
        if tail is not None:
            named = tail[0] if frame.is_object else ""
            self._enter(level + 1, frame.inner(tail), parsed, was_open=False, stays=True, name=named)


class _Frame:
    """One array or object while it is read."""

    def __init__(self, plan: OutlinePlan, level: int, is_object: bool, name: str) -> None:
        self.is_object = is_object
        self._plan = plan
        self._level = level
        self._name = name
        self._keeps = level < plan.kept
        is_last = level == plan.kept - 1
        self._prints = level >= plan.kept or (is_last and (is_object or name not in plan.lists))
        self._left_out = plan.left_out.get(name, _NO_NAMES) if is_last else _NO_NAMES
        self._texts: list[bytes] = []
        self._canonical: list[bytes] = []
        self._members = SortedMembers()
        self._values: dict[str, Any] = {}
        self._elements: list[Any] = []
        self._strings: dict[str, str] = {}
        self._flaw: JsonError | None = None
        self._mark: JsonError | None = None

    def inner(self, child: Any) -> Any:
        """The value of a child; a child of an object is a pair of name and value."""
        return child[1] if self.is_object else child

    def take(self, children: list[Any], parsed: _Parsed) -> None:
        """Add children that are complete."""
        if not children:
            return
        mark = None if parsed.is_clean else first_mark(self._not_kept(children))
        self._mark = self._mark or mark
        if self._keeps:
            self._keep(children, parsed)
        if self.is_object:
            self._take_members(children, parsed, None if mark is None else b"null")
        elif self._prints and mark is None:
            self._put(self._texts, dump(children)[1:-1])
            self._put(self._canonical, self._canonical_of(children, parsed)[1:-1])

    def _not_kept(self, children: list[Any]) -> list[Any]:
        """The values whose error markers would be lost, because the values themselves are not kept."""
        if not self.is_object:
            return children if self._prints else []
        return [value for name, value in children if self._prints or name not in self._plan.names]

    def _take_members(self, children: list[Any], parsed: _Parsed, instead: bytes | None) -> None:
        told = [child for child in children if child[0] not in self._left_out] if self._left_out else children
        if self._prints and instead is None and told:
            self._put(self._texts, dump(dict(told))[1:-1])
        for name, value in children:
            text = b""
            if self._prints and name not in self._left_out:
                text = self._canonical_of(value, parsed) if instead is None else instead
            self._add_member(name, text)

    def take_closed(self, child: _Frame) -> None:
        """Add a child that has ended and was not complete within one piece."""
        name = child._name
        self._flaw = self._flaw or child._flaw
        if self._keeps and not self._prints:
            canonical = b""
            kept = child.closed()
            if not self.is_object:
                self._add_element(kept)
            elif name in self._plan.names:
                self._values[name] = kept
            else:
                self._mark = self._mark or first_mark(kept)
        else:
            self._mark = self._mark or child._mark
            texts, parts = child._joined()
            canonical = b"".join(parts)
            before = dump(name) + b":" if self.is_object else b""
            self._put(self._texts, before + texts[0], *texts[1:])
            if self._keeps and name in self._plan.names:
                self._values[name] = _SOMETHING
            if not self.is_object:
                self._put(self._canonical, canonical)
        if self.is_object:
            self._add_member(name, canonical)

    def closed(self) -> Any:
        """The result, after all of the container was read."""
        fragment = None
        if self._prints:
            texts, canonical = self._joined()
            whole = b"" if self._flaw or not self._plan.has_canonical else b"".join(canonical)
            fragment = JsonFragment(b"".join(texts), whole, self._flaw, self._mark)
        elif self.is_object:
            self._sorted_members()
        if not self._keeps or (self._prints and not self.is_object):
            return fragment
        return JsonOutline(self._values, fragment, self._mark) if self.is_object else self._elements

    def _keep(self, children: list[Any], parsed: _Parsed) -> None:
        if not self.is_object:
            if not self._prints:
                for child in children:
                    self._add_element(child, parsed)
            return
        for name, value in children:
            if name in self._plan.names:
                self._values[name] = self._kept(name, value, parsed)

    def _kept(self, name: str, value: Any, parsed: _Parsed) -> Any:
        """The form in which a complete value is kept."""
        if not isinstance(value, dict | list):
            return value
        if self._prints:
            return _SOMETHING  # the value is in the text
        frame = _Frame(self._plan, self._level + 1, isinstance(value, dict), name)
        frame.take(list(value.items()) if isinstance(value, dict) else value, parsed)
        return frame.closed()

    def _add_element(self, value: Any, parsed: _Parsed | None = None) -> None:
        if isinstance(value, str):
            value = self._kept_string(value)
        elif len(self._elements) >= KEPT_ELEMENTS:
            value = self._stand_in(value)
        elif parsed is not None:
            value = self._kept("", value, parsed)
        self._elements.append(value)

    def _kept_string(self, value: str) -> str:
        """One shared string for equal strings, so that the number of distinct strings bounds the memory."""
        if len(self._strings) < KEPT_ELEMENTS:
            return self._strings.setdefault(value, value)
        return self._strings.get(value, "")

    def _stand_in(self, value: Any) -> Any:
        if isinstance(value, JsonError):
            self._mark = self._mark or value
            return self._mark
        for kind, instead in _STAND_INS:
            if isinstance(value, kind):
                return instead
        return value

    def _canonical_of(self, value: Any, parsed: _Parsed) -> bytes:
        if not self._plan.has_canonical:
            return b""
        if parsed.is_canonical:
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        try:
            return canonical_parsed(value, self._plan.integers, self._plan.surrogates)
        except JsonError as error:
            self._flaw = self._flaw or error
            return b"null"

    def _add_member(self, name: str, canonical: bytes) -> None:
        if not (self._prints and self._plan.has_canonical) or name in self._left_out:
            self._members.add_name(name)
            return
        printed = None
        if not is_plain_name(name):
            try:
                printed = canonical_parsed(name, self._plan.integers, self._plan.surrogates)
            except JsonError as error:
                self._flaw = self._flaw or error
                printed = b'""'
        self._members.add(name, printed, canonical)

    def _sorted_members(self) -> list[bytes]:
        """The members in canonical order, with many members in each text."""
        found: list[bytes] = []
        texts = self._members.texts()
        while some := b",".join(islice(texts, _AT_ONCE)):
            self._put(found, some)
        return found

    def _joined(self) -> tuple[list[bytes], list[bytes]]:
        """The text and its canonical form, each in parts."""
        if not self.is_object:
            return [b"[", *self._texts, b"]"], [b"[", *self._canonical, b"]"]
        canonical = [b"{", *self._sorted_members(), b"}"]
        return [b"{", *self._texts, b"}"], canonical

    @staticmethod
    def _put(parts: list[bytes], *text: bytes) -> None:
        if parts:
            parts.append(b",")
        parts.extend(text)


_SOMETHING = JsonFragment(b"null", b"null")
"""Placeholder of an array or object that is not kept."""
_STAND_INS: tuple[tuple[type, Any], ...] = (
    (bool, False),
    (int, 0),
    (float, 0.0),
    (dict, JsonOutline({}, None, None)),
    (JsonOutline, JsonOutline({}, None, None)),
    (list, _SOMETHING),
    (JsonFragment, _SOMETHING),
)


def _wrapping(said: bytes, piece: JsonPiece) -> tuple[bytes, bytes]:
    """The brackets that complete a piece. Their member names repeat `<` more often than the piece, so no name can be
    equal.
    """
    letters = said.count(b"<") + said.lower().count(b"\\u003c") + 1
    first, last = b'"%s":' % (b"<" * letters), b'"%s":' % (b"<" * (letters + 1))
    opening = b"".join(b"[" if bracket == _OPEN_LIST else b"{" + first for bracket in piece.before)
    closing = b""
    if piece.before:
        opening += b"0,"
    if piece.after:
        closing = b",0" if piece.after[-1] == _OPEN_LIST else b"," + last + b"0"
    return opening, closing + b"".join(b"]" if bracket == _OPEN_LIST else b"}" for bracket in reversed(piece.after))
