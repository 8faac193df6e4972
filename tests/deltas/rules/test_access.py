"""JWTs of the clients of deltas: which are taken, what they say, and what of the server's other credentials stays."""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any

import pytest

from semel.engine.caller import WaitingCaller
from semel.kernel.errors import Refused
from semel.server.auth.principals import DEVELOPER, AuthOutcome, Principal, Principals, Role, UnauthorizedError
from semel.surfaces.deltas.access import DeltaCaller, DeltaClientTokens, needs_role

VECTOR = (
    b"eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJjbGllbnQtYSIsImd3IjoiZ3cxIiwicm9sZSI6ImNsaWVudCIsImV4cCI6NDEw"
    b"MjQ0NDgwMCwib3JnIjoiYWNtZSJ9.g1GLVlfCrk6a_PCFwnc35aMUL_Vlqcu-CbCkxrnvr5Q"
)
SECRET, NEXT = "secret", "the next one"
NOW_S = 1_800_000_000
NOW_MS = NOW_S * 1_000
HEADER = {"alg": "HS256", "typ": "JWT"}
CLAIMS: dict[str, Any] = {"sub": "client-a", "gw": "gw1", "exp": NOW_S + 60}
NEW = Principals().besides(DeltaClientTokens([SECRET, NEXT]))

NOT_KNOWN, UNFIT_CLAIMS, EXPIRED = (
    "This token is not known here.",
    "This token does not do: sub and gw must be texts and not empty, exp a number, and role, if any, a text.",
    "This token has expired.",
)


def part(value: object) -> bytes:
    text = value if isinstance(value, bytes) else json.dumps(value, separators=(",", ":")).encode()
    return urlsafe_b64encode(text).rstrip(b"=")


def token(claims: object, header: object = HEADER, secret: str = SECRET, digest: str = "sha256") -> bytes:
    signed = part(header) + b"." + part(claims)
    return signed + b"." + part(hmac.digest(secret.encode(), signed, digest))


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in CLAIMS.items() if key != name}


def known(sent: bytes, now_ms: int = NOW_MS) -> Principal:
    return NEW.judge(sent, now_ms).principal


def refusal(sent: bytes | None, principals: Principals = NEW, now_ms: int = NOW_MS) -> str:
    with pytest.raises(UnauthorizedError) as refused:
        principals.judge(sent, now_ms)
    return refused.value.refusal.message


def test_a_token_of_a_real_client() -> None:
    caller = known(VECTOR)
    assert (caller.name, caller.client_id, caller.kind) == ("client-a", "client-a", "user")
    assert caller.roles == {Role.READ, Role.WRITE}
    assert caller.expires_at_ms == 4_102_444_800_000
    assert dict(caller.claims) == {"sub": ("client-a",), "org": ("acme",)}
    assert caller.may(Role.WRITE, "deltas", b"gw1")
    assert not caller.may(Role.READ, "deltas", b"gw2")
    assert not caller.may(Role.READ, "streams", b"gw1")
    assert not caller.may(Role.READ, "ledger", b"acme")


FOREIGN: dict[str, bytes] = {
    "alg none": token(CLAIMS, {"alg": "none", "typ": "JWT"}),
    "alg none, unsigned": part({"alg": "none", "typ": "JWT"}) + b"." + part(CLAIMS) + b".",
    "alg HS512": token(CLAIMS, {"alg": "HS512", "typ": "JWT"}, digest="sha512"),
    "alg HS512, signed with HS256": token(CLAIMS, {"alg": "HS512", "typ": "JWT"}),
    "alg in small letters": token(CLAIMS, {"alg": "hs256", "typ": "JWT"}),
    "no alg": token(CLAIMS, {"typ": "JWT"}),
    "no typ": token(CLAIMS, {"alg": "HS256"}),
    "another typ": token(CLAIMS, {"alg": "HS256", "typ": "at+jwt"}),
    "typ in small letters": token(CLAIMS, {"alg": "HS256", "typ": "jwt"}),
    "more in the header": token(CLAIMS, HEADER | {"kid": "1"}),
    "a critical extension": token(CLAIMS, HEADER | {"crit": ["exp"]}),
    "a header that is no object": token(CLAIMS, ["HS256", "JWT"]),
    "a header that is no JSON": token(CLAIMS, b"HS256"),
    "another secret": token(CLAIMS, secret="Secret"),
    "the empty secret": token(CLAIMS, secret=""),
    "no signature": token(CLAIMS).rpartition(b".")[0] + b".",
    "two parts": token(CLAIMS).rpartition(b".")[0],
    "four parts": token(CLAIMS) + b".x",
    "padded": token(CLAIMS) + b"=",
    "another claim under the same signature": VECTOR.replace(b".eyJzdWIi", b".eyJzdWIj"),
    "junk": b"junk",
    "nothing": b"",
    "bytes": b"\xff.\xfe.\xfd",
    "too long": token(CLAIMS | {"x": "x" * 8_192}),
}


