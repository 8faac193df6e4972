"""Keys that verify JWTs: a JWK set, and its source if that is a file, which is reloaded when it changes.

Each key names its own algorithm, and a token must agree with it, so that no token can make a public key be used as a
shared secret. Keys of a set that are for other uses or of unsupported kinds are ignored. If a key for this use is weak,
broken or private, the whole file is refused, with one sentence that says what to correct and reveals nothing of the
key.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from jwt import PyJWK
from jwt.exceptions import PyJWTError

from semel.kernel.json.parse import parse
from semel.kernel.json.text import JsonError, shown
from semel.server.auth.jwt_claims import KeyFileError

MAX_FILE_BYTES = 1024 * 1024
MAX_KEYS = 64
MAX_TRIED = 8
"""Maximum number of keys that are tried for a token that names none."""
LOOK_MS = 5_000
"""Shortest time between two checks of the file, in milliseconds."""

_log = logging.getLogger("semel.server")


class _KeyKind(NamedTuple):
    """The rules for one type of key."""

    algorithm: str
    curve: str | None
    members: tuple[str, ...]


_KEY_KINDS = {
    "oct": _KeyKind("HS256", None, ("k",)),
    "RSA": _KeyKind("RS256", None, ("n", "e")),
    "EC": _KeyKind("ES256", "P-256", ("x", "y")),
    "OKP": _KeyKind("EdDSA", "Ed25519", ("x",)),
}
ALGORITHMS = tuple(kind.algorithm for kind in _KEY_KINDS.values())

_WEAK = {
    "HS256": "is too short: HS256 needs a secret of at least 32 random bytes",
    "RS256": "is too short: RS256 needs at least 2048 bits",
}
_PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth"})
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+")


class JwtKey(NamedTuple):
    """A key, and the one algorithm that it is used with."""

    kid: str | None
    algorithm: str
    material: PyJWK


class KeySet:
    """The usable keys of a file."""

    def __init__(self, keys: Sequence[JwtKey]) -> None:
        self._named = {(key.algorithm, key.kid): key for key in keys if key.kid is not None}
        self._by_algorithm = {
            name: tuple(key for key in keys if key.algorithm == name)[:MAX_TRIED] for name in ALGORITHMS
        }

    def fitting(self, algorithm: str, kid: str | None) -> Sequence[JwtKey]:
        """The keys that may have signed a token with this header: the one that it names, otherwise the first of its
        algorithm.
        """
        if kid is None:
            return self._by_algorithm.get(algorithm, ())
        named = self._named.get((algorithm, kid))
        return () if named is None else (named,)


class KeySource(Protocol):
    """Where keys come from: a file or a URL."""

    keys: KeySet

    def look(self, now_ms: int) -> bool:
        """Whether the keys have changed since the last look."""

    def miss(self) -> None:
        """A token names a key that is not among the keys."""

    def reload(self) -> None:
        """Read the keys again, changed or not; after `KeyFileError` the loaded keys stay in use."""


class KeyFile:
    """The current keys of a file, checked for changes every five seconds."""

    def __init__(self, path: Path, algorithms: Collection[str]) -> None:
        self._path = path
        self._algorithms = algorithms
        self._mark = _mark(path)
        self._looked_at_ms: int | None = None
        self.keys = read_key_file(path, algorithms)

    def reload(self) -> None:
        """Read the file again, changed or not; after `KeyFileError` the loaded keys stay in use."""
        self._mark = _mark(self._path)
        self.keys = read_key_file(self._path, self._algorithms)

    def miss(self) -> None:
        """A token names a key that is not here; the file is checked for changes all the same."""

    def look(self, now_ms: int) -> bool:
        """Read the file again if it has changed; True if the keys have changed. An invalid file changes nothing."""
        if self._looked_at_ms is not None and abs(now_ms - self._looked_at_ms) < LOOK_MS:
            return False
        self._looked_at_ms = now_ms
        mark = _mark(self._path)  # before reading: the next check sees what is written meanwhile
        if mark == self._mark:
            return False
        self._mark = mark
        try:
            self.keys = read_key_file(self._path, self._algorithms)
        except KeyFileError as error:
            _log.error(
                "the key file has changed and is invalid; the loaded keys stay in use", extra={"why": str(error)}
            )
            return False
        _log.info("the key file has changed; its keys are in use", extra={"path": str(self._path)})
        return True


def _mark(path: Path) -> tuple[int, int, int] | None:
    """The state of a file, to detect a change; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def read_key_file(path: Path, algorithms: Collection[str]) -> KeySet:
    """The keys of a JWK set that are for these algorithms."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise KeyFileError(f"The key file {path} cannot be read: {error.strerror}.") from error
    return read_key_set(raw, f"The key file {path}", str(path), algorithms)


def read_key_set(raw: bytes, source: str, place: str, algorithms: Collection[str]) -> KeySet:
    """The keys of a JWK set in JSON that are for these algorithms; errors begin with the source, or with its place."""
    if len(raw) > MAX_FILE_BYTES:
        raise KeyFileError(f"{source} has more than {MAX_FILE_BYTES} bytes.")
    try:
        document = parse(raw)
    except JsonError as error:
        raise KeyFileError(f"{source} is not a JWK set in JSON: {error}") from None
    listed: Any = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list) or not all(isinstance(jwk, dict) for jwk in listed):
        raise KeyFileError(f'{source} is not a JWK set: it needs an object with the list "keys".')
    if len(listed) > MAX_KEYS:
        raise KeyFileError(f"{source} has {len(listed)} keys; at most {MAX_KEYS} are allowed.")
    places = (f"{place}: {_named(number, jwk)}" for number, jwk in enumerate(listed, start=1))
    found = [_key(place, jwk, algorithms) for place, jwk in zip(places, listed, strict=True)]
    keys = [key for key in found if key is not None]
    if not keys:
        raise KeyFileError(f"{source} has no key for {', '.join(algorithms)}.")
    _check_names(place, keys)
    return KeySet(keys)


def _named(number: int, jwk: Mapping[str, Any]) -> str:
    kid = jwk.get("kid")
    return f"key {number} (kid {shown(kid)})" if isinstance(kid, str) else f"key {number}"


def _key(place: str, jwk: Mapping[str, Any], algorithms: Collection[str]) -> JwtKey | None:
    """Read one key; None for a key of another use. A private key is refused even then, because it does not
    belong here.
    """
    kty = jwk.get("kty")
    if kty != "oct" and _PRIVATE & set(jwk):
        raise KeyFileError(
            f"{place} is a private key: a server needs only the public half; remove the private members."
        )
    kind = _KEY_KINDS.get(kty) if isinstance(kty, str) else None
    if kind is None or kind.algorithm not in algorithms or not _is_for_us(jwk, kind):
        return None
    kid = jwk.get("kid")
    if kid is not None and (not isinstance(kid, str) or not kid):
        raise KeyFileError(f"{place} has a kid that is not a non-empty string.")
    for member in kind.members:
        text = jwk.get(member)
        if not isinstance(text, str) or not _BASE64URL.fullmatch(text):
            raise KeyFileError(f"{place} needs the member {member!r} in base64url, without padding.")
    return JwtKey(kid, kind.algorithm, _material(place, jwk, kind.algorithm))


def _is_for_us(jwk: Mapping[str, Any], kind: _KeyKind) -> bool:
    operations = jwk.get("key_ops", ["verify"])
    return (
        jwk.get("use", "sig") == "sig"
        and isinstance(operations, list)
        and "verify" in operations
        and jwk.get("alg", kind.algorithm) == kind.algorithm
        and (kind.curve is None or jwk.get("crv") == kind.curve)
    )


def _material(place: str, jwk: Mapping[str, Any], algorithm: str) -> PyJWK:
    # Do not repeat the library's message: it may contain parts of the key.
    try:
        material = PyJWK(dict(jwk), algorithm)
        prepared = material.Algorithm.prepare_key(material.key)
        is_weak = bool(material.Algorithm.check_key_length(prepared))
    except (PyJWTError, ValueError, TypeError):
        raise KeyFileError(f"{place} is not a usable {algorithm} key.") from None
    if is_weak:
        raise KeyFileError(f"{place} {_WEAK[algorithm]}.")
    return material


def _check_names(place: str, keys: Sequence[JwtKey]) -> None:
    """Check that a kid names one key, and that a key without a kid is the only one of its algorithm."""
    kids = [key.kid for key in keys if key.kid is not None]
    twice = sorted({kid for kid in kids if kids.count(kid) > 1})
    if twice:
        raise KeyFileError(f"{place}: two keys have the kid {shown(twice[0])}.")
    for key in keys:
        if key.kid is None and sum(other.algorithm == key.algorithm for other in keys) > 1:
            raise KeyFileError(f"{place}: with several {key.algorithm} keys, each needs a kid.")
