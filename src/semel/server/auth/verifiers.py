"""How tokens are judged that are not known by their hash: JWTs, which carry their own claims, and console sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from semel.server.auth.principals import KnownCaller, Principal


class Verifier(Protocol):
    """Verifies tokens that carry their own claims."""

    def can_read(self, token: bytes) -> bool:
        """Whether a token has the right form; it is not verified."""

    def verify(self, token: bytes, now_ms: int) -> Principal:
        """The principal of a token; `UnauthorizedError` if the token is not valid at this time."""


class SignedClaims(NamedTuple):
    """What is kept of a JWT that was verified, so that the JWT itself need not be."""

    claims: bytes
    key: bytes
    """The SHA-256 of the key that signed it."""


@runtime_checkable
class KeepingVerifier(Verifier, Protocol):
    """A verifier whose tokens can be kept as their claims."""

    def keep(self, token: bytes) -> SignedClaims:
        """The claims of a token, whose signature is verified; `UnauthorizedError` if it is wrong."""

    def verify_kept(self, kept: SignedClaims, now_ms: int) -> Principal:
        """As `verify`, for a token that was kept; `UnauthorizedError` if its key counts no longer, too."""


SESSION_PREFIX = b"semel_console_"
"""The beginning of the token of every console session."""


class SessionSource(Protocol):
    """Judges the tokens of console sessions."""

    def judge(self, digest: bytes, now_ms: int) -> KnownCaller:
        """The caller of a session, by the hash of its token; `UnauthorizedError` if it is over."""


class SeveralVerifiers:
    """Tries several verifiers in order; the first that can read a token decides."""

    def __init__(self, verifiers: Sequence[Verifier]) -> None:
        self._verifiers = verifiers

    def can_read(self, token: bytes) -> bool:
        return any(one.can_read(token) for one in self._verifiers)

    def verify(self, token: bytes, now_ms: int) -> Principal:
        return next(one for one in self._verifiers if one.can_read(token)).verify(token, now_ms)
