"""A JWT is taken when its signature, its issuer, its audience and its time are right, and for no other reason; what it
says of its holder bounds what it may do. All of it from outside, on real servers.
"""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.sync.client import connect

from semel.server.auth.jwt_keys import ALGORITHMS
from semel.server.settings import JWT_ALGORITHMS
from tests.harness.server import RunningServer
from tests.harness.together import eventually
from tests.harness.tokens import token_file
from tests.server.auth import signing
from tests.server.auth.signing import base64url, good_token, token, write_keys

NOW_S = int(time.time())
CLAIMS: dict[str, object] = {"sub": "ada", "exp": NOW_S + 86_400}
MAX_TOKEN_BYTES, MAX_NAMES, MAX_IDENTITY_BYTES, MAX_TRIED = 8_192, 1_000, 512, 8

NOT_ACCEPTED = "This token is not accepted here."
EXPIRED = "This token has expired."
NOT_YET = "This token is not valid yet."
NOT_KNOWN = "This token is not known here."
SERVICE = "token-of-a-service"


class JwtSite:
    """A server that verifies JWTs, and one connection to it."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.http = httpx.Client(base_url=server.url, timeout=60)

    def get(self, sent: bytes, path: str = "/v1/caller") -> httpx.Response:
        return self.http.get(path, headers={b"Authorization": b"Bearer " + sent})

    def caller(self, sent: bytes) -> dict[str, Any]:
        """Who the holder of a token is."""
        answer = self.get(sent)
        assert answer.status_code == 200, answer.text
        facts: dict[str, Any] = answer.json()
        return facts

    def says(self, sent: bytes, path: str = "/v1/caller") -> str:
        """Why a token is refused; the answer shows nothing of it."""
        answer = self.get(sent, path)
        assert answer.status_code == 401, answer.text
        told = answer.content + b"".join(value for _, value in answer.headers.raw)
        assert not [part for part in sent.split(b".") if len(part) > 8 and part in told]
        detail = str(answer.json()["detail"])
        challenge = answer.headers["WWW-Authenticate"]
        assert challenge in ("Bearer", f'Bearer error="invalid_token", error_description="{detail}"')
        return detail

    def statuses(self, sent: bytes, paths: Mapping[str, str]) -> dict[str, int]:
        return {name: self.get(sent, path).status_code for name, path in paths.items()}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JwtSite]:
    folder = tmp_path_factory.mktemp("jwt")
    env = {
        "SEMEL_STORE": "memory:",
        "SEMEL_TOKENS": str(token_file(folder, {"service": (SERVICE, ["admin"], [])})),
        "SEMEL_JWT_KEYS": str(write_keys(folder / "keys.json")),
        "SEMEL_LOG_LEVEL": "debug",
    }
    with RunningServer(folder / "data", env=env) as server:
        site = JwtSite(server)
        with site.http:
            yield site


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JwtSite]:
    """A server for one issuer, one audience and two algorithms, with several secrets."""
    folder = tmp_path_factory.mktemp("strict")
    secrets = [signing.oct_jwk(bytes([number]) * 32) | {"kid": str(number)} for number in range(MAX_TRIED + 1)]
    env = {
        "SEMEL_STORE": "memory:",
        "SEMEL_JWT_KEYS": str(write_keys(folder / "keys.json", *signing.all_jwks()[1:], *secrets)),
        "SEMEL_JWT_ALGORITHMS": "HS256, EdDSA",
        "SEMEL_JWT_ISSUER": "https://issuer",
        "SEMEL_JWT_AUDIENCE": "semel",
    }
    with RunningServer(folder / "data", env=env) as server:
        site = JwtSite(server)
        with site.http:
            yield site


def test_settings_and_keys_speak_of_the_same_algorithms() -> None:
    assert JWT_ALGORITHMS == ALGORITHMS


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("named", [True, False], ids=["kid", "no kid"])
def test_every_algorithm_is_taken(site: JwtSite, algorithm: str, named: bool) -> None:
    header = {"alg": algorithm} | ({"kid": algorithm.lower()} if named else {})
    sent = token(CLAIMS, header, signing.private_key(algorithm), algorithm)
    for _ in range(2):  # the second time it is remembered
        facts = site.caller(sent)
        assert (facts["actor"], facts["name"], facts["has_scopes"]) == ("user:ada", "ada", False)
        assert (facts["roles"], facts["expires_ms"]) == (["read", "write"], (NOW_S + 86_400) * 1_000)


def confused(secret: bytes, kid: str | None) -> bytes:
    """A token that wants a public key to be taken for a shared secret."""
    return token(CLAIMS, {"alg": "HS256"} | ({} if kid is None else {"kid": kid}), secret, "HS256")


def rsa_public(encoding: Encoding, form: PublicFormat = PublicFormat.SubjectPublicKeyInfo) -> bytes:
    return signing.rsa_key().public_key().public_bytes(encoding, form)


def unsigned(header: Mapping[str, object], claims: object = CLAIMS, end: bytes = b"") -> bytes:
    return b".".join([encoded(header), encoded(claims), end])


def with_part(number: int, text: bytes) -> bytes:
    """A good token with one part replaced."""
    parts = good_token(CLAIMS).split(b".")
    parts[number] = text
    return b".".join(parts)


def padded(sent: bytes) -> bytes:
    head, payload, end = sent.split(b".")
    return b".".join([head + b"=" * (-len(head) % 4), payload, end])


def respelled(sent: bytes) -> bytes:
    """The same bytes in other letters: a signature of 32 bytes leaves two bits of its last letter unused."""
    letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    last = letters[letters.index(sent[-1]) ^ 1]
    assert urlsafe_b64decode(sent[-43:] + b"=") == urlsafe_b64decode(sent[-43:-1] + bytes([last]) + b"=")
    return sent[:-1] + bytes([last])


def encoded(value: object) -> bytes:
    return base64url(json.dumps(value).encode()).encode()


def claimed(**changed: object) -> bytes:
    return good_token(CLAIMS | changed)


def lacking(name: str) -> bytes:
    return good_token({claim: value for claim, value in CLAIMS.items() if claim != name})


def headed(algorithm: str, **fields: object) -> bytes:
    """A token with a right signature and an unusual header."""
    header = {"alg": algorithm, "kid": algorithm.lower()} | fields
    return token(CLAIMS, header, signing.private_key(algorithm), algorithm)


FORGED: dict[str, Callable[[], bytes]] = {
    "none": lambda: unsigned({"alg": "none"}),
    "none with a kid": lambda: unsigned({"alg": "none", "kid": "hs256"}),
    "None": lambda: unsigned({"alg": "None"}),
    "nOnE": lambda: unsigned({"alg": "nOnE", "kid": "rs256"}),
    "none with a signature": lambda: unsigned({"alg": "none"}, end=base64url(bytes(32)).encode()),
    "no signature": lambda: with_part(2, b""),
    "no alg": lambda: unsigned({"typ": "JWT"}, end=b"AAAA"),
    "alg is null": lambda: headed("HS256", alg=None),
    "alg is a list": lambda: headed("HS256", alg=["HS256"]),
    "alg is a number": lambda: headed("HS256", alg=256),
    "an alg in small letters": lambda: headed("HS256", alg="hs256"),
    "an unknown alg": lambda: headed("HS256", alg="XX256"),
    "HS512, named so": lambda: headed("HS256", alg="HS512"),
    "RS512, named so": lambda: headed("RS256", alg="RS512"),
    "PS256, named so": lambda: headed("RS256", alg="PS256"),
    "ES384 on another curve": lambda: token(CLAIMS, {"alg": "ES384", "kid": "es256"}, signing.wide_ec_key(), "ES256"),
    "ES256 on another curve": lambda: token(CLAIMS, {"alg": "ES256", "kid": "es256"}, signing.wide_ec_key(), "ES256"),
    "ES256 on another curve, unnamed": lambda: token(CLAIMS, {"alg": "ES256"}, signing.wide_ec_key(), "ES256"),
    "PEM as a secret": lambda: confused(rsa_public(Encoding.PEM), "rs256"),
    "PEM as a secret, unnamed": lambda: confused(rsa_public(Encoding.PEM), None),
    "PEM as a secret, named as the secret": lambda: confused(rsa_public(Encoding.PEM), "hs256"),
    "PEM without its last line end": lambda: confused(rsa_public(Encoding.PEM).strip(), "rs256"),
    "DER as a secret": lambda: confused(rsa_public(Encoding.DER), "rs256"),
    "PKCS1 as a secret": lambda: confused(rsa_public(Encoding.PEM, PublicFormat.PKCS1), "rs256"),
    "JWK as a secret": lambda: confused(json.dumps(signing.rsa_jwk(signing.rsa_key())).encode(), "rs256"),
    "modulus as a secret": lambda: confused(signing.rsa_jwk(signing.rsa_key())["n"].encode(), "rs256"),
    "point as a secret": lambda: confused(signing.ec_jwk(signing.ec_key())["x"].encode(), "es256"),
    "Ed25519 key as a secret": lambda: confused(
        signing.ed_key().public_key().public_bytes(Encoding.Raw, PublicFormat.Raw), "eddsa"
    ),
    "an empty secret": lambda: confused(b"", "hs256"),
    "HS256 in the name of the RSA key": lambda: headed("HS256", kid="rs256"),
    "RS256 in the name of the secret": lambda: headed("RS256", kid="hs256"),
    "EdDSA in the name of the EC key": lambda: headed("EdDSA", kid="es256"),
    "another secret": lambda: token(CLAIMS, {"alg": "HS256", "kid": "hs256"}, b"x" * 32, "HS256"),
    "another RSA key": lambda: token(CLAIMS, {"alg": "RS256", "kid": "rs256"}, signing.rsa_key(number=1), "RS256"),
    "another EC key": lambda: token(CLAIMS, {"alg": "ES256", "kid": "es256"}, signing.ec_key(1), "ES256"),
    "another Ed25519 key": lambda: token(CLAIMS, {"alg": "EdDSA", "kid": "eddsa"}, signing.ed_key(1), "EdDSA"),
    "another key, unnamed": lambda: token(CLAIMS, {"alg": "RS256"}, signing.rsa_key(number=1), "RS256"),
    "an unknown kid": lambda: headed("HS256", kid="other"),
    "a kid in capitals": lambda: headed("HS256", kid="HS256"),
    "an empty kid": lambda: headed("HS256", kid=""),
    "a kid that is a number": lambda: headed("HS256", kid=1),
    "a kid that is null": lambda: headed("HS256", kid=None),
    "a kid that is a path": lambda: headed("HS256", kid="../../../dev/null"),
    "a key in the header": lambda: token(
        CLAIMS,
        {"alg": "RS256", "jwk": signing.rsa_jwk(signing.rsa_key(number=1))},
        signing.rsa_key(number=1),
        "RS256",
    ),
    "a URL of keys in the header": lambda: token(
        CLAIMS, {"alg": "RS256", "jku": "http://127.0.0.1:9/keys"}, signing.rsa_key(number=1), "RS256"
    ),
    "crit": lambda: headed("HS256", crit=["exp"], exp=1),
    "an empty crit": lambda: headed("HS256", crit=[]),
    "crit that the library knows": lambda: headed("HS256", crit=["b64"], b64=True),
    "b64": lambda: headed("HS256", b64=True),
    "an unencoded payload": lambda: headed("HS256", crit=["b64"], b64=False),
    "other claims under the signature": lambda: with_part(1, encoded(CLAIMS | {"sub": "eve"})),
    "another header over the signature": lambda: with_part(0, encoded({"alg": "HS256"})),
    "half a signature": lambda: with_part(2, good_token(CLAIMS).split(b".")[2][:21]),
    "a header that is no JSON": lambda: with_part(0, base64url(b"{").encode()),
    "a header that is a list": lambda: with_part(0, encoded(["HS256"])),
    "a header that is deep": lambda: with_part(0, base64url(b"[" * 3_000).encode()),
    "a header that is not UTF-8": lambda: with_part(0, base64url(b'{"alg":"\xff"}').encode()),
    "a part of impossible length": lambda: with_part(1, b"AAAAA"),
    "bits behind the end": lambda: respelled(good_token(CLAIMS)),
    "too long": lambda: claimed(more="x" * MAX_TOKEN_BYTES),
}

MISSHAPEN: dict[str, Callable[[], bytes]] = {
    "one part": lambda: good_token(CLAIMS).split(b".")[0],
    "two parts": lambda: b".".join(good_token(CLAIMS).split(b".")[:2]),
    "four parts": lambda: good_token(CLAIMS) + b".AAAA",
    "three dots": lambda: good_token(CLAIMS) + b".",
    "five parts": lambda: b"A.B.C.D.E",
    "dots alone": lambda: b"..",
    "no header": lambda: with_part(0, b""),
    "padding": lambda: padded(token(CLAIMS, {"alg": "HS256", "kid": "hs256", "x": ""}, signing.SECRET, "HS256")),
    "plus and slash": lambda: with_part(1, b"++//"),
    "two tokens": lambda: good_token(CLAIMS) + b", " + good_token(CLAIMS),
    "bytes beyond ASCII": lambda: with_part(1, "é".encode()),
}

BAD_CLAIMS: dict[str, Callable[[], bytes]] = {
    "no exp": lambda: lacking("exp"),
    "exp is null": lambda: claimed(exp=None),
    "exp is a string": lambda: claimed(exp=str(NOW_S + 60)),
    "exp is true": lambda: claimed(exp=True),
    "exp is a list": lambda: claimed(exp=[NOW_S + 60]),
    "exp in milliseconds": lambda: claimed(exp=(NOW_S + 60) * 1_000),
    "exp is negative": lambda: claimed(exp=-1),
    "exp is beyond every number": lambda: good_token(b'{"sub":"ada","exp":1e999}'),
    "exp is Infinity": lambda: good_token(b'{"sub":"ada","exp":Infinity}'),
    "nbf is a string": lambda: claimed(nbf="0"),
    "nbf is null": lambda: claimed(nbf=None),
    "iat is a list": lambda: claimed(iat=[]),
    "iat is true": lambda: claimed(iat=True),
    "no sub": lambda: lacking("sub"),
    "an empty sub": lambda: claimed(sub=""),
    "sub is a number": lambda: claimed(sub=7),
    "sub is null": lambda: claimed(sub=None),
    "sub is an object": lambda: claimed(sub={"name": "ada"}),
    "sub is long": lambda: claimed(sub="x" * (MAX_IDENTITY_BYTES + 1)),
    "sub is half a letter": lambda: claimed(sub="\ud83d"),
    "an empty client_id": lambda: claimed(client_id=""),
    "client_id is a number": lambda: claimed(client_id=1),
    "client_id is null": lambda: claimed(client_id=None),
    "client_id is long": lambda: claimed(client_id="x" * (MAX_IDENTITY_BYTES + 1)),
    "role is null": lambda: claimed(role=None),
    "role is a number": lambda: claimed(role=1),
    "a role is a number": lambda: claimed(role=["read", 1]),
    "role is an object": lambda: claimed(role={"read": True}),
    "allowed_partitions is null": lambda: claimed(allowed_partitions=None),
    "allowed_partitions is a string": lambda: claimed(allowed_partitions="a"),
    "allowed_partitions is an object": lambda: claimed(allowed_partitions={}),
    "a partition is a number": lambda: claimed(allowed_partitions=["a", 1]),
    "a partition is half a letter": lambda: claimed(allowed_partitions=["\ud83d"]),
    "too many partitions": lambda: claimed(allowed_partitions=["a"] * (MAX_NAMES + 1)),
    "allowed_partition_prefixes is a string": lambda: claimed(allowed_partition_prefixes=""),
    "a prefix is null": lambda: claimed(allowed_partition_prefixes=[None]),
    "gw is null": lambda: claimed(gw=None),
    "gw is a number": lambda: claimed(gw=1),
    "a gw is a list": lambda: claimed(gw=[["a"]]),
    "org is false": lambda: claimed(org=False),
    "an org is half a letter": lambda: claimed(org="\ud83d"),
    "an audience that nobody here has": lambda: claimed(aud="elsewhere"),
    "no audience, but said": lambda: claimed(aud=None),
    "claims are a list": lambda: good_token([CLAIMS]),
    "claims are a string": lambda: good_token("ada"),
    "claims are null": lambda: good_token(None),
    "claims are no JSON": lambda: good_token(b"sub=ada"),
    "claims are nothing": lambda: good_token(b""),
    "claims are not UTF-8": lambda: good_token(b'{"sub":"\xff","exp":4102444800}'),
    "claims are deep": lambda: good_token(b'{"sub":"ada","exp":4102444800,"x":' + b"[" * 65 + b"]" * 65 + b"}"),
    "a claim twice": lambda: good_token(b'{"sub":"ada","exp":4102444800,"sub":"eve"}'),
    "a token in a token": lambda: good_token(good_token(CLAIMS)),
}

LATE: dict[str, Callable[[], bytes]] = {
    "a second ago": lambda: claimed(exp=NOW_S - 1),
    "now": lambda: claimed(exp=NOW_S),
    "at the beginning": lambda: claimed(exp=0),
    "by less than a second": lambda: claimed(exp=NOW_S - 0.001),
}
EARLY: dict[str, Callable[[], bytes]] = {
    "nbf": lambda: claimed(nbf=time.time() + 60),
    "iat": lambda: claimed(iat=time.time() + 60),
    "both": lambda: claimed(nbf=time.time() + 30, iat=time.time() + 40),
}


Tables = tuple[dict[str, Callable[[], bytes]], set[str]]
REFUSED: dict[str, Tables] = {
    "forged": (FORGED, {NOT_ACCEPTED, NOT_KNOWN}),
    "misshapen": (MISSHAPEN, {NOT_KNOWN}),
    "bad claims": (BAD_CLAIMS, {NOT_ACCEPTED}),
    "late": (LATE, {EXPIRED}),
    "early": (EARLY, {NOT_YET}),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_every_other_token_is_refused_in_one_sentence(site: JwtSite, kind: str) -> None:
    table, sentences = REFUSED[kind]
    told = {name: site.says(make()) for name, make in table.items()}
    assert {name: says for name, says in told.items() if says not in sentences} == {}


@pytest.mark.parametrize("path", ["/v1/stream/guarded", "/v1/streams", "/metrics", "/v1/events?partition=p"])
def test_it_is_the_same_sentence_everywhere(site: JwtSite, path: str) -> None:
    assert site.says(claimed(exp=1), path) == EXPIRED
    assert site.says(unsigned({"alg": "none"}), path) == NOT_ACCEPTED


def test_the_time_of_a_forged_token_is_not_told(site: JwtSite) -> None:
    sent = token(CLAIMS | {"exp": 1}, {"alg": "HS256", "kid": "hs256"}, b"x" * 32, "HS256")
    assert site.says(sent) == NOT_ACCEPTED


texts = st.sampled_from(["", "a", "read", "hs256", "HS256", "none", "\u00e9", "\ud83d", "\x00", "a" * 600])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
claim_names = st.sampled_from(
    ["sub", "exp", "nbf", "iat", "role", "client_id", "allowed_partitions", "allowed_partition_prefixes", "gw", "org"]
)
header_names = st.sampled_from(["alg", "kid", "typ", "cty", "crit", "b64", "zip"])


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.binary(min_size=1, max_size=200).map(lambda raw: base64url(raw).encode())
    | st.from_regex(rb"[A-Za-z0-9_-]{0,60}(\.[A-Za-z0-9_-]{0,60}){2}", fullmatch=True)
    | st.dictionaries(claim_names, json_values).map(lambda claims: good_token({**CLAIMS, **claims}))
    | st.dictionaries(header_names, json_values).map(
        lambda header: token(CLAIMS, {"alg": "HS256", **header}, signing.SECRET, "HS256")
    )
)
def test_nothing_does_more_than_be_refused_or_be_a_user(site: JwtSite, sent: bytes) -> None:
    answer = site.get(sent)
    assert answer.status_code == 401 or answer.json()["actor"].startswith("user:"), answer.text


AUDIENCES: list[tuple[dict[str, object], bool]] = [
    ({"iss": "https://issuer", "aud": "semel"}, True),
    ({"iss": "https://issuer", "aud": ["other", "semel"]}, True),
    ({"iss": "https://issuer", "aud": ["semel", 7]}, True),
    ({"iss": "https://issuer"}, False),
    ({"iss": "https://issuer", "aud": "other"}, False),
    ({"iss": "https://issuer", "aud": "semel2"}, False),
    ({"iss": "https://issuer", "aud": []}, False),
    ({"iss": "https://issuer", "aud": {"semel": True}}, False),
    ({"iss": "https://issuer", "aud": None}, False),
    ({"aud": "semel"}, False),
    ({"iss": "https://issuer/", "aud": "semel"}, False),
    ({"iss": ["https://issuer"], "aud": "semel"}, False),
]
OURS = AUDIENCES[0][0]


def test_issuer_and_audience_must_be_those_configured(site: JwtSite, strict: JwtSite) -> None:
    found = [strict.get(good_token(CLAIMS | changed, "EdDSA")).status_code == 200 for changed, _ in AUDIENCES]
    assert found == [is_taken for _, is_taken in AUDIENCES]
    assert site.caller(claimed(iss="anyone"))["name"] == "ada", "any issuer is taken when none is configured"


def test_only_configured_algorithms_are_taken(strict: JwtSite) -> None:
    for algorithm in ("RS256", "ES256"):
        assert strict.says(good_token(CLAIMS | OURS, algorithm)) == NOT_ACCEPTED


def test_a_token_that_names_no_key_is_tried_with_a_few(strict: JwtSite) -> None:
    secrets = [bytes([number]) * 32 for number in range(MAX_TRIED + 1)]
    unnamed = [token(CLAIMS | OURS, {"alg": "HS256"}, secret, "HS256") for secret in secrets]
    assert [strict.get(sent).status_code for sent in unnamed] == [200] * MAX_TRIED + [401]
    named = token(CLAIMS | OURS, {"alg": "HS256", "kid": str(MAX_TRIED)}, secrets[MAX_TRIED], "HS256")
    assert strict.caller(named)["name"] == "ada"
    other = token(CLAIMS | OURS, {"alg": "HS256", "kid": "other"}, secrets[0], "HS256")
    assert strict.says(other) == NOT_ACCEPTED, "one that names a key is not tried with others"


def test_clocks_may_differ_a_little(site: JwtSite) -> None:
    for changed in ({"nbf": time.time() + 5}, {"iat": time.time() + 5}, {"nbf": 0, "iat": 0}):
        assert site.caller(claimed(**changed))["name"] == "ada"


def test_a_remembered_token_expires_all_the_same(site: JwtSite) -> None:
    sent = claimed(exp=time.time() + 3)
    while site.get(sent).status_code == 200:
        assert time.time() < NOW_S + 3_600
    assert site.says(sent) == EXPIRED


ROLES: list[tuple[object, list[str]]] = [
    ("read", ["read"]),
    ("admin", ["admin", "read", "work", "write"]),
    (["read", "work"], ["read", "work"]),
    ("client", ["read", "write"]),
    (["client", "work"], ["read", "work", "write"]),
    (["write", "king"], ["write"]),
    ("king", []),
    ("", []),
    ("Read", []),
    ("read write", []),
    ([], []),
]


def test_roles(site: JwtSite) -> None:
    assert [site.caller(claimed(role=role))["roles"] for role, _ in ROLES] == [roles for _, roles in ROLES]
    assert site.caller(good_token(CLAIMS))["roles"] == ["read", "write"]


PLACES = {
    "streams s": "/v1/stream/s",
    **{f"events {name}": f"/v1/events?partition={name}" for name in ("a", "ab", "shop-4", "shop", "Shop-4", "all")},
    **{f"events {name}": f"/v1/events?partition={name}" for name in ("caf\u00e9", "\u00e9t\u00e9")},
    **{f"deltas {name}": f"/v1/sync/{name}/pull?since=0&clientId=ada" for name in ("g1", "g2", "g3", "e\u0301")},
    **{f"ledger {name}": f"/ledger/v1/orgs/{name}" for name in ("1000000000000001", "1000000000000002")},
    "list": "/v1/jobs",
}
LIMITS: list[tuple[dict[str, object], set[str]]] = [
    ({}, set(PLACES)),
    ({"allowed_partitions": ["a"]}, {"events a"}),
    ({"allowed_partition_prefixes": ["shop-"]}, {"events shop-4"}),
    ({"allowed_partition_prefixes": [""]}, {name for name in PLACES if name.startswith("events")}),
    ({"allowed_partitions": ["a"], "allowed_partition_prefixes": ["al"]}, {"events a", "events all"}),
    ({"allowed_partitions": []}, set()),
    ({"allowed_partition_prefixes": []}, set()),
    ({"gw": "g1"}, {"deltas g1"}),
    ({"gw": ["g1", "g2"]}, {"deltas g1", "deltas g2"}),
    ({"gw": []}, set()),
    ({"gw": "e\u0301"}, {"deltas e\u0301"}),
    ({"org": "1000000000000001"}, {"ledger 1000000000000001"}),
    (
        {"org": ["1000000000000001"], "gw": "g1", "allowed_partitions": ["a"]},
        {"ledger 1000000000000001", "deltas g1", "events a"},
    ),
    (
        {"allowed_partitions": ["cafe\u0301"], "allowed_partition_prefixes": ["e\u0301"]},
        {"events caf\u00e9", "events \u00e9t\u00e9"},
    ),
    ({"allowed_partitions": ["a"], "role": "admin"}, {"events a"}),
]


def test_what_a_token_names_is_all_that_it_reaches(site: JwtSite) -> None:
    for claims, inside in LIMITS:
        statuses = site.statuses(claimed(**claims), PLACES)
        assert {name for name, status in statuses.items() if status != 403} == inside | {"list"}, claims
        assert site.get(claimed(**claims), "/metrics").status_code == 200


def test_a_listing_shows_a_limited_token_nothing(site: JwtSite) -> None:
    headers = {"Authorization": f"Bearer {SERVICE}", "Content-Type": "text/plain"}
    site.http.put("/v1/stream/guarded", headers=headers).raise_for_status()
    seen = [
        [one["name"] for one in site.get(claimed(**claims), "/v1/streams").json()["streams"]]
        for claims in ({"role": "read"}, {"allowed_partitions": ["guarded"]}, {"gw": "guarded"})
    ]
    assert seen == [["guarded"], [], []]


def test_as_many_names_as_are_allowed(site: JwtSite) -> None:
    names = [f"{number:x}" for number in range(MAX_NAMES)]
    sent = claimed(allowed_partitions=names)
    assert len(sent) <= MAX_TOKEN_BYTES
    paths = {name: f"/v1/events?partition={name}" for name in (names[0], names[-1], "zz")}
    assert list(site.statuses(sent, paths).values()) == [200, 200, 403]


def test_the_client_may_be_named_apart(site: JwtSite) -> None:
    """An event is that of the client, and no other may be named."""
    sent = {"Authorization": f"Bearer {claimed(client_id='tablet-9').decode()}"}
    events = {"events": [{"id": "e", "partitions": ["p"], "event": {"type": "t"}}]}
    assert site.http.post("/v1/events", headers=sent, json=events).json()["results"][0]["status"] == "committed"
    [event] = site.http.get("/v1/events?partition=p", headers=sent).json()["events"]
    assert event["client_id"] == "tablet-9"
    assert site.http.get("/v1/events?partition=p&client_id=ada", headers=sent).status_code in (401, 403)


def test_hashed_tokens_and_jwts_live_side_by_side(site: JwtSite, strict: JwtSite) -> None:
    assert site.caller(SERVICE.encode())["actor"] == "client:service"
    assert site.says(b"other") == NOT_KNOWN
    assert strict.says(SERVICE.encode()) == NOT_KNOWN


def test_nothing_of_a_jwt_reaches_the_log(site: JwtSite) -> None:
    """Neither from a request nor from a WebSocket, even where a library would log its frames."""
    tokens = [claimed(jti="1"), claimed(exp=1), claimed(sub="name-to-be-kept-secret"), claimed()[:-5] + b"AAAAA"]
    for sent in tokens:
        site.get(sent)
        site.http.post("/v1/stream/guarded", content=b"{", headers={b"Authorization": b"Bearer " + sent})
    payload = {"token": tokens[0].decode(), "client_id": "ada"}
    message = {"type": "connect", "msg_id": "1", "timestamp": 1, "protocol_version": "1.0", "payload": payload}
    headers = {"Authorization": f"Bearer {tokens[0].decode()}"}
    with connect(site.server.url.replace("http", "ws") + "/v1/events", additional_headers=headers) as socket:
        socket.send(json.dumps(message))
        assert json.loads(socket.recv())["type"] == "connected"
    log = site.server.output.read_text()
    words = {part.decode() for sent in tokens for part in sent.split(b".")[1:]} | {"name-to-be-kept-secret"}
    assert [word for word in words if word in log] == []
    assert "protocol_version" not in log


def test_a_key_that_is_added_is_taken_without_a_restart(tmp_path: Path) -> None:
    file = write_keys(tmp_path / "keys.json", signing.oct_jwk() | {"kid": "hs256"})
    env = {"SEMEL_JWT_KEYS": str(file), "SEMEL_STORE": "memory:"}
    with RunningServer(tmp_path / "data", env=env) as server:
        site, added = JwtSite(server), good_token(CLAIMS, "EdDSA")
        with site.http:
            assert [site.get(sent).status_code for sent in (good_token(CLAIMS), added)] == [200, 401]
            renewed = write_keys(tmp_path / "renewed.json", signing.ed_jwk(signing.ed_key()) | {"kid": "eddsa"})
            renewed.rename(file)
            eventually(lambda: site.get(added).status_code == 200, "the file is looked at again")
            assert site.get(good_token(CLAIMS)).status_code == 401
