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


class EpochPosition(Enum):
    """The sent epoch compared with the stored one."""

    UNKNOWN = "unknown"
    OLDER = "older"
    SAME = "same"
    NEWER = "newer"


class SeqPosition(Enum):
    """The sent sequence compared with the expected one."""

    FIRST = "first"
    REPEAT = "repeat"
    NEXT = "next"
    AHEAD = "ahead"


TABLE: dict[tuple[EpochPosition, SeqPosition], Verdict] = {
    (EpochPosition.UNKNOWN, SeqPosition.FIRST): Verdict.FRESH,
    (EpochPosition.UNKNOWN, SeqPosition.AHEAD): Verdict.GAP,
    (EpochPosition.OLDER, SeqPosition.FIRST): Verdict.FENCED,
    (EpochPosition.OLDER, SeqPosition.AHEAD): Verdict.FENCED,
    (EpochPosition.NEWER, SeqPosition.FIRST): Verdict.FRESH,
    (EpochPosition.NEWER, SeqPosition.AHEAD): Verdict.REFUSED,
    (EpochPosition.SAME, SeqPosition.REPEAT): Verdict.REPLAY,
    (EpochPosition.SAME, SeqPosition.NEXT): Verdict.FRESH,
    (EpochPosition.SAME, SeqPosition.AHEAD): Verdict.GAP,
}


def judge(known: ProducerState | None, epoch: int, seq: int) -> Verdict:
    """Decide one append of a producer by its stored state."""
    return TABLE[_place(known, epoch, seq)]


def expected_seq(known: ProducerState | None) -> int:
    """The next sequence that would be accepted, sent to a producer that left a gap."""
    return 0 if known is None else known.seq + 1


def _place(known: ProducerState | None, epoch: int, seq: int) -> tuple[EpochPosition, SeqPosition]:
    opening = SeqPosition.FIRST if seq == 0 else SeqPosition.AHEAD
    if known is None:
        return EpochPosition.UNKNOWN, opening
    if epoch < known.epoch:
        return EpochPosition.OLDER, opening
    if epoch > known.epoch:
        return EpochPosition.NEWER, opening
    if seq <= known.seq:
        return EpochPosition.SAME, SeqPosition.REPEAT
    return EpochPosition.SAME, SeqPosition.NEXT if seq == known.seq + 1 else SeqPosition.AHEAD
