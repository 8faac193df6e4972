"""A fixed seventh of exhaustive cases, or all of them."""

from __future__ import annotations

import pytest

from tests.harness.share import EVERY_CASE, STRIDE, due, is_due


@pytest.mark.parametrize("is_every", [False, True])
def test_the_same_seventh_is_tried_every_time_and_every_case_on_demand(
    is_every: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(EVERY_CASE, raising=False)
    if is_every:
        monkeypatch.setenv(EVERY_CASE, "1")
    expected = [number for number in range(100) if is_every or number % STRIDE == 0]
    assert list(due(range(100))) == [number for number in range(100) if is_due(number)] == expected
