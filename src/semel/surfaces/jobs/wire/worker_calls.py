"""Parsers of the requests of workers: claims, heartbeats, reports, deferrals and steps."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, NamedTuple

from semel.kernel.errors import Refused
from semel.kernel.json.canonical import MAX_DEPTH
from semel.kernel.keys import pack
from semel.surfaces.jobs.commands import ClaimJobs, DeferJob, JobHeartbeat, JobReport, JobStep
from semel.surfaces.jobs.ids import job_name
from semel.surfaces.jobs.limits import (
    MAX_CLAIM_ID_CHARACTERS,
    MAX_CLAIM_JOBS,
    MAX_CLAIM_NAMES,
    MAX_DEFER_MS,
    MAX_ERROR_BYTES,
    MAX_KEY_CHARACTERS,
    MAX_LEASE_SEC,
    MAX_MESSAGE_BYTES,
    MAX_NAME_CHARACTERS,
    MAX_PROGRESS_BYTES,
    MAX_QUEUE_CHARACTERS,
    MAX_REASON_CHARACTERS,
    MAX_WAIT_MS,
    JobPolicy,
    Reach,
)
from semel.surfaces.jobs.rules.completion import JobReportProof, JobSigning, digest_of, flaw_of
from semel.surfaces.jobs.wire.fields import KIND_RULE, Members

_LEASE_REQUIRED = "This call needs the lease_token that the claim gave."


class ClaimCaller(NamedTuple):
    """What a claim needs beside its body: the principal, its reach, the time and a secret."""

    principal: bytes
    reach: Reach | None
    asked_at: int
    secret: bytes


class ClaimRequest(NamedTuple):
    """A claim, and the milliseconds that it may wait."""

    claim: ClaimJobs
    wait_ms: int


def parse_claim(members: Members, asker: ClaimCaller) -> ClaimRequest:
    """Parse a claim."""
    worker = members.text("worker_id", MAX_NAME_CHARACTERS)
    node = members.text("node_id", MAX_NAME_CHARACTERS)
    if worker is None and node is None:
        raise members.refuse("worker_id", f"must be a string of 1 to {MAX_NAME_CHARACTERS} characters")
    lease_sec = members.integer("lease_sec", 1, MAX_LEASE_SEC)
    claim_id = members.text("claim_id", MAX_CLAIM_ID_CHARACTERS)
    wait_ms = members.integer("wait_ms", 0, MAX_WAIT_MS) or 0
    claim = ClaimJobs(
        principal=asker.principal,
        worker=(worker or node or "").encode(),
        most=members.integer("max", 1, MAX_CLAIM_JOBS) or 1,
        kinds=members.names_of("kinds", MAX_CLAIM_NAMES, KIND_RULE, MAX_NAME_CHARACTERS),
        queues=members.names_of("queues", MAX_CLAIM_NAMES, None, MAX_QUEUE_CHARACTERS) or _named(asker.reach),
        reach=asker.reach,
        lease_ms=None if lease_sec is None else lease_sec * 1_000,
        claim=b"" if claim_id is None else pack(claim_id.encode()),
        reap_until=0,
        asked_at=asker.asked_at,
        secret=asker.secret,
        waits=wait_ms > 0,
    )
    return ClaimRequest(claim, wait_ms)


def _named(reach: Reach | None) -> tuple[bytes, ...]:
    """The queues of a caller with few queues in reach: a claim by name costs the same however many others exist."""
    is_few = reach is not None and len(reach) <= MAX_CLAIM_NAMES and not any(is_prefix for _, is_prefix in reach)
    return tuple(name for name, _ in reach or ()) if is_few else ()


def parse_heartbeat(job_id: bytes, members: Members) -> JobHeartbeat:
    """Parse a heartbeat."""
    value = members.raw("progress")
    if isinstance(value, dict | list) and len(value) > MAX_PROGRESS_BYTES:
        raise members.refuse("progress", f"may have at most {MAX_PROGRESS_BYTES} bytes")
    progress = None if value is None else members.canonical("progress", value)
    if progress is not None and len(progress) > MAX_PROGRESS_BYTES:
        raise members.refuse("progress", f"may have at most {MAX_PROGRESS_BYTES} bytes")
    return JobHeartbeat(job_id, _token(job_id, members), progress)


def parse_completion(job_id: bytes, members: Members, policy: JobPolicy, signing: JobSigning) -> JobReport:
    """Parse the report of a result."""
    return _report(job_id, members, policy, signing, ok=True)


def parse_failure(job_id: bytes, members: Members, policy: JobPolicy, signing: JobSigning) -> JobReport:
    """Parse the report of an error."""
    _check_error(members)
    return _report(job_id, members, policy, signing, ok=False)


def parse_mesh_result(
    job_id: bytes, members: Members, policy: JobPolicy, signing: JobSigning, reach: Reach | None
) -> JobReport:
    """Parse a report in the mesh dialect, which needs no lease."""
    ok = members.flag("ok")
    if ok is None:
        raise members.refuse("ok", "must be true or false")
    if not ok and not isinstance(members.raw("error"), str):
        _check_error(members)
    return _report(job_id, members, policy, signing, ok=ok)._replace(is_foreign=True, reach=reach)


def parse_deferral(job_id: bytes, members: Members) -> DeferJob:
    """Parse a deferral; a retry has the same digest."""
    delay_ms = members.integer("delay_ms", 0, MAX_DEFER_MS)
    waits = members.flag("wait_children") or False
    if waits:
        delay_ms = delay_ms or 0
    if delay_ms is None:
        raise members.refuse("delay_ms", f"must be a whole number from 0 to {MAX_DEFER_MS}")
    reason = members.text("reason", MAX_REASON_CHARACTERS, least=0) or ""
    said = b"%d %s%s" % (delay_ms, reason.encode(), b" children" if waits else b"")
    return DeferJob(job_id, _token(job_id, members), delay_ms, sha256(said).digest(), waits)


def parse_step(job_id: bytes, members: Members, policy: JobPolicy) -> JobStep:
    """Parse a step: with a result it is stored, without one it is read."""
    key = members.text("step_key", MAX_KEY_CHARACTERS)
    if key is None:
        raise members.refuse("step_key", f"must be a string of 1 to {MAX_KEY_CHARACTERS} characters")
    result = _value(members, "result", policy.max_result_bytes) if "result" in members else None
    return JobStep(job_id, _token(job_id, members), pack(key.encode()), result)


def _report(job_id: bytes, members: Members, policy: JobPolicy, signing: JobSigning, *, ok: bool) -> JobReport:
    name = "result" if ok else "error"
    if name not in members:
        raise members.refuse(name, "must be given")
    value = _value(members, name, policy.max_result_bytes if ok else MAX_ERROR_BYTES)
    retryable = members.flag("retryable")
    return JobReport(
        id=job_id,
        token=members.token(),
        ok=ok,
        value=value,
        digest=digest_of(job_id, ok, value),
        error_code="" if ok else _error_code(members.raw(name)),
        error_message="" if ok else _error_message(members.raw(name)),
        retryable=True if retryable is None else retryable,
        retry_after_ms=members.integer("retry_after_ms", 0, MAX_DEFER_MS),
        flaw=flaw_of(job_name(job_id), ok, lambda: members.python_text(name), value, _proof(members), signing),
        mode="hmac" if signing.hmac_key else "sha256",
    )


def _error_code(error: Any) -> str:
    return str(error["code"]) if isinstance(error, dict) else "error"


def _error_message(error: Any) -> str:
    message = error["message"] if isinstance(error, dict) else error
    return str(message).encode()[:MAX_MESSAGE_BYTES].decode(errors="ignore")


def _value(members: Members, name: str, most: int) -> bytes:
    value = members.canonical(name, members.raw(name))
    if len(value) > most:
        message = f"{name} has {len(value)} bytes; at most {most} are taken. The lease is still held."
        raise Refused("jobs:too_large", message, {"field": name, "max": most})
    if members.is_too_deep(value):
        raise members.refuse(name, f"may be nested at most {MAX_DEPTH} levels deep")
    return value


def _check_error(members: Members) -> None:
    """Refuse an error without a code and a message; the mesh dialect does not check an error that is a string."""
    error = members.object("error")
    if error is None:
        raise members.refuse("error", "must be an object with a code and a message")
    if error.text("code", MAX_NAME_CHARACTERS) is None:
        raise members.refuse("error.code", f"must be a string of 1 to {MAX_NAME_CHARACTERS} characters")
    if not isinstance(error.raw("message"), str):
        raise members.refuse("error.message", "must be a string")


def _proof(members: Members) -> JobReportProof | None:
    if members.raw("integrity") is None:
        return None
    integrity = members.object("integrity")
    assert integrity is not None
    if integrity.raw("mode") not in (None, "sha256", "hmac"):
        raise members.refuse("integrity.mode", "must be sha256 or hmac")
    digest = integrity.text("sha256", MAX_NAME_CHARACTERS)
    if digest is None or not digest.isascii():
        raise members.refuse("integrity.sha256", "must be 64 hexadecimal digits")
    sig = integrity.text("sig", MAX_NAME_CHARACTERS)
    if sig is not None and not sig.isascii():
        raise members.refuse("integrity.sig", "must be 64 hexadecimal digits")
    return JobReportProof(digest.lower(), None if sig is None else sig.lower())


def _token(job_id: bytes, members: Members) -> bytes:
    token = members.token()
    if token is None:
        raise Refused("jobs:lease_required", _LEASE_REQUIRED, {"job_id": job_name(job_id), "field": "lease_token"})
    return token
