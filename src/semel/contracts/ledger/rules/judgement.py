"""The decision table of writes: the outcome by sequence, key and operations.

Rows are tried from top to bottom and the first that applies decides. A write has a sequence, a key, or both; what was
committed under either is remembered as long as the window, the stream's life and the retention of bodies say (see
`memory`). Pure: nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from semel.contracts.ledger.limits import MAX_SEQUENCE

KEY_BYTES = 16


class Verdict(Enum):
    """The action of a rule."""

    REFUSE = "INVALID_ARGUMENT"
    ROTATE = "FAILED_PRECONDITION"
    REUSED_KEY = "IDEMPOTENCY_KEY_REUSED"
    REPLAY_KEY = "replay of the key's commit"
    TOLD_KEY = "ALREADY_COMMITTED, the key's commit"
    NEXT = "execute with the next sequence"
    EXECUTE = "execute"
    GAP = "SEQUENCE_GAP"
    REPLAY_SEQUENCE = "replay of the sequence's commit"
    TOLD_SEQUENCE = "ALREADY_COMMITTED, the sequence's commit"
    REUSED_SEQUENCE = "IDEMPOTENCY_KEY_REUSED, conflict=sequence"
    UNVERIFIED = "ALREADY_COMMITTED, verified=false"


class Past(NamedTuple):
    """A remembered commit."""

    sequence: int
    key: bytes
    hash: bytes
    height: int


class Case(NamedTuple):
    """A write and what is known of its identity."""

    sequence: int | None
    key: bytes
    """Empty when missing."""
    hash: bytes
    last: int
    by_key: Past | None
    by_sequence: Past | None

    @property
    def is_next(self) -> bool:
        """Whether it has the sequence that is due."""
        return self.sequence == self.last + 1

    @property
    def is_old(self) -> bool:
        """Whether its sequence was used before."""
        return self.sequence is not None and self.sequence <= self.last


class Rule(NamedTuple):
    """A row of the decision table: its name, its condition (in words and in code), and its action."""

    row: str
    key: str
    sequence: str
    operations: str
    verdict: Verdict
    applies: Callable[[Case], bool]


def is_wrong_length(case: Case) -> bool:
    """A key that is neither missing nor sixteen bytes."""
    return len(case.key) not in (0, KEY_BYTES)


def _differs_by_key(case: Case) -> bool:
    return case.by_key is not None and case.by_key.hash != case.hash


def _is_of_key(case: Case) -> bool:
    return case.by_key is not None and case.sequence == case.by_key.sequence


def _repeats_sequence(case: Case) -> bool:
    past = case.by_sequence
    return case.is_old and past is not None and past.hash == case.hash and (not case.key or not past.key)


def _repeats_under_other_key(case: Case) -> bool:
    past = case.by_sequence
    return case.is_old and past is not None and past.hash == case.hash


RULES = (
    Rule("R0a", "not 0 or 16 bytes", "any", "any", Verdict.REFUSE, is_wrong_length),
    Rule("R0a", "any", "0", "any", Verdict.REFUSE, lambda case: case.sequence == 0),
    Rule("R0b", "missing", "missing", "any", Verdict.REFUSE, lambda case: not case.key and case.sequence is None),
    Rule(
        "R0c",
        "new",
        "missing, and the last is 2^64-1",
        "any",
        Verdict.ROTATE,
        lambda case: case.by_key is None and case.sequence is None and case.last == MAX_SEQUENCE,
    ),
    Rule("R1", "remembered", "any", "differ", Verdict.REUSED_KEY, _differs_by_key),
    Rule(
        "R2",
        "remembered",
        "missing",
        "equal",
        Verdict.REPLAY_KEY,
        lambda case: case.by_key is not None and case.sequence is None,
    ),
    Rule("R3", "remembered", "the key's", "equal", Verdict.REPLAY_KEY, _is_of_key),
    Rule("R4", "remembered", "another", "equal", Verdict.TOLD_KEY, lambda case: case.by_key is not None),
    Rule("R5", "new", "missing", "any", Verdict.NEXT, lambda case: case.sequence is None),
    Rule("R6", "new or missing", "last + 1", "any", Verdict.EXECUTE, lambda case: case.is_next),
    Rule("R7", "new or missing", "beyond last + 1", "any", Verdict.GAP, lambda case: not case.is_old),
    Rule(
        "R8",
        "missing, or the sequence's commit had none",
        "at most last, remembered",
        "equal",
        Verdict.REPLAY_SEQUENCE,
        _repeats_sequence,
    ),
    Rule(
        "R9",
        "new, and the sequence's commit had another",
        "at most last, remembered",
        "equal",
        Verdict.TOLD_SEQUENCE,
        _repeats_under_other_key,
    ),
    Rule(
        "R10",
        "new or missing",
        "at most last, remembered",
        "differ",
        Verdict.REUSED_SEQUENCE,
        lambda case: case.by_sequence is not None,
    ),
    Rule("R11", "new or missing", "at most last, forgotten", "unknown", Verdict.UNVERIFIED, lambda case: True),
)

EXECUTES = frozenset({Verdict.NEXT, Verdict.EXECUTE})


def judge(case: Case) -> Rule:
    """The first row that applies."""
    return next(rule for rule in RULES if rule.applies(case))
