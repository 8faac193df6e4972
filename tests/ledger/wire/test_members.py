"""Single values of proto3 JSON: numbers, bytes, text, flags, enumerations, names of members."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from semel.surfaces.ledger.wire.members import (
    MOST,
    RETENTION_MODES,
    LedgerMembers,
    ObjectMembers,
    digits,
    parse_body,
    snake_of,
    unbase64,
)
from tests.ledger.wire.refusals import raw, refused

SHAPE = ObjectMembers("key", "clientId", "includeTxProof")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (0, 0),
        (7, 7),
        (MOST, MOST),
        ("0", 0),
        ("7", 7),
        ("007", 7),
        (str(MOST), MOST),
        (7.0, 7),
        (1e3, 1_000),
        (2.0**53, 2**53),
        (None, None),
    ],
)
def test_a_number_is_a_string_or_a_number(given: Any, wanted: int | None) -> None:
    assert LedgerMembers({"n": given}).number("n") == wanted


@pytest.mark.parametrize(
    "given",
    [
        *(-1, MOST + 1, 10**30, 1.5, -1.0, 2.0**54, True, False),
        *("", " 7", "7 ", "+7", "-1", "1e3", "0x7", "7.0", str(MOST + 1), "9" * 21, "\u0667"),
        *([], {}, [7]),
    ],
    ids=ascii,
)
def test_a_number_that_is_none_is_refused(given: Any) -> None:
    with refused("n"):
        LedgerMembers({"n": given}).number("n")
    with refused("outer.n"):
        LedgerMembers({"n": given}, "outer").number("n")


def test_an_absent_member_is_as_good_as_null() -> None:
    for members in ({}, {"a": None}):
        assert LedgerMembers(members).number("a") is None
        assert LedgerMembers(members).text("a") == ""
        assert LedgerMembers(members).data("a") == b""
        assert LedgerMembers(members).items("a", lambda count: None) == []
        assert LedgerMembers(members).flag("a") is None
        assert LedgerMembers(members).choice("a", RETENTION_MODES) is None


@given(some.binary(max_size=70))
def test_bytes_are_taken_in_four_spellings(value: bytes) -> None:
    for spelled in (b64encode(value).decode(), urlsafe_b64encode(value).decode()):
        assert unbase64(spelled) == value
        assert unbase64(spelled.rstrip("=")) == value


@pytest.mark.parametrize(
    "given",
    ["a", "=", "====", "AA=", "AA===", "A A=", "AAAA=", "AAAA====", "A===", "AA==AA==", "AA\n==", "A*==", "\u00e9"],
)
def test_what_is_no_base64_is_refused(given: str) -> None:
    assert unbase64(given) is None
    with refused("value"):
        LedgerMembers({"value": given}).data("value")


@pytest.mark.parametrize("given", [7, True, [], {}, ["AA=="]], ids=repr)
def test_bytes_are_a_string(given: Any) -> None:
    with refused("value"):
        LedgerMembers({"value": given}).data("value")


@pytest.mark.parametrize("given", [7, True, [], {}, "\ud800"], ids=ascii)
def test_text_is_a_string_that_utf8_can_carry(given: Any) -> None:
    with refused("key"):
        LedgerMembers({"key": given}).text("key")


@pytest.mark.parametrize("given", [0, 1, "true", "", [], {}], ids=repr)
def test_a_flag_is_true_or_false(given: Any) -> None:
    with refused("fence"):
        LedgerMembers({"fence": given}).flag("fence")


@pytest.mark.parametrize("given", ["x", 7, {}, True], ids=repr)
def test_a_list_is_a_list(given: Any) -> None:
    with refused("keys"):
        LedgerMembers({"keys": given}).items("keys", lambda count: None)


@pytest.mark.parametrize(("given", "wanted"), [("BLOCK_RETENTION_MODE_FULL", 1), (2, 2), (0, 0)])
def test_an_enumeration_is_a_name_or_a_number(given: Any, wanted: int) -> None:
    assert LedgerMembers({"mode": given}).choice("mode", RETENTION_MODES) == wanted


@pytest.mark.parametrize("given", ["FULL", "block_retention_mode_full", "", 3, -1, 1.0, True, "1", []], ids=repr)
def test_a_value_that_an_enumeration_does_not_have_is_refused(given: Any) -> None:
    with refused("mode"):
        LedgerMembers({"mode": given}).choice("mode", RETENTION_MODES)


def test_names_have_two_spellings() -> None:
    assert snake_of("includeTxProof") == "include_tx_proof"
    assert SHAPE.members({"client_id": 1, "key": 2}, "body").values == {"clientId": 1, "key": 2}
    assert SHAPE.members({"include_tx_proof": 1}, "body").values == {"includeTxProof": 1}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"actor": "x"}, "actor"),
        ({"ClientId": "x"}, "ClientId"),
        ({"clientid": "x"}, "clientid"),
        ({"client-id": "x"}, "client-id"),
        ({"key": 1, "": 2}, ""),
        ({"clientId": 1, "client_id": 2}, "clientId"),
        ({"x" * 100: 1}, "x" * 64),
    ],
    ids=["unknown", "capital", "small", "dash", "empty", "both", "long"],
)
def test_a_name_that_is_not_known_is_refused(given: Any, field: str) -> None:
    with refused(field):
        SHAPE.members(given, "body")


@pytest.mark.parametrize("given", ["x", 7, True, None, [], [{}]], ids=repr)
def test_an_object_is_an_object(given: Any) -> None:
    with refused("operations[0]"):
        SHAPE.members(given, "operations[0]")


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"7",
        b" ",
        b'{"key":1}x',
        b"\xef\xbb\xbf{}",
        b'{"key":"\xff"}',
        b'{"key":NaN}',
        b'{"key":1e999}',
        b"{'key':1}",
        b'{"key":1,}',
        b'{"key":1,"key":2}',
        b'{"key":1,"\\u006bey":2}',
        b'{"key":{"a":1,"a":2}}',
        b'{"key":' + b"[" * 64 + b"]" * 64 + b"}",
        b"[" * 100_000,
    ],
    ids=lambda body: ascii(body[:24]),
)
def test_a_body_is_one_json_object(body: bytes) -> None:
    with refused("body"):
        parse_body(body, SHAPE)


def test_a_body_may_be_empty_and_as_deep_as_it_may() -> None:
    assert parse_body(b"", SHAPE).values == {}
    deep = raw('{"key":' + "[" * 63 + "]" * 63 + "}")
    assert parse_body(deep, SHAPE).values["key"]


@pytest.mark.parametrize(
    ("given", "wanted"), [("18446744073709551615", MOST), ("18446744073709551616", None), ("", None)]
)
def test_digits_are_64_bits(given: str, wanted: int | None) -> None:
    assert digits(given) == wanted
