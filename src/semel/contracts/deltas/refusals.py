"""Refusals of deltas: the reason, and which deltas of the request caused it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MAX_FLAWS = 100
"""Limit of flaws that a refusal names: the first ones."""


class Flaw(NamedTuple):
    """One delta that cannot be accepted."""

    place: int
    """The index of the delta in the push."""
    delta_id: str
    """As it was sent, if it was sent at all."""
    code: str
    message: str
    status: int


class Refusal(NamedTuple):
    """A refusal as a decision answers it. `code` is without the name of the surface."""

    code: str
    message: str
    status: int | None = None
    """None is the one of the registry."""
    flaws: Sequence[Flaw] = ()
    server_hlc: int | None = None
    retry_after: int | None = None
    """Seconds."""


class RefusedDeltas(Exception):  # noqa: N818 - a refusal is an answer, not an error of ours
    """Carries a refusal to the transport, which answers with it."""

    def __init__(
        self,
        code: str,
        message: str,
        status: int | None = None,
        flaws: Sequence[Flaw] = (),
        server_hlc: int | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.refusal = Refusal(code, message, status, flaws, server_hlc, retry_after)

    @classmethod
    def of(cls, refusal: Refusal) -> RefusedDeltas:
        """The exception for a refusal that a decision has answered."""
        return cls(*refusal)


def refusal_of(flaws: Sequence[Flaw]) -> Refusal:
    """The refusal of a push: by the first of its flaws, with all of them listed."""
    first = flaws[0]
    return Refusal(first.code, f"deltas[{first.place}]: {first.message}", first.status, tuple(flaws[:MAX_FLAWS]))
