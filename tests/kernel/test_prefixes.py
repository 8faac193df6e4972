"""What is shown of a key."""

from __future__ import annotations

import pytest

from semel.kernel.keys import key_prefix


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("abcdefghij", "abcdefgh"),
        ("abcdefghi", "abcdefgh"),
        ("abcdefgh", "abcd"),
        ("abc", "a"),
        ("ab", "a"),
        ("a", ""),
        ("", ""),
        ("üüüüüüüüü", "üüüüüüüü"),
    ],
)
def test_a_key_is_never_shown_whole(key: str, shown: str) -> None:
    assert key_prefix(key) == shown
