"""Documents have one spelling: whatever differs from how a server writes them is refused, with the place named."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from semel.client.proofs import ProofError, Trusted, load, verify_read, verify_write
from semel.client.proofs.documents import ProofInstant, ProofPart
from tests.client.slow_ledger import Json, SlowLedger, three_blocks


@pytest.fixture(scope="module")
def ledger() -> SlowLedger:
    return three_blocks()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"", "The text is not JSON."),
        (b"{", "The text is not JSON."),
        (b"{} {}", "The text is not JSON."),
        (b'{"a": "\xff"}', "The text is not JSON."),
        (b"\xef\xbb\xbf{}", "The text is not JSON."),
        (b"[" * 100_000, "The text is not JSON."),
        (b'{"a": ' + b"1" * 10_000 + b"}", "The text is not JSON."),
        (b"[]", "The text is not a JSON object."),
        (b'{"a": 1, "a": 1}', "The member 'a' occurs twice in one object."),
        (b'{"b": [{"a": 1, "\\u0061": 2}]}', "The member 'a' occurs twice in one object."),
        (b'{"a": 1.0}', "The number '1.0' occurs in no proof."),
        (b'{"a": 1e3}', "The number '1e3' occurs in no proof."),
        (b'{"a": -0}', "The number '-0' occurs in no proof."),
        (b'{"a": NaN}', "The number 'NaN' occurs in no proof."),
    ],
    ids=[
        "empty",
        "half",
        "two",
        "not UTF-8",
        "a byte order mark",
        "deep",
        "long number",
        "a list",
        "twice",
        "twice within",
        "fraction",
        "exponent",
        "signed",
        "not a number",
    ],
)
def test_a_text_is_refused(text: bytes, sentence: str) -> None:
    with pytest.raises(ProofError) as refused:
        load(text)
    assert str(refused.value) == sentence


Reader = Callable[[ProofPart], object]
VALUES: dict[str, tuple[Reader, list[Any], str]] = {
    "numbers": (
        lambda part: part.number("x"),
        [1, True, None, "", "01", "+1", "-1", " 1", "1.0", "0x1", "18446744073709551616", "1_0", "\u0661", "1\n"],
        "document.x is not a number of 64 bits in decimal digits.",
    ),
    "small numbers": (
        lambda part: part.small_number("x", 255),
        ["1", True, None, 1.0, -1, 256],
        "document.x is not a number from 0 to 255.",
    ),
    "bytes": (
        lambda part: part.octets("x"),
        [1, None, "YQ", "YR==", "YQ=", "YQ===", "Y Q==", "YQ==\n", "_-==", "ü", "YWI", "Y"],
        "document.x is not canonical base64.",
    ),
    "times": (
        lambda part: part.instant("x"),
        [
            0,
            None,
            "",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00+00:00",
            "2026-01-01t00:00:00z",
            "2026-01-01 00:00:00Z",
            "2026-01-01T00:00:00.000Z",
            "2026-01-01T00:00:00.1Z",
            "2026-01-01T00:00:00.120000Z",
            "2026-01-01T00:00:00.123456000Z",
            "2026-01-01T00:00:00.1234567890Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:60Z",
            "12026-01-01T00:00:00Z",
            "\u0662026-01-01T00:00:00Z",
        ],
        "document.x is not a time in canonical form.",
    ),
    "days": (
        lambda part: part.instant("x"),
        ["2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "0000-01-01T00:00:00Z"],
        "document.x is not a valid date.",
    ),
    "texts": (lambda part: part.text("x"), [1, None, ["a"]], "document.x is not a string."),
    "no Unicode": (lambda part: part.text("x"), ["\ud800", "a\udfff"], "document.x is not Unicode text."),
    "flags": (lambda part: part.flag("x"), [0, 1, "true", None], "document.x is neither true nor false."),
    "objects": (lambda part: part.part("x"), [[], "{}", None, 1], "document.x is not a JSON object."),
    "lists": (lambda part: part.items("x"), [{}, "[]", None, 1], "document.x is not a list."),
    "lists of objects": (lambda part: part.parts("x"), [["{}"], [None], [[]]], "document.x[0] is not a JSON object."),
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_in_another_spelling_is_refused(kind: str) -> None:
    read, values, sentence = VALUES[kind]
    for value in values:
        with pytest.raises(ProofError) as refused:
            read(ProofPart.of({"x": value}, "document"))
        assert str(refused.value) == sentence, value


@pytest.mark.parametrize(
    ("text", "seconds", "nanos"),
    [
        ("1970-01-01T00:00:00Z", 0, 0),
        ("1969-12-31T23:59:59.999999999Z", -1, 999_999_999),
        ("2026-01-01T00:00:00.123456789Z", 1767225600, 123456789),
        ("2024-02-29T12:30:01.500Z", 1709209801, 500_000_000),
        ("0001-01-01T00:00:00.000001Z", -62135596800, 1_000),
        ("9999-12-31T23:59:59Z", 253402300799, 0),
    ],
)
def test_times(text: str, seconds: int, nanos: int) -> None:
    assert ProofPart.of({"x": text}, "document").instant("x") == ProofInstant(seconds, nanos)


def paths(value: Any, *path: Any) -> list[tuple[Any, ...]]:
    """The way to every object and every member in a document."""
    found: list[tuple[Any, ...]] = [path]
    for name in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        found += paths(value[name], *path, name)
    return found


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for name in path:
        document = document[name]
    return document


def write(ledger: SlowLedger) -> tuple[Json, Callable[[Any], object]]:
    return ledger.written(2), lambda answer: verify_write(answer, None, Trusted(2, ledger.hashes[1]))


def read(ledger: SlowLedger) -> tuple[Json, Callable[[Any], object]]:
    return ledger.read(b"key:1665", 3), lambda answer: verify_read(answer, None, Trusted(3, ledger.hashes[2]))


@pytest.mark.parametrize("made", [write, read])
def test_no_object_has_one_member_more_or_less(
    ledger: SlowLedger, made: Callable[[SlowLedger], tuple[Json, Callable[[Any], object]]]
) -> None:
    document, verify = made(ledger)
    verify(document)
    places = [path for path in paths(document) if "otherBucketRoots" not in path[:-1]]
    assert len(places) > 30
    for path in places:
        value = at(document, path)
        if isinstance(value, dict):
            value["more"] = 1
            with pytest.raises(ProofError):
                verify(document)
            del value["more"]
        if path and not isinstance(path[-1], int):
            holder = at(document, path[:-1])
            kept = dict(holder)
            del holder[path[-1]]
            with pytest.raises(ProofError):
                verify(document)
            holder.clear()
            holder.update(kept)
        if path:
            holder, kept = at(document, path[:-1]), value
            others: list[Any] = [None, 1.5, [], {"a": {}}]
            for other in others if "leaderId" in path else [*others, "?"]:
                holder[path[-1]] = other
                with pytest.raises(ProofError):
                    verify(document)
            holder[path[-1]] = kept
    verify(document)


def test_a_second_member_in_the_text_is_found(ledger: SlowLedger) -> None:
    text = json.dumps(ledger.written(1))
    doubled = text.replace('"assignedSequence": "1"', '"assignedSequence": "1", "assignedSequence": "1"')
    assert doubled != text
    with pytest.raises(ProofError, match="The member 'assignedSequence' occurs twice"):
        verify_write(doubled, None, Trusted(1, ledger.hashes[0]))


def test_what_cannot_be_shown_is_not_shown() -> None:
    with pytest.raises(ProofError) as refused:
        load(json.dumps({"\x1b[31m": 1})[:-1] + ', "\\u001b[31m": 2}')
    assert str(refused.value) == "The member '\\x1b[31m' occurs twice in one object."
    with pytest.raises(ProofError) as refused:
        ProofPart.of({"x" * 100: 1}, "document").only(())
    assert len(str(refused.value)) < 120
