"""The hash chain of an audit file: no line can be removed, changed or moved without a later line telling.

A line ends with its number and the SHA-256 of the whole line before it, newline included:
`{"ts":...,"event":...,"details":{...},"seq":42,"prev":"9f2c..."}`. The first line has number 1 and a hash of zeros. The
chain goes on over rotations and restarts, and each file name has its own. The store keeps its head: the number and the
hash of a line that is synced, so that lines cut off at the end are missed too (`audit_head`).

Old files are dropped by size. Before that, the last line of the file that is full, `AUDIT_FILE_CLOSED`, says from which
number on lines are kept (`kept_from`), so the chain itself tells a drop by retention from a removal. A crash between
that line and the renames leaves more lines than promised; the next start completes the rotation.

A start continues the chain at the last line that follows from the head in the store. If that line is gone, the chain
continues at the head itself, and a line `AUDIT_CHAIN_BROKEN` says so. Without a head it continues at the last line of
the file, and a line `AUDIT_CHAIN_ADOPTED` says why there was none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import orjson

from semel.server.ops.rotated_file import KEPT, MAX_BYTES, LineFile, kept_name

CLOSED, ADOPTED, BROKEN = "AUDIT_FILE_CLOSED", "AUDIT_CHAIN_ADOPTED", "AUDIT_CHAIN_BROKEN"
LINK_BYTES = len(b',"seq":,"prev":""') + 64 + 8
"""What a link adds to a line, about."""
_LINK = re.compile(rb',"seq":([1-9][0-9]{0,17}),"prev":"([0-9a-f]{64})"\}\n\Z')

GRACE_BYTES = 16 * 1024 * 1024
"""What a full file takes at most while it waits for the store: about what a flood of lines brings in two seconds."""
MAX_READ_BYTES = 64 * 1024
"""More than the longest line."""

OwnLine = Callable[[str, Mapping[str, Any]], bytes]
"""Makes the line of an event and its details, without a link."""


class ChainLink(NamedTuple):
    """A place in a chain: the number of a line, and the hash of it."""

    lines: int
    digest: bytes


START = ChainLink(0, bytes(32))


class ChainHead(NamedTuple):
    """What the store keeps of a chain."""

    link: ChainLink
    starts: tuple[int, ...]
    """The number of the first line of each kept file, the oldest first, the file that takes lines last."""


FIRST_HEAD = ChainHead(START, (1,))
"""The head before the first line."""


class ChainMember(NamedTuple):
    """One line as a member of the chain."""

    seq: int
    prev: bytes
    digest: bytes
    text: bytes

    @property
    def link(self) -> ChainLink:
        """The place of this line."""
        return ChainLink(self.seq, self.digest)

    def follows(self, link: ChainLink) -> bool:
        """Whether this line is the next one after that place."""
        return self.seq == link.lines + 1 and self.prev == link.digest

    def details_of(self, event: str) -> Mapping[str, Any] | None:
        """The details, if the line is of this event."""
        if event.encode() not in self.text:
            return None
        with suppress(ValueError):
            line = orjson.loads(self.text)
            if line.get("event") == event and isinstance(line.get("details"), dict):
                return dict(line["details"])
        return None


def chained(line: bytes, link: ChainLink) -> tuple[bytes, ChainLink]:
    """A line with its link, and the place after it."""
    seq = link.lines + 1
    text = b'%b,"seq":%d,"prev":"%b"}\n' % (line[:-2], seq, link.digest.hex().encode())
    return text, ChainLink(seq, sha256(text).digest())


def member_of(text: bytes) -> ChainMember | None:
    """A line, newline included, as a member of the chain; None if it has no link."""
    found = _LINK.search(text)
    if found is None:
        return None
    return ChainMember(int(found[1]), bytes.fromhex(found[2].decode()), sha256(text).digest(), text)


class ChainedFile:
    """Appends chained lines to a rotated file. One thread uses it."""

    def __init__(
        self, path: Path, own_line: OwnLine, head: ChainHead | None, reason: str, max_bytes: int = MAX_BYTES
    ) -> None:
        """`reason` says why there is no head, for the line `AUDIT_CHAIN_ADOPTED`."""
        self._path = path
        self._own_line = own_line
        self._head = head
        self._reason = reason
        self._file = LineFile(path, max_bytes)
        self._link = START
        self._starts: tuple[int, ...] = (1,)
        self._vouched = 0 if head is None else head.starts[-1]
        self._is_recovered = False
        self._is_closing = False
        self._waiting: list[bytes] = []

    @property
    def is_behind(self) -> bool:
        """Whether the chain is still to be found, or lines of a failed append are still to be written."""
        return not self._is_recovered or bool(self._waiting) or self._file.is_behind

    def append(self, lines: Sequence[bytes]) -> None:
        """Append lines without a link. After an OSError they are kept: append nothing to retry."""
        self._waiting += lines
        if not self._is_recovered:
            self._recover()
        if self._file.is_behind:
            self._file.add(b"")
        if not self._waiting:
            return
        size = sum(map(len, self._waiting)) + LINK_BYTES * len(self._waiting)
        if self._is_closing or self._is_due(size):
            self._rotate()
        waiting, self._waiting = self._waiting, []
        self._file.add(b"".join(map(self._linked, waiting)))

    def sync(self) -> ChainHead | None:
        """Sync the file; returns the head of what is on disk now, or None if lines are still to be written."""
        if self.is_behind:
            return None
        self._file.sync()
        return ChainHead(self._link, self._starts)

    def vouch(self, head: ChainHead) -> None:
        """Note that the store has this head; any thread may call it."""
        self._vouched = head.starts[-1]

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _is_due(self, size: int) -> bool:
        """Whether the file is full. A rotation that would drop a file waits until the store knows the files that stay,
        because only then is the drop believed after a crash; but not for more than `GRACE_BYTES`.
        """
        if not self._file.is_full(size):
            return False
        return self._kept()[0] <= self._vouched or self._file.is_full(size - GRACE_BYTES)

    def _kept(self) -> tuple[int, ...]:
        """The first lines of the files that stay after a rotation, whose closing line is the next line."""
        return (*self._starts, self._link.lines + 2)[-(KEPT + 1) :]

    def _linked(self, line: bytes) -> bytes:
        text, self._link = chained(line, self._link)
        return text

    def _rotate(self) -> None:
        """Close the file with its last line, then move it aside; a retry after an OSError goes on where it was."""
        if not self._is_closing:
            kept = self._kept()
            closing = self._own_line(CLOSED, {"first": self._starts[-1], "kept_from": kept[0]})
            self._starts = kept
            self._is_closing = True
            self._file.add(self._linked(closing))
        self._file.move_aside()
        self._is_closing = False

    def _recover(self) -> None:
        """Continue the chain of the files that are there."""
        told: list[bytes] = []
        head = self._head
        if head is None:
            last = self._last()
            if last is not None:
                self._link, self._starts = last.link, self._starts_found()
                self._vouched = self._starts[-1]
                self._is_closing = self._is_unmoved(last)
                if self._is_closing:
                    self._starts = (*self._starts, last.seq + 1)[-(KEPT + 1) :]
                told.append(self._own_line(ADOPTED, {"reason": self._reason, "lines": last.seq}))
        else:
            self._link, self._starts = head
            found = self._follow(head)
            if found is not None:
                told.append(self._own_line(BROKEN, {"expected": head.link.lines, "found": found}))
        self._waiting = told + self._waiting
        self._is_recovered = True

    def _follow(self, head: ChainHead) -> int | None:
        """Go from the head to the last line; the number of the last line if the head or a line after it is not there,
        else None.
        """
        is_there = head.link == START
        last = None
        for member in self._after(head.link.lines):
            if member.link == head.link:
                is_there = True
            elif is_there and member.follows(self._link):
                self._link = member.link
                closed = member.details_of(CLOSED)
                if closed is not None:
                    self._starts = (*self._starts, member.seq + 1)[-(KEPT + 1) :]
            elif is_there:
                return member.seq
            last = member
        if not is_there:
            return 0 if last is None else last.seq
        self._is_closing = last is not None and self._is_unmoved(last)
        return None

    def _after(self, count: int) -> Sequence[ChainMember]:
        """The lines from this number on, in the order of the files."""
        found: list[ChainMember] = []
        for number in range(KEPT + 1):
            members = list(_members(kept_name(self._path, number) if number else self._path))
            found = [member for member in members if member.seq >= count] + found
            if members and members[0].seq <= count:
                break
        return found

    def _last(self) -> ChainMember | None:
        for number in range(KEPT + 1):
            members = list(_members(kept_name(self._path, number) if number else self._path))
            if members:
                return members[-1]
        return None

    def _starts_found(self) -> tuple[int, ...]:
        paths = [*(kept_name(self._path, number) for number in range(KEPT, 0, -1)), self._path]
        firsts = (next(_members(path), None) for path in paths)
        return tuple(first.seq for first in firsts if first is not None)

    def _is_unmoved(self, last: ChainMember) -> bool:
        """Whether the process died after the last line of a full file, before the file was moved aside."""
        return last.details_of(CLOSED) is not None and last in _members(self._path)


def lines_in(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file. One that is longer than any line of the log comes in pieces, which are no members."""
    return iter(lambda: file.readline(MAX_READ_BYTES), b"")


def _members(path: Path) -> Iterator[ChainMember]:
    """The chained lines of a file, in order; none if there is no file."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        yield from filter(None, map(member_of, lines_in(file)))
