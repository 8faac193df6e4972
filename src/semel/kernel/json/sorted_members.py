"""Members of one large object, sorted as in RFC 8785: names by UTF-16 units, and none of them twice.

Promise: a member takes little more memory than its text. Members are sorted a few thousand at a time; each sorted run
is kept as one text, and at the end the runs are merged.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from heapq import merge

from semel.kernel.json.parse import repeated_name

RUN_MEMBERS = 4_096

_END_OF_NAME, _AS_IT_IS, _IN_PRINT = b"\x00", b"\x01", b"\x02"
"""Separators in an entry. The first ends the name; the next says whether the name is printed as it is, or its printed
form follows.
"""
_PLAIN_NAME = re.compile(r"[ !#-\[\]-~]*+")
_BEYOND_UTF16_UNIT = re.compile("[\U00010000-\U0010ffff]")


class SortedMembers:
    """Accepts members in any order. The entry of a member sorts as its name does."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._runs: list[_MemberRun] = []

    def add_name(self, name: str) -> None:
        """Add a member that is not printed; it is needed only to find a repeated name."""
        self._add(_order_of(name) + _END_OF_NAME)

    def add(self, name: str, printed_name: bytes | None, value: bytes) -> None:
        """Add a member with the text of its value; the printed name may be omitted if `is_plain_name`."""
        if printed_name is None:
            self._add(b"%s%s%s%s" % (name.encode(), _END_OF_NAME, _AS_IT_IS, value))
        else:
            self._add(b"%s%s%s%s:%s" % (_order_of(name), _END_OF_NAME, _IN_PRINT, printed_name, value))

    def texts(self) -> Iterator[bytes]:
        """The printed members, in order; a name that occurs twice is refused."""
        self._end_run()
        runs, self._runs = self._runs, []
        last: bytes | None = None
        for entry in merge(*runs):
            order, text = _parts(entry)
            if order == last:
                raise repeated_name(_name_of(order))
            last = order
            if text:
                yield text

    def _add(self, entry: bytes) -> None:
        self._waiting.append(entry)
        if len(self._waiting) >= RUN_MEMBERS:
            self._end_run()

    def _end_run(self) -> None:
        if self._waiting:
            self._waiting.sort()
            self._runs.append(_MemberRun(self._waiting))
            self._waiting = []


class _MemberRun:
    """Sorted entries, stored one after the other in one text."""

    def __init__(self, entries: list[bytes]) -> None:
        self._sizes = array("L", map(len, entries))
        self._text = b"".join(entries)

    def __iter__(self) -> Iterator[bytes]:
        start = 0
        for size in self._sizes:
            yield self._text[start : start + size]
            start += size


def is_plain_name(name: str) -> bool:
    """Whether a name is printed without escapes, and sorts by its bytes."""
    return _PLAIN_NAME.fullmatch(name) is not None


def _parts(entry: bytes) -> tuple[bytes, bytes]:
    """The sort key of an entry, and its printed member; empty if it is not printed."""
    end = entry.find(_END_OF_NAME)
    while entry[end + 1 : end + 2] == b"\xff":
        end = entry.find(_END_OF_NAME, end + 1)
    order, rest = entry[:end], entry[end + 1 :]
    if rest.startswith(_AS_IT_IS):
        return order, b'"%s":%s' % (order, rest[1:])
    return order, rest[1:]


def _order_of(name: str) -> bytes:
    """Bytes that sort as the UTF-16 units of a name; a NUL in a name differs from the end of the name."""
    if not name.isascii():
        name = _BEYOND_UTF16_UNIT.sub(_two_units, name)
    return name.encode("utf-8", "surrogatepass").replace(b"\x00", b"\x00\xff")


def _name_of(order: bytes) -> str:
    units = order.replace(b"\x00\xff", b"\x00").decode("utf-8", "surrogatepass")
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _two_units(found: re.Match[str]) -> str:
    code = ord(found[0]) - 0x10000
    return chr(0xD800 + (code >> 10)) + chr(0xDC00 + (code & 0x3FF))
