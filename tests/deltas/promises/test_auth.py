"""Who may do what with which gateway: tokens, their claims, the two roles, and the rotation of the secret."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.deltas.rig import base64_text, signed
from tests.deltas.vectors import JWT, JWT_SECRET, now_ms
from tests.deltas.wire import CLIENT, Answer, Deltas, Message, columns, delta, fresh, path, serving

NEXT_SECRET = "the secret that comes next"
MISSING = object()
FOR_EVER = 4_102_444_800
ADMIN_CALLS = {
    "schema": ("POST", b'{"table": "todos", "columns": []}'),
    "sync-rules": ("POST", b'{"version": 1, "buckets": []}'),
    "flush": ("POST", b""),
    "metrics": ("GET", None),
    "tables": ("GET", None),
    "rows": ("GET", None),
    "entries": ("GET", None),
}
QUERIES = {"rows": "?table=todos", "entries": "?table=todos&row=r"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deltas]:
    """Wants tokens, under either of two secrets; the store cannot matter."""
    data = tmp_path_factory.mktemp("auth") / "data"
    with serving(data, "memory", DELTAS_JWT_SECRET=JWT_SECRET, DELTAS_JWT_SECRET_NEXT=NEXT_SECRET) as deltas:
        yield deltas


def claims(gateway: str, **others: Any) -> Message:
    """What a good token says; a claim that is MISSING is left out."""
    given = {"sub": CLIENT, "gw": gateway, "role": "client", "exp": FOR_EVER} | others
    return {name: value for name, value in given.items() if value is not MISSING}


def token(gateway: str, **others: Any) -> str:
    return signed(claims(gateway, **others), JWT_SECRET)


def push(deltas: Deltas, gateway: str, bearer: str, *made: Message, client: str = CLIENT) -> Answer:
    """Push with this token, or with none."""
    body = json.dumps({"clientId": client, "deltas": list(made or [delta("INSERT", columns(title="x"))])}).encode()
    return deltas.push_raw(gateway, body, expect=None, headers=header(bearer))


def header(bearer: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {bearer}"} if bearer else {}


def stored(deltas: Deltas, gateway: str) -> int:
    """How many deltas there are, as an administrator is told."""
    told = deltas.call("GET", path(gateway, "metrics"), headers=header(token(gateway, role="admin")))
    return int(told["deltaCount"])


# -- tokens ------------------------------------------------------------------------------------------------------------


def test_the_server_says_at_its_start_that_deltas_want_tokens(guarded: Deltas) -> None:
    """The rest of it is open to everyone on the machine, which is said too."""
    assert "(development mode, no credentials but for deltas;" in guarded.nodes[0].output.read_text()


def test_the_published_token(guarded: Deltas) -> None:
    made = delta("INSERT", columns(title="x"))
    assert push(guarded, "gw1", JWT, made).http == 200
    told = guarded.call("GET", path("gw1", "pull") + "?since=0&clientId=client-a", headers=header(JWT))
    assert told["deltas"] == [made]
    assert guarded.call("GET", path("gw1", "actions"), headers=header(JWT)).body == {"connectors": {}}
    assert push(guarded, "gw2", JWT, made).told == (403, "AUTH_ERROR")


TAKEN: dict[str, Message] = {
    "no role": {"role": MISSING},
    "a fraction of a second": {"exp": FOR_EVER + 0.5},
    "other claims": {"org": "acme", "teams": ["a", "b"], "n": 1, "iat": 0, "nested": {"x": [1]}},
}


@pytest.mark.parametrize("others", TAKEN.values(), ids=TAKEN.keys())
def test_claims_that_are_taken(guarded: Deltas, gateway: str, others: Message) -> None:
    assert push(guarded, gateway, token(gateway, **others)).http == 200


REFUSED: dict[str, Message] = {
    "expired": {"exp": 1_000_000_000},
    "expired at the beginning of time": {"exp": 0},
    "expired before it": {"exp": -1},
    "no expiry": {"exp": MISSING},
    "expiry in a string": {"exp": str(FOR_EVER)},
    "expiry null": {"exp": None},
    "expiry a list": {"exp": [FOR_EVER]},
    "no subject": {"sub": MISSING},
    "empty subject": {"sub": ""},
    "subject a number": {"sub": 7},
    "subject null": {"sub": None},
    "no gateway": {"gw": MISSING},
    "empty gateway": {"gw": ""},
    "gateway a number": {"gw": 7},
    "gateway a list": {"gw": ["gw"]},
}


@pytest.mark.parametrize("others", REFUSED.values(), ids=REFUSED.keys())
def test_claims_that_are_refused(guarded: Deltas, gateway: str, others: Message) -> None:
    assert push(guarded, gateway, token(gateway, **others)).told == (401, "AUTH_ERROR")
    told = guarded.call(
        "GET", path(gateway, "pull") + "?since=0&clientId=c", headers=header(token(gateway, **others)), expect=401
    )
    assert told.code == "AUTH_ERROR"
    assert stored(guarded, gateway) == 0


def test_a_token_that_ends_now_has_ended(guarded: Deltas, gateway: str) -> None:
    assert push(guarded, gateway, token(gateway, exp=now_ms() // 1_000)).told == (401, "AUTH_ERROR")
    assert push(guarded, gateway, token(gateway, exp=now_ms() // 1_000 + 600)).http == 200


HEADERS: dict[str, Message] = {
    "alg none": {"alg": "none", "typ": "JWT"},
    "alg None": {"alg": "None", "typ": "JWT"},
    "alg HS512": {"alg": "HS512", "typ": "JWT"},
    "alg HS384": {"alg": "HS384", "typ": "JWT"},
    "alg RS256": {"alg": "RS256", "typ": "JWT"},
    "alg hs256": {"alg": "hs256", "typ": "JWT"},
    "alg missing": {"typ": "JWT"},
    "alg a list": {"alg": ["HS256"], "typ": "JWT"},
    "typ missing": {"alg": "HS256"},
    "typ at+jwt": {"alg": "HS256", "typ": "at+jwt"},
    "typ JWS": {"alg": "HS256", "typ": "JWS"},
    "typ null": {"alg": "HS256", "typ": None},
}


@pytest.mark.parametrize("given", HEADERS.values(), ids=HEADERS.keys())
def test_headers_that_are_refused(guarded: Deltas, gateway: str, given: Message) -> None:
    """Even with a signature that holds, by the digest that the header names where it names one."""
    digest = {"HS512": "sha512", "HS384": "sha384"}.get(str(given.get("alg")), "sha256")
    bearer = signed(claims(gateway), JWT_SECRET, header=given, digest=digest)
    assert push(guarded, gateway, bearer).told == (401, "AUTH_ERROR")


def spoiled(gateway: str) -> dict[str, str]:
    """Tokens that nobody has signed."""
    head, body, signature = token(gateway).split(".")
    other = token(gateway, sub="other").split(".")[1]
    none = base64_text(b'{"alg":"none","typ":"JWT"}')
    return {
        "nothing": "",
        "junk": "junk",
        "dots": "..",
        "no signature": f"{head}.{body}",
        "empty signature": f"{head}.{body}.",
        "none and empty signature": f"{none}.{body}.",
        "other claims": f"{head}.{other}.{signature}",
        "signature cut": f"{head}.{body}.{signature[:-2]}",
        "signature of zeros": f"{head}.{body}.{base64_text(bytes(32))}",
        "a part more": f"{head}.{body}.{signature}.{signature}",
        "another secret": signed(claims(gateway), "another secret"),
        "empty secret": signed(claims(gateway), ""),
        "claims no object": signed([], JWT_SECRET),
        "claims no json": f"{head}.{base64_text(b'{')}.{signature}",
        "no base64": f"{head}.***.{signature}",
        "enormous": "a" * 20_000,
    }


@pytest.mark.parametrize("name", spoiled("gw").keys())
def test_tokens_that_nobody_signed(guarded: Deltas, gateway: str, name: str) -> None:
    assert push(guarded, gateway, spoiled(gateway)[name]).told == (401, "AUTH_ERROR")
    assert stored(guarded, gateway) == 0


@pytest.mark.parametrize("scheme", ["Basic", "Token", ""])
def test_other_schemes(guarded: Deltas, gateway: str, scheme: str) -> None:
    given = {"Authorization": f"{scheme} {token(gateway)}".strip()}
    assert guarded.call("GET", path(gateway, "actions"), expect=401, headers=given).code == "AUTH_ERROR"


def test_a_token_in_the_query_opens_nothing(guarded: Deltas, gateway: str) -> None:
    query = f"?since=0&clientId=c&token={token(gateway)}"
    assert guarded.call("GET", path(gateway, "pull") + query, expect=401).code == "AUTH_ERROR"


# -- rotation ----------------------------------------------------------------------------------------------------------


def test_two_secrets_hold_during_a_rotation(guarded: Deltas, gateway: str) -> None:
    for secret in (JWT_SECRET, NEXT_SECRET):
        assert push(guarded, gateway, signed(claims(gateway), secret)).http == 200
    assert push(guarded, gateway, signed(claims(gateway), JWT_SECRET + NEXT_SECRET)).http == 401


# -- roles and clients -------------------------------------------------------------------------------------------------


def test_a_client_pushes_as_itself(guarded: Deltas, gateway: str) -> None:
    bearer = token(gateway)
    assert push(guarded, gateway, bearer, client="somebody-else").told == (403, "FORBIDDEN")
    foreign = delta("INSERT", columns(title="x"), client="somebody-else")
    own = delta("INSERT", columns(title="y"))
    told = push(guarded, gateway, bearer, own, foreign)
    assert (told.told, told.blamed) == ((403, "FORBIDDEN"), [(1, "FORBIDDEN")])
    assert told["details"][0]["deltaId"] == foreign["deltaId"]
    assert stored(guarded, gateway) == 0
    assert push(guarded, gateway, bearer, own).http == 200


def test_an_administrator_may_push_for_others(guarded: Deltas, gateway: str) -> None:
    bearer = token(gateway, sub="relay", role="admin")
    made = [delta("INSERT", columns(n=name), client=name, row=name) for name in ("ann", "bob", "relay")]
    told = push(guarded, gateway, bearer, *made, client="relay")
    assert (told.http, told["deltas"]) == (200, made)


def test_the_client_of_a_pull_gives_no_access(guarded: Deltas, gateway: str) -> None:
    push(guarded, gateway, token(gateway))
    for client in (CLIENT, "another", "x"):
        target = path(gateway, "pull") + f"?since=0&clientId={client}"
        assert len(guarded.call("GET", target, headers=header(token(gateway)))["deltas"]) == 1
        refused = guarded.call("GET", target, headers=header(token("other-gateway", sub=client)), expect=403)
        assert refused.code == "AUTH_ERROR"


@pytest.mark.parametrize("what", ADMIN_CALLS)
@pytest.mark.parametrize("version", ["/v1", ""])
def test_what_is_for_administrators(guarded: Deltas, gateway: str, what: str, version: str) -> None:
    method, body = ADMIN_CALLS[what]
    target = path(gateway, what, version) + QUERIES.get(what, "")
    assert guarded.call(method, target, body, expect=401).code == "AUTH_ERROR"
    for bearer in (token(gateway), token(gateway, role=MISSING), token(fresh("gw"), role="admin")):
        assert guarded.call(method, target, body, expect=403, headers=header(bearer)).code == "AUTH_ERROR"
    guarded.call(method, target, body, headers=header(token(gateway, role="admin")))


@pytest.mark.parametrize("role", ["Admin", "ADMIN", "root", "", "client admin"])
def test_other_roles_are_no_administrators(guarded: Deltas, gateway: str, role: str) -> None:
    told = guarded.call("GET", path(gateway, "metrics"), expect=None, headers=header(token(gateway, role=role)))
    assert told.told in ((403, "AUTH_ERROR"), (401, "AUTH_ERROR"))


def test_what_needs_no_token(guarded: Deltas, gateway: str) -> None:
    for target in ("/health", "/ready", "/v1/connectors/types", "/connectors/types"):
        assert guarded.call("GET", target).http == 200
    assert guarded.send("OPTIONS", path(gateway, "push"), None, {"Origin": "http://localhost:5173"}).status_code == 204


def test_an_unknown_route_is_unknown_to_everyone(guarded: Deltas, gateway: str) -> None:
    for method, what in (("GET", "nothing"), ("GET", "push"), ("POST", "action")):
        assert guarded.call(method, path(gateway, what), expect=404).code == "NOT_FOUND"


def test_refusals_carry_what_browsers_need(guarded: Deltas, gateway: str) -> None:
    told = guarded.call("GET", path(gateway, "actions"), expect=401, headers={"Origin": "http://localhost:5173"})
    assert told.headers["Access-Control-Allow-Origin"] == "http://localhost:5173"
