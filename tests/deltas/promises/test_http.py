"""The surface as HTTP: paths with and without a version, methods, headers, other origins, and what needs no gateway."""

from __future__ import annotations

import http.client
import json
from urllib.parse import quote

import pytest

from tests.deltas.rig import check_nothing_stored
from tests.deltas.wire import CLIENT, PATIENCE_SECONDS, STATUS_OF, Deltas, columns, delta, fresh, path
from tests.harness.server import HOST

DELTA = delta("INSERT", columns(title="x"))
PUSH = json.dumps({"clientId": CLIENT, "deltas": [DELTA]}).encode()
SCHEMA = json.dumps({"table": "todos", "columns": [{"name": "title", "type": "string"}]}).encode()
RULES = b'{"version": 1, "buckets": []}'

# -- paths -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["/v1", ""])
def test_every_path_has_a_form_without_version(deltas: Deltas, gateway: str, version: str) -> None:
    assert deltas.call("POST", path(gateway, "push", version), PUSH)["deltas"] == [DELTA]
    query = "?since=0&clientId=reader&limit=1"
    assert deltas.call("GET", path(gateway, "pull", version) + query)["deltas"] == [DELTA]
    assert deltas.call("GET", path(gateway, "actions", version)).body == {"connectors": {}}
    assert deltas.call("POST", path(gateway, "schema", version), SCHEMA).body == {"saved": True}
    assert deltas.call("POST", path(gateway, "sync-rules", version), RULES).body == {"saved": True}
    assert deltas.call("POST", path(gateway, "flush", version), b"").body == {"flushed": True}
    assert deltas.call("GET", path(gateway, "metrics", version))["deltaCount"] == 1
    assert deltas.call("GET", f"{version}/connectors/types").body == []


@pytest.mark.parametrize("version", ["/v1", ""])
def test_a_gateway_without_rows_has_no_checkpoint(deltas: Deltas, gateway: str, version: str) -> None:
    assert deltas.call("GET", path(gateway, "checkpoint", version), expect=404).code == "NOT_FOUND"


UNKNOWN = [
    ("GET", "push"),
    ("PUT", "push"),
    ("DELETE", "push"),
    ("PATCH", "push"),
    ("POST", "pull?since=0&clientId=c"),
    ("DELETE", "pull"),
    ("POST", "checkpoint"),
    ("POST", "actions"),
    ("POST", "action"),
    ("GET", "action"),
    ("GET", "nothing"),
    ("POST", "nothing"),
    ("GET", ""),
    ("POST", "push/"),
    ("POST", "push/more"),
    ("POST", "PUSH"),
    ("GET", "schema"),
    ("GET", "flush"),
    ("POST", "metrics"),
]


@pytest.mark.parametrize("version", ["/v1", ""])
@pytest.mark.parametrize(("method", "what"), UNKNOWN, ids=[f"{method} {what}" for method, what in UNKNOWN])
def test_unknown_routes_and_methods(anywhere: Deltas, gateway: str, version: str, method: str, what: str) -> None:
    """Answered as all others are, by a body that the client can read."""
    told = anywhere.call(method, path(gateway, what, version), PUSH if method != "GET" else None, expect=404)
    assert told.code == "NOT_FOUND"
    check_nothing_stored(anywhere, gateway)


@pytest.mark.parametrize(
    "target", ["/v1/sync/", "/v1/sync", "/sync/", "/v1/admin/", "/admin/schema", "/v1/admin/schema/", "/v1/sync//push"]
)
def test_paths_without_a_gateway(anywhere: Deltas, target: str) -> None:
    assert anywhere.send("POST", target, PUSH).status_code == 404


NAMES = ["a/b", "a%2Fb", "caf\u00e9", "\U0001f389", " ", "a b+c", "..", "a?b#c", "\u0001", "g" * 256, "push", "gw:1"]


@pytest.mark.parametrize("number", range(len(NAMES)))
def test_gateways_of_any_name(deltas: Deltas, number: int) -> None:
    gateway = NAMES[number] if len(NAMES[number]) == 256 else fresh(NAMES[number])
    made = delta("INSERT", columns(number=number))
    told = deltas.push(gateway, [made])
    assert (told["duplicates"], told["deltas"]) == (0, [made])
    assert deltas.log(gateway) == [made]


@pytest.mark.parametrize("name", ["%FF", "%ED%A0%80", "%C0%80", "g" * 257, quote("\u00e9") * 257])
def test_names_that_no_gateway_has(anywhere: Deltas, name: str) -> None:
    assert anywhere.call("POST", f"/v1/sync/{name}/push", PUSH, expect=404).code == "NOT_FOUND"
    assert anywhere.call("GET", f"/v1/sync/{name}/pull?since=0&clientId=c", expect=404).code == "NOT_FOUND"
    assert anywhere.call("GET", f"/v1/admin/metrics/{name}", expect=404).code == "NOT_FOUND"


def test_names_are_decoded_once(deltas: Deltas) -> None:
    name = fresh("a%41")
    deltas.push(name, [DELTA])
    assert deltas.log(name) == [DELTA]
    check_nothing_stored(deltas, name.replace("%41", "A"))


