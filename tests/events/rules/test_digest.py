"""The digest of {partitions, event} on random documents, against a library and against a JavaScript engine.

A short run in every test run; `python -m tests.events.rules.digest_check` compares a hundred thousand.
"""

from __future__ import annotations

from tests.events.rules.digest_check import check_javascript, check_library

SEED = 20


def test_equal_to_an_independent_library() -> None:
    counts = check_library(4_000, SEED)
    assert counts["different"] == 0
    assert min(counts["quick"], counts["slow"]) > 500, counts


def test_equal_to_a_javascript_engine() -> None:
    assert check_javascript(10_000, 10_000, SEED)["different"] == 0
