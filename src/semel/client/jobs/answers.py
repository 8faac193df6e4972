"""Answers of the jobs surface as values: the server's JSON, validated.

A missing member raises `BadAnswerError`; unknown members are ignored.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from semel.client.jobs import integrity
from semel.client.jobs.values import (
    Beat,
    Cancellation,
    Claimed,
    DeadJob,
    JobInfo,
    JobListing,
    JobMember,
    JobSummary,
    Lease,
    Outcome,
    QueueInfo,
    QueueRate,
    Reported,
    ScheduleInfo,
    Step,
    Submitted,
)
from semel.client.json_answer import Facts
from semel.kernel.clock import utc_ms

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def confirmed(facts: Facts) -> None:
    """Parse an answer that tells no more than that the request was carried out."""
    if facts["ok"] is not True:
        raise ValueError("ok")


def submitted(facts: Facts, key: str) -> Submitted:
    """Parse the answer to a submission."""
    return Submitted(
        job_id=str(facts["job_id"]),
        request_id=str(facts["request_id"]),
        key=key,
        dedup=bool(facts["dedup"]),
        status=facts["status"],
        state=facts["state"],
        attempt=int(facts["attempt"]),
        revision=int(facts["revision"]),
        created=_instant(facts["created_utc"]),
        expires=_maybe(facts.get("expires_utc")),
        outcome=_cached(facts),
        facts=facts,
    )


def _summary(facts: Facts) -> dict[str, Any]:
    """The members that a job has in every list."""
    return {
        "job_id": str(facts["job_id"]),
        "request_id": str(facts["request_id"]),
        "kind": str(facts["kind"]),
        "queue": str(facts["queue"]),
        "priority": int(facts["priority"]),
        "state": facts["state"],
        "status": facts["status"],
        "attempt": int(facts["attempt"]),
        "max_attempts": int(facts["max_attempts"]),
        "revision": int(facts["revision"]),
        "created": _instant(facts["created_utc"]),
        "finished": _maybe(facts.get("finished_utc")),
        "cancel_requested": bool(facts.get("cancel_requested")),
        "reason": facts.get("reason"),
        "facts": facts,
    }


def job_info(facts: Facts) -> JobInfo:
    """Parse the state of a job."""
    params = dict(facts["params"])
    return JobInfo(**_summary(facts), params=params, progress=facts.get("progress"), outcome=_cached(facts))


def job_summary(facts: Facts) -> JobSummary:
    """Parse a job without its params."""
    return JobSummary(**_summary(facts))


def listing(facts: Facts) -> JobListing[JobSummary]:
    """Parse a page of jobs."""
    return JobListing([job_summary(one) for one in facts["jobs"]], _cursor(facts))


def dead_listing(facts: Facts) -> JobListing[DeadJob]:
    """Parse a page of dead letters."""
    return JobListing([DeadJob(**_summary(one), error=one["error"]) for one in facts["jobs"]], _cursor(facts))


def member_listing(facts: Facts) -> JobListing[JobMember]:
    """Parse a page of the members of a group, or of the children of a job."""
    members = [JobMember(str(one["job_id"]), one["name"], one["state"], one["reason"]) for one in facts["members"]]
    return JobListing(members, _cursor(facts))


def _cursor(facts: Facts) -> str | None:
    return None if facts["next"] is None else str(facts["next"])


def schedule_info(facts: Facts) -> ScheduleInfo:
    """Parse a schedule."""
    return ScheduleInfo(
        name=str(facts["name"]),
        cron=str(facts["cron"]),
        time_zone=str(facts["time_zone"]),
        kind=str(facts["kind"]),
        params=dict(facts["params"]),
        queue=str(facts["queue"]),
        priority=int(facts["priority"]),
        max_attempts=facts["max_attempts"],
        catch_up=facts["catch_up"],
        paused=bool(facts["paused"]),
        principal=str(facts["principal"]),
        last_instant=_maybe(facts["last_instant"]),
        next_instant=_maybe(facts["next_instant"]),
        facts=facts,
    )


def queue_info(facts: Facts) -> QueueInfo:
    """Parse the state of a queue."""
    rate = facts.get("rate_limit")
    return QueueInfo(
        name=str(facts["queue"]),
        max_inflight=int(facts["max_inflight"]),
        default_timeout=int(facts["default_timeout_ms"]) / 1_000,
        inflight=int(facts["inflight"]),
        waiting=int(facts["waiting"]),
        rate=None if rate is None else QueueRate(int(rate["count"]), int(rate["per_ms"]) / 1_000),
        rate_left=None if rate is None else int(rate["left"]),
        facts=facts,
    )


def outcome(facts: Facts, hmac_key: bytes | None) -> Outcome:
    """The verified outcome of a job's result URL."""
    return _outcome(str(facts["job_id"]), facts, facts["integrity"], hmac_key)


def cancelled(facts: Facts) -> Cancellation:
    """The answer to a cancellation."""
    return Cancellation(facts["state"], bool(facts["cancel_requested"]), facts)


def claimed(facts: Facts) -> Claimed:
    """Parse the leases of a claim."""
    return Claimed(tuple(_lease(one) for one in facts["jobs"]), int(facts["defer_ms"]) / 1_000)


def beat(facts: Facts) -> Beat:
    """The answer to a heartbeat."""
    return Beat(_instant(facts["lease_until_utc"]), bool(facts["cancel_requested"]))


def reported(facts: Facts) -> Reported:
    """The answer to the report of a run."""
    confirmed(facts)
    return Reported(facts.get("status"), bool(facts["dedup"]), _maybe(facts.get("next_run_utc")), facts)


def step(facts: Facts) -> Step:
    """Parse the stored result of a step."""
    return Step(bool(facts["known"]), facts.get("result"), bool(facts.get("dedup")))


def _cached(facts: Facts) -> Outcome | None:
    cached = facts.get("cached_result")
    if cached is None:
        return None
    return _outcome(str(facts["job_id"]), cached, {"sha256": facts["result_sha256"]}, None)


def _outcome(job_id: str, facts: Facts, given: Facts, hmac_key: bytes | None) -> Outcome:
    ok = facts["ok"] is True
    value = facts["result" if ok else "error"]
    checked = integrity.check(job_id, ok, value, given, hmac_key)
    return Outcome(job_id, ok, value if ok else None, None if ok else value, checked.sha256, checked.is_signed, facts)


def _lease(facts: Facts) -> Lease:
    return Lease(
        job_id=str(facts["job_id"]),
        request_id=str(facts["request_id"]),
        kind=str(facts["kind"]),
        params=dict(facts["params"]),
        queue=str(facts["queue"]),
        priority=int(facts["priority"]),
        attempt=int(facts["attempt"]),
        max_attempts=int(facts["max_attempts"]),
        epoch=int(facts["epoch"]),
        token=str(facts["lease_token"]),
        lease_ms=int(facts["lease_ms"]),
        until=_instant(facts["lease_until_utc"]),
        created=_instant(facts["created_utc"]),
        timeout_ms=int(facts.get("timeout_ms", 0)),
        offer_ms=int(facts.get("offer_ms", 0)),
        client=facts.get("client"),
    )


def _maybe(text: str | None) -> datetime | None:
    return None if text is None else _instant(text)


def _instant(text: str) -> datetime:
    return _EPOCH + timedelta(milliseconds=utc_ms(text))
