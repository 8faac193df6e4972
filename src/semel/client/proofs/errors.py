"""The one error of the verifier."""

from __future__ import annotations

from semel.client.errors import SemelError


class ProofError(SemelError):
    """Something was not proved. The message is one sentence that names what failed."""
