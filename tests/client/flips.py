"""Every single bit of a document, turned over one after the other.

Bytes are turned as bytes and numbers as numbers, whatever their spelling in JSON is. Turning changes the document in
place, so that nothing has to be copied, and puts it back afterwards.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from tests.client.slow_ledger import time_text

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST = int((datetime(1, 1, 1, tzinfo=UTC) - EPOCH).total_seconds())
LAST = int((datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - EPOCH).total_seconds())
DIRECTIONS = ("DIRECTION_UNSPECIFIED", "DIRECTION_LEFT", "DIRECTION_RIGHT", 1, 2)
TEXTS = {"actor", "resource", "relation", "subject"}
UNCOVERED = {"leaderId"}
"""The name of the leader is covered by no hash."""


def flips(document: Any, skipped: frozenset[str] = frozenset()) -> Iterator[str]:
    """Changes the document by one bit at each step, and yields what was changed."""
    for path, holder, name in _places(document, "", skipped | UNCOVERED):
        kept = holder[name]
        for number, changed in enumerate(_changed(path, kept)):
            holder[name] = changed
            yield f"{path} #{number}"
        holder[name] = kept


def _places(value: Any, path: str, skipped: frozenset[str] | set[str]) -> Iterator[tuple[str, Any, Any]]:
    names = list(value) if isinstance(value, dict) else range(len(value))
    for name in names:
        if name in skipped:
            continue
        below = f"{path}.{name}"
        if isinstance(value[name], dict | list):
            yield from _places(value[name], below, skipped)
        else:
            yield below, value, name


def _changed(path: str, value: Any) -> Iterator[Any]:
    """All values that differ in one bit."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value ^ 1 << bit for bit in range(32))
    else:
        yield from _kind_of(path)(value)


def _kind_of(path: str) -> Callable[[str], Iterator[Any]]:
    name = path.rpartition(".")[2]
    if name == "direction":
        return _directions
    if name == "timestamp":
        return _times
    is_text = name in TEXTS or path.endswith(".clientId.id") or re.search(r"(Entity\.key)$", path)
    if is_text:
        return _texts
    if name in ("value", "valueEquals", "id", "key"):
        return _octets
    return _numbers


def _directions(value: str) -> Iterator[Any]:
    yield from (other for other in DIRECTIONS if other != value)


def _numbers(value: str) -> Iterator[str]:
    yield from (str(int(value) ^ 1 << bit) for bit in range(64))


def _octets(value: str) -> Iterator[str]:
    yield from (b64encode(one).decode() for one in turned(b64decode(value)))


def _texts(value: str) -> Iterator[str]:
    """Bytes that are no UTF-8 stand in the string as they do in Python's own names of files."""
    yield from (one.decode("utf-8", "surrogateescape") for one in turned(value.encode()))


def _times(value: str) -> Iterator[str]:
    """Those that a text can tell: a calendar ends."""
    when, _, digits = value.removesuffix("Z").partition(".")
    seconds = int((datetime.fromisoformat(f"{when}+00:00") - EPOCH).total_seconds())
    nanos = int(digits.ljust(9, "0") if digits else 0)
    for bit in range(63):
        if FIRST <= seconds ^ 1 << bit <= LAST:
            yield time_text(seconds ^ 1 << bit, nanos)
    for bit in range(30):
        if nanos ^ 1 << bit < 10**9:
            yield time_text(seconds, nanos ^ 1 << bit)


def turned(content: bytes) -> Iterator[bytes]:
    """All bytes that differ in one bit."""
    for at in range(len(content)):
        for bit in range(8):
            yield content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
