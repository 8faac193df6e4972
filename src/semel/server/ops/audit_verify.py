"""Verifies the chain of an audit file, with all of its rotated files, against the head that the store keeps.

It finds the first line that is missing, changed, moved or added. A server may be writing: the head is read before the
files, and the files from the newest to the oldest, so that a rotation meanwhile hides nothing. Nothing is changed.

What cannot be found: lines after the head that were cut off or rewritten while no server ran, which are those of its
last two seconds; and anything, by one who can change the store as well as the files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, NamedTuple

from semel.server.ops.audit_chain import ADOPTED, CLOSED, START, ChainHead, ChainLink, ChainMember, lines_in, member_of
from semel.server.ops.rotated_file import KEPT, kept_name


class FileLine(NamedTuple):
    """One line and its place."""

    file: str
    number: int
    text: bytes


class ChainFinding(NamedTuple):
    """The first bad line of a chain."""

    file: str
    line: int
    """The number of the line in its file; 0 if the file or the line is not there."""
    seq: int
    """The number in the chain."""
    what: str


class ChainReport(NamedTuple):
    """The result for one chain."""

    name: str
    lines: int
    """Chained lines that were read."""
    first: int
    last: int
    head: int | None
    """The number of the line that the store remembers; None without one."""
    finding: ChainFinding | None
    notes: Sequence[str]


def verify_chain(path: Path, head: ChainHead | None, archived: Sequence[Path] = ()) -> ChainReport:
    """Verify one chain. `archived` are older files that were moved elsewhere, the oldest first. Raises `OSError`."""
    with ExitStack() as stack:
        files = _opened(path, stack)
        older = [(archive.name, stack.enter_context(archive.open("rb"))) for archive in archived]
        return ChainWalk(path.name, head).report(_lines([*older, *files]))


def _opened(path: Path, stack: ExitStack) -> list[tuple[str, BinaryIO]]:
    """The files of a chain, the oldest first; opened from the newest, so that a rotation shows one twice at most."""
    found: list[tuple[str, BinaryIO]] = []
    seen: set[tuple[int, int]] = set()
    for name in (path, *(kept_name(path, number) for number in range(1, KEPT + 1))):
        try:
            file = stack.enter_context(name.open("rb"))
        except FileNotFoundError:
            continue
        about = os.fstat(file.fileno())
        if (about.st_dev, about.st_ino) not in seen:
            seen.add((about.st_dev, about.st_ino))
            found.append((name.name, file))
    return found[::-1]


def _lines(files: Iterable[tuple[str, BinaryIO]]) -> Iterator[FileLine]:
    for name, file in files:
        for number, text in enumerate(lines_in(file), 1):
            yield FileLine(name, number, text)


class ChainWalk:
    """One walk along a chain, line by line."""

    def __init__(self, name: str, head: ChainHead | None) -> None:
        self._name = name
        self._head = head
        self._link: ChainLink | None = None
        self._first = 0
        self._lines = 0
        self._last = FileLine(name, 0, b"")
        self._kept_from = 1 if head is None else head.starts[0]
        self._finding: ChainFinding | None = None
        self._notes: list[str] = []

    def report(self, lines: Iterable[FileLine]) -> ChainReport:
        """Walk to the end, or to the first bad line."""
        for line in lines:
            self._take(line)
            if self._finding is not None:
                break
        else:
            self._end()
        last = self._link.lines if self._link is not None else 0
        remembered = None if self._head is None else self._head.link.lines
        if self._finding is None and remembered is not None and last > remembered:
            self._notes.append(
                f"{last - remembered} lines are newer than the head in the store: a server stores it every 2 seconds, "
                "and a store that was restored from a copy has an older one."
            )
        return ChainReport(self._name, self._lines, self._first, last, remembered, self._finding, self._notes)

    def _take(self, line: FileLine) -> None:
        member = member_of(line.text)
        if member is None:
            self._take_loose(line)
        elif self._link is not None and not member.follows(self._link):
            self._judge(line, member, self._link)
        else:
            self._accept(line, member)

    def _take_loose(self, line: FileLine) -> None:
        """A line without a link: one that a crash has torn, which no reader takes for a line, or one that was added."""
        if line.text.endswith(b"}\n"):
            seq = 0 if self._link is None else self._link.lines + 1
            self._find(line, seq, "is not a line of the chain: it was added or changed")
        else:
            self._notes.append(f"Line {line.number} of {line.file} was cut short by a crash, and is no line.")

    def _judge(self, line: FileLine, member: ChainMember, link: ChainLink) -> None:
        expected = link.lines + 1
        if member.seq > expected:
            gap = f"{expected}" if member.seq == expected + 1 else f"{expected} to {member.seq - 1}"
            self._find(line, expected, f"has number {member.seq}: {gap} were removed or moved")
        elif member.seq < expected:
            self._find(line, expected, f"has number {member.seq} instead of {expected}: lines were moved or added")
        else:
            self._find(self._last, link.lines, f"was changed: line {member.seq} has the hash of another")

    def _accept(self, line: FileLine, member: ChainMember) -> None:
        head = None if self._head is None else self._head.link
        if head is not None and member.seq == head.lines and member.digest != head.digest:
            self._find(line, member.seq, "was changed: the store has the hash of another")
            return
        if head is not None and self._link is None and member.seq == head.lines + 1 and member.prev != head.digest:
            self._find(line, member.seq, "does not follow the line that the store remembers")
            return
        if self._link is None:
            self._first = member.seq
        self._link, self._last = member.link, line
        self._lines += 1
        closed = member.details_of(CLOSED)
        if closed is not None:
            self._kept_from = max(self._kept_from, self._believed(member.seq, closed.get("kept_from")))
        adopted = member.details_of(ADOPTED)
        if adopted is not None:
            self._tell_adopted(line, member, adopted.get("reason"))

    def _believed(self, seq: int, kept_from: object) -> int:
        """A drop that the store does not vouch for yet is believed as far as the files that the store knows."""
        if not isinstance(kept_from, int):
            return 1
        if self._head is None or seq <= self._head.link.lines:
            return kept_from
        return min(kept_from, self._head.starts[-1])

    def _tell_adopted(self, line: FileLine, member: ChainMember, reason: object) -> None:
        if reason == "restored":
            self._notes.append(f"Before line {member.seq} the store was restored from a backup.")
        elif reason == "memory":
            self._notes.append(f"Before line {member.seq} the head was kept in memory alone, and is gone.")
        else:
            what = "says that the store had no head of these files: the lines before it cannot be relied on"
            self._find(line, member.seq, what)

    def _end(self) -> None:
        last = self._kept_from - 1 if self._link is None else self._link.lines
        remembered = START if self._head is None else self._head.link
        if self._link is not None and self._first > self._kept_from:
            what = f"is missing: the oldest line here is {self._first}, and lines are kept from {self._kept_from}"
            self._find(FileLine(self._name, 0, b""), self._kept_from, what)
        elif last < remembered.lines:
            gone = "it is" if last + 1 == remembered.lines else f"{last + 1} to {remembered.lines} are"
            what = f"is missing: the store remembers line {remembered.lines}, so {gone} cut off"
            self._find(FileLine(self._last.file, 0, b""), last + 1, what)

    def _find(self, line: FileLine, seq: int, what: str) -> None:
        self._finding = ChainFinding(line.file, line.number, seq, what)
