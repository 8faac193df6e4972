"""A large text, cut anywhere, is read and printed as a small one is: accepted, refused and printed alike."""

from __future__ import annotations

import json
import random
import tracemalloc
from typing import Any

import pytest

from semel.kernel.json import chunks, large
from semel.kernel.json.canonical import Integers, JsonError, JsonKind, Surrogates, canonical_parsed, canonicalize
from semel.kernel.json.large import LargeJson, read_json
from semel.kernel.json.parse import first_mark

SCALARS = [0, -5, 1.5, 1.0, 1e30, 2**53 + 1, 10**19, True, None, "", 'a"b\\', "é,]}", "😀x", "x" * 40]
NAMES = ["a", "b", "é", "😀", "\ufb33", "", 'q"x', "z\\"]
EDITS = b'[]{},:"\\0 e.-a\xff'
MIB = 1024 * 1024
ROUNDS = 400


def value_of(chance: random.Random, depth: int) -> Any:
    """Some value, nested a few levels deep."""
    kind = chance.random()
    if depth == 0 or kind < 0.3:
        return chance.choice(SCALARS)
    if kind < 0.65:
        return [value_of(chance, depth - 1) for _ in range(chance.randint(0, 6))]
    names = [f"{chance.choice(NAMES)}{chance.randint(0, 30)}" for _ in range(chance.randint(0, 6))]
    return {name: value_of(chance, depth - 1) for name in names}


def text_of(chance: random.Random) -> bytes:
    """Some text; half of them with an error or two in it."""
    value = value_of(chance, chance.randint(2, 6))
    separators = chance.choice([(",", ":"), (", ", ": "), (" , ", " : ")])
    text = bytearray(json.dumps(value, ensure_ascii=chance.random() < 0.5, separators=separators).encode())
    for _ in range(chance.choice([0, 0, 1, 2])):
        place = chance.randrange(len(text))
        if chance.random() < 0.5:
            text.insert(place, chance.choice(EDITS))
        else:
            text[place : place + 1] = b""
        text = text or bytearray(b" ")
    return bytes(text)


def printed(raw: bytes) -> bytes | str:
    """The canonical text, or that it is refused."""
    try:
        value = read_json(raw)
        if isinstance(value, LargeJson):
            return value.canonical(Integers.EXACT, Surrogates.REFUSE)
        mark = first_mark(value)
        return "refused" if mark else canonical_parsed(value, Integers.EXACT, Surrogates.REFUSE)
    except JsonError:
        return "refused"


def expected(raw: bytes) -> bytes | str:
    """The same by those who build the value."""
    try:
        return canonicalize(raw, Integers.EXACT, Surrogates.REFUSE)
    except JsonError:
        return "refused"


@pytest.mark.parametrize("piece", [8, 33, 100])
def test_a3_a_text_cut_into_pieces_is_printed_as_a_whole_one_is(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "RUN_BYTES", piece)
    monkeypatch.setattr(large, "SMALL_BYTES", piece)
    monkeypatch.setattr(large, "WHOLE_BYTES", piece)
    chance = random.Random(piece)
    for _ in range(ROUNDS):
        raw = text_of(chance)
        assert printed(raw) == expected(raw), raw


SHAPES = {
    "lists": b"[" + b"[]," * 349_000 + b"0]",
    "deep lists": b"[" + (b"[" * 60 + b"]" * 60 + b",") * 8_600 + b"0]",
    "members": b"{" + b",".join(b'"%x":1' % number for number in range(105_000)) + b"}",
    "lists far inside": b"[0," * 60 + b"[" + b"[]," * 349_000 + b"0]" + b"]" * 60,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a3_a_large_text_is_printed_in_four_times_its_size(shape: str) -> None:
    raw = SHAPES[shape]
    whole = expected(raw)
    tracemalloc.start()
    try:
        assert printed(raw) == whole
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(raw) + 2 * MIB


def test_a3_a_name_that_comes_twice_far_apart_is_refused() -> None:
    names = b",".join(b'"%d":0' % number for number in range(50_000))
    large = read_json(b'{"twice":0,' + names + b',"twice":0}')
    assert isinstance(large, LargeJson)
    for read in (lambda: large.members(lambda name: False), lambda: large.canonical(Integers.EXACT, Surrogates.REFUSE)):
        with pytest.raises(JsonError, match="'twice' occurs twice") as refused:
            read()
        assert refused.value.kind is JsonKind.DUPLICATE_NAME


def test_a3_a_large_value_is_refused_for_a_number_inside_only_after_all_of_it_was_read() -> None:
    zeros = b"0," * 200_000
    flawed = read_json(b"[1e999," + zeros + b"0]")
    with pytest.raises(JsonError) as refused:
        flawed.canonical(Integers.EXACT, Surrogates.REFUSE)
    assert refused.value.kind is JsonKind.OVERFLOW
    broken = read_json(b"[1e999," + zeros + b"]")
    with pytest.raises(JsonError) as refused:
        broken.canonical(Integers.EXACT, Surrogates.REFUSE)
    assert refused.value.kind is JsonKind.SYNTAX


def test_a3_members_and_elements_of_a_large_text_are_values_or_large_themselves() -> None:
    zeros = b"[" + b"0," * 200_000 + b"0]"
    large = read_json(b'{"a":1,"b":' + zeros + b',"c":{"d":[2]},"e":' + zeros + b"}")
    members = large.members(lambda name: name != "e")
    assert members["a"] == 1
    assert members["c"] == {"d": [2]}
    assert set(members) == {"a", "b", "c"}
    assert sum(1 for _ in members["b"].elements()) == 200_001


def test_a3_a_large_value_nested_too_deep_is_refused() -> None:
    lists = b"[" + b"[]," * 30_000 + b"0]"
    fits, beyond = (read_json(b"[" * levels + lists + b"]" * levels) for levels in (62, 63))
    assert fits.canonical(Integers.EXACT, Surrogates.REFUSE)
    with pytest.raises(JsonError) as refused:
        beyond.canonical(Integers.EXACT, Surrogates.REFUSE)
    assert refused.value.kind is JsonKind.DEPTH
