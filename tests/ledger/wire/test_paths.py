"""Paths and queries: what they name, and what of them is refused."""

from __future__ import annotations

from typing import Any

import pytest

from semel.surfaces.ledger.model import LedgerPlace
from semel.surfaces.ledger.wire.urls import (
    EntitiesQuery,
    LedgerRoute,
    PageQuery,
    ProofQuery,
    RangeQuery,
    ReadQuery,
    RelationshipsQuery,
    ResourcesQuery,
    height_in,
    parse_entities,
    parse_nothing,
    parse_page,
    parse_proof,
    parse_range,
    parse_read,
    parse_relationships,
    parse_resources,
    parse_watch,
    place_in,
    split_path,
    tx_id,
)
from tests.ledger.wire.refusals import KEY, KEY_TEXT, KEY_UUID, refused

PATHS: dict[str, LedgerRoute | None] = {
    "orgs": LedgerRoute(None, None, (), ""),
    "orgs/7": LedgerRoute("7", None, (), ""),
    "orgs/7/vaults": LedgerRoute("7", None, ("vaults",), ""),
    "orgs/7/vaults/9": LedgerRoute("7", "9", (), ""),
    "orgs/7/writes": LedgerRoute("7", None, ("writes",), ""),
    "orgs/7/vaults/9/writes": LedgerRoute("7", "9", ("writes",), ""),
    "orgs/7/entities:batchRead": LedgerRoute("7", None, ("entities:batchRead",), ""),
    "orgs/7/entities%3AbatchRead": LedgerRoute("7", None, ("entities:batchRead",), ""),
    "orgs/7/entities/a%2Fb": LedgerRoute("7", None, ("entities", ""), "a/b"),
    "orgs/7/entities/a%252Fb": LedgerRoute("7", None, ("entities", ""), "a%2Fb"),
    "orgs/7/entities/vaults": LedgerRoute("7", None, ("entities", ""), "vaults"),
    "orgs/7/entities/": LedgerRoute("7", None, ("entities", ""), ""),
    "orgs/7/entities/%C3%BC": LedgerRoute("7", None, ("entities", ""), "\u00fc"),
    "orgs/7/entities/a+b": LedgerRoute("7", None, ("entities", ""), "a+b"),
    "orgs/7/entities/..": LedgerRoute("7", None, ("entities", ""), ".."),
    "orgs/7/vaults/9/entities/x": LedgerRoute("7", "9", ("entities", ""), "x"),
    "orgs/7/clients/a%2Fb/state": LedgerRoute("7", None, ("clients", "", "state"), "a/b"),
    "orgs/7/vaults/9/blocks/3/proof": LedgerRoute("7", "9", ("blocks", "", "proof"), "3"),
    "orgs/7/vaults/9/vaults": LedgerRoute("7", "9", ("vaults",), ""),
    "orgs/": LedgerRoute("", None, (), ""),
    "org": None,
    "": None,
    "vaults/9": None,
}


@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_taken_apart(path: str) -> None:
    assert split_path(b"/ledger/v1/" + path.encode()) == PATHS[path]


@pytest.mark.parametrize("path", ["orgs/%", "orgs/%2", "orgs/%zz", "orgs/7/entities/%FF", "orgs/7/entities/%ED%A0%80"])
def test_a_path_that_cannot_be_read_is_refused(path: str) -> None:
    with refused("path"):
        split_path(b"/ledger/v1/" + path.encode())


def test_places() -> None:
    assert place_in(LedgerRoute("7001", None, (), "")) == LedgerPlace(7001)
    assert place_in(LedgerRoute("7001", "9001", (), "")) == LedgerPlace(7001, 9001)
    assert place_in(LedgerRoute("0", None, (), "")) == LedgerPlace(0)
    with refused("", "vault_not_found"):
        place_in(LedgerRoute("7001", "0", (), ""))


@pytest.mark.parametrize("slug", ["", "x", "-1", "1.0", "7 ", "99999999999999999999", "\u0667"], ids=ascii)
def test_a_slug_is_a_number(slug: str) -> None:
    with refused("organization"):
        place_in(LedgerRoute(slug, None, (), ""))
    with refused("vault"):
        place_in(LedgerRoute("7001", slug, (), ""))
    with refused("height"):
        height_in(slug)


@pytest.mark.parametrize("given", [KEY_TEXT, KEY_TEXT.rstrip("="), KEY_UUID, KEY.hex(), KEY.hex().upper()])
def test_an_id_has_many_spellings(given: str) -> None:
    assert tx_id(given) == KEY


def test_an_id_may_be_in_either_alphabet() -> None:
    assert tx_id("_" * 20 + "_w") == tx_id("/" * 20 + "/w==") == b"\xff" * 16


@pytest.mark.parametrize("given", ["", "x", KEY.hex()[:-2], KEY.hex() + "00", "AAECAw==", "g" * 32])
def test_an_id_that_is_none_is_refused(given: str) -> None:
    with refused("txId"):
        tx_id(given)


# -- queries ----------------------------------------------------------------------------------------------------------

