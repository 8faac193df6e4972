"""The version of the interface, judged alike whatever it came over."""

from __future__ import annotations

import pytest

from semel.kernel.errors import Refused
from semel.kernel.header_fields import HeaderFields
from semel.surfaces.ledger.exchange import API_VERSION, api_version, check_version

REFUSED = {
    b"0": "failed_precondition",
    b"2": "failed_precondition",
    b"10": "failed_precondition",
    b"9" * 20: "failed_precondition",
    b"9" * 21: "invalid_argument",
    b"1" * 5_000: "invalid_argument",
    b"": "invalid_argument",
    b"one": "invalid_argument",
    b"1.0": "invalid_argument",
    b"+1": "invalid_argument",
    b"-1": "invalid_argument",
    b" 1": "invalid_argument",
    b"1\n": "invalid_argument",
    b"1_0": "invalid_argument",
    b"0x1": "invalid_argument",
    "\u0661".encode(): "invalid_argument",
    b"\xb9": "invalid_argument",
}


@pytest.mark.parametrize("value", [None, b"1", b"01", b"0" * 19 + b"1"])
def test_ours(value: bytes | None) -> None:
    assert api_version(value) == 1
    check_version(HeaderFields([] if value is None else [(API_VERSION, value)]))


@pytest.mark.parametrize(("value", "code"), REFUSED.items(), ids=[repr(value[:25]) for value in REFUSED])
def test_another_is_refused(value: bytes, code: str) -> None:
    with pytest.raises(Refused) as caught:
        api_version(value)
    assert caught.value.refusal.name == code
    assert caught.value.refusal.facts == {"field": "x-ledger-api-version"}


def test_each_of_many_is_judged() -> None:
    with pytest.raises(Refused):
        check_version(HeaderFields([(API_VERSION, b"1"), (API_VERSION, b"2")]))
