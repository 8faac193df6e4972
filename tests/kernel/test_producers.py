"""The producer table, row by row as the protocol states it, and its properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.kernel.producer import MAX_NUMBER, TABLE, EpochPosition, ProducerState, SeqPosition, expected_seq, judge
from semel.kernel.verdict import Verdict

NUMBERS = st.integers(0, MAX_NUMBER)
KNOWN = ProducerState(epoch=3, seq=7)


@pytest.mark.parametrize(
    ("known", "epoch", "seq", "verdict"),
    [
        (None, 0, 0, Verdict.FRESH),
        (None, 9, 0, Verdict.FRESH),
        (None, 0, 1, Verdict.GAP),
        (KNOWN, 2, 0, Verdict.FENCED),
        (KNOWN, 2, 8, Verdict.FENCED),
        (KNOWN, 4, 0, Verdict.FRESH),
        (KNOWN, 4, 1, Verdict.REFUSED),
        (KNOWN, 3, 8, Verdict.FRESH),
        (KNOWN, 3, 7, Verdict.REPLAY),
        (KNOWN, 3, 0, Verdict.REPLAY),
        (KNOWN, 3, 9, Verdict.GAP),
        (KNOWN, 3, MAX_NUMBER, Verdict.GAP),
    ],
)
def test_each_row_of_the_table(known: ProducerState | None, epoch: int, seq: int, verdict: Verdict) -> None:
    assert judge(known, epoch, seq) is verdict


@given(known=st.none() | st.builds(ProducerState, NUMBERS, NUMBERS), epoch=NUMBERS, seq=NUMBERS)
def test_every_claim_has_a_verdict_and_fresh_ones_move_forward(
    known: ProducerState | None, epoch: int, seq: int
) -> None:
    verdict = judge(known, epoch, seq)
    if verdict is Verdict.FRESH and known is not None:
        assert (epoch, seq) > known
    if verdict is Verdict.FRESH:
        assert judge(ProducerState(epoch, seq), epoch, seq) is Verdict.REPLAY


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=60))
def test_a_producer_that_retries_at_random_commits_each_number_once(claims: list[tuple[int, int]]) -> None:
    known: ProducerState | None = None
    accepted: list[tuple[int, int]] = []
    for epoch, seq in claims:
        if judge(known, epoch, seq) is Verdict.FRESH:
            known = ProducerState(epoch, seq)
            accepted.append((epoch, seq))
    assert len(accepted) == len(set(accepted))
    assert accepted == sorted(accepted)
    for epoch in {epoch for epoch, _ in accepted}:
        numbers = [seq for known_epoch, seq in accepted if known_epoch == epoch]
        assert numbers == list(range(len(numbers)))


def test_the_table_has_no_row_that_cannot_occur() -> None:
    openings = {
        (epoch, seq)
        for epoch in (EpochPosition.UNKNOWN, EpochPosition.OLDER, EpochPosition.NEWER)
        for seq in (SeqPosition.FIRST, SeqPosition.AHEAD)
    }
    same = {(EpochPosition.SAME, seq) for seq in (SeqPosition.REPEAT, SeqPosition.NEXT, SeqPosition.AHEAD)}
    assert set(TABLE) == openings | same


def test_the_expected_sequence_is_the_one_that_would_be_accepted() -> None:
    assert expected_seq(None) == 0
    assert expected_seq(KNOWN) == 8
    assert judge(KNOWN, KNOWN.epoch, expected_seq(KNOWN)) is Verdict.FRESH
