"""Paths, queries and bodies of deltas, and what a caller is told when the engine fails: values to values."""

from __future__ import annotations

import json
from functools import partial

import pytest

from semel.engine.contract import (
    EngineError,
    FaultError,
    NotStoredError,
    OutcomeUnknownError,
    OverloadedError,
    UnavailableError,
)
from semel.kernel.errors import Refusal, Refused
from semel.surfaces.deltas.commands import flaws_of
from semel.surfaces.deltas.exchange import engine_refusal, own_refusal, refuse
from semel.surfaces.deltas.limits import DeltaPolicy
from semel.surfaces.deltas.sync_calls import parse_for
from semel.surfaces.deltas.wire.admin import TableSchema, parse_schema
from semel.surfaces.deltas.wire.push_body import PushBody, parse_push
from semel.surfaces.deltas.wire.urls import (
    DeltaListQuery,
    DeltaRoute,
    PullQuery,
    is_of_deltas,
    parse_listing,
    parse_pull,
    split_path,
)

ROUTES: dict[bytes, DeltaRoute | None] = {
    b"/v1/sync/gw1/push": DeltaRoute("sync/{}/push", "gw1"),
    b"/sync/gw1/pull": DeltaRoute("sync/{}/pull", "gw1"),
    b"/v1/admin/sync-rules/gw1": DeltaRoute("admin/sync-rules/{}", "gw1"),
    b"/admin/flush/gw1": DeltaRoute("admin/flush/{}", "gw1"),
    b"/v1/admin/gateways": DeltaRoute("admin/gateways", ""),
    b"/connectors/types": DeltaRoute("connectors/types", ""),
    b"/sync/push": DeltaRoute("sync/push", ""),
    b"/sync/a%2Fb/push": DeltaRoute("sync/{}/push", "a/b"),
    b"/sync/%25/push": DeltaRoute("sync/{}/push", "%"),
    b"/sync/%2541/push": DeltaRoute("sync/{}/push", "%41"),
    b"/sync/a+b/push": DeltaRoute("sync/{}/push", "a+b"),
    b"/sync/%C3%A9/push": DeltaRoute("sync/{}/push", "\u00e9"),
    b"/sync/%00/push": DeltaRoute("sync/{}/push", "\x00"),
    b"/sync/\xc3\xa9/push": DeltaRoute("sync/{}/push", "\u00e9"),
    b"/sync/%ff/push": None,
    b"/sync/%ED%A0%80/push": None,
    b"/sync/%/push": None,
    b"/sync/%4/push": None,
    b"/sync/%zz/push": None,
    b"/sync//push": None,
    b"/sync/gw1/push/": None,
    b"/sync/gw1/a/b": None,
    b"/sync": None,
    b"/v1/admin": None,
}


@pytest.mark.parametrize(("path", "route"), ROUTES.items(), ids=[repr(path)[2:-1] for path in ROUTES])
def test_paths(path: bytes, route: DeltaRoute | None) -> None:
    assert is_of_deltas(path)
    assert split_path(path) == route


@pytest.mark.parametrize("characters", [1, 256, 257])
def test_a_gateway_has_up_to_256_characters_however_many_bytes_they_take(characters: int) -> None:
    route = split_path(b"/sync/" + b"%F0%9F%8E%89" * characters + b"/push")
    assert (route is not None) == (characters <= 256)


@pytest.mark.parametrize("path", [b"/", b"/v1", b"/v1/synchron/x", b"/syncs", b"/v2/sync/a/push", b"/v1/streams"])
def test_other_paths_are_not_ours(path: bytes) -> None:
    assert not is_of_deltas(path)


