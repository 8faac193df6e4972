"""The fingerprint of a write: tells a retry from another write under the same key.

Promise: SHA-256 of the canonical bytes and of nothing else, so anyone can compute it again.
"""

from __future__ import annotations

import hashlib


def fingerprint(canonical_bytes: bytes) -> bytes:
    """The 32 bytes of SHA-256."""
    return hashlib.sha256(canonical_bytes).digest()
