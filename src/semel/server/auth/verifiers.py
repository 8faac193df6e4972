"""How tokens are judged that are not known by their hash: JWTs, which carry their own claims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from semel.server.auth.principals import Principal


class Verifier(Protocol):
    """Verifies tokens that carry their own claims."""

    def can_read(self, token: bytes) -> bool:
        """Whether a token has the right form; it is not verified."""

    def verify(self, token: bytes, now_ms: int) -> Principal:
        """The principal of a token; `UnauthorizedError` if the token is not valid at this time."""


class SeveralVerifiers:
    """Tries several verifiers in order; the first that can read a token decides."""

    def __init__(self, verifiers: Sequence[Verifier]) -> None:
        self._verifiers = verifiers

    def can_read(self, token: bytes) -> bool:
        return any(one.can_read(token) for one in self._verifiers)

    def verify(self, token: bytes, now_ms: int) -> Principal:
        return next(one for one in self._verifiers if one.can_read(token)).verify(token, now_ms)
