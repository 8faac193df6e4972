"""Integrity of results: the hash of the end of a job, and the check of a worker's hash or signature."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from hmac import compare_digest, digest
from typing import Any, NamedTuple

from semel.contracts.jobs.ids import job_name
from semel.kernel.job_report import report_bytes

SHA_MISMATCH, SIG_MISMATCH, MISSING = "sha_mismatch", "sig_mismatch", "missing_integrity"


class Proof(NamedTuple):
    """The hash or signature that a worker sent with its report."""

    sha256: str
    sig: str | None


class Signing(NamedTuple):
    """The integrity check that the server requires."""

    needs_proof: bool = False
    hmac_key: bytes = b""
    """Empty when signatures are not required."""


def envelope(ok: bool, value: bytes) -> bytes:
    """The end of a job as it is cached and repeated."""
    return b'{"ok":true,"result":%s}' % value if ok else b'{"error":%s,"ok":false}' % value


def envelope_bytes(ok: bool, value_bytes: int) -> int:
    """How long that is, without making it."""
    return value_bytes + len(envelope(ok, b""))


def digest_of(job_id: bytes, ok: bool, value: bytes) -> bytes:
    """The hash that a result is known by."""
    return sha256(report_bytes(job_name(job_id), ok, value)).digest()


def flaw_of(
    name: str, ok: bool, python_text: Callable[[], bytes], value: bytes, proof: Proof | None, signing: Signing
) -> str:
    """Why a report is not believed; empty when it is. Its value is canonical, or as Python prints it."""
    if proof is None:
        return MISSING if signing.needs_proof or signing.hmac_key else ""
    texts = (report_bytes(name, ok, text) for text in (value, python_text()))
    believed = [text for text in texts if compare_digest(sha256(text).hexdigest(), proof.sha256)]
    if not believed:
        return SHA_MISMATCH
    if signing.hmac_key:
        given = proof.sig or ""
        if not any(compare_digest(digest(signing.hmac_key, text, sha256).hex(), given) for text in believed):
            return SIG_MISMATCH
    return ""


def python_print(value: Any) -> bytes:
    """A value as `json.dumps` prints it sorted and compact: 1.0 stays 1.0 there."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
