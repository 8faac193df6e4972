"""The rule table, over every combination of what can be known of a write."""

from __future__ import annotations

from itertools import product

import pytest

from semel.surfaces.ledger.limits import MAX_SEQUENCE
from semel.surfaces.ledger.rules.idempotency import RULES, RememberedCommit, WriteCase, find_rule

KEY, OTHER_KEY = b"k" * 16, b"o" * 16
HASH, OTHER_HASH = b"h" * 32, b"x" * 32
LAST = 5


def past(sequence: int, key: bytes = b"", digest: bytes = HASH) -> RememberedCommit:
    return RememberedCommit(sequence, key, digest, height=sequence)


CASES: dict[str, tuple[str, WriteCase]] = {
    "short key": ("R0a", WriteCase(1, b"k" * 15, HASH, LAST, None, None)),
    "long key": ("R0a", WriteCase(1, b"k" * 17, HASH, LAST, None, None)),
    "sequence 0": ("R0a", WriteCase(0, KEY, HASH, LAST, None, None)),
    "sequence 0, remembered key": ("R0a", WriteCase(0, KEY, HASH, LAST, past(3, KEY), None)),
    "neither": ("R0b", WriteCase(None, b"", HASH, LAST, None, None)),
    "used up": ("R0c", WriteCase(None, KEY, HASH, MAX_SEQUENCE, None, None)),
    "used up, remembered key": ("R2", WriteCase(None, KEY, HASH, MAX_SEQUENCE, past(3, KEY), None)),
    "key reused": ("R1", WriteCase(None, KEY, OTHER_HASH, LAST, past(3, KEY), None)),
    "key reused, next sequence": ("R1", WriteCase(LAST + 1, KEY, OTHER_HASH, LAST, past(3, KEY), None)),
    "key and sequence reused": ("R1", WriteCase(3, KEY, OTHER_HASH, LAST, past(3, KEY), past(3, KEY))),
    "key again": ("R2", WriteCase(None, KEY, HASH, LAST, past(3, KEY), None)),
    "both again": ("R3", WriteCase(3, KEY, HASH, LAST, past(3, KEY), past(3, KEY))),
    "key with the next sequence": ("R4", WriteCase(LAST + 1, KEY, HASH, LAST, past(3, KEY), None)),
    "key with one beyond": ("R4", WriteCase(LAST + 9, KEY, HASH, LAST, past(3, KEY), None)),
    "key with an older one": ("R4", WriteCase(2, KEY, HASH, LAST, past(3, KEY), past(2))),
    "new key": ("R5", WriteCase(None, KEY, HASH, LAST, None, None)),
    "next sequence": ("R6", WriteCase(LAST + 1, b"", HASH, LAST, None, None)),
    "next sequence and a new key": ("R6", WriteCase(LAST + 1, KEY, HASH, LAST, None, None)),
    "first of all": ("R6", WriteCase(1, b"", HASH, 0, None, None)),
    "the last there is": ("R6", WriteCase(MAX_SEQUENCE, b"", HASH, MAX_SEQUENCE - 1, None, None)),
    "gap": ("R7", WriteCase(LAST + 2, b"", HASH, LAST, None, None)),
    "gap with a new key": ("R7", WriteCase(LAST + 2, KEY, HASH, LAST, None, None)),
    "gap of an evicted client": ("R7", WriteCase(2, KEY, HASH, 0, None, None)),
    "sequence again": ("R8", WriteCase(3, b"", HASH, LAST, None, past(3))),
    "sequence again, it had a key": ("R8", WriteCase(3, b"", HASH, LAST, None, past(3, KEY))),
    "sequence again with a key, it had none": ("R8", WriteCase(3, KEY, HASH, LAST, None, past(3))),
    "sequence again with another key": ("R9", WriteCase(3, OTHER_KEY, HASH, LAST, None, past(3, KEY))),
    "sequence reused": ("R10", WriteCase(3, b"", OTHER_HASH, LAST, None, past(3))),
    "sequence reused with a new key": ("R10", WriteCase(3, OTHER_KEY, OTHER_HASH, LAST, None, past(3, KEY))),
    "the last sequence reused": ("R10", WriteCase(LAST, b"", OTHER_HASH, LAST, None, past(LAST))),
    "forgotten": ("R11", WriteCase(3, b"", HASH, LAST, None, None)),
    "forgotten, new key": ("R11", WriteCase(3, KEY, HASH, LAST, None, None)),
}


@pytest.mark.parametrize("name", CASES)
def test_rows(name: str) -> None:
    row, case = CASES[name]
    assert find_rule(case).row == row


def test_every_row_has_a_case() -> None:
    assert {row for row, _ in CASES.values()} == {rule.row for rule in RULES}


def expected(case: WriteCase) -> str:
    """The table once more, the other way round: by what is known, not by row."""
    if len(case.key) not in (0, 16) or case.sequence == 0:
        return "R0a"
    if case.by_key is not None:
        if case.by_key.hash != case.hash:
            return "R1"
        return "R2" if case.sequence is None else "R3" if case.sequence == case.by_key.sequence else "R4"
    if case.sequence is None:
        if not case.key:
            return "R0b"
        return "R0c" if case.last == MAX_SEQUENCE else "R5"
    if case.sequence > case.last:
        return "R6" if case.sequence == case.last + 1 else "R7"
    if case.by_sequence is None:
        return "R11"
    if case.by_sequence.hash != case.hash:
        return "R10"
    return "R9" if case.key and case.by_sequence.key else "R8"


def test_all_combinations() -> None:
    sequences = (None, 0, 1, 3, LAST, LAST + 1, LAST + 2, MAX_SEQUENCE)
    for sequence, key, last in product(sequences, (b"", KEY, b"short"), (0, LAST, MAX_SEQUENCE)):
        for by_key, by_sequence in product(
            (None, past(1, KEY), past(3, KEY, OTHER_HASH)),
            (None, past(3), past(3, OTHER_KEY), past(3, b"", OTHER_HASH)),
        ):
            is_old = sequence is not None and 0 < sequence <= last
            case = WriteCase(
                sequence, key, HASH, last, by_key if len(key) == 16 else None, by_sequence if is_old else None
            )
            assert find_rule(case).row == expected(case), case
