"""A JWT is taken when its signature, its issuer, its audience and its time are right, and for no other reason."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from semel.kernel.errors import Refused
from semel.server.auth.jwt_claims import LEEWAY_MS, MAX_IDENTITY_BYTES, MAX_NAMES, MAX_TOKEN_BYTES, ClaimedIdentity
from semel.server.auth.jwt_keys import ALGORITHMS, LOOK_MS, MAX_TRIED, KeyFile
from semel.server.auth.jwt_tokens import JwtVerifier, RecentTokens
from semel.server.auth.principals import DEVELOPER, AccessScope, Principal, Principals, Role
from semel.server.settings import JWT_ALGORITHMS
from semel.surfaces.registry import SCOPE_RULES
from tests.server.auth import signing
from tests.server.auth.senders import sent_with
from tests.server.auth.signing import base64url, good_token, token, write_keys

NOW_S = 1_760_000_000
NOW_MS = NOW_S * 1_000
CLAIMS: dict[str, object] = {"sub": "ada", "exp": NOW_S + 60}

NOT_ACCEPTED = "This token is not accepted here."
EXPIRED = "This token has expired."
NOT_YET = "This token is not valid yet."
NOT_KNOWN = "This token is not known here."


def verifying(
    folder: Path,
    *jwks: Mapping[str, Any],
    algorithms: tuple[str, ...] = ALGORITHMS,
    issuer: str = "",
    audience: str = "",
) -> Principals:
    file = write_keys(folder / "keys.json", *jwks)
    return Principals(verifier=JwtVerifier(KeyFile(file, algorithms), SCOPE_RULES, issuer, audience))


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Principals:
    return verifying(tmp_path_factory.mktemp("keys"))


def refusal(known: Principals, sent: bytes, now_ms: int = NOW_MS) -> str:
    """Why a token is refused, as its sender hears it; the answer shows nothing of the token."""
    with pytest.raises(Refused) as refused:
        sent_with(known, b"Bearer " + sent, now_ms)
    refusal = refused.value.refusal
    said = refusal.message.encode() + b"".join(value for _, value in refusal.headers)
    assert refusal.code == "UNAUTHORIZED"
    assert not [part for part in sent.split(b".") if len(part) > 8 and part in said]
    return refusal.message


def test_settings_and_keys_speak_of_the_same_algorithms() -> None:
    assert JWT_ALGORITHMS == ALGORITHMS


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("named", [True, False], ids=["kid", "no kid"])
def test_every_algorithm_is_taken(known: Principals, algorithm: str, named: bool) -> None:
    header = {"alg": algorithm} | ({"kid": algorithm.lower()} if named else {})
    sent = token(CLAIMS, header, signing.private_key(algorithm), algorithm)
    caller = sent_with(known, b"Bearer " + sent, NOW_MS)
    assert (caller.actor, caller.client_id, caller.expires_at_ms) == ("user:ada", "ada", NOW_MS + 60_000)
    assert known.judge(sent, NOW_MS).principal == caller


def confused(secret: bytes, kid: str | None) -> bytes:
    """A token that wants a public key to be taken for a shared secret."""
    return token(CLAIMS, {"alg": "HS256"} | ({} if kid is None else {"kid": kid}), secret, "HS256")


def rsa_public(encoding: Encoding, form: PublicFormat = PublicFormat.SubjectPublicKeyInfo) -> bytes:
    return signing.rsa_key().public_key().public_bytes(encoding, form)


def unsigned(header: Mapping[str, object], claims: object = CLAIMS, end: bytes = b"") -> bytes:
    parts = (base64url(json.dumps(part).encode()).encode() for part in (header, claims))
    return b".".join([*parts, end])


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
    "a line end inside": lambda: good_token(CLAIMS).replace(b".", b".\n", 1),
    "bytes beyond ASCII": lambda: with_part(1, "é".encode()),
    "a NUL": lambda: with_part(1, b"AA\x00A"),
    "nothing": lambda: b"",
}

BAD_CLAIMS: dict[str, Callable[[], bytes]] = {
    "no exp": lambda: lacking("exp"),
    "exp is null": lambda: claimed(exp=None),
    "exp is a string": lambda: claimed(exp=str(NOW_S + 60)),
    "exp is true": lambda: claimed(exp=True),
    "exp is a list": lambda: claimed(exp=[NOW_S + 60]),
    "exp in milliseconds": lambda: claimed(exp=NOW_MS + 60_000),
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
    "claims are not UTF-8": lambda: good_token(b'{"sub":"\xff","exp":1760000060}'),
    "claims are deep": lambda: good_token(b'{"sub":"ada","exp":1760000060,"x":' + b"[" * 65 + b"]" * 65 + b"}"),
    "a claim twice": lambda: good_token(b'{"sub":"ada","exp":1760000060,"sub":"eve"}'),
    "a token in a token": lambda: good_token(good_token(CLAIMS)),
}

EARLY_OR_LATE: dict[str, tuple[Callable[[], bytes], str]] = {
    "expired": (lambda: claimed(exp=NOW_S - 1), EXPIRED),
    "expires now": (lambda: claimed(exp=NOW_S), EXPIRED),
    "expired at the beginning": (lambda: claimed(exp=0), EXPIRED),
    "expired by less than a second": (lambda: claimed(exp=NOW_S - 0.001), EXPIRED),
    "nbf ahead": (lambda: claimed(nbf=NOW_S + LEEWAY_MS // 1_000 + 1), NOT_YET),
    "iat ahead": (lambda: claimed(iat=NOW_S + LEEWAY_MS // 1_000 + 1), NOT_YET),
    "both ahead": (lambda: claimed(nbf=NOW_S + 30, iat=NOW_S + 40), NOT_YET),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_token_is_not_accepted(known: Principals, name: str) -> None:
    assert refusal(known, FORGED[name]()) in (NOT_ACCEPTED, NOT_KNOWN)


@pytest.mark.parametrize("name", MISSHAPEN)
def test_what_is_no_token_is_not_known(known: Principals, name: str) -> None:
    assert refusal(known, MISSHAPEN[name]()) == NOT_KNOWN


@pytest.mark.parametrize("name", BAD_CLAIMS)
def test_bad_claims_are_not_accepted(known: Principals, name: str) -> None:
    assert refusal(known, BAD_CLAIMS[name]()) == NOT_ACCEPTED


@pytest.mark.parametrize("name", EARLY_OR_LATE)
def test_a_token_outside_its_time_is_told_so(known: Principals, name: str) -> None:
    make, says = EARLY_OR_LATE[name]
    assert refusal(known, make()) == says


def test_the_time_of_a_forged_token_is_not_told(known: Principals) -> None:
    sent = token(CLAIMS | {"exp": 1}, {"alg": "HS256", "kid": "hs256"}, b"x" * 32, "HS256")
    assert refusal(known, sent) == NOT_ACCEPTED


@pytest.mark.parametrize(
    ("fields", "challenge"),
    [
        (b"Bearer " + good_token(CLAIMS | {"exp": 1}), b'error_description="This token has expired."'),
        (b"Bearer " + unsigned({"alg": "none"}), b'error_description="This token is not accepted here."'),
        (b"Bearer x", b"Bearer"),
        (None, b"Bearer"),
    ],
)
def test_the_challenge_says_no_more_than_the_sentence(
    known: Principals, fields: bytes | None, challenge: bytes
) -> None:
    with pytest.raises(Refused) as refused:
        sent_with(known, fields, NOW_MS)
    ((name, value),) = refused.value.refusal.headers
    assert name == b"www-authenticate"
    assert value.startswith(b"Bearer")
    assert value.endswith(challenge)


@given(st.binary(max_size=200) | st.from_regex(rb"[A-Za-z0-9_-]{0,60}(\.[A-Za-z0-9_-]{0,60}){2}", fullmatch=True))
def test_no_bytes_do_more_than_be_refused(known: Principals, sent: bytes) -> None:
    with pytest.raises(Refused):
        known.judge(sent, NOW_MS)


texts = st.sampled_from(["", "a", "read", "hs256", "HS256", "none", "\u00e9", "\ud83d", "\x00", "a" * 600])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
claim_names = st.sampled_from(
    ["sub", "exp", "nbf", "iat", "role", "client_id", "allowed_partitions", "allowed_partition_prefixes", "gw", "org"]
)


@given(st.dictionaries(claim_names, json_values))
def test_no_signed_claims_do_more_than_be_refused(known: Principals, claims: dict[str, object]) -> None:
    try:
        caller = known.judge(good_token(CLAIMS | claims), NOW_MS).principal
    except Refused:
        return
    assert caller.kind == "user"


@given(st.dictionaries(st.sampled_from(["alg", "kid", "typ", "cty", "crit", "b64", "zip"]), json_values))
def test_no_signed_header_does_more_than_be_refused(known: Principals, header: dict[str, object]) -> None:
    try:
        caller = known.judge(token(CLAIMS, {"alg": "HS256"} | header, signing.SECRET, "HS256"), NOW_MS).principal
    except Refused:
        return
    assert caller.name == "ada"


def test_only_configured_algorithms_are_taken(tmp_path: Path) -> None:
    known = verifying(tmp_path, algorithms=("ES256", "EdDSA"))
    for algorithm in ("HS256", "RS256"):
        assert refusal(known, good_token(CLAIMS, algorithm)) == NOT_ACCEPTED
    for algorithm in ("ES256", "EdDSA"):
        assert known.judge(good_token(CLAIMS, algorithm), NOW_MS).principal.name == "ada"


@pytest.mark.parametrize(
    ("changed", "is_taken"),
    [
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
    ],
    ids=str,
)
def test_issuer_and_audience_must_be_those_configured(
    tmp_path: Path, changed: dict[str, object], is_taken: bool
) -> None:
    known = verifying(tmp_path, issuer="https://issuer", audience="semel")
    if is_taken:
        assert known.judge(claimed(**changed), NOW_MS).principal.name == "ada"
    else:
        assert refusal(known, claimed(**changed)) == NOT_ACCEPTED


def test_any_issuer_is_taken_when_none_is_configured(known: Principals) -> None:
    assert known.judge(claimed(iss="anyone"), NOW_MS).principal.name == "ada"


@pytest.mark.parametrize(
    "changed", [{"nbf": NOW_S + 9}, {"iat": NOW_S + 9}, {"exp": NOW_S + 0.5}, {"nbf": 0, "iat": 0}]
)
def test_clocks_may_differ_a_little(known: Principals, changed: dict[str, object]) -> None:
    assert known.judge(claimed(**changed), NOW_MS).principal.name == "ada"


ROLES: list[tuple[object, set[Role]]] = [
    ("read", {Role.READ}),
    ("admin", {Role.ADMIN}),
    (["read", "work"], {Role.READ, Role.WORK}),
    ("client", {Role.READ, Role.WRITE}),
    (["client", "work"], {Role.READ, Role.WRITE, Role.WORK}),
    (["write", "king"], {Role.WRITE}),
    ("king", set()),
    ("", set()),
    ("Read", set()),
    ("read write", set()),
    ([], set()),
]


@pytest.mark.parametrize(("role", "roles"), ROLES, ids=[repr(role) for role, _ in ROLES])
def test_roles(known: Principals, role: object, roles: set[Role]) -> None:
    assert known.judge(claimed(role=role), NOW_MS).principal.roles == roles


def test_without_a_role_it_may_read_and_write(known: Principals) -> None:
    caller = known.judge(good_token(CLAIMS), NOW_MS).principal
    assert caller.roles == {Role.READ, Role.WRITE}
    assert caller.scopes is None
    assert caller.may(Role.WRITE, "streams", b"anything")
    assert not caller.may(Role.WORK, "jobs", b"anything")


def test_the_client_may_be_named_apart(known: Principals) -> None:
    caller = known.judge(claimed(client_id="tablet-9"), NOW_MS).principal
    assert (caller.actor, caller.client_id) == ("user:ada", "tablet-9")


def test_what_else_it_says_of_its_holder_is_kept_for_rules(known: Principals) -> None:
    sent = claimed(role="client", gw="g", team=["a", "b"], region="eu", level=3, mixed=["a", 1], nothing=[])
    told = known.judge(sent, NOW_MS).principal.claims
    wanted = {"sub": ("ada",), "team": ("a", "b"), "region": ("eu",), "nothing": ()}
    assert {name: told.get(name) for name in wanted} == wanted
    assert not {"role", "gw", "level", "mixed", "exp"} & set(told)


LIMITS: list[tuple[dict[str, object], set[tuple[str, bytes]], set[tuple[str, bytes]]]] = [
    ({"allowed_partitions": ["a"]}, {("events", b"a")}, {("events", b"ab"), ("streams", b"a"), ("jobs", b"a")}),
    (
        {"allowed_partition_prefixes": ["shop-"]},
        {("events", b"shop-"), ("events", b"shop-4")},
        {("events", b"shop"), ("events", b"Shop-4"), ("streams", b"shop-4")},
    ),
    ({"allowed_partition_prefixes": [""]}, {("events", b""), ("events", b"all")}, {("streams", b"all")}),
    (
        {"allowed_partitions": ["a"], "allowed_partition_prefixes": ["b"]},
        {("events", b"a"), ("events", b"b1")},
        {("events", b"a1"), ("events", b"c")},
    ),
    ({"allowed_partitions": []}, set(), {("events", b""), ("events", b"a"), ("streams", b"a"), ("*", b"a")}),
    ({"allowed_partition_prefixes": []}, set(), {("events", b""), ("streams", b"a")}),
    ({"gw": "g1"}, {("deltas", b"g1")}, {("deltas", b"g"), ("events", b"g1"), ("ledger", b"g1"), ("streams", b"g1")}),
    ({"gw": ["g1", "g2"]}, {("deltas", b"g1"), ("deltas", b"g2")}, {("deltas", b"g3")}),
    ({"gw": []}, set(), {("deltas", b"g1"), ("streams", b"g1")}),
    ({"org": "o"}, {("ledger", b"o")}, {("ledger", b"o2"), ("deltas", b"o"), ("events", b"o")}),
    (
        {"org": ["o"], "gw": "g", "allowed_partitions": ["p"]},
        {("ledger", b"o"), ("deltas", b"g"), ("events", b"p")},
        {("ledger", b"g"), ("deltas", b"p"), ("events", b"o"), ("streams", b"p")},
    ),
    (
        {"allowed_partitions": ["cafe\u0301"], "allowed_partition_prefixes": ["e\u0301"]},
        {("events", "caf\u00e9".encode()), ("events", "\u00e9t\u00e9".encode())},
        {("events", "cafe\u0301".encode()), ("events", "e\u0301".encode())},
    ),
    ({"gw": "e\u0301"}, {("deltas", "e\u0301".encode())}, {("deltas", "\u00e9".encode())}),
]


@pytest.mark.parametrize(("claims", "inside", "outside"), LIMITS, ids=[", ".join(sorted(limit[0])) for limit in LIMITS])
def test_limits(
    known: Principals, claims: dict[str, object], inside: set[tuple[str, bytes]], outside: set[tuple[str, bytes]]
) -> None:
    caller = known.judge(claimed(role=["read", "write"], **claims), NOW_MS).principal
    for role in (Role.READ, Role.WRITE):
        assert all(caller.may(role, *place) for place in inside)
        assert not any(caller.may(role, *place) for place in outside)
    assert not any(caller.may(Role.WORK, *place) for place in inside)


def test_a_limit_binds_an_administrator_too(known: Principals) -> None:
    caller = known.judge(claimed(role="admin", allowed_partitions=["a"]), NOW_MS).principal
    assert caller.may(Role.WORK, "events", b"a")
    assert not caller.may(Role.READ, "events", b"b")
    assert caller.reach("streams") == []
    assert caller.reach("events") == [(b"a", False)]


def test_as_many_names_as_are_allowed(known: Principals) -> None:
    names = [f"{number:x}" for number in range(MAX_NAMES)]
    sent = claimed(allowed_partitions=names)
    assert len(sent) <= MAX_TOKEN_BYTES
    caller = known.judge(sent, NOW_MS).principal
    assert all(caller.may(Role.READ, "events", name.encode()) for name in names)
    assert not caller.may(Role.READ, "events", b"zz")


def test_a_token_that_names_no_key_is_tried_with_a_few(tmp_path: Path) -> None:
    secrets = [bytes([number]) * 32 for number in range(MAX_TRIED + 1)]
    known = verifying(
        tmp_path, *(signing.oct_jwk(secret) | {"kid": str(number)} for number, secret in enumerate(secrets))
    )
    unnamed = [token(CLAIMS, {"alg": "HS256"}, secret, "HS256") for secret in secrets]
    for sent in unnamed[:MAX_TRIED]:
        assert known.judge(sent, NOW_MS).principal.name == "ada"
    assert refusal(known, unnamed[MAX_TRIED]) == NOT_ACCEPTED
    named = token(CLAIMS, {"alg": "HS256", "kid": str(MAX_TRIED)}, secrets[MAX_TRIED], "HS256")
    assert known.judge(named, NOW_MS).principal.name == "ada"


def test_a_token_that_names_a_key_is_not_tried_with_a_nameless_one(tmp_path: Path) -> None:
    known = verifying(tmp_path, signing.oct_jwk())
    assert known.judge(token(CLAIMS, {"alg": "HS256"}, signing.SECRET, "HS256"), NOW_MS).principal.name == "ada"
    assert refusal(known, good_token(CLAIMS)) == NOT_ACCEPTED


def test_hashed_tokens_and_jwts_live_side_by_side(tmp_path: Path) -> None:
    sent = good_token(CLAIMS)
    service = Principal("service", "client", frozenset({Role.READ}))
    keys = KeyFile(write_keys(tmp_path / "keys.json"), ALGORITHMS)
    known = Principals({sha256(b"secret").digest(): service}, JwtVerifier(keys, SCOPE_RULES))
    assert known.are_known
    assert sent_with(known, b"Bearer secret", NOW_MS) == service
    assert sent_with(known, b"bearer  " + sent, NOW_MS).name == "ada"
    assert refusal(known, b"other") == NOT_KNOWN


def test_a_file_of_tokens_alone_verifies_no_jwt() -> None:
    known = Principals({bytes(32): DEVELOPER})
    assert refusal(known, good_token(CLAIMS)) == NOT_KNOWN


@pytest.mark.parametrize("sent", [b"", b"x", b"\xff", good_token(CLAIMS)])
def test_in_development_any_token_is_the_developer(sent: bytes) -> None:
    assert Principals().judge(sent, NOW_MS).principal is DEVELOPER


def test_a_remembered_token_expires_all_the_same(known: Principals) -> None:
    sent = claimed(jti="remembered")
    first = known.judge(sent, NOW_MS).principal
    assert known.judge(sent, NOW_MS + 59_999).principal is first
    assert refusal(known, sent, NOW_MS + 60_000) == EXPIRED
    assert refusal(known, sent, NOW_MS + 60_001) == EXPIRED
    # It was dropped, not barred: when the clock falls back it is verified anew.
    assert known.judge(sent, NOW_MS).principal == first


def test_a_remembered_token_is_not_taken_before_its_time(known: Principals) -> None:
    sent = claimed(nbf=NOW_S)
    assert known.judge(sent, NOW_MS).principal.name == "ada"
    assert refusal(known, sent, NOW_MS - LEEWAY_MS - 1) == NOT_YET
    assert known.judge(sent, NOW_MS - LEEWAY_MS).principal.name == "ada"


def test_a_verified_token_is_not_verified_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = verifying(tmp_path)
    sent = good_token(CLAIMS, "RS256")
    first = known.judge(sent, NOW_MS).principal
    monkeypatch.setattr(JwtVerifier, "_judged", None)
    assert known.judge(sent, NOW_MS + LOOK_MS).principal is first


def remembered(*names: bytes) -> ClaimedIdentity:
    scopes = tuple(AccessScope("events", name, False) for name in names)
    return ClaimedIdentity(Principal("ada", "user", frozenset(), scopes, expires_at_ms=NOW_MS), 0)


def test_the_least_recently_used_are_forgotten_first() -> None:
    recent = RecentTokens(most=2)
    for digest in (b"1", b"2"):
        recent.put(digest, remembered())
    assert recent.get(b"1") is not None
    recent.put(b"3", remembered())
    assert [digest for digest in (b"1", b"2", b"3") if recent.get(digest)] == [b"1", b"3"]
    recent.clear()
    assert len(recent) == 0


def test_tokens_with_many_names_make_room_sooner() -> None:
    recent = RecentTokens(most=100, most_names=5)
    recent.put(b"1", remembered(b"a", b"b"))
    recent.put(b"2", remembered(b"a", b"b"))
    recent.put(b"3", remembered())
    assert len(recent) == 3
    recent.put(b"4", remembered(b"a", b"b"))
    assert [digest for digest in (b"1", b"2", b"3", b"4") if recent.get(digest)] == [b"2", b"3", b"4"]
    recent.forget(b"2")
    recent.forget(b"2")
    recent.put(b"5", remembered(b"a", b"b", b"c"))
    assert len(recent) == 3
    recent.put(b"6", remembered(*(bytes([number]) for number in range(6))))
    assert len(recent) == 0