# -- headers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 400, 404, 409, 422])
def test_the_request_id_of_the_caller_comes_back(anywhere: Deltas, gateway: str, status: int) -> None:
    bodies = {
        200: PUSH,
        400: b"{",
        404: PUSH,
        409: json.dumps({"clientId": CLIENT, "deltas": [delta(hlc=2**64 - 1)]}).encode(),
        422: json.dumps({"clientId": CLIENT, "deltas": [DELTA | {"deltaId": "0" * 64}]}).encode(),
    }
    target = path(gateway, "nothing" if status == 404 else "push")
    told = anywhere.call("POST", target, bodies[status], expect=status, headers={"X-Request-Id": "req-7.a_b"})
    assert told.headers["X-Request-Id"] == "req-7.a_b"
    assert status == 200 or told["requestId"] == "req-7.a_b"
    again = anywhere.call("POST", target, bodies[status], expect=status)
    assert again.headers["X-Request-Id"] not in ("", "req-7.a_b")
    if status != 200:
        assert told.http in STATUS_OF[told.code]


@pytest.mark.parametrize("name", ["x" * 129, "x" * 5_000, "caf\u00e9", "a\tb"], ids=["long", "longer", "accent", "tab"])
def test_a_request_id_that_is_unfit_is_replaced(anywhere: Deltas, gateway: str, name: str) -> None:
    connection = http.client.HTTPConnection(HOST, anywhere.nodes[0].port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("POST", path(gateway, "push"), PUSH, {"X-Request-Id": name})
        response = connection.getresponse()
        response.read()
    finally:
        connection.close()
    assert response.status == 200
    told = response.headers["X-Request-Id"]
    assert 1 <= len(told) <= 128
    assert told.isascii()
    assert told.isprintable()


def test_connections_are_kept(anywhere: Deltas, gateway: str) -> None:
    for number in range(5):
        made = delta("INSERT", columns(n=number))
        body = json.dumps({"clientId": CLIENT, "deltas": [made]}).encode()
        response = anywhere.send("POST", path(gateway, "push"), iter([body[:9], body[9:]]))
        assert response.status_code == 200
        assert response.headers.get("Connection", "keep-alive") == "keep-alive"


def test_head_is_get_without_a_body(deltas: Deltas, gateway: str) -> None:
    deltas.push(gateway, [DELTA])
    target = path(gateway, "pull") + "?since=0&clientId=reader"
    asked, told = deltas.send("GET", target), deltas.send("HEAD", target)
    assert (told.status_code, told.content) == (200, b"")
    for name in ("Content-Type", "Cache-Control", "API-Version", "X-Content-Type-Options"):
        assert told.headers[name] == asked.headers[name]
    assert deltas.send("HEAD", path(gateway, "nothing")).status_code == 404


# -- other origins -----------------------------------------------------------------------------------------------------

ORIGIN = {"Origin": "http://localhost:5173"}


def words(text: str) -> set[str]:
    return {word.strip().lower() for word in text.split(",")}


@pytest.mark.parametrize("what", ["push", "pull", "actions", "checkpoint", "schema", "flush", "metrics", "nothing"])
def test_browsers_may_ask_first(anywhere: Deltas, gateway: str, what: str) -> None:
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    response = anywhere.send("OPTIONS", path(gateway, what), None, ORIGIN | asked)
    assert (response.status_code, response.content) == (204, b"")
    assert response.headers["Access-Control-Allow-Origin"] == ORIGIN["Origin"]
    assert words(response.headers["Access-Control-Allow-Methods"]) >= {"get", "post", "delete", "options"}
    assert words(response.headers["Access-Control-Allow-Headers"]) >= {"authorization", "content-type"}
    assert response.headers["X-Request-Id"]
    assert response.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(("body", "status"), [(PUSH, 200), (b"{", 400)])
def test_browsers_may_read_every_answer(anywhere: Deltas, gateway: str, body: bytes, status: int) -> None:
    told = anywhere.push_raw(gateway, body, headers=ORIGIN, expect=status)
    assert told.headers["Access-Control-Allow-Origin"] == ORIGIN["Origin"]


# -- without a gateway -------------------------------------------------------------------------------------------------


def test_health(anywhere: Deltas) -> None:
    told = anywhere.call("GET", "/health")
    assert told["status"] == "ok"
    assert told["version"]
    assert anywhere.send("GET", "/livez").json() == told.body


def test_readiness(anywhere: Deltas) -> None:
    assert anywhere.call("GET", "/ready").body == {"status": "ready"}
    assert anywhere.send("GET", "/readyz").json() == {"status": "ready"}


def test_a_token_is_ignored_where_none_is_needed(deltas: Deltas, gateway: str) -> None:
    """Without a secret anyone on this machine is let in, with whatever there is in the header."""
    for header in ("Bearer junk", "Bearer a.b.c", "Basic eDp5", "junk", ""):
        told = deltas.push_raw(gateway, PUSH, headers={"Authorization": header})
        assert told["accepted"] == 1
    assert deltas.call("GET", path(gateway, "metrics"), headers={"Authorization": "Bearer junk"})["deltaCount"] == 1
