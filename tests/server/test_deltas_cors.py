"""Which web pages may call deltas."""

from __future__ import annotations

import pytest

from semel.server.deltas.cors import Cors

PAGE, OTHER = b"https://app.example", b"https://other.example"
ALLOWED = b"access-control-allow-origin"
METHODS = b"access-control-allow-methods"


def headers(cors: Cors, origin: bytes | None) -> dict[bytes, bytes]:
    return dict(cors.headers(origin))


@pytest.mark.parametrize("origin", [PAGE, OTHER, b"null"], ids=["page", "other", "null"])
def test_without_a_list_every_origin_is_told_back(origin: bytes) -> None:
    told = headers(Cors(), origin)
    assert told[ALLOWED] == origin
    assert told[b"vary"] == b"Origin"


def test_without_a_list_and_without_an_origin_it_is_any() -> None:
    told = headers(Cors(), None)
    assert told[ALLOWED] == b"*"
    assert b"vary" not in told


def test_methods_and_headers_are_those_of_the_dialect() -> None:
    told = headers(Cors(), PAGE)
    assert set(told[METHODS].split(b", ")) == {b"GET", b"POST", b"DELETE", b"OPTIONS"}
    assert set(told[b"access-control-allow-headers"].split(b", ")) == {b"Authorization", b"Content-Type"}
    assert b"X-Checkpoint-Hlc" in told[b"access-control-expose-headers"]


def test_a_star_in_a_list_is_any_origin() -> None:
    """As everywhere else in CORS; taken for the name of an origin it would shut out everyone without a word."""
    listed = Cors(["https://app.example", "*"])
    assert headers(listed, OTHER) == headers(Cors(), OTHER)
    assert listed.admits(OTHER)


@pytest.mark.parametrize("listed", ["https://app.example", "https://app.example/"], ids=["plain", "final slash"])
def test_with_a_list_its_origins_are_told_back(listed: str) -> None:
    told = headers(Cors([listed, "http://localhost:3000"]), PAGE)
    assert told[ALLOWED] == PAGE
    assert METHODS in told


@pytest.mark.parametrize(
    "origin",
    [None, OTHER, b"null", b"https://app.example.evil", b"http://app.example", b"https://app.example:8443", b""],
    ids=["none", "other", "null", "longer", "scheme", "port", "empty"],
)
def test_with_a_list_others_get_nothing_but_that_it_depends(origin: bytes | None) -> None:
    assert headers(Cors(["https://app.example"]), origin) == {b"vary": b"Origin"}