@pytest.mark.parametrize("sent", FOREIGN.values(), ids=FOREIGN)
def test_what_no_secret_has_signed_under_this_header_is_not_known(sent: bytes) -> None:
    assert refusal(sent) == NOT_KNOWN


UNFIT: dict[str, object] = {
    "no sub": without("sub"),
    "no gw": without("gw"),
    "no exp": without("exp"),
    "empty sub": CLAIMS | {"sub": ""},
    "empty gw": CLAIMS | {"gw": ""},
    "sub is a number": CLAIMS | {"sub": 7},
    "gw is a list": CLAIMS | {"gw": ["gw1"]},
    "exp is a string": CLAIMS | {"exp": str(NOW_S + 60)},
    "exp is a switch": CLAIMS | {"exp": True},
    "exp is null": CLAIMS | {"exp": None},
    "role is a number": CLAIMS | {"role": 1},
    "role is a list": CLAIMS | {"role": ["client"]},
    "role is null": CLAIMS | {"role": None},
    "half a character in sub": CLAIMS | {"sub": "\ud800"},
    "half a character in gw": CLAIMS | {"gw": "\ud800"},
    "a sub that is too long": CLAIMS | {"sub": "x" * 513},
    "claims that are no object": ["client-a"],
    "claims that are no JSON": b"{",
    "a claim twice": b'{"sub":"a","sub":"b","gw":"gw1","exp":%d}' % (NOW_S + 60),
    "an endless exp": b'{"sub":"a","gw":"gw1","exp":1e999}',
}


@pytest.mark.parametrize("claims", UNFIT.values(), ids=UNFIT)
def test_a_signed_token_whose_claims_do_not_do_is_told_what_it_needs(claims: object) -> None:
    assert refusal(token(claims)) == UNFIT_CLAIMS


@pytest.mark.parametrize(
    ("exp", "is_over"),
    [
        (NOW_S, True),
        (NOW_S - 1, True),
        (0, True),
        (-1, True),
        (NOW_S + 0.001, False),
        (NOW_S + 1, False),
        (1e15, False),
    ],
    ids=["now", "a second ago", "zero", "negative", "in a millisecond", "in a second", "in milliseconds"],
)
def test_a_token_ends_with_the_time_it_names(exp: float, is_over: bool) -> None:
    sent = token(CLAIMS | {"exp": exp})
    if is_over:
        assert refusal(sent) == EXPIRED
    else:
        assert known(sent).name == "client-a"


ROLES: dict[str, tuple[dict[str, Any], set[Role]]] = {
    "none": ({}, {Role.READ, Role.WRITE}),
    "client": ({"role": "client"}, {Role.READ, Role.WRITE}),
    "admin": ({"role": "admin"}, set(Role)),
    "another": ({"role": "superuser"}, set()),
    "read": ({"role": "read"}, set()),
    "empty": ({"role": ""}, set()),
}


@pytest.mark.parametrize(("claims", "roles"), ROLES.values(), ids=ROLES)
def test_roles(claims: dict[str, Any], roles: set[Role]) -> None:
    caller = known(token(CLAIMS | claims))
    assert caller.roles == roles
    for role in (Role.READ, Role.WRITE, Role.ADMIN):
        if role in roles:
            needs_role(caller, role, "gw1")
        else:
            with pytest.raises(Refused) as refused:
                needs_role(caller, role, "gw1")
            assert (refused.value.refusal.name, refused.value.refusal.status) == ("AUTH_ERROR", 403)


