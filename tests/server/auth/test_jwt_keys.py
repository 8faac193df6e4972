"""The key file: which keys are used, which make it unusable and in what words, and how a changed file is noticed."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from semel.kernel.errors import Refused
from semel.server.auth.jwt_claims import KeyFileError
from semel.server.auth.jwt_keys import ALGORITHMS, LOOK_MS, MAX_FILE_BYTES, MAX_KEYS, KeyFile, read_key_file
from semel.server.auth.jwt_tokens import JwtVerifier
from semel.server.auth.principals import Principals
from semel.surfaces.registry import SCOPE_RULES
from tests.server.auth import signing
from tests.server.auth.signing import oct_jwk, token, write_keys

NOW_MS = 1_760_000_000_000
CLAIMS = {"sub": "ada", "exp": NOW_MS // 1_000 + 3_600}


def rsa_private() -> dict[str, Any]:
    return dict(RSAAlgorithm.to_jwk(signing.rsa_key(), as_dict=True))


def ec_private() -> dict[str, Any]:
    return dict(ECAlgorithm.to_jwk(signing.ec_key(), as_dict=True))


def ed_private() -> dict[str, Any]:
    return dict(OKPAlgorithm.to_jwk(signing.ed_key(), as_dict=True))


RSA = signing.rsa_jwk(signing.rsa_key())
EC = signing.ec_jwk(signing.ec_key())
ED = signing.ed_jwk(signing.ed_key())
WIDE = signing.ec_jwk(signing.wide_ec_key())
PEM = b"-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n-----END PUBLIC KEY-----\n"

UNUSABLE: dict[str, tuple[list[Mapping[str, Any]], str]] = {
    "no keys": ([], "has no key for HS256, RS256, ES256, EdDSA"),
    "no key for us": ([WIDE, {"kty": "AKP"}], "has no key for"),
    "a short secret": ([oct_jwk(b"x" * 31)], "key 1 is too short: HS256 needs a secret of at least 32"),
    "an empty secret": ([{"kty": "oct", "k": ""}], "needs the member 'k'"),
    "a secret that is no base64url": ([{"kty": "oct", "k": "+" * 44}], "needs the member 'k' in base64url"),
    "a padded secret": ([{"kty": "oct", "k": oct_jwk()["k"] + "="}], "needs the member 'k' in base64url"),
    "a secret of impossible length": ([{"kty": "oct", "k": "A" * 45}], "is not a usable HS256 key"),
    "a secret that is a public key": ([oct_jwk(PEM)], "is not a usable HS256 key"),
    "no secret": ([{"kty": "oct"}], "needs the member 'k'"),
    "a secret that is a number": ([{"kty": "oct", "k": 7}], "needs the member 'k'"),
    "a short RSA key": ([signing.rsa_jwk(signing.rsa_key(1_024))], "key 1 is too short: RS256 needs at least 2048"),
    "half an RSA key": ([{"kty": "RSA", "n": RSA["n"]}], "needs the member 'e'"),
    "an even exponent": ([RSA | {"e": "Ag"}], "is not a usable RS256 key"),
    "a private RSA key": ([rsa_private()], "is a private key: a server needs only the public half"),
    "a private EC key": ([ec_private()], "is a private key"),
    "a private Ed25519 key": ([ed_private()], "is a private key"),
    "a private key of no use here": ([oct_jwk(), WIDE | {"d": "AAAA"}], "key 2 is a private key"),
    "a point off the curve": ([EC | {"y": EC["x"]}], "is not a usable ES256 key"),
    "a point of another curve": ([WIDE | {"crv": "P-256"}], "is not a usable ES256 key"),
    "half a point": ([{"kty": "EC", "crv": "P-256", "x": EC["x"]}], "needs the member 'y'"),
    "an Ed25519 key of wrong length": ([ED | {"x": "AAAA"}], "is not a usable EdDSA key"),
    "a kid twice": ([oct_jwk() | {"kid": "k"}, RSA | {"kid": "k"}], "two keys have the kid 'k'"),
    "a kid that is a number": ([oct_jwk() | {"kid": 1}], "key 1 has a kid that is not a non-empty string"),
    "an empty kid": ([oct_jwk() | {"kid": ""}], "has a kid that is not a non-empty string"),
    "two keys, one without a kid": (
        [RSA, signing.rsa_jwk(signing.rsa_key(number=1)) | {"kid": "b"}],
        "with several RS256 keys, each needs a kid",
    ),
    "too many keys": (
        [oct_jwk() | {"kid": str(number)} for number in range(MAX_KEYS + 1)],
        "65 keys; at most 64 are allowed",
    ),
}

NO_SET: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "is not a JWK set in JSON"),
    "PEM": (PEM, "is not a JWK set in JSON"),
    "half a file": (b'{"keys": [{"kty": "oct", "k": "c2VjcmV0', "is not a JWK set in JSON"),
    "a key alone": (json.dumps(oct_jwk()).encode(), 'needs an object with the list "keys"'),
    "a list": (json.dumps([oct_jwk()]).encode(), 'needs an object with the list "keys"'),
    "keys by name": (json.dumps({"keys": {"a": oct_jwk()}}).encode(), 'needs an object with the list "keys"'),
    "a key that is a string": (json.dumps({"keys": ["secret"]}).encode(), 'needs an object with the list "keys"'),
    "a member twice": (b'{"keys": [{"kty": "oct", "k": "AAAA", "k": "BBBB"}]}', "occurs twice"),
    "not UTF-8": (b'{"keys": "\xff"}', "is not a JWK set in JSON"),
    "too large": (b" " * (MAX_FILE_BYTES + 1), "has more than 1048576 bytes"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_keys_that_cannot_be_used_are_told(tmp_path: Path, name: str) -> None:
    jwks, says = UNUSABLE[name]
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": jwks}))
    assert says in complaint(file)


@pytest.mark.parametrize("name", NO_SET)
def test_files_that_are_no_set_are_told(tmp_path: Path, name: str) -> None:
    raw, says = NO_SET[name]
    file = tmp_path / "keys.json"
    file.write_bytes(raw)
    assert says in complaint(file)


def complaint(file: Path) -> str:
    """What is said of a file: one line that names it and shows nothing of what is in it."""
    with pytest.raises(KeyFileError) as told:
        read_key_file(file, ALGORITHMS)
    text = str(told.value)
    assert str(file) in text
    assert "\n" not in text
    secrets = [oct_jwk()["k"], oct_jwk(b"x" * 31)["k"], rsa_private()["d"], ec_private()["d"], ed_private()["d"]]
    assert not [secret for secret in [*secrets, "c2VjcmV0", "BBBB"] if secret in text]
    return text


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match=r"missing\.json cannot be read: No such file"):
        KeyFile(tmp_path / "missing.json", ALGORITHMS)


OTHERS: dict[str, Mapping[str, Any]] = {
    "for encryption": RSA | {"use": "enc", "kid": "k"},
    "for deriving": EC | {"key_ops": ["deriveKey"], "kid": "k"},
    "for signing alone": oct_jwk(b"s" * 32) | {"key_ops": ["sign"], "kid": "k"},
    "another hash": RSA | {"alg": "RS512", "kid": "k"},
    "another padding": RSA | {"alg": "PS256", "kid": "k"},
    "another use of RSA": RSA | {"alg": "RSA-OAEP", "kid": "k"},
    "another alg than its kind": EC | {"alg": "HS256", "kid": "k"},
    "another curve": WIDE | {"kid": "k"},
    "no curve": {"kty": "EC", "x": EC["x"], "y": EC["y"], "kid": "k"},
    "X25519": ED | {"crv": "X25519", "kid": "k"},
    "another kind": {"kty": "AKP", "alg": "ML-DSA-44", "pub": "AAAA", "kid": "k"},
    "no kind": {"k": "AAAA", "kid": "k"},
    "a kind that is a number": {"kty": 7, "kid": "k"},
    "a weak secret for another alg": oct_jwk(b"short") | {"alg": "HS512", "kid": "k"},
}


@pytest.mark.parametrize("name", OTHERS)
def test_keys_for_something_else_are_left_alone(tmp_path: Path, name: str) -> None:
    """They share a file with ours, and even a kid."""
    keys = read_key_file(write_keys(tmp_path / "keys.json", OTHERS[name], oct_jwk() | {"kid": "k"}), ALGORITHMS)
    fitting = {algorithm: keys.fitting(algorithm, "k") for algorithm in ALGORITHMS}
    assert {algorithm: len(found) for algorithm, found in fitting.items()} == dict.fromkeys(ALGORITHMS, 0) | {
        "HS256": 1
    }
    assert fitting["HS256"][0].material.key == signing.SECRET


def test_keys_of_algorithms_that_are_not_taken_are_left_alone(tmp_path: Path) -> None:
    weak = signing.rsa_jwk(signing.rsa_key(1_024))
    file = write_keys(tmp_path / "keys.json", weak, EC)
    assert read_key_file(file, ["ES256"]).fitting("ES256", None)
    with pytest.raises(KeyFileError, match="has no key for EdDSA"):
        read_key_file(file, ["EdDSA"])


@pytest.mark.parametrize(
    "jwk",
    [
        RSA | {"alg": "RS256", "use": "sig", "key_ops": ["verify"], "kid": "a", "x5c": ["MIIB"], "x5t": "abc"},
        EC | {"alg": "ES256"},
        ED | {"alg": "EdDSA", "key_ops": ["sign", "verify"]},
        oct_jwk() | {"alg": "HS256", "use": "sig"},
    ],
    ids=lambda jwk: jwk["kty"],
)
def test_a_key_may_say_what_it_is_for(tmp_path: Path, jwk: Mapping[str, Any]) -> None:
    keys = read_key_file(write_keys(tmp_path / "keys.json", jwk), ALGORITHMS)
    assert keys.fitting(jwk["alg"], None)
    assert not any(keys.fitting(other, None) for other in ALGORITHMS if other != jwk["alg"])


def test_one_key_of_each_kind_needs_no_kid(tmp_path: Path) -> None:
    keys = read_key_file(write_keys(tmp_path / "keys.json", oct_jwk(), RSA, EC, ED), ALGORITHMS)
    assert [len(keys.fitting(algorithm, None)) for algorithm in ALGORITHMS] == [1, 1, 1, 1]


OLD = oct_jwk(b"o" * 32) | {"kid": "old"}
NEW = oct_jwk(b"n" * 32) | {"kid": "new"}


def signed_by(kid: str) -> bytes:
    return token(CLAIMS, {"alg": "HS256", "kid": kid}, {"old": b"o" * 32, "new": b"n" * 32}[kid], "HS256")


def is_taken(known: Principals, kid: str, now_ms: int) -> bool:
    try:
        return known.judge(signed_by(kid), now_ms).principal.name == "ada"
    except Refused:
        return False


class Rotating:
    """A key file that changes; each change is told apart by its time, however coarse the file system's is."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "keys.json"
        self._changes = 0

    def write(self, text: str) -> None:
        self._changes += 1
        self.file.write_text(text)
        os.utime(self.file, ns=(0, self._changes * 1_000_000_000))

    def keys(self, *jwks: Mapping[str, Any]) -> None:
        self.write(json.dumps({"keys": jwks}))


