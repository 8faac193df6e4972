"""What is said of a JSON text without parsing it: how deep it is, and what stands outside its strings."""

from __future__ import annotations

import json

import pytest

from semel.kernel.json.text import MAX_DEPTH, JsonError, depth_of, outside_strings, refuse_deep


def test_depth_is_counted_over_pieces_of_the_text() -> None:
    assert depth_of(b"") == depth_of(b"]") == 0
    assert depth_of(b"[" * 10_000) == 10_000
    assert depth_of((b"[" * 5_000 + b"]" * 5_000) * 2 + b"{" * 5_001) == 5_001
    assert depth_of(b"[]" * 10_000) == 1
    long = b"[" + b"{}," * 10_000 + b"[" * (MAX_DEPTH - 1) + b"]" * MAX_DEPTH
    refuse_deep(long)
    with pytest.raises(JsonError, match="nested more than 64"):
        refuse_deep(b"[" + long)


@pytest.mark.parametrize("text", ["", '"', "\\", '\\"', '"\\', "\\\\", '\\\\"', "[{:,", 'a"b\\"c\\\\"d'])
def test_strings_are_taken_out_whole(text: str) -> None:
    raw = json.dumps([text, {text: 1, text + "x": text}], separators=(",", ":")).encode()
    assert outside_strings(raw) == b"[,{:1,:}]"
