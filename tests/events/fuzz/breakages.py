"""How a right message is made wrong in each of the ways that the oracle has a row for.

One function for each kind of fault: from chance, a right message and its dialect, to the frame that is sent.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tests.events import raw_frames
from tests.events.fuzz.documents import (
    Message,
    Path,
    at,
    content_path,
    envelope,
    paths,
    put,
    spelled,
    with_name,
    with_text,
)
from tests.events.fuzz.oracle import NORMAL
from tests.events.raw_frames import frame
from tests.events.shapes import Dialect

LIMIT_BYTES = 1_048_576
DEEPEST = 100_000

NO_TOKENS = ("NaN", "Infinity", "-Infinity", "01", "+1", ".5", "1.", "0x10", "1e", "--1", "tru", "nul", "'a'", "True")
OUT_OF_RANGE = ("1e400", "-1e400", "9007199254740993", "-9007199254740993", "1" * 30, "1" * 4_301, "9" * 100_000)
ODD_NUMBERS = ("1e-400", "12345678901234567000", "100000000000000000000", "-0.0", "5e-324", "1E0", "0.1e1")
SURROGATES = (r'"\ud800"', r'"\udc00"', r'"a\ud83dx"', r'"\udc00\ud800"')
BAD_UTF8 = (b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x28\xa1")

ITEM: Path = ("payload", "events", 0)
Maker = Callable[[random.Random, Message, Dialect], bytes]


# -- What is not even read --------------------------------------------------------------------------------------------


def cut_short(chance: random.Random, message: Message, dialect: Dialect) -> bytes:
    text = json.dumps(message)
    return frame(text[: chance.randrange(1, len(text))].encode())


def garbage(chance: random.Random, message: Message, dialect: Dialect) -> bytes:
    return frame("".join(chance.choices(string.printable, k=chance.randrange(1, 200))).encode())


def empty(chance: random.Random, message: Message, dialect: Dialect) -> bytes:
    return frame(chance.choice((b"", b" ", b"\n\n\t")))


def another_root(chance: random.Random, message: Message, dialect: Dialect) -> bytes:
    return frame(chance.choice((b"[]", b"null", b"7", b'"text"', b"true", json.dumps([message]).encode())))


def text_behind(chance: random.Random, message: Message, dialect: Dialect) -> bytes:
    return frame(spelled(message, chance) + chance.choice((b"x", b"{}", b",", b"\0", b"}", b"null")))


def byte_order_mark(chance: random.Random, message: Message, dialect: Dialect) -> bytes:
    return frame(b"\xef\xbb\xbf" + spelled(message, chance))


def no_token(chance: random.Random, message: Message, dialect: Dialect) -> bytes:
    return frame(with_text(message, chance.choice(list(paths(message))), chance.choice(NO_TOKENS)))


def control_character(chance: random.Random, message: Message, dialect: Dialect) -> bytes:
    raw = '"a' + chr(chance.randrange(0x20)) + 'b"'
    return frame(with_text(message, chance.choice(list(paths(message))), raw))


def duplicate_name(chance: random.Random, message: Message, dialect: Dialect) -> bytes:
    objects = [path for path in ((), *paths(message)) if isinstance(at(message, path), dict) and at(message, path)]
    path = chance.choice(objects)
    name = chance.choice(sorted(at(message, path)))
    again = json.dumps(name)
    if chance.random() < 0.3:  # the same name, written another way
        again = '"' + "".join(f"\\u{ord(letter):04x}" for letter in name) + '"'
    return frame(with_name(message, path, again, at(message, (*path, name))))


def endless_nesting(chance: random.Random, message: Message, dialect: Dialect) -> bytes:
    return frame(chance.choice(("[", '{"a":', '{"type":')).encode() * chance.choice((65, 1_000, DEEPEST)))


def unknown_type(chance: random.Random, message: Message, dialect: Dialect) -> bytes:
    known = chance.choice(sorted(NORMAL))
    made_up = [known + " ", known.upper(), known + "\0", "error", "connected", "event_broadcast", "x" * 100_000]
    return frame(spelled(message | {"type": chance.choice(made_up)}, chance))


def binary(chance: random.Random, message: Message, dialect: Dialect) -> bytes:
    return frame(spelled(message, chance) if chance.random() < 0.5 else chance.randbytes(40), raw_frames.BINARY)


def invalid_utf8(chance: random.Random, message: Message, dialect: Dialect) -> bytes:
    text = spelled(message, chance)
    place = chance.randrange(len(text))
    return frame(text[:place] + chance.choice(BAD_UTF8) + text[place:])


def too_large(chance: random.Random, message: Message, dialect: Dialect) -> bytes:
    return frame(b'{"type":"' + b"x" * (LIMIT_BYTES + chance.choice((0, 1, 100_000))) + b'"}')


def too_large_in_fragments(chance: random.Random, message: Message, dialect: Dialect) -> bytes:
    part = b"x" * (LIMIT_BYTES // 4)
    pieces = frame(part, fin=False) + frame(part, raw_frames.CONTINUATION, fin=False) * 3
    return pieces + frame(b"x" * chance.randrange(1, 1_000), raw_frames.CONTINUATION)


UNREADABLE: Mapping[str, Maker] = {
    "cut short": cut_short,
    "garbage": garbage,
    "empty": empty,
    "another root": another_root,
    "text behind": text_behind,
    "byte order mark": byte_order_mark,
    "no JSON token": no_token,
    "raw control character": control_character,
    "duplicate name": duplicate_name,
    "endless nesting": endless_nesting,
    "unknown type": unknown_type,
    "binary": binary,
    "invalid UTF-8": invalid_utf8,
    "too large": too_large,
    "too large in fragments": too_large_in_fragments,
}
RARE = frozenset(
    {"too large", "too large in fragments", "deep event", "endless nesting", "long text", "full batch"}
    | {"partition that is slow to normalize", "name to sync that is slow to normalize"}
)
"""Large ones: a few show as much as many."""


# -- What is wrong with one item --------------------------------------------------------------------------------------


def _in_content(texts: Callable[[random.Random], str]) -> Maker:
    """Any text as a value deep inside the event."""
    return lambda chance, message, dialect: frame(with_text(message, (*content_path(dialect), "n"), texts(chance)))


def _as_id(texts: Callable[[random.Random], str]) -> Maker:
    return lambda chance, message, dialect: frame(with_text(message, (*ITEM, "id"), texts(chance)))


def nested(levels: int, opening: str) -> str:
    """The text of a value that is nested so deep."""
    return opening * levels + "1" + ("]" if opening == "[" else "}") * levels


def deep_event(chance: random.Random) -> str:
    # The event is the first level and its payload the second.
    return nested(chance.choice((63, 64, 100, 1_000, 10_000, DEEPEST)), chance.choice(("[", '{"a":')))


def deep_and_broken(chance: random.Random) -> str:
    """What is too deep may be cut out unread, but never kept."""
    levels = chance.choice((64, 70, 5_000))
    inside = chance.choice(("@", '"a":1,"a":2', "}", "]", '"', "NaN", "\\", '{"a":1,"a":2}', "[", r'"\ud800"'))
    return nested(levels, "[").replace("1", inside)


def surrogate_name(chance: random.Random, message: Message, dialect: Dialect) -> bytes:
    return frame(with_name(message, content_path(dialect), chance.choice(SURROGATES), 1))


def _items(count: Callable[[random.Random], int], same: bool = False) -> Maker:
    """A batch of so many items."""

    def make(chance: random.Random, message: Message, dialect: Dialect) -> bytes:
        item = at(message, ITEM)
        items = [item | {"id": item["id"] if same else f"{item['id']}-{place}"} for place in range(count(chance))]
        return frame(spelled(put(message, ("payload", "events"), items), chance))

    return make


STRANGE = (*OUT_OF_RANGE, *SURROGATES, nested(65, "["), nested(1_000, '{"a":'), nested(DEEPEST, "["))
"""Texts that are JSON, and that not every parser can hold."""

ITEMS: Mapping[str, Maker] = {
    "deep event": _in_content(deep_event),
    "deep and broken event": _in_content(deep_and_broken),
    "deepest event": _in_content(lambda chance: nested(62, chance.choice(("[", '{"a":')))),
    "number out of range": _in_content(lambda chance: chance.choice(OUT_OF_RANGE)),
    "odd number": _in_content(lambda chance: chance.choice(ODD_NUMBERS)),
    "lone surrogate": _in_content(lambda chance: chance.choice(SURROGATES)),
    "lone surrogate in a name": surrogate_name,
    "long text": _in_content(lambda chance: json.dumps("x" * chance.randrange(10_000, 900_000))),
    "long id": _as_id(lambda chance: json.dumps("é" * chance.choice((65, 100, 10_000)))),
    "longest id": _as_id(lambda chance: json.dumps(f"{chance.randrange(10**9):0128}")),
    "surrogate in the id": _as_id(lambda chance: chance.choice(SURROGATES)),
    "too many items": _items(lambda chance: chance.choice((101, 1_000))),
    "same id twice": _items(lambda chance: chance.choice((2, 50)), same=True),
    "full batch": _items(lambda chance: 100),
}


# -- What only the seed dialect has -----------------------------------------------------------------------------------


class Change(NamedTuple):
    """Another value at one place of a message."""

    kind: str
    path: Path
    value: Callable[[random.Random], object]

    def __call__(self, chance: random.Random, message: Message, dialect: Dialect) -> bytes:
        """The frame."""
        return frame(spelled(put(message, self.path, self.value(chance)), chance))


class Text(Change):
    """Another text at one place of a message."""

    def __call__(self, chance: random.Random, message: Message, dialect: Dialect) -> bytes:
        """The frame."""
        return frame(with_text(message, self.path, str(self.value(chance))))


class Unescaped(Change):
    """Another value at one place of a message, written with as few bytes as can be."""

    def __call__(self, chance: random.Random, message: Message, dialect: Dialect) -> bytes:
        """The frame."""
        return frame(json.dumps(put(message, self.path, self.value(chance)), ensure_ascii=False).encode())


def _names(count: int) -> list[str]:
    return [f"fuzz-{number}" for number in range(count)]


SLOW_NAME = "a" + "\u0301\u0327" * 250_000
"""Marks in the wrong order: sorting them one by one takes the square of their number."""

_PARTITIONS: Path = (*ITEM, "partitions")
_SUBMIT, _SYNC = "submit_events", "sync"
_SINCE: Path = ("payload", "since_committed_id")

SEED_KINDS: Mapping[str, Change] = {
    "too many partitions": Change(_SUBMIT, _PARTITIONS, lambda chance: _names(chance.choice((65, 1_000, 5_000)))),
    "most partitions": Change(_SUBMIT, _PARTITIONS, lambda chance: _names(64)),
    "one partition many times": Change(_SUBMIT, _PARTITIONS, lambda chance: ["fuzz"] * chance.choice((65, 5_000))),
    "long partition": Change(_SUBMIT, (*_PARTITIONS, 0), lambda chance: "é" * chance.choice((65, 100, 10_000))),
    "longest partition": Change(_SUBMIT, (*_PARTITIONS, 0), lambda chance: "é" * 64),
    "surrogate in a partition": Text(_SUBMIT, (*_PARTITIONS, 0), lambda chance: chance.choice(SURROGATES)),
    "partition that is slow to normalize": Unescaped(_SUBMIT, (*_PARTITIONS, 0), lambda chance: SLOW_NAME),
    "name to sync that is slow to normalize": Unescaped(_SYNC, ("payload", "partitions", 0), lambda chance: SLOW_NAME),
    "retired key in an item": Change(_SUBMIT, (*ITEM, "partition"), lambda chance: chance.choice(("fuzz", None, 7))),
    "retired key in a submit": Change(_SUBMIT, ("payload", "partition"), lambda chance: "fuzz"),
    "retired key in a sync": Change(_SYNC, ("payload", "partition"), lambda chance: chance.choice(("fuzz", None))),
    "too many names to sync": Change(
        _SYNC,
        ("payload", "partitions"),
        lambda chance: _names(chance.choice((65, 1_000, 5_000))),
    ),
    "most names to sync": Change(_SYNC, ("payload", "partitions"), lambda chance: _names(64)),
    "long name to sync": Change(_SYNC, ("payload", "partitions", 0), lambda chance: "é" * chance.choice((65, 10_000))),
    "surrogate in a name to sync": Text(_SYNC, ("payload", "partitions", 0), lambda chance: chance.choice(SURROGATES)),
    "cursor of the future": Change(_SYNC, _SINCE, lambda chance: chance.choice((10**9, 2**53 - 1))),
    "cursor beyond all numbers": Change(_SYNC, _SINCE, lambda chance: chance.choice((2**63, 2**64, 10**30))),
    "cursor that overflows": Text(_SYNC, _SINCE, lambda chance: "1e400"),
    "connect again": Change("connect", ("payload", "token"), lambda chance: "any"),
}


def message_for(kind: str, dialect: Dialect, payloads: Mapping[str, Message]) -> Message:
    """The right message that a kind of fault begins with."""
    name = SEED_KINDS[kind].kind if kind in SEED_KINDS else "submit_events"
    return envelope(dialect, name, payloads[name])
