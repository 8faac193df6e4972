"""JWT authentication: signature, issuer, audience and time, then the claims.

PyJWT checks the signature with the one algorithm of the key; `none`, critical extensions and unencoded payloads are
refused. The time of validity is compared with the time that the caller passes. A client gets one of three answers: its
token has expired, it is not valid yet (both only if the signature is valid), or it is not accepted.

A client sends its token with every request, so a verified token is cached by its hash until it expires. It is evicted
earlier when the cache is full, and all are evicted when the keys change.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from hashlib import sha256

from jwt import PyJWS
from jwt.exceptions import InvalidSignatureError, PyJWTError

from semel.kernel.errors import Refused
from semel.kernel.json.parse import parse
from semel.kernel.json.text import Json, JsonError
from semel.server.auth.jwt_claims import MAX_TOKEN_BYTES, ClaimedIdentity, ClaimError, is_for, read_claims
from semel.server.auth.jwt_keys import ALGORITHMS, KeySource
from semel.server.auth.principals import Principal, ScopeRules, unauthorized

MAX_REMEMBERED = 4_096
"""Maximum number of verified tokens in the cache."""
MAX_REMEMBERED_NAMES = 65_536
"""Maximum number of names in all cached tokens together, because names take most of the memory."""

_SHAPE = re.compile(rb"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*")
_JWS = PyJWS(algorithms=ALGORITHMS, options={"verify_signature": True, "enforce_minimum_key_length": True})


class JwtVerifier:
    """Verifies JWTs; implements `principals.Verifier`."""

    def __init__(self, keys: KeySource, rules: ScopeRules, issuer: str = "", audience: str = "") -> None:
        self._keys = keys
        self._rules = rules
        self._issuer = issuer
        self._audience = audience
        self._verified = RecentTokens()

    def reload(self) -> None:
        """Read the keys again; after `KeyFileError` the loaded keys stay in use."""
        self._keys.reload()
        self._verified.clear()

    def can_read(self, token: bytes) -> bool:
        """Whether the token has three parts in base64url."""
        return _SHAPE.fullmatch(token) is not None

    def verify(self, token: bytes, now_ms: int) -> Principal:
        """The principal of a token that is valid now."""
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
        assert principal.expires_at_ms is not None, "every JWT has an expiry"
        if now_ms >= principal.expires_at_ms:
            self._verified.forget(digest)
            raise unauthorized("This token has expired.", b"invalid_token")
        if now_ms < not_before_ms:
            raise unauthorized("This token is not valid yet.", b"invalid_token")
        if is_new:
            self._verified.put(digest, claimed)
        return principal

    def _judged(self, token: bytes) -> ClaimedIdentity:
        """Check everything about a token that does not depend on the time."""
        try:
            claims = self._claims(token)
            if isinstance(claims, dict) and is_for(claims, self._issuer, self._audience):
                return read_claims(claims, self._rules)
        except (PyJWTError, JsonError, ClaimError):
            pass  # the reason is not sent, because it would help an attacker
        raise _not_accepted()

    def _claims(self, token: bytes) -> Json:
        """The claims, after a key has been found that verifies the signature."""
        header = _JWS.get_unverified_header(token)
        algorithm, kid = header.get("alg"), header.get("kid")
        if "crit" in header or "b64" in header or not isinstance(algorithm, str):
            raise InvalidSignatureError
        fitting = self._keys.keys.fitting(algorithm, kid)
        if not fitting:
            self._keys.miss()
        for key in fitting:
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
        self._kept: OrderedDict[bytes, ClaimedIdentity] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, digest: bytes) -> ClaimedIdentity | None:
        """The cached result of a token."""
        found = self._kept.get(digest)
        if found is not None:
            self._kept.move_to_end(digest)
        return found

    def put(self, digest: bytes, claimed: ClaimedIdentity) -> None:
        """Cache the result of a token."""
        self._kept[digest] = claimed
        self._names += _size(claimed)
        while len(self._kept) > self._most or self._names > self._most_names:
            _, oldest = self._kept.popitem(last=False)
            self._names -= _size(oldest)

    def forget(self, digest: bytes) -> None:
        """Remove one token from the cache."""
        dropped = self._kept.pop(digest, None)
        if dropped is not None:
            self._names -= _size(dropped)

    def clear(self) -> None:
        """Empty the cache."""
        self._kept.clear()
        self._names = 0


def _size(claimed: ClaimedIdentity) -> int:
    principal = claimed.principal
    return len(principal.scopes or ()) + sum(map(len, principal.claims.values()))