@pytest.fixture
def rotating(tmp_path: Path) -> Rotating:
    made = Rotating(tmp_path)
    made.keys(OLD)
    return made


def resolving(rotating: Rotating) -> Principals:
    return Principals(verifier=JwtVerifier(KeyFile(rotating.file, ALGORITHMS), SCOPE_RULES))


def test_a_new_key_is_found_and_an_old_one_forgotten(rotating: Rotating) -> None:
    known = resolving(rotating)
    assert (is_taken(known, "old", NOW_MS), is_taken(known, "new", NOW_MS)) == (True, False)
    rotating.keys(OLD, NEW)
    assert not is_taken(known, "new", NOW_MS + LOOK_MS - 1), "the file was looked at too often"
    assert is_taken(known, "new", NOW_MS + LOOK_MS)
    assert is_taken(known, "old", NOW_MS + LOOK_MS)
    rotating.keys(NEW)
    assert is_taken(known, "old", NOW_MS + 2 * LOOK_MS - 1)
    assert not is_taken(known, "old", NOW_MS + 2 * LOOK_MS), "a remembered token outlived its key"
    assert is_taken(known, "new", NOW_MS + 2 * LOOK_MS)


def test_a_clock_that_falls_back_does_not_stop_the_looking(rotating: Rotating) -> None:
    known = resolving(rotating)
    assert is_taken(known, "old", NOW_MS)
    rotating.keys(NEW)
    assert is_taken(known, "new", NOW_MS - 3_600_000)


