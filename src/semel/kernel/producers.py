"""Producer epochs and sequences: the rules of an idempotent producer as one table.

A producer numbers its appends 0, 1, 2, ... within an epoch. A new epoch, opened with sequence 0, fences every older
one. The state is the pair (epoch, highest accepted sequence); it moves only together with an accepted append, in the
same commit, so that a crash can never leave one without the other.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from semel.kernel.verdict import Verdict

MAX_NUMBER = 2**53 - 1


class ProducerState(NamedTuple):
    """The stored state of a producer."""

    epoch: int
    seq: int


class Epoch(Enum):
    """The relation of the sent epoch to the known one."""

    UNKNOWN = "unknown"
    OLDER = "older"
    SAME = "same"
    NEWER = "newer"


class Seq(Enum):
    """The relation of the sent sequence to the expected one."""

    FIRST = "first"
    REPEAT = "repeat"
    NEXT = "next"
    AHEAD = "ahead"


TABLE: dict[tuple[Epoch, Seq], Verdict] = {
    (Epoch.UNKNOWN, Seq.FIRST): Verdict.FRESH,
    (Epoch.UNKNOWN, Seq.AHEAD): Verdict.GAP,
    (Epoch.OLDER, Seq.FIRST): Verdict.FENCED,
    (Epoch.OLDER, Seq.AHEAD): Verdict.FENCED,
    (Epoch.NEWER, Seq.FIRST): Verdict.FRESH,
    (Epoch.NEWER, Seq.AHEAD): Verdict.REFUSED,
    (Epoch.SAME, Seq.REPEAT): Verdict.REPLAY,
    (Epoch.SAME, Seq.NEXT): Verdict.FRESH,
    (Epoch.SAME, Seq.AHEAD): Verdict.GAP,
}


def judge(known: ProducerState | None, epoch: int, seq: int) -> Verdict:
    """Decide one append of a producer by its stored state."""
    return TABLE[_place(known, epoch, seq)]


def expected_seq(known: ProducerState | None) -> int:
    """The next sequence that would be accepted, sent to a producer that left a gap."""
    return 0 if known is None else known.seq + 1


def _place(known: ProducerState | None, epoch: int, seq: int) -> tuple[Epoch, Seq]:
    opening = Seq.FIRST if seq == 0 else Seq.AHEAD
    if known is None:
        return Epoch.UNKNOWN, opening
    if epoch < known.epoch:
        return Epoch.OLDER, opening
    if epoch > known.epoch:
        return Epoch.NEWER, opening
    if seq <= known.seq:
        return Epoch.SAME, Seq.REPEAT
    return Epoch.SAME, Seq.NEXT if seq == known.seq + 1 else Seq.AHEAD
