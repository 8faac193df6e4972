"""Messages that are not what they should be: bytes, JSON, types, names, keys. Each is refused and changes nothing."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.ledger import calls, stub
from tests.ledger.http_wire import ROOT, Route, place_path, problem_of
from tests.ledger.rig import Ledger, Site, SiteOf, request
from tests.ledger.words import Message, Place, fresh, new_key, put, refused, text


@pytest.fixture
def site(site_of: SiteOf) -> Site:
    """Nothing here reaches a store."""
    return site_of("sqlite")


@pytest.fixture
def http(site: Site) -> Ledger:
    return site.ledger("http")


@pytest.fixture
def grpc(site: Site) -> Ledger:
    return site.ledger("grpc")


# -- JSON -------------------------------------------------------------------------------------------------------------

GOOD: Message = {"clientId": {"id": "c"}, "sequence": "1", "operations": [put("k", b"v")]}


def changed(**fields: Any) -> Message:
    return {name: value for name, value in (GOOD | fields).items() if value is not ...}


def operation(**fields: Any) -> Message:
    """One set with these fields instead."""
    return changed(operations=[{"setEntity": {"key": "k", "value": "dg=="} | fields}])


BODIES: dict[str, Any] = {
    "empty": b"",
    "not-json": b"{",
    "half": json.dumps(GOOD).encode()[:-1],
    "two": json.dumps(GOOD).encode() * 2,
    "not-utf-8": b'{"clientId":{"id":"\xff"}}',
    "nan": b'{"clientId":{"id":"c"},"sequence":NaN,"operations":[]}',
    "surrogate": json.dumps(changed(clientId={"id": "\ud800"})).encode(),
    "number": 7,
    "null": None,
    "list": [GOOD],
    "text": '"text"',
    "deep": b'{"operations":' + b"[" * 1_000 + b"]" * 1_000 + b"}",
    "unknown-member": changed(surprise=1),
    "unknown-member-of-operation": changed(operations=[put("k") | {"surprise": {}}]),
    "unknown-member-of-set": operation(surprise=1),
    "unknown-operation": changed(operations=[{"moveEntity": {"key": "k"}}]),
    "unknown-condition": operation(condition={"surprise": True}),
    "twice": b'{"clientId":{"id":"c"},"sequence":"1","sequence":"2","operations":[]}',
    "twice-in-both-spellings": changed(client_id={"id": "d"}),
    "no-client": changed(clientId=...),
    "client-null": changed(clientId=None),
    "client-number": changed(clientId=7),
    "client-empty": changed(clientId={}),
    "client-id-number": changed(clientId={"id": 7}),
    "client-other": changed(clientId={"name": "c"}),
    "no-operations": changed(operations=...),
    "operations-empty": changed(operations=[]),
    "operations-object": changed(operations=put("k")),
    "operations-null-inside": changed(operations=[None]),
    "operation-empty": changed(operations=[{}]),
    "operation-of-two": changed(operations=[put("k") | {"deleteEntity": {"key": "k"}}]),
    "operation-null": changed(operations=[{"setEntity": None}]),
    "key-number": operation(key=7),
    "value-number": operation(value=7),
    "value-wrong-base64": operation(value="d***"),
    "value-too-short-base64": operation(value="dgd=="),
    "value-list": operation(value=[1, 2]),
    "expires-negative": operation(expiresAt=-1),
    "expires-fraction": operation(expiresAt=1.5),
    "expires-text": operation(expiresAt="soon"),
    "expires-too-large": operation(expiresAt=str(2**64)),
    "condition-of-two": operation(condition={"notExists": True, "version": "1"}),
    "condition-list": operation(condition=[]),
    "condition-not-boolean": operation(condition={"notExists": "yes"}),
    "condition-version-text": operation(condition={"version": "one"}),
    "condition-value-base64": operation(condition={"valueEquals": "*"}),
    "sequence-zero": changed(sequence="0"),
    "sequence-negative": changed(sequence=-1),
    "sequence-negative-text": changed(sequence="-1"),
    "sequence-fraction": changed(sequence=1.5),
    "sequence-too-large": changed(sequence=str(2**64)),
    "sequence-boolean": changed(sequence=True),
    "sequence-text": changed(sequence="first"),
    "sequence-spaces": changed(sequence=" 1"),
    "sequence-list": changed(sequence=[1]),
    "key-wrong-base64": changed(idempotencyKey="***"),
    "idempotency-key-number": changed(idempotencyKey=7),
    "key-of-15": changed(idempotencyKey=text(bytes(range(15)))),
    "key-of-17": changed(idempotencyKey=text(bytes(range(17)))),
    "key-of-1": changed(idempotencyKey=text(b"x")),
    "key-half-a-uuid": changed(idempotencyKey="8e03978e-40d5-43dd-bc93"),
    "neither-key-nor-sequence": changed(sequence=...),
    "proof-text": changed(includeTxProof="yes"),
    "proof-number": changed(includeTxProof=1),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_is_wrong(http: Ledger, name: str) -> None:
    place = http.new_place()
    body = BODIES[name]
    content = body if isinstance(body, bytes | str) else json.dumps(body)
    response = http.http.send(Route("POST", f"{place_path(place.fields)}/writes", body=content))
    assert response.status_code == 400, response.text
    problem = problem_of(response)
    assert (problem.code, problem.error_code) == ("INVALID_ARGUMENT", "3203")
    assert (http.height(place), http.last(place, "c")) == (0, 0)


TAKEN: dict[str, Message] = {
    "snake-case": {
        "client_id": {"id": "c"},
        "sequence": "1",
        "operations": [{"set_entity": {"key": "k", "value": "dg==", "expires_at": "0"}}],
        "include_tx_proof": False,
    },
    "numbers": changed(sequence=1),
    "client-as-text": changed(clientId="c"),
    "url-safe-base64": operation(value="-_8"),
    "uuid-key": changed(idempotencyKey=str(uuid.UUID(int=7))),
    "null-is-absent": changed(idempotencyKey=None, includeTxProof=None),
}


@pytest.mark.parametrize("name", TAKEN)
def test_a_body_that_is_right_in_another_way(http: Ledger, name: str) -> None:
    place = http.new_place()
    response = http.http.send(Route("POST", f"{place_path(place.fields)}/writes", body=TAKEN[name]))
    assert response.status_code == 200, response.text
    assert http.last(place, "c") == 1


PATHS = {
    "org-text": "/ledger/v1/orgs/abc/tip",
    "org-negative": "/ledger/v1/orgs/-1/tip",
    "org-too-large": f"/ledger/v1/orgs/{2**64}/tip",
    "vault-text": "/ledger/v1/orgs/{org}/vaults/abc/tip",
    "block-text": "/ledger/v1/orgs/{org}/blocks/first",
    "block-negative": "/ledger/v1/orgs/{org}/blocks/-1",
    "range-text": "/ledger/v1/orgs/{org}/blocks?from=a&to=b",
    "range-without-an-end": "/ledger/v1/orgs/{org}/blocks?from=0&to=0",
    "limit-text": "/ledger/v1/orgs/{org}/entities?limit=many",
    "limit-negative": "/ledger/v1/orgs/{org}/entities?limit=-1",
    "height-text": "/ledger/v1/orgs/{org}/entities/k?atHeight=top",
    "proof-text": "/ledger/v1/orgs/{org}/entities/k?proof=perhaps",
    "consistency": "/ledger/v1/orgs/{org}/entities/k?consistency=perhaps",
    "token": "/ledger/v1/orgs/{org}/entities?pageToken=abc",
    "watch-text": "/ledger/v1/orgs/{org}/blocks:watch?from=now",
    "transaction": "/ledger/v1/orgs/{org}/transactions/xyz",
    "not-utf-8": "/ledger/v1/orgs/{org}/entities/%FF",
}


@pytest.mark.parametrize("name", PATHS)
def test_a_path_that_is_wrong(http: Ledger, name: str) -> None:
    org = http.new_org()
    path, _, query = PATHS[name].format(org=org.org).partition("?")
    response = http.http.send(Route("GET", path, dict(part.split("=") for part in query.split("&") if part)))
    assert response.status_code in (400, 404), response.text
    assert problem_of(response).code in ("INVALID_ARGUMENT", "NOT_FOUND")
    if name not in ("transaction", "org-text", "org-negative", "org-too-large", "vault-text"):
        assert response.status_code == 400, response.text


def test_paths_and_methods_that_do_not_exist(http: Ledger) -> None:
    org = http.new_org()
    for path in (
        "/ledger/v1/",
        "/ledger/v1/things",
        f"{ROOT}/{org.org}/things",
        f"{ROOT}/{org.org}/tip/x",
    ):
        response = http.http.send(Route("GET", path))
        assert response.status_code == 404, (path, response.text)
        assert problem_of(response).code == "NOT_FOUND"
    for method, path, allowed in (
        ("PUT", f"{ROOT}/{org.org}", "DELETE, GET, HEAD, PATCH"),
        ("DELETE", f"{ROOT}/{org.org}/tip", "GET, HEAD"),
        ("GET", f"{ROOT}/1/writes", "POST"),
    ):
        response = http.http.send(Route(method, path))
        assert response.status_code == 405, (method, path, response.text)
        assert response.headers["Allow"] == allowed
        problem_of(response)


# -- protobuf ---------------------------------------------------------------------------------------------------------


def grpc_bytes(place: Place, client: str, **fields: Any) -> bytes:
    return calls.encoded("Write", request(place, client, [put("k", b"v")], **fields))


BROKEN = {
    "noise": b"\xff\xff\xff\xff",
    "cut": b"\x0a\x05\x08",
    "wrong-end-group": b"\x0c",
    "field-zero": b"\x00\x00",
    "varint-without-end": b"\x08" + b"\xff" * 12,
    "not-utf-8": b"\x1a\x03\x0a\x01\xff",
}


@pytest.mark.parametrize("name", BROKEN)
def test_bytes_that_are_no_message(grpc: Ledger, name: str) -> None:
    for rpc in ("Write", "BatchWrite", "Read", "GetTip", "CreateOrganization"):
        if name == "not-utf-8" and rpc not in ("Write", "BatchWrite"):
            continue
        with refused("INVALID_ARGUMENT", "3203"):
            grpc.grpc.send(rpc, BROKEN[name])
    assert grpc.height(grpc.new_place()) == 0


def test_messages_with_parts_missing(grpc: Ledger) -> None:
    place, client = grpc.new_place(), fresh("client")
    whole = request(place, client, [put("k")], sequence=1)
    for missing in ("organization", "clientId", "operations", "sequence"):
        partly = {name: value for name, value in whole.items() if name != missing}
        with refused("INVALID_ARGUMENT", "3203"):
            grpc.grpc.ask("Write", partly)
    empty = stub.make("WriteRequest", sequence=1, operations=[stub.make("Operation")]).SerializeToString()
    with refused("INVALID_ARGUMENT", "3203"):
        grpc.grpc.send("Write", grpc_bytes(place, client) + empty)
    assert (grpc.height(place), grpc.last(place, client)) == (0, 0)


@pytest.mark.parametrize("size", [1, 15, 17, 32], ids=lambda size: f"{size}-bytes")
def test_keys_of_the_wrong_length(ledger: Ledger, place: Place, size: int) -> None:
    for identity in ({}, {"sequence": 1}):
        with refused("INVALID_ARGUMENT", "3203"):
            ledger.write(place, "c", put("k"), key=b"k" * size, **identity)
    assert ledger.height(place) == 0
    assert ledger.commit(place, "c", put("k"), key=new_key()).height == 1


def test_unknown_fields_of_a_message_mean_nothing(grpc: Ledger) -> None:
    place, client = grpc.new_place(), fresh("client")
    unknown = b"\xc2\x3e\x03abc" + b"\x50\x07"  # fields 1000 and 10
    grpc.grpc.send("Write", grpc_bytes(place, client, sequence=1) + unknown)
    assert grpc.last(place, client) == 1


def test_a_connection_that_speaks_nonsense_harms_nobody(grpc: Ledger, site: Site) -> None:
    place = grpc.new_place()
    for line in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\0" * 100, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 64):
        with calls.connect(site.nodes[0].grpc_port) as raw:
            raw.sendall(line)
            calls.drain(raw)
    assert grpc.height(place) == 0
