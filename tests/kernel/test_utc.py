"""Instants as text, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.kernel.clock import utc_ms, utc_text

END_OF_9999 = 253_402_300_799_999


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (7, "1970-01-01T00:00:00.007Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (1_709_164_800_000, "2024-02-29T00:00:00.000Z"),
        (END_OF_9999, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_milliseconds_and_one_z(ms: int, text: str) -> None:
    assert utc_text(ms) == text


@given(st.integers(0, END_OF_9999))
def test_there_and_back(ms: int) -> None:
    assert utc_ms(utc_text(ms)) == ms


def test_other_offsets_are_read() -> None:
    assert utc_ms("1970-01-01T02:00:00+02:00") == 0


@pytest.mark.parametrize("text", ["", "yesterday", "2024-02-30T00:00:00Z", "2024-02-29T00:00:00"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Invalid|range|offset"):
        utc_ms(text)