def test_a_broken_file_keeps_the_keys_and_is_told_once(rotating: Rotating, caplog: pytest.LogCaptureFixture) -> None:
    known = resolving(rotating)
    rotating.write('{"keys": [{"kty": "oct", "k": "c2VjcmV0')
    with caplog.at_level(logging.INFO):
        for looks in range(1, 5):
            assert is_taken(known, "old", NOW_MS + looks * LOOK_MS)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "c2VjcmV0" not in caplog.text + str(vars(caplog.records[0]))
    assert "keys.json" in vars(caplog.records[0])["why"]
    rotating.write("still broken")
    with caplog.at_level(logging.INFO):
        assert is_taken(known, "old", NOW_MS + 5 * LOOK_MS)
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    rotating.keys(NEW)
    with caplog.at_level(logging.INFO):
        assert is_taken(known, "new", NOW_MS + 6 * LOOK_MS)
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR", "INFO"]


def test_a_file_that_vanishes_keeps_the_keys(rotating: Rotating, caplog: pytest.LogCaptureFixture) -> None:
    known = resolving(rotating)
    rotating.file.unlink()
    for looks in range(1, 4):
        assert is_taken(known, "old", NOW_MS + looks * LOOK_MS)
    assert len(caplog.records) == 1
    rotating.keys(NEW)
    assert is_taken(known, "new", NOW_MS + 4 * LOOK_MS)


def test_a_file_put_in_place_of_another_is_noticed(rotating: Rotating, tmp_path: Path) -> None:
    """As an atomic replacement does it, even with the same size and time."""
    known = resolving(rotating)
    assert is_taken(known, "old", NOW_MS)
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"keys": [NEW]}))
    status = rotating.file.stat()
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert other.stat().st_size == status.st_size
    other.rename(rotating.file)
    assert is_taken(known, "new", NOW_MS + LOOK_MS)


def test_a_server_without_jwts_does_not_import_them() -> None:
    code = "import sys, semel.cli.serve; print(sorted({'jwt', 'cryptography'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"
