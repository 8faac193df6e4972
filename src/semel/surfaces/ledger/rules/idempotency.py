"""The idempotency rules: one table that decides a write by its sequence, its key and its operations.

Rows are tried from top to bottom and the first that applies decides. A write has a sequence, a key, or both; how long a
commit is remembered depends on the window, the life of the stream and the retention of bodies (see `commits`). No rule
reads a clock. The answer to a known write changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from semel.engine.contract import View
from semel.kernel.errors import Refusal
from semel.surfaces.ledger.commands import (
    CommittedTransaction,
    WriteCommand,
    WriteDeclined,
    WriteErrorCode,
    WriteReplayed,
)
from semel.surfaces.ledger.limits import MAX_SEQUENCE
from semel.surfaces.ledger.rules.chain import committed_of
from semel.surfaces.ledger.tables import INLINE_OPERATIONS, LEDGER_BLOCK, LEDGER_BODY

KEY_BYTES = 16


class WriteVerdict(Enum):
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


class RememberedCommit(NamedTuple):
    """A remembered commit."""

    sequence: int
    key: bytes
    hash: bytes
    height: int


class WriteCase(NamedTuple):
    """A write and what is stored under its sequence and its key."""

    sequence: int | None
    key: bytes
    """The idempotency key; empty if missing."""
    hash: bytes
    last: int
    by_key: RememberedCommit | None
    by_sequence: RememberedCommit | None

    @property
    def is_next(self) -> bool:
        """Whether the sequence is the next one."""
        return self.sequence == self.last + 1

    @property
    def is_old(self) -> bool:
        """Whether the sequence was used before."""
        return self.sequence is not None and self.sequence <= self.last


class WriteRule(NamedTuple):
    """A row of the decision table: its name, its condition (in words and in code), and its action."""

    row: str
    key: str
    sequence: str
    operations: str
    verdict: WriteVerdict
    applies: Callable[[WriteCase], bool]


def is_wrong_length(case: WriteCase) -> bool:
    """Whether a key is neither missing nor sixteen bytes."""
    return len(case.key) not in (0, KEY_BYTES)


def _differs_by_key(case: WriteCase) -> bool:
    return case.by_key is not None and case.by_key.hash != case.hash


def _is_of_key(case: WriteCase) -> bool:
    return case.by_key is not None and case.sequence == case.by_key.sequence


def _repeats_sequence(case: WriteCase) -> bool:
    past = case.by_sequence
    return case.is_old and past is not None and past.hash == case.hash and (not case.key or not past.key)


def _repeats_under_other_key(case: WriteCase) -> bool:
    past = case.by_sequence
    return case.is_old and past is not None and past.hash == case.hash


RULES = (
    WriteRule("R0a", "not 0 or 16 bytes", "any", "any", WriteVerdict.REFUSE, is_wrong_length),
    WriteRule("R0a", "any", "0", "any", WriteVerdict.REFUSE, lambda case: case.sequence == 0),
    WriteRule(
        "R0b", "missing", "missing", "any", WriteVerdict.REFUSE, lambda case: not case.key and case.sequence is None
    ),
    WriteRule(
        "R0c",
        "new",
        "missing, and the last is 2^64-1",
        "any",
        WriteVerdict.ROTATE,
        lambda case: case.by_key is None and case.sequence is None and case.last == MAX_SEQUENCE,
    ),
    WriteRule("R1", "remembered", "any", "differ", WriteVerdict.REUSED_KEY, _differs_by_key),
    WriteRule(
        "R2",
        "remembered",
        "missing",
        "equal",
        WriteVerdict.REPLAY_KEY,
        lambda case: case.by_key is not None and case.sequence is None,
    ),
    WriteRule("R3", "remembered", "the key's", "equal", WriteVerdict.REPLAY_KEY, _is_of_key),
    WriteRule("R4", "remembered", "another", "equal", WriteVerdict.TOLD_KEY, lambda case: case.by_key is not None),
    WriteRule("R5", "new", "missing", "any", WriteVerdict.NEXT, lambda case: case.sequence is None),
    WriteRule("R6", "new or missing", "last + 1", "any", WriteVerdict.EXECUTE, lambda case: case.is_next),
    WriteRule("R7", "new or missing", "beyond last + 1", "any", WriteVerdict.GAP, lambda case: not case.is_old),
    WriteRule(
        "R8",
        "missing, or the sequence's commit had none",
        "at most last, remembered",
        "equal",
        WriteVerdict.REPLAY_SEQUENCE,
        _repeats_sequence,
    ),
    WriteRule(
        "R9",
        "new, and the sequence's commit had another",
        "at most last, remembered",
        "equal",
        WriteVerdict.TOLD_SEQUENCE,
        _repeats_under_other_key,
    ),
    WriteRule(
        "R10",
        "new or missing",
        "at most last, remembered",
        "differ",
        WriteVerdict.REUSED_SEQUENCE,
        lambda case: case.by_sequence is not None,
    ),
    WriteRule(
        "R11", "new or missing", "at most last, forgotten", "unknown", WriteVerdict.UNVERIFIED, lambda case: True
    ),
)

EXECUTES = frozenset({WriteVerdict.NEXT, WriteVerdict.EXECUTE})


_NEXT_ROW = next(rule for rule in RULES if rule.verdict is WriteVerdict.EXECUTE)


def find_rule(case: WriteCase) -> WriteRule:
    """The first row that applies."""
    if case.sequence == case.last + 1 and case.by_key is None and len(case.key) in (0, KEY_BYTES):
        return _NEXT_ROW  # the usual case: no earlier row can apply
    return next(rule for rule in RULES if rule.applies(case))


KnownWriteAnswer = WriteReplayed | WriteDeclined | Refusal


def answer_known(view: View, command: WriteCommand, rule: WriteRule, case: WriteCase) -> KnownWriteAnswer:
    """The answer of a row of the table that executes nothing."""
    verdict = rule.verdict
    if verdict is WriteVerdict.REFUSE:
        return Refusal("ledger:invalid_argument", _wrong_identity(case))
    if verdict is WriteVerdict.ROTATE:
        return Refusal(
            "ledger:failed_precondition", "This client id has used its last sequence: use another client id."
        )
    if verdict is WriteVerdict.GAP:
        message = f"The last committed sequence is {case.last}: go on with {case.last + 1}."
        return WriteDeclined(WriteErrorCode.SEQUENCE_GAP, message, rule.row, last=case.last)
    if verdict is WriteVerdict.UNVERIFIED:
        message = "This sequence was committed; what it held is no longer remembered."
        details = {"verified": "false"}
        return WriteDeclined(
            WriteErrorCode.ALREADY_COMMITTED, message, rule.row, sequence=case.sequence, details=details
        )
    past = case.by_key if case.by_key is not None else case.by_sequence
    assert past is not None, "every other row concerns a remembered commit"
    replayed = _replayed(view, command, past)
    is_replay = verdict in (WriteVerdict.REPLAY_KEY, WriteVerdict.REPLAY_SEQUENCE)
    return replayed if is_replay else _declined(rule, case, replayed.committed)


def _declined(rule: WriteRule, case: WriteCase, committed: CommittedTransaction) -> WriteDeclined:
    tx_id, sequence, height = committed.transaction.id, committed.transaction.sequence, committed.header.height
    if rule.verdict is WriteVerdict.TOLD_KEY:
        message = f"This key was committed with sequence {sequence}; the sequence sent now was not used."
        return WriteDeclined(
            WriteErrorCode.ALREADY_COMMITTED,
            message,
            rule.row,
            tx_id=tx_id,
            height=height,
            sequence=sequence,
            last=case.last,
        )
    if rule.verdict is WriteVerdict.TOLD_SEQUENCE:
        message = "This sequence was committed with the same operations under another key: the keys do not match."
        return WriteDeclined(
            WriteErrorCode.ALREADY_COMMITTED, message, rule.row, tx_id=tx_id, height=height, sequence=sequence
        )
    if rule.verdict is WriteVerdict.REUSED_KEY:
        message = "This key was used for other operations: use a new key."
        return WriteDeclined(WriteErrorCode.IDEMPOTENCY_KEY_REUSED, message, rule.row, tx_id=tx_id, sequence=sequence)
    message = f"Sequence {sequence} was used for other operations."
    details = {"conflict": "sequence"}
    return WriteDeclined(
        WriteErrorCode.IDEMPOTENCY_KEY_REUSED, message, rule.row, tx_id=tx_id, sequence=sequence, details=details
    )


def _replayed(view: View, command: WriteCommand, past: RememberedCommit) -> WriteReplayed:
    where = (*command.write.place, past.height)
    block = view.get(LEDGER_BLOCK, where)
    assert block is not None, "headers are kept for ever"
    operations = block.operations
    if block.size > INLINE_OPERATIONS:
        body = view.get(LEDGER_BODY, where)
        assert body is not None, "a remembered body is kept"
        operations = body.operations
    return WriteReplayed(committed_of(block, operations), with_proof=bool(block.with_proof))


def _wrong_identity(case: WriteCase) -> str:
    if is_wrong_length(case):
        return "An idempotency key has sixteen bytes."
    if case.sequence == 0:
        return "Sequences begin with 1."
    return "Send a sequence, an idempotency key, or both."
