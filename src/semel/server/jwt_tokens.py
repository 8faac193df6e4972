"""JWT authentication: signature, issuer, audience and time, then the claims.

The signature is checked by PyJWT with the one algorithm that the key is for; `none`, critical extensions and unencoded
payloads are refused. Time is compared here with the time that the caller passes. A client gets one of three answers:
its token has expired, it is not valid yet (both only if the signature is valid), or it is not accepted.

A client sends its token with every request, so a verified one is cached by its hash until it expires; it is evicted
earlier when the cache is full, and with all others when the keys change.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from hashlib import sha256

from jwt import PyJWS
from jwt.exceptions import InvalidSignatureError, PyJWTError

from semel.kernel.errors import Refused
from semel.kernel.json_error import JsonError
from semel.kernel.json_parse import parse
from semel.kernel.json_text import Json
from semel.server.jwt_claims import MAX_TOKEN_BYTES, Claimed, ClaimError, is_for, read_claims
from semel.server.jwt_keys import ALGORITHMS, KeyFile
from semel.server.principals import Principal, ScopeRules, unauthorized

MAX_REMEMBERED = 4_096
"""Verified tokens that are kept."""
MAX_REMEMBERED_NAMES = 65_536
"""Names that all of them together are limited to: they are what takes the memory."""

_SHAPE = re.compile(rb"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*")
_JWS = PyJWS(algorithms=ALGORITHMS, options={"verify_signature": True, "enforce_minimum_key_length": True})


class JwtVerifier:
    """Implements `principals.Verifier`."""

    def __init__(self, keys: KeyFile, rules: ScopeRules, issuer: str = "", audience: str = "") -> None:
        self._keys = keys
        self._rules = rules
        self._issuer = issuer
        self._audience = audience
        self._verified = RecentTokens()

    def reload(self) -> None:
        """Read the keys again; `KeyFileError` leaves those of before in use."""
        self._keys.reload()
        self._verified.clear()

    def can_read(self, token: bytes) -> bool:
        """Three parts in base64url."""
        return _SHAPE.fullmatch(token) is not None

    def verify(self, token: bytes, now_ms: int) -> Principal:
        """The caller that a token names, if it holds now."""
        if len(token) > MAX_TOKEN_BYTES:
            raise _not_accepted()
        if self._keys.look(now_ms):
            self._verified.clear()
        digest = sha256(token).digest()
        claimed = self._verified.get(digest)
        is_new = claimed is None
        if claimed is None:
            claimed = self._judged(token)
        principal, not_before_ms = claimed
        assert principal.expires_at_ms is not None, "every JWT has an end"
        if now_ms >= principal.expires_at_ms:
            self._verified.forget(digest)
            raise unauthorized("This token has expired.", b"invalid_token")
        if now_ms < not_before_ms:
            raise unauthorized("This token is not valid yet.", b"invalid_token")
        if is_new:
            self._verified.put(digest, claimed)
        return principal

    def _judged(self, token: bytes) -> Claimed:
        """Everything about a token that does not depend on the time."""
        try:
            claims = self._claims(token)
            if isinstance(claims, dict) and is_for(claims, self._issuer, self._audience):
                return read_claims(claims, self._rules)
        except (PyJWTError, JsonError, ClaimError):
            pass  # the reason is not sent: it would help a forger more than a friend
        raise _not_accepted()

    def _claims(self, token: bytes) -> Json:
        """The signed claims, once a key has been found that verifies the signature."""
        header = _JWS.get_unverified_header(token)
        algorithm, kid = header.get("alg"), header.get("kid")
        if "crit" in header or "b64" in header or not isinstance(algorithm, str):
            raise InvalidSignatureError
        for key in self._keys.keys.fitting(algorithm, kid):
            try:
                return parse(_JWS.decode(token, key.material, algorithms=[key.algorithm]))
            except InvalidSignatureError:
                continue
        raise InvalidSignatureError


def _not_accepted() -> Refused:
    return unauthorized("This token is not accepted here.", b"invalid_token")


class RecentTokens:
    """An LRU cache of verified tokens, by their hashes."""

    def __init__(self, most: int = MAX_REMEMBERED, most_names: int = MAX_REMEMBERED_NAMES) -> None:
        self._most = most
        self._most_names = most_names
        self._names = 0
        self._kept: OrderedDict[bytes, Claimed] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, digest: bytes) -> Claimed | None:
        """The cached result of a token."""
        found = self._kept.get(digest)
        if found is not None:
            self._kept.move_to_end(digest)
        return found

    def put(self, digest: bytes, claimed: Claimed) -> None:
        """Cache the result of a token."""
        self._kept[digest] = claimed
        self._names += _size(claimed)
        while len(self._kept) > self._most or self._names > self._most_names:
            _, oldest = self._kept.popitem(last=False)
            self._names -= _size(oldest)

    def forget(self, digest: bytes) -> None:
        """Drop one token, if it is kept."""
        dropped = self._kept.pop(digest, None)
        if dropped is not None:
            self._names -= _size(dropped)

    def clear(self) -> None:
        """Drop all."""
        self._kept.clear()
        self._names = 0


def _size(claimed: Claimed) -> int:
    principal = claimed.principal
    return len(principal.scopes or ()) + sum(map(len, principal.claims.values()))