def test_even_an_admin_is_bound_to_its_gateway() -> None:
    caller = known(token(CLAIMS | {"role": "admin"}))
    with pytest.raises(Refused) as refused:
        needs_role(caller, Role.ADMIN, "gw2")
    assert (refused.value.refusal.name, refused.value.refusal.status) == ("AUTH_ERROR", 403)


def test_claims_for_rules_are_texts_and_lists_of_texts() -> None:
    claims = {"team": ["a", "b"], "org": "acme", "none": [], "mixed": ["a", 1], "deep": {"a": "b"}, "level": 3}
    caller = known(token(CLAIMS | claims | {"role": "client"}))
    assert dict(caller.claims) == {"sub": ("client-a",), "team": ("a", "b"), "org": ("acme",), "none": ()}


def test_two_secrets_hold_while_one_replaces_the_other() -> None:
    assert known(token(CLAIMS)).name == known(token(CLAIMS, secret=NEXT)).name == "client-a"
    after = Principals().besides(DeltaClientTokens([NEXT]))
    assert refusal(token(CLAIMS), after) == NOT_KNOWN
    assert after.judge(token(CLAIMS, secret=NEXT), NOW_MS).principal.name == "client-a"


def test_with_a_secret_nobody_comes_without_a_token() -> None:
    assert refusal(None).startswith("Send a bearer token")
    lenient = Principals({sha256(b"t").digest(): DEVELOPER}, is_needed=False)
    assert lenient.judge(None, NOW_MS).outcome is AuthOutcome.FREE
    assert refusal(None, lenient.besides(DeltaClientTokens([SECRET]))).startswith("Send a bearer token")


def test_the_other_credentials_of_the_server_go_on() -> None:
    service = Principal("service", "client", frozenset({Role.READ}))
    both = Principals({sha256(b"opaque").digest(): service}).besides(DeltaClientTokens([SECRET]))
    assert both.judge(b"opaque", NOW_MS).principal == service
    assert both.judge(VECTOR, NOW_MS).principal.name == "client-a"
    assert refusal(b"other", both) == NOT_KNOWN


class Believing:
    """Another issuer's tokens, all of which are good."""

    def can_read(self, token: bytes) -> bool:
        return token.count(b".") == 2

    def verify(self, token: bytes, now_ms: int) -> Principal:
        return Principal("another", "user", frozenset())


def test_what_the_secret_has_signed_is_not_for_another_issuer_to_judge() -> None:
    both = Principals(verifier=Believing()).besides(DeltaClientTokens([SECRET]))
    assert both.judge(token(CLAIMS, secret="foreign"), NOW_MS).principal.name == "another"
    assert refusal(token(CLAIMS | {"exp": 1}), both) == EXPIRED
    assert refusal(token(without("gw")), both) == UNFIT_CLAIMS


def asked(principal: Principal, *, is_known: bool = True) -> DeltaCaller:
    return DeltaCaller(principal, WaitingCaller(), {}, is_known)


WRITER = frozenset({Role.READ, Role.WRITE})


@pytest.mark.parametrize(
    ("who", "authors"),
    [
        (asked(DEVELOPER, is_known=False), None),
        (asked(DEVELOPER), None),
        (asked(Principal("relay", "client", frozenset({Role.ADMIN}))), None),
        (asked(Principal("a", "client", WRITER)), ('"a"',)),
        (asked(Principal("a", "user", WRITER, client_id="tablet")), ('"a"', '"tablet"')),
        (asked(Principal('q"', "user", WRITER)), ('"q\\""',)),
    ],
    ids=["development", "the one token", "admin", "token", "client id", "quote"],
)
def test_for_whom_a_caller_may_push(who: DeltaCaller, authors: tuple[str, ...] | None) -> None:
    assert who.authors == authors


def test_what_rules_may_know_of_a_caller() -> None:
    assert dict(asked(DEVELOPER, is_known=False).claims) == {}
    assert dict(asked(DEVELOPER).claims) == {}
    assert dict(asked(Principal("till", "client", WRITER)).claims) == {"sub": ("till",)}
    assert dict(asked(known(VECTOR)).claims) == {"sub": ("client-a",), "org": ("acme",)}
