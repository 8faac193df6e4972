"""A JWT that is kept as its claims and the hash of its key: the same caller, for as long as time and key allow."""

from __future__ import annotations

from pathlib import Path

import pytest

from semel.kernel.errors import Refused
from semel.server.auth.jwt_keys import ALGORITHMS, LOOK_MS, KeyFile
from semel.server.auth.jwt_tokens import JwtVerifier
from semel.server.auth.principals import Principals
from semel.server.auth.verifiers import SignedClaims
from semel.surfaces.registry import SCOPE_RULES
from tests.server.auth.signing import SECRET, oct_jwk, token, write_keys

NOW_S = 1_760_000_000
NOW_MS = NOW_S * 1_000
CLAIMS = {"sub": "ada", "exp": NOW_S + 60, "role": "read", "allowed_partitions": ["room-7"], "team": "blue"}
OTHER_SECRET = bytes(range(32, 64))


def verifying(folder: Path, **more: str) -> Principals:
    file = write_keys(folder / "keys.json", {**oct_jwk(), "kid": "one"})
    return Principals(verifier=JwtVerifier(KeyFile(file, ALGORITHMS), SCOPE_RULES, **more))


def signed(**changed: object) -> bytes:
    return token({**CLAIMS, **changed}, {"typ": "JWT", "alg": "HS256", "kid": "one"}, SECRET, "HS256")


def refused(known: Principals, kept: SignedClaims, now_ms: int = NOW_MS) -> bool:
    try:
        known.find_signed(kept, now_ms)
    except Refused:
        return True
    return False


def test_a_kept_token_is_the_same_caller(tmp_path: Path) -> None:
    known = verifying(tmp_path)
    kept = known.keep(signed())
    assert kept is not None
    found = known.find_signed(kept, NOW_MS)
    assert found is not None
    assert found.principal == known.judge(signed(), NOW_MS).principal
    assert found.principal is known.find_signed(kept, NOW_MS).principal  # type: ignore[union-attr]


def test_it_ends_at_its_time_and_not_before(tmp_path: Path) -> None:
    known = verifying(tmp_path)
    kept = known.keep(signed())
    assert kept is not None
    assert not refused(known, kept, NOW_MS + 59_999)
    assert refused(known, kept, NOW_MS + 60_000)


def test_it_ends_with_its_key_and_with_what_the_server_asks_of_tokens(tmp_path: Path) -> None:
    known = verifying(tmp_path)
    kept = known.keep(signed())
    assert kept is not None
    assert refused(known, kept._replace(key=b"x" * 32))
    assert refused(verifying(tmp_path, issuer="https://issuer.example"), kept)
    assert not refused(known, kept)
    write_keys(tmp_path / "keys.json", {**oct_jwk(OTHER_SECRET), "kid": "one"})
    assert refused(known, kept, NOW_MS + LOOK_MS)


def test_only_a_token_with_a_right_signature_is_kept(tmp_path: Path) -> None:
    known, right = verifying(tmp_path), signed()
    head, claims, signature = right.split(b".")
    forged = signed(role="admin").split(b".")[1]
    for wrong in (b".".join((head, forged, signature)), b".".join((head, claims, b""))):
        with pytest.raises(Refused):
            known.keep(wrong)
    assert known.keep(b"no-jwt") is None
    assert Principals().keep(right) is None
    assert Principals().find_signed(SignedClaims(b"{}", b""), NOW_MS) is None
