"""Refusals of the ledger that are raised before a rule decides."""

from __future__ import annotations

from collections.abc import Mapping

from semel.contracts.ledger.commands import Refusal

NUMBERS = {"organization_not_found": 3100, "vault_not_found": 3101, "invalid_argument": 3203, "internal": 3204}
"""The numbers by which clients know some refusals."""
CONDITION_FAILED, ALREADY_COMMITTED, SEQUENCE_VIOLATION = 3103, 3104, 3105
"""The domain errors of a write, where they are sent as a status."""


class RefusedLedger(Exception):  # noqa: N818 - a refusal is an answer, not an error of ours
    """Carries a refusal to the transport, which answers with it."""

    def __init__(
        self,
        code: str,
        message: str,
        context: Mapping[str, str] | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.refusal = Refusal(code, message, context or {}, retry_after_ms)

    @classmethod
    def of(cls, refusal: Refusal) -> RefusedLedger:
        """The exception for a refusal that a decision has answered."""
        return cls(*refusal)


def invalid(message: str, field: str = "") -> RefusedLedger:
    """A shape or a limit that does not hold."""
    return RefusedLedger("invalid_argument", message, {"field": field} if field else {})
