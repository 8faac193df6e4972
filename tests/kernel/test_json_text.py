"""Messages cut out of a JSON text: byte for byte, strict about grammar, never slow and never too deep."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import accumulate

import pytest

from semel.kernel import json_text
from semel.kernel.json_error import JsonError
from semel.kernel.json_text import MAX_DEPTH, depth_of, outside_strings, refuse_deep, split_messages


@pytest.mark.parametrize(
    ("raw", "messages"),
    [
        (b"[]", []),
        (b" [ \n\t\r ] ", []),
        (b"1", [b"1"]),
        (b" \r\n 1 \t", [b"1"]),
        (b"null", [b"null"]),
        (b'"[1,2]"', [b'"[1,2]"']),
        (b"{}", [b"{}"]),
        (b' {"a" : [1, 2]} ', [b'{"a" : [1, 2]}']),
        (b"[1]", [b"1"]),
        (b"[ 1 , 2 ,3]", [b"1", b"2", b"3"]),
        (b"[[1,2],[3]]", [b"[1,2]", b"[3]"]),
        (b"[[[1]]]", [b"[[1]]"]),
        (b"[[]]", [b"[]"]),
        (b"[{},{}]", [b"{}", b"{}"]),
        (b'["a,]","\\"],[",{"b": "}"}]', [b'"a,]"', b'"\\"],["', b'{"b": "}"}']),
        (b"[true,\nfalse,\nnull]", [b"true", b"false", b"null"]),
        ('["é", "日本語 🎉"]'.encode(), ['"é"'.encode(), '"日本語 🎉"'.encode()]),
    ],
)
def test_an_array_is_flattened_by_one_level(raw: bytes, messages: list[bytes]) -> None:
    assert split_messages(raw) == messages


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":2}',
        rb'"\ud800"',
        rb'"\u00E9\/"',
        b"1e400",
        b"-1e400",
        b"1.50",
        b"-0",
        b"1E+2",
        b"12345678901234567890123",
        b"9" * 10_000,
        b'{"n": ' + b"9" * 10_000 + b"}",
    ],
)
def test_the_text_of_a_message_is_kept(text: bytes) -> None:
    assert split_messages(text) == [text]
    assert split_messages(b"[" + text + b" , " + text + b"]") == [text, text]


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"", "syntax"),
        (b" ", "syntax"),
        (b"[", "syntax"),
        (b"]", "syntax"),
        (b"[,]", "syntax"),
        (b"[,1]", "syntax"),
        (b"[1,]", "syntax"),
        (b"[1,,2]", "syntax"),
        (b"[1 2]", "syntax"),
        (b"[1", "syntax"),
        (b"[1,", "syntax"),
        (b"[1}", "syntax"),
        (b"[1]2", "syntax"),
        (b"[1],", "syntax"),
        (b"[] []", "syntax"),
        (b"[]]", "syntax"),
        (b"1 2", "syntax"),
        (b"1,2", "syntax"),
        (b"{}{}", "syntax"),
        (b'{"a":1,}', "syntax"),
        (b'[{"a":1,}]', "syntax"),
        (b"[01]", "syntax"),
        (b"[1.]", "syntax"),
        (b"[\x0c1]", "syntax"),
        (b"\x0c[1]", "syntax"),
        (b'["\x00"]', "syntax"),
        (b"\x00", "syntax"),
        ("[\u00a01]".encode(), "syntax"),
        ("[1\u0661]".encode(), "syntax"),
        (b"NaN", "not_a_number"),
        (b"[1,NaN]", "not_a_number"),
        (b'{"a":-Infinity}', "not_a_number"),
        (b"[[Infinity]]", "not_a_number"),
        (b"\xef\xbb\xbf[1]", "utf8"),
        (b"\xef\xbb\xbf1", "utf8"),
        (b'["\xff"]', "utf8"),
        (b'"\xed\xa0\x80"', "utf8"),
        (b"[" * 65 + b"]" * 65, "depth"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "depth"),
        (b"[" * 1_000_000, "depth"),
    ],
)
def test_what_is_not_json_is_refused(raw: bytes, kind: str) -> None:
    with pytest.raises(JsonError) as caught:
        split_messages(raw)
    assert caught.value.kind == kind
    assert len(str(caught.value)) < 160


def test_the_depth_limit_is_exact() -> None:
    deepest = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert split_messages(deepest) == [deepest[1:-1]]
    closed = b'{"a":' * MAX_DEPTH + b"1" + b"}" * MAX_DEPTH
    assert split_messages(closed) == [closed]


def test_depth_is_counted_over_pieces_of_the_text() -> None:
    assert depth_of(b"") == depth_of(b"]") == 0
    assert depth_of(b"[" * 10_000) == 10_000
    assert depth_of((b"[" * 5_000 + b"]" * 5_000) * 2 + b"{" * 5_001) == 5_001
    assert depth_of(b"[]" * 10_000) == 1
    long = b"[" + b"{}," * 10_000 + b"[" * (MAX_DEPTH - 1) + b"]" * MAX_DEPTH
    refuse_deep(long)
    with pytest.raises(JsonError, match="nested more than 64"):
        refuse_deep(b"[" + long)


def test_a_text_that_is_too_deep_is_not_measured_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = 0

    def counted(steps: memoryview, *, initial: int) -> Iterator[int]:
        nonlocal looked_at
        looked_at += len(steps)
        return accumulate(steps, initial=initial)

    monkeypatch.setattr(json_text, "accumulate", counted)
    with pytest.raises(JsonError, match="nested more than 64"):
        refuse_deep(b"[" * 1_000_000)
    assert looked_at < 10_000


@pytest.mark.parametrize("element", [b"1", b'""', b"[]", b'{"a":1}', b" 7 ", b"1e9"])
def test_a_megabyte_takes_well_under_a_second(element: bytes) -> None:
    count = 1_000_000 // (len(element) + 1)
    raw = b"[" + b",".join([element] * count) + b"]"
    started = time.process_time()
    assert len(split_messages(raw)) == count
    assert time.process_time() - started < 1


@pytest.mark.parametrize("raw", [b"[" + b" " * 1_000_000, b"[" + b"1 " * 500_000, b"[1" + b" " * 999_999 + b"x"])
def test_a_megabyte_of_nonsense_is_refused_quickly(raw: bytes) -> None:
    started = time.process_time()
    with pytest.raises(JsonError):
        split_messages(raw)
    assert time.process_time() - started < 1


@pytest.mark.parametrize("text", ["", '"', "\\", '\\"', '"\\', "\\\\", '\\\\"', "[{:,", 'a"b\\"c\\\\"d'])
def test_strings_are_taken_out_whole(text: str) -> None:
    raw = json.dumps([text, {text: 1, text + "x": text}], separators=(",", ":")).encode()
    assert outside_strings(raw) == b"[,{:1,:}]"
