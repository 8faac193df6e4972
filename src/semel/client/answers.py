"""Answers of the jobs surface as values: the server's JSON, validated.

A missing member raises `BadAnswerError`; unknown members are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from semel.client import integrity
from semel.client.errors import BadAnswerError
from semel.client.values import (
    Beat,
    Cancellation,
    Claimed,
    JobInfo,
    Lease,
    Outcome,
    QueueInfo,
    Reported,
    Step,
    Submitted,
)
from semel.kernel.clock import utc_ms
from semel.kernel.json.canonical import Json, JsonError, JsonKind, parse

Facts = Mapping[str, Any]
T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def members(body: bytes) -> dict[str, Json]:
    """The JSON object of an answer's body. Raises ValueError for anything else."""
    value = _parsed(body)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def _parsed(body: bytes) -> Json:
    try:
        return parse(body)
    except JsonError as error:
        if error.kind is not JsonKind.DEPTH:
            raise
    # Params of the allowed depth are a few levels deeper in an answer.
    try:
        value: Json = json.loads(body)
    except RecursionError:
        raise ValueError("nested too deep") from None
    return value


def read(make: Callable[[], T]) -> T:
    """Parse an answer. Raises `BadAnswerError` if it is incomplete."""
    try:
        return make()
    except (KeyError, TypeError, ValueError) as error:
        raise BadAnswerError(f"The server's answer is incomplete ({type(error).__name__}: {error}).") from None


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


def job_info(facts: Facts) -> JobInfo:
    """Parse the state of a job."""
    return JobInfo(
        job_id=str(facts["job_id"]),
        request_id=str(facts["request_id"]),
        kind=str(facts["kind"]),
        params=dict(facts["params"]),
        queue=str(facts["queue"]),
        priority=int(facts["priority"]),
        state=facts["state"],
        status=facts["status"],
        attempt=int(facts["attempt"]),
        max_attempts=int(facts["max_attempts"]),
        revision=int(facts["revision"]),
        created=_instant(facts["created_utc"]),
        finished=_maybe(facts.get("finished_utc")),
        progress=facts.get("progress"),
        cancel_requested=bool(facts.get("cancel_requested")),
        reason=facts.get("reason"),
        outcome=_cached(facts),
        facts=facts,
    )


def queue_info(facts: Facts) -> QueueInfo:
    """Parse the state of a queue."""
    return QueueInfo(
        name=str(facts["queue"]),
        max_inflight=int(facts["max_inflight"]),
        default_timeout=int(facts["default_timeout_ms"]) / 1_000,
        inflight=int(facts["inflight"]),
        waiting=int(facts["waiting"]),
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
    return Reported(facts.get("status"), bool(facts.get("dedup")), _maybe(facts.get("next_run_utc")), facts)


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
    return Outcome(job_id, ok, value if ok else None, None if ok else value, checked.sha256, checked.is_signed)


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
    )


def _maybe(text: str | None) -> datetime | None:
    return None if text is None else _instant(text)


def _instant(text: str) -> datetime:
    return _EPOCH + timedelta(milliseconds=utc_ms(text))