PULLS: dict[bytes, PullQuery | tuple[str, int | None]] = {
    b"since=0&clientId=b": PullQuery('"b"', 0, 100),
    b"since=18446744073709551615&clientId=b&limit=1000": PullQuery('"b"', 2**64 - 1, 1_000),
    b"clientId=%C3%A9+%22&since=7&limit=1": PullQuery('"\u00e9 \\""', 7, 1),
    b"since=0&clientId=b&limit=10000": PullQuery('"b"', 0, 10_000),
    b"since=0&clientId=b&limit=10001": PullQuery('"b"', 0, 10_000),
    b"since=0&clientId=b&limit=0007": PullQuery('"b"', 0, 7),
    b"since=0&clientId=b&limit=" + b"9" * 5_000: PullQuery('"b"', 0, 10_000),
    b"since=0&clientId=b&source=&other=x": PullQuery('"b"', 0, 100),
    b"since=0&clientId=" + b"x" * 256: PullQuery(f'"{"x" * 256}"', 0, 100),
    b"since=0&clientId=" + b"x" * 257: ("VALIDATION_ERROR", None),
    b"": ("VALIDATION_ERROR", None),
    b"clientId=b": ("VALIDATION_ERROR", None),
    b"since=0": ("VALIDATION_ERROR", None),
    b"since=0&clientId=": ("VALIDATION_ERROR", None),
    b"since=&clientId=b": ("VALIDATION_ERROR", None),
    b"since=00&clientId=b": ("VALIDATION_ERROR", None),
    b"since=-1&clientId=b": ("VALIDATION_ERROR", None),
    b"since=%D9%A1&clientId=b": ("VALIDATION_ERROR", None),
    b"since=1%0A&clientId=b": ("VALIDATION_ERROR", None),
    b"since=18446744073709551616&clientId=b": ("VALIDATION_ERROR", None),
    b"since=100000000000000000000&clientId=b": ("VALIDATION_ERROR", None),
    b"since=0&clientId=b&limit=": ("VALIDATION_ERROR", None),
    b"since=0&clientId=b&limit=0": ("VALIDATION_ERROR", None),
    b"since=0&clientId=b&limit=000": ("VALIDATION_ERROR", None),
    b"since=0&clientId=b&limit=-1": ("VALIDATION_ERROR", None),
    b"since=0&clientId=b&limit=1.5": ("VALIDATION_ERROR", None),
    b"since=0&clientId=b&limit=%D9%A1": ("VALIDATION_ERROR", None),
    b"since=0&since=0&clientId=b": ("VALIDATION_ERROR", None),
    b"since=0&clientId=%ff": ("VALIDATION_ERROR", None),
    b"since=0&clientId=\xff": ("VALIDATION_ERROR", None),
    b"since=0&clientId=b&source=x": ("NOT_FOUND", None),
    b"since=0&clientId=b&limit=0&source=x": ("VALIDATION_ERROR", None),
}


@pytest.mark.parametrize(("query", "wanted"), PULLS.items(), ids=[repr(query)[2:-1][:50] for query in PULLS])
def test_queries_of_a_pull(query: bytes, wanted: PullQuery | tuple[str, int | None]) -> None:
    if isinstance(wanted, PullQuery):
        assert parse_pull(query) == wanted
        return
    with pytest.raises(Refused) as refused:
        parse_pull(query)
    assert (refused.value.refusal.name, refused.value.refusal.own_status) == wanted


def test_a_query_of_a_listing() -> None:
    assert parse_listing(b"") == DeltaListQuery(None, 100)
    assert parse_listing(b"after=gw1&limit=5") == DeltaListQuery("gw1", 5)
    assert parse_listing(b"after=") == DeltaListQuery(None, 100)


def column(name: object = "a", kind: object = "string") -> dict[str, object]:
    return {"name": name, "type": kind}


def test_a_schema() -> None:
    kinds = ("string", "number", "boolean", "json", "null")
    body = {"table": "todos", "columns": [column(f"c_{kind}", kind) | {"more": 1} for kind in kinds], "more": True}
    assert parse_schema(json.dumps(body).encode()) == TableSchema("todos", tuple((f"c_{kind}", kind) for kind in kinds))
    assert parse_schema(b'{"table":"_","columns":[]}') == TableSchema("_", ())
    many = {"table": "t" * 64, "columns": [column(f"c{number}") for number in range(1_000)]}
    assert len(parse_schema(json.dumps(many).encode()).columns) == 1_000


