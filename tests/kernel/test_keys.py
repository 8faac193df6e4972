"""Stored keys never meet; header values become keys by one rule."""

from __future__ import annotations

import contextlib
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.kernel.keys import (
    MAX_RAW,
    InvalidKeyError,
    pack,
    parse_idempotency_key,
    time_ordered_id,
    unpack,
    visible_key,
)

NAMES = st.binary(max_size=80) | st.uuids().map(lambda one: str(one).encode())
PRINTABLE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=256)


@given(NAMES, NAMES)
def test_two_names_never_share_a_key(one: bytes, other: bytes) -> None:
    assert (pack(one) == pack(other)) == (one == other)


@given(NAMES)
def test_a_key_gives_its_name_back_unless_it_was_hashed(name: bytes) -> None:
    known = unpack(pack(name))
    is_uuid = len(name) == 36 and known == name
    assert known == (name if len(name) <= MAX_RAW or is_uuid else None)


def test_only_the_exact_lower_case_form_of_a_uuid_is_packed() -> None:
    text = "0b6e9a3e-6d0c-4d0e-8f57-1f6f0d2c7a10"
    assert pack(text.encode()) == b"\x01" + uuid.UUID(text).bytes
    others = (text.upper(), "{" + text[1:-1] + "}", text.replace("-", "_"), text + "\n")
    assert len({pack(other.encode()) for other in (text, *others)}) == 5
    assert all(pack(other.encode())[:1] == b"\x02" for other in others)


@given(st.lists(st.integers(0, 2**48 - 1), min_size=2, max_size=2, unique=True))
def test_ids_sort_by_time(moments: list[int]) -> None:
    early, late = sorted(moments)
    assert time_ordered_id(early, b"\xff" * 10) < time_ordered_id(late, b"\x00" * 10)


def test_an_id_takes_ten_random_bytes() -> None:
    with pytest.raises(ValueError, match="ten random bytes"):
        time_ordered_id(0, b"short")


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ([], None),
        ([b"k1"], b"k1"),
        ([b'"k1"'], b"k1"),
        ([b" \t k1 \t"], b"k1"),
        ([b'"a \\"quoted\\" \\\\ one"'], b'a "quoted" \\ one'),
        ([b'"not closed'], b'"not closed'),
        ([b'"two" "strings"'], b'"two" "strings"'),
        ([b'"bad \\x escape"'], b'"bad \\x escape"'),
        ([b"K1"], b"K1"),
        ([b"a b~!"], b"a b~!"),
        ([b"x" * 256], b"x" * 256),
        ([b'"' + b"x" * 256 + b'"'], b"x" * 256),
    ],
)
def test_keys_as_they_are_read(values: list[bytes], key: bytes | None) -> None:
    assert parse_idempotency_key(values) == key


@pytest.mark.parametrize(
    "values",
    [[b""], [b"  "], [b'""'], [b"x" * 257], [b"a\x00"], [b"a\x1f"], [b"a\x7f"], [b"\xc3\xa9"], [b"a\tb"], [b"a", b"a"]],
)
def test_keys_that_are_refused(values: list[bytes]) -> None:
    with pytest.raises(InvalidKeyError):
        parse_idempotency_key(values)


@given(PRINTABLE)
def test_quoting_makes_no_other_key(text: str) -> None:
    plain = text.strip(" \t")
    if not plain or plain.startswith('"'):
        return
    quoted = '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'
    assert parse_idempotency_key([quoted.encode()]) == parse_idempotency_key([plain.encode()])


@given(st.binary(max_size=300) | PRINTABLE.map(str.encode) | PRINTABLE.map(lambda text: f'"{text}"'.encode()))
def test_a_visible_key_is_the_one_that_is_parsed(value: bytes) -> None:
    key = visible_key(value)
    assert key is None or key == parse_idempotency_key([value])


@pytest.mark.parametrize("value", [b"k", b'"k"', b"a-b_c:d", b'"' + b"x" * 256 + b'"', b'a"b'])
def test_common_keys_are_visible(value: bytes) -> None:
    assert visible_key(value) == parse_idempotency_key([value])


@given(st.lists(st.binary(max_size=300), max_size=3))
def test_reading_a_key_never_fails_otherwise(values: list[bytes]) -> None:
    with contextlib.suppress(InvalidKeyError):
        key = parse_idempotency_key(values)
        assert key is None or 1 <= len(key) <= 256