NO_PAGE = PageQuery(0, "")
QUERIES: list[tuple[Any, str, Any]] = [
    (parse_read, "", ReadQuery(None, False, None)),
    (parse_read, "atHeight=0", ReadQuery(None, False, None)),
    (parse_read, "at_height=7&proof=true&trusted_height=0", ReadQuery(7, True, 0)),
    (parse_read, "proof=1&consistency=READ_CONSISTENCY_LINEARIZABLE", ReadQuery(None, True, None)),
    (parse_read, "proof=false&consistency=2", ReadQuery(None, False, None)),
    (parse_entities, "", EntitiesQuery(b"", None, False, NO_PAGE)),
    (
        parse_entities,
        "prefix=a%2F%C3%BC&atHeight=7&includeExpired=true&limit=1000&pageToken=x&consistency=1",
        EntitiesQuery("a/\u00fc".encode(), 7, True, PageQuery(1_000, "x")),
    ),
    (parse_relationships, "", RelationshipsQuery(None, None, None, None, NO_PAGE, None, None)),
    (
        parse_relationships,
        "resource=doc:1&relation=viewer&subject=user:1%23member&limit=7&at_height=9&page_token=t",
        RelationshipsQuery(b"doc:1", b"viewer", b"user:1#member", 9, PageQuery(7, "t"), None, None),
    ),
    (parse_resources, "type=doc&limit=0", ResourcesQuery(b"doc", None, NO_PAGE)),
    (parse_resources, "", ResourcesQuery(b"", None, NO_PAGE)),
    (parse_page, "limit=7&pageToken=t", PageQuery(7, "t")),
    (parse_range, "", RangeQuery(1, 1_000)),
    (parse_range, "from=5", RangeQuery(5, 1_004)),
    (parse_range, "from=5&to=7", RangeQuery(5, 7)),
    (parse_range, "from=0&to=0", RangeQuery(0, 0)),
    (parse_proof, "", ProofQuery(None, None)),
    (parse_proof, f"txId={KEY.hex()}&trustedHeight=7", ProofQuery(KEY, 7)),
    (parse_nothing, "", None),
]


@pytest.mark.parametrize(
    ("parse", "query", "wanted"), QUERIES, ids=[f"{parse.__name__}?{query}" for parse, query, _ in QUERIES]
)
def test_a_query_is_understood(parse: Any, query: str, wanted: Any) -> None:
    assert parse(query.encode()) == wanted


BAD_QUERIES: list[tuple[Any, str, str]] = [
    (parse_nothing, "x=1", "x"),
    (parse_read, "atheight=1", "atheight"),
    (parse_read, "atHeight=x", "atHeight"),
    (parse_read, "atHeight=", "atHeight"),
    (parse_read, "atHeight=-1", "atHeight"),
    (parse_read, "atHeight=18446744073709551616", "atHeight"),
    (parse_read, "atHeight=1&atHeight=1", "atHeight"),
    (parse_read, "atHeight=1&at_height=1", "atHeight"),
    (parse_read, "proof=yes", "proof"),
    (parse_read, "proof", "proof"),
    (parse_read, "proof=", "proof"),
    (parse_read, "consistency=strong", "consistency"),
    (parse_read, "consistency=3", "consistency"),
    (parse_read, "trustedHeight=1", "trustedHeight"),
    (parse_read, "proof=true&trustedHeight=x", "trustedHeight"),
    (parse_read, "prefix=a", "prefix"),
    (parse_entities, "prefix=%FF", "query"),
    (parse_entities, "&".join(f"x{number}=1" for number in range(40)), "query"),
    (parse_entities, "limit=1001", "limit"),
    (parse_entities, "limit=x", "limit"),
    (parse_entities, "includeExpired=maybe", "includeExpired"),
    (parse_entities, "includeExpired=", "includeExpired"),
    (parse_entities, "key=k", "key"),
    (parse_relationships, "type=doc", "type"),
    *((parse_relationships, f"{name}=", name) for name in ("resource", "relation", "subject")),
    (parse_resources, "resource=doc:1", "resource"),
    (parse_page, "limit=1001", "limit"),
    (parse_page, "atHeight=1", "atHeight"),
    (parse_range, "from=x", "from"),
    (parse_range, "to=-1", "to"),
    (parse_proof, "txId=x", "txId"),
    (parse_proof, "trustedHeight=", "trustedHeight"),
]


@pytest.mark.parametrize(
    ("parse", "query", "field"),
    BAD_QUERIES,
    ids=[f"{parse.__name__}?{query[:40]}" for parse, query, _ in BAD_QUERIES],
)
def test_a_query_that_is_none_is_refused(parse: Any, query: str, field: str) -> None:
    with refused(field):
        parse(query.encode())


def test_a_query_is_ascii() -> None:
    with refused("query"):
        parse_entities("prefix=\u00fc".encode())


@pytest.mark.parametrize(
    ("query", "last", "wanted"),
    [("from=1", None, 1), ("from=7", None, 7), ("from=7", b"9", 10), ("", b"0", 1), ("", b"9", 10)],
)
def test_a_watch_begins(query: str, last: bytes | None, wanted: int) -> None:
    assert parse_watch(query.encode(), last) == wanted


@pytest.mark.parametrize(
    ("query", "last", "field"),
    [
        ("", None, "from"),
        ("from=0", None, "from"),
        ("from=x", None, "from"),
        ("from=-1", b"3", "from"),
        ("to=3", None, "to"),
        ("from=1", b"x", "Last-Event-ID"),
        ("from=1", b"", "Last-Event-ID"),
        ("from=1", b"\xff", "Last-Event-ID"),
    ],
)
def test_a_watch_without_a_beginning_is_refused(query: str, last: bytes | None, field: str) -> None:
    with refused(field):
        parse_watch(query.encode(), last)