ILL_FORMED: dict[str, object] = {
    "nothing": b"",
    "no JSON": b"{",
    "not UTF-8": b"\xff",
    "a name twice": b'{"table":"a","table":"a","columns":[]}',
    "a list": [],
    "null": None,
    "no table": {"columns": []},
    "no columns": {"table": "t"},
    "table is a number": {"table": 1, "columns": []},
    "table is empty": {"table": "", "columns": []},
    "table begins with a digit": {"table": "1t", "columns": []},
    "table ends with a line": {"table": "t\n", "columns": []},
    "table with a letter beyond ASCII": {"table": "\u00e9", "columns": []},
    "table is too long": {"table": "t" * 65, "columns": []},
    "columns is an object": {"table": "t", "columns": {}},
    "too many columns": {"table": "t", "columns": [column(f"c{number}") for number in range(1_001)]},
    "a column is a string": {"table": "t", "columns": ["a"]},
    "a column without a name": {"table": "t", "columns": [{"type": "string"}]},
    "a column without a type": {"table": "t", "columns": [{"name": "a"}]},
    "an unknown type": {"table": "t", "columns": [column(kind="int")]},
    "a type that is a list": {"table": "t", "columns": [column(kind=["string"])]},
    "a bad name": {"table": "t", "columns": [column("a b")]},
    "a column twice": {"table": "t", "columns": [column(), column()]},
}


@pytest.mark.parametrize("body", ILL_FORMED.values(), ids=ILL_FORMED)
def test_ill_formed_schemas(body: object) -> None:
    with pytest.raises(Refused) as refused:
        parse_schema(body if isinstance(body, bytes) else json.dumps(body).encode())
    assert (refused.value.refusal.name, refused.value.refusal.own_status) == ("SCHEMA_ERROR", 400)


FAILURES: dict[str, tuple[EngineError, str, int]] = {
    "overloaded": (OverloadedError("Full."), "BACKPRESSURE_ERROR", 503),
    "not stored": (NotStoredError("Stopping."), "BACKPRESSURE_ERROR", 503),
    "not readable": (UnavailableError("Away."), "BACKPRESSURE_ERROR", 503),
    "unknown": (OutcomeUnknownError("Unknown."), "OUTCOME_UNKNOWN", 503),
    "fault": (FaultError("0123abcd"), "INTERNAL_ERROR", 500),
}


@pytest.mark.parametrize(("error", "code", "status"), FAILURES.values(), ids=FAILURES)
def test_failures_of_the_engine(error: EngineError, code: str, status: int) -> None:
    answer = refuse(engine_refusal(error), b"id-1")
    told = json.loads(answer.body)
    assert (answer.status, told["code"], told["requestId"]) == (status, code, "id-1")
    assert (dict(answer.headers).get(b"retry-after") == b"1") == (status == 503)
    assert ("0123abcd" in told["error"]) == isinstance(error, FaultError)


def test_refusals_of_the_server_itself() -> None:
    assert own_refusal(Refusal("UNAUTHORIZED", "Who?")) == Refusal("deltas:AUTH_ERROR", "Who?")
    assert own_refusal(Refusal("OVERLOADED", "Full.")) == Refusal("deltas:BACKPRESSURE_ERROR", "Full.")


def body_of(client: str, author: str) -> bytes:
    delta = {"op": "DELETE", "table": "t", "rowId": "r", "clientId": author, "columns": [], "hlc": "1"}
    return json.dumps({"clientId": client, "deltas": [delta | {"deltaId": "0" * 64}]}).encode()


def read_for(body: bytes, authors: tuple[str, ...] | None) -> PushBody:
    return parse_for(partial(parse_push, body, DeltaPolicy(checks_ids=False)), authors)


TWO = ('"ada"', '"tablet"')


@pytest.mark.parametrize("client", ["ada", "tablet"])
def test_one_of_two_ids_may_be_used(client: str) -> None:
    assert read_for(body_of(client, client), TWO).client == f'"{client}"'


@pytest.mark.parametrize(
    ("client", "author", "names_it"),
    [("eve", "eve", False), ("ada", "tablet", True), ("tablet", "ada", True), ("ada", "eve", True)],
    ids=["neither", "mixed", "mixed the other way", "foreign"],
)
def test_but_not_another_and_not_both_at_once(client: str, author: str, names_it: bool) -> None:
    with pytest.raises(Refused) as refused:
        read_for(body_of(client, author), TWO)
    assert refused.value.refusal.name == "FORBIDDEN"
    assert bool(flaws_of(refused.value.refusal)) == names_it


def test_whoever_may_push_for_all() -> None:
    assert read_for(body_of("relay", "eve"), None).deltas[0].client == '"eve"'
