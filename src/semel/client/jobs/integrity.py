"""Integrity of results: a SHA-256 checksum of the canonical bytes, and an HMAC signature if there is a key.

A value that is not JSON is refused before it is sent.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any, NamedTuple

from semel.client.errors import IntegrityError
from semel.kernel.hashes import canonical_bytes, proof_of, report_bytes

__all__ = ["Checked", "canonical_bytes", "check", "proof"]


class Checked(NamedTuple):
    """A verified outcome, and whether its signature was verified too."""

    sha256: str
    is_signed: bool


def proof(job_id: str, ok: bool, value: bytes, hmac_key: bytes | None) -> dict[str, str]:
    """The checksum of a report and, with a key, its signature."""
    return proof_of(report_bytes(job_id, ok, value), hmac_key)


def check(job_id: str, ok: bool, value: Any, given: Mapping[str, Any], hmac_key: bytes | None) -> Checked:
    """Verify an outcome. Raises `IntegrityError` if its checksum or signature does not match.

    With a key the signature is required: an attacker who can change the result could also remove the signature.
    """
    made = proof(job_id, ok, canonical_bytes(value), hmac_key)
    if not _same(made["sha256"], given.get("sha256")):
        raise IntegrityError(f"The result of {job_id} does not match its checksum.")
    if hmac_key is not None and not _same(made["sig"], given.get("sig")):
        raise IntegrityError(f"The result of {job_id} does not have a valid signature.")
    return Checked(made["sha256"], hmac_key is not None)


def _same(made: str, given: object) -> bool:
    return isinstance(given, str) and hmac.compare_digest(made.encode(), given.encode("utf-8", "replace"))
