"""Verdicts over receipts, and how long receipts are honoured."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.kernel.errors import REGISTRY, Refusal
from semel.kernel.verdict import NEVER, FollowsLog, Forever, PinnedThenWindow, Verdict, Window, judge

TIMES = st.integers(0, 2**50)


class Receipt(NamedTuple):
    """The least a receipt is."""

    fingerprint: bytes
    expires_at: int


@pytest.mark.parametrize(
    ("receipt", "now", "verdict"),
    [
        (None, 0, Verdict.FRESH),
        (Receipt(b"same", 10), 9, Verdict.REPLAY),
        (Receipt(b"other", 10), 9, Verdict.MISMATCH),
        (Receipt(b"same", 10), 10, Verdict.FRESH),
        (Receipt(b"other", 10), 10, Verdict.FRESH),
    ],
)
def test_a_receipt_counts_until_its_end(receipt: Receipt | None, now: int, verdict: Verdict) -> None:
    assert judge(receipt, b"same", now) is verdict


@given(committed_at=TIMES, keep=st.integers(1, 10**10))
def test_a_window_is_kept_whole_and_no_longer(committed_at: int, keep: int) -> None:
    receipt = Receipt(b"f", Window(keep).expires_at(committed_at))
    assert judge(receipt, b"f", committed_at + keep - 1) is Verdict.REPLAY
    assert judge(receipt, b"f", committed_at + keep) is Verdict.FRESH


def test_a_pinned_receipt_has_no_end_until_the_work_has() -> None:
    keep = PinnedThenWindow(100)
    assert keep.expires_at(None) == NEVER
    assert keep.expires_at(50) == 150


def test_the_log_cuts_strictly_after_the_window() -> None:
    keep = FollowsLog(100)
    assert not keep.is_cut(remembered_at=0, entry_at=100)
    assert keep.is_cut(remembered_at=0, entry_at=101)


def test_for_ever_is_for_ever() -> None:
    assert Forever().expires_at() == NEVER


@pytest.mark.parametrize("code", sorted(REGISTRY))
def test_every_error_is_complete(code: str) -> None:
    kind = Refusal(code, "detail").kind
    assert kind.code == code
    assert 400 <= kind.status <= 599
    assert kind.type.startswith("/errors/")
    assert kind.type.endswith(code.lower().replace("_", "-").replace(":", "-"))
    assert 1000 <= kind.websocket <= 4999


def test_every_error_has_a_name_of_its_own() -> None:
    assert len({kind.type for kind in REGISTRY.values()}) == len(REGISTRY)
