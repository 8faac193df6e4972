"""Answers: rows to JSON. Stored canonical JSON is copied unchanged, so that replays are equal byte by byte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

from semel.kernel.clock import utc_text
from semel.kernel.errors import Refusal
from semel.kernel.hashes import proof_of, report_bytes
from semel.kernel.verdict import NEVER
from semel.surfaces.jobs.commands import (
    JobAdmitted,
    JobDraft,
    JobKeyCollision,
    JobRefused,
    JobReported,
    JobsClaimed,
    JobStepResult,
    LeaseExtended,
)
from semel.surfaces.jobs.ids import job_name, request_name
from semel.surfaces.jobs.limits import JobPolicy
from semel.surfaces.jobs.lists import JobPage
from semel.surfaces.jobs.reading import JobDeadLetter, JobDetails, QueueFacts
from semel.surfaces.jobs.rules.completion import JobSigning, digest_of, envelope, envelope_bytes
from semel.surfaces.jobs.rules.cron import next_after, parse
from semel.surfaces.jobs.rules.idempotency import HITS, RULE
from semel.surfaces.jobs.rules.states import JobState, is_done, state_of, status_of
from semel.surfaces.jobs.schedule_table import JobScheduleRow
from semel.surfaces.jobs.tables import ALIAS_UNIQUE, DONE, INLINE_BYTES, LEASED, WAITING, JobRow
from semel.surfaces.jobs.wire.admin import dead_cursor, list_cursor, result_url
from semel.surfaces.jobs.wire.group_answers import links_facts

SATURATED_DEFER_MS, EMPTY_DEFER_MS = 500, 1_000
STEP_MS = 1_000
_COLLISION = "This idempotency key stands for another payload: use a new key for a new job."


class OutcomeAnswer:
    """The outcome of a job in an answer: the cached envelope, or why it is omitted."""

    def __init__(self, job: JobRow, value: bytes | None, policy: JobPolicy) -> None:
        self.ok = not job.reason
        self.is_sound = True
        self._job = job
        self._value = value
        self._omitted = omission(job, policy)
        if self._omitted is None and (value is None or digest_of(job.id, self.ok, value) != job.report):
            self.is_sound, self._omitted = False, "integrity"

    def facts(self) -> dict[str, Any]:
        """The members that a finished job has in every answer."""
        job = self._job
        known: dict[str, Any] = {
            "result_sha256": job.report.hex(),
            "result_bytes": job.result_bytes,
            "result_url": result_url(job.id),
        }
        if self._omitted is None:
            assert self._value is not None
            known["cached_result"] = orjson.Fragment(envelope(self.ok, self._value))
        else:
            known["cached_result_omitted"] = self._omitted
        return known


def omission(job: JobRow, policy: JobPolicy) -> str | None:
    """Why an answer omits the envelope; None if it does not."""
    if not policy.max_cached_bytes:
        return "disabled"
    is_large = envelope_bytes(not job.reason, job.result_bytes) > policy.max_cached_bytes
    return "too_large" if is_large else None


def needs_part(job: JobRow, policy: JobPolicy) -> bool:
    """Whether the answer needs an envelope that is stored in a separate row."""
    return job.phase == DONE and job.result_bytes > INLINE_BYTES and omission(job, policy) is None


def submitted(
    answer: JobAdmitted, value: bytes | None, policy: JobPolicy, now_ms: int
) -> tuple[dict[str, Any], OutcomeAnswer | None]:
    """The answer to an admitted submission or its replay."""
    job, rule = answer.job, RULE[answer.rule]
    facts: dict[str, Any] = {
        "ok": True,
        "request_id": request_name(job.id),
        "job_id": job_name(job.id),
        "dedup": rule.dedup,
        "status": status_of(job) if is_done(job) else rule.status,
        "state": state_of(job, now_ms).value,
        "attempt": job.attempt,
        "revision": job.revision,
        "created_utc": utc_text(job.created_at),
        "expires_utc": None if answer.expires_at is None else utc_text(answer.expires_at),
    }
    if answer.rule == "J0":
        facts["idempotency"] = "disabled"
    if answer.rule in HITS and answer.ignored:
        facts["ignored_fields"] = list(answer.ignored)
    if answer.alias:
        facts["unique" if answer.alias == ALIAS_UNIQUE else "debounced"] = True
    if not is_done(job):
        return facts, None
    ending = OutcomeAnswer(job, value, policy)
    return {**facts, **ending.facts()}, ending


_QUEUED = JobState.QUEUED.value


def submitted_bytes(answer: JobAdmitted, now_ms: int, *, is_hit: bool) -> bytes:
    """As `submitted`, rendered, for a job that has not ended and was submitted here.

    `is_hit` for a retry; a new job without a delay is queued, whatever the time.
    """
    job = answer.job
    digits = job.id.hex()
    if is_hit:
        is_queued = job.phase == WAITING and job.ready_at <= now_ms  # as most are; the value of an enum takes its time
        state = _QUEUED if is_queued else state_of(job, max(now_ms, job.created_at)).value
        status = "in_progress"
        ignored = f',"ignored_fields":{orjson.dumps(answer.ignored).decode()}' if answer.ignored else ""
    else:
        status, state, ignored = "accepted", _QUEUED, ""
    return (
        f'{{"ok":true,"request_id":"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}",'
        f'"job_id":"job_{digits}","dedup":{"true" if is_hit else "false"},"status":"{status}","state":"{state}",'
        f'"attempt":{job.attempt},"revision":{job.revision},"created_utc":"{utc_text(job.created_at)}",'
        f'"expires_utc":null{ignored}}}'
    ).encode()


_NEW = frozenset({"J1", "J2"})


def many_submitted_bytes(answers: Sequence[JobAdmitted | JobKeyCollision | JobRefused]) -> bytes | None:
    """The answer to many submissions without delays, if all of them are new jobs; otherwise None."""
    told = []
    for answer in answers:
        if not isinstance(answer, JobAdmitted) or answer.rule not in _NEW:
            return None
        told.append(b'{"http":200,' + submitted_bytes(answer, 0, is_hit=False)[1:])
    return b'{"ok":true,"jobs":[%b]}' % b",".join(told)


def collided(answer: JobKeyCollision, draft: JobDraft) -> Refusal:
    """The refusal of a key that was used for another payload."""
    facts = {
        "key_prefix": draft.key_prefix,
        "old_hash_prefix": answer.old_hash.hex()[:8],
        "new_hash_prefix": draft.payload_hash.hex()[:8],
        "job_id": job_name(answer.id),
    }
    return Refusal("jobs:IDEMPOTENCY_KEY_COLLISION", _COLLISION, facts)


def lease_end(job: JobRow, now_ms: int, steady_ms: int) -> int:
    """The end of a lease by the wall clock; corrected only if wall clock and steady time differ by at least STEP_MS."""
    apart_ms = now_ms - steady_ms
    return job.due_at + (apart_ms if abs(apart_ms) >= STEP_MS else 0)


def claimed(answer: JobsClaimed, params: Mapping[bytes, bytes], *, has_waited: bool) -> dict[str, Any]:
    """The answer to a claim; `params` has the large params by job id."""
    jobs = []
    for job, token in answer.leases:
        jobs.append(
            {
                "job_id": job_name(job.id),
                "kind": job.kind.decode(),
                "params": orjson.Fragment(params.get(job.id, job.params)),
                "queue": job.queue.decode(),
                "priority": job.priority,
                "attempt": job.attempt,
                "max_attempts": job.max_attempts,
                "epoch": job.epoch,
                "lease_token": token.hex(),
                "lease_until_utc": utc_text(lease_end(job, answer.now_ms, answer.steady_ms)),
                "lease_ms": job.held_ms,
                "offer_ms": max(0, job.due_at - answer.steady_ms) if job.offered else 0,
                "timeout_ms": job.timeout_at - job.claimed_at if job.timeout_at else 0,
                "cancel_requested": bool(job.cancel),
                "request_id": request_name(job.id),
                "created_utc": utc_text(job.created_at),
                **({"client": orjson.Fragment(job.client)} if job.client else {}),
            }
        )
    defer_ms = 0
    if not jobs:
        defer_ms = SATURATED_DEFER_MS if answer.is_saturated else 0 if has_waited else EMPTY_DEFER_MS
        if answer.token_wait_ms:
            defer_ms = min(EMPTY_DEFER_MS, answer.token_wait_ms)
    return {"ok": True, "jobs": jobs, "defer_ms": defer_ms}


def claimed_bytes(answer: JobsClaimed) -> bytes:
    """As `claimed`, rendered, for a claim that did not wait and got small jobs."""
    if not answer.leases:
        return orjson.dumps(claimed(answer, {}, has_waited=False))
    jobs = []
    for job, token in answer.leases:
        digits = job.id.hex()
        until = lease_end(job, answer.now_ms, answer.steady_ms)
        jobs.append(
            f'{{"job_id":"{job_name(job.id)}","kind":"{job.kind.decode()}","params":{job.params.decode()},'
            f'"queue":{_json_text(job.queue)},"priority":{job.priority},"attempt":{job.attempt},'
            f'"max_attempts":{job.max_attempts},"epoch":{job.epoch},"lease_token":"{token.hex()}",'
            f'"lease_until_utc":"{utc_text(until)}","lease_ms":{job.held_ms},"offer_ms":0,'
            f'"timeout_ms":{job.timeout_at - job.claimed_at if job.timeout_at else 0},'
            f'"cancel_requested":{"true" if job.cancel else "false"},'
            f'"request_id":"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}",'
            f'"created_utc":"{utc_text(job.created_at)}"'
            + (f',"client":{job.client.decode()}}}' if job.client else "}")
        )
    return f'{{"ok":true,"jobs":[{",".join(jobs)}],"defer_ms":0}}'.encode()


@lru_cache(maxsize=256)
def _json_text(name: bytes) -> str:
    """The name of a queue as JSON."""
    return orjson.dumps(name.decode()).decode()


def held(answer: LeaseExtended) -> dict[str, Any]:
    """The answer to a heartbeat."""
    return {"ok": True, "lease_until_utc": utc_text(answer.until_ms), "cancel_requested": answer.is_cancelled}


def reported(answer: JobReported, now_ms: int, *, is_deferral: bool = False) -> dict[str, Any]:
    """The answer to a report or a deferral."""
    job = answer.job
    facts: dict[str, Any] = {"ok": True, "job_id": job_name(job.id), "dedup": answer.dedup}
    if not is_deferral:
        facts["status"] = status_of(job)
        facts["state"] = state_of(job, now_ms).value
    if job.phase == WAITING:
        facts["next_run_utc"] = None if job.ready_at == NEVER else utc_text(job.ready_at)
    if job.phase == DONE:
        facts["result_sha256"] = job.report.hex()
    return facts


def completed_bytes(answer: JobReported) -> bytes:
    """As `reported`, rendered, for a completion that was accepted now."""
    job = answer.job
    return (
        f'{{"ok":true,"job_id":"{job_name(job.id)}","dedup":false,"status":"completed","state":"completed",'
        f'"result_sha256":"{job.report.hex()}"}}'
    ).encode()


def stepped(answer: JobStepResult) -> dict[str, Any]:
    """The answer to a step."""
    facts: dict[str, Any] = {"ok": True, "known": answer.result is not None}
    if answer.result is not None:
        facts |= {"result": orjson.Fragment(answer.result), "dedup": answer.dedup}
    return facts


def brief(job: JobRow, now_ms: int, steady_ms: int) -> dict[str, Any]:
    """A job in a list, without params and result."""
    is_leased = job.phase == LEASED
    return {
        "job_id": job_name(job.id),
        "request_id": request_name(job.id),
        "kind": job.kind.decode(),
        "queue": job.queue.decode(),
        "priority": job.priority,
        "state": state_of(job, now_ms).value,
        "status": status_of(job),
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "epoch": job.epoch,
        "revision": job.revision,
        "deferrals": job.deferrals,
        "lease_sec": job.lease_ms // 1_000,
        "timeout_ms": job.timeout_ms if job.timeout_ms >= 0 else None,
        "created_utc": utc_text(job.created_at),
        "run_at_utc": None if job.ready_at == NEVER else utc_text(job.ready_at),
        "finished_utc": utc_text(job.finished_at) if job.phase == DONE else None,
        "worker_id": job.worker.decode() or None,
        "lease_until_utc": utc_text(lease_end(job, now_ms, steady_ms)) if is_leased else None,
        "cancel_requested": bool(job.cancel),
        "reason": job.reason.decode() or None,
    }


def seen(look: JobDetails, policy: JobPolicy) -> tuple[dict[str, Any], OutcomeAnswer | None]:
    """One job, with all that its owner may see."""
    job = look.job
    errors = [
        {
            "code": error["code"],
            "message": error["message"],
            "attempt": error["attempt"],
            "worker_id": error["worker"] or None,
            "at_utc": utc_text(error["at"]),
        }
        for error in (orjson.loads(job.errors) if job.errors else ())
    ]
    facts = {
        "ok": True,
        **brief(job, look.now_ms, look.steady_ms),
        "params": orjson.Fragment(look.params),
        "expires_utc": None if look.expires_at is None else utc_text(look.expires_at),
        "progress": orjson.Fragment(job.progress) if job.progress else None,
        "errors": errors,
        "client": orjson.Fragment(job.client) if job.client else None,
        **links_facts(job, look.group),
    }
    if not is_done(job):
        return facts, None
    ending = OutcomeAnswer(job, look.result, policy)
    return {**facts, **ending.facts()}, ending


def result(look: JobDetails, signing: JobSigning) -> dict[str, Any] | None:
    """The whole outcome of a job with its checksum; None if the stored bytes do not match their hash."""
    job, value = look.job, look.result
    ok = not job.reason
    if value is None or digest_of(job.id, ok, value) != job.report:
        return None
    return {
        "job_id": job_name(job.id),
        "ok": ok,
        "result" if ok else "error": orjson.Fragment(value),
        "integrity": proof_of(report_bytes(job_name(job.id), ok, value), signing.hmac_key),
    }


def listed(page: JobPage) -> dict[str, Any]:
    """A page of a list."""
    jobs = [brief(job, page.now_ms, page.steady_ms) for job in page.jobs]
    return {"ok": True, "jobs": jobs, "next": None if page.next is None else list_cursor(page.next)}


def dead(letters: Sequence[JobDeadLetter], limit: int, now_ms: int, steady_ms: int) -> dict[str, Any]:
    """A page of dead letters."""
    jobs = []
    for job, error in letters:
        value = error if error is not None and digest_of(job.id, False, error) == job.report else b"null"
        facts = {"attempts": job.attempt, "error": orjson.Fragment(value)}
        jobs.append({**brief(job, now_ms, steady_ms), **facts})
    last = letters[-1].job if len(letters) == limit else None
    return {"ok": True, "jobs": jobs, "next": None if last is None else dead_cursor(last.finished_at, last.id)}


def queue(facts: QueueFacts) -> dict[str, Any]:
    """A queue."""
    return {
        "queue": facts.name.decode(),
        "max_inflight": facts.max_inflight,
        "default_timeout_ms": facts.default_timeout_ms,
        "rate_limit": _rate_limit(facts) if facts.rate.starts else None,
        "inflight": facts.inflight,
        "waiting": facts.waiting,
    }


def _rate_limit(facts: QueueFacts) -> dict[str, int]:
    return {"count": facts.rate.starts, "per_ms": facts.rate.per_ms, "left": facts.starts_left}


def schedule(row: JobScheduleRow) -> dict[str, Any]:
    """A schedule."""
    return {
        "name": row.name.decode(),
        "cron": row.cron.decode(),
        "time_zone": row.time_zone.decode() or "UTC",
        "kind": row.kind.decode(),
        "params": orjson.Fragment(row.params),
        "queue": row.queue.decode(),
        "priority": row.priority,
        "max_attempts": row.max_attempts or None,
        "catch_up": row.catch_up.decode(),
        "paused": bool(row.paused),
        "principal": row.owner.decode(),
        "last_instant": utc_text(row.last_fired) if row.last_fired else None,
        "next_instant": None if row.next_at == NEVER else _next_instant(row),
    }


def _next_instant(row: JobScheduleRow) -> str | None:
    following = next_after(parse(row.cron.decode(), row.time_zone.decode()), row.last_instant)
    return None if following is None else utc_text(following)
