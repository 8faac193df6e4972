"""The HTTP operations of jobs and of the mesh dialect, declared for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping

from semel.server.openapi.operation import (
    ANY,
    COUNT,
    FLAG,
    OBJECT,
    TEXT,
    AnySchema,
    ErrorForm,
    HttpBody,
    HttpOperation,
    HttpParameter,
    HttpSuccess,
    NamedSchema,
    Schema,
    errors,
    list_of,
    nullable,
    record,
    text,
    whole,
)

JOBS_FORM = ErrorForm("application/json", NamedSchema("JobError", record({"ok": FLAG, "error": TEXT, "message": TEXT})))
_YEAR_MS, _DAY_MS, _WEEK_MS = 31_536_000_000, 86_400_000, 604_800_000
_STATES = {"enum": ["scheduled", "queued", "leased", "completed", "failed"]}
_KIND = text(1, 128, pattern="^[A-Za-z0-9_.:-]+$")
_TOKEN = text(1, 128)
_SHELL = errors(
    "jobs:quota_exceeded",
    "jobs:invalid_request",
    "jobs:unauthorized",
    "jobs:forbidden",
    "jobs:forbidden_origin",
    "jobs:not_found",
    "jobs:method_not_allowed",
    "jobs:wrong_plane",
    "jobs:internal_error",
    "jobs:overloaded",
    "jobs:not_stored",
)
_BODY = errors("jobs:too_large", "jobs:unsupported_media_type")
_WRITE = errors("jobs:not_durable", "jobs:shutting_down")
_ROOM = errors(
    "jobs:backpressure",
    ("jobs:backpressure", 503),
    "jobs:idempotency_store_full",
    ("jobs:idempotency_store_full", 503),
)
_SUBMIT = _ROOM + errors(
    "jobs:idempotency_key_mismatch", "jobs:IDEMPOTENCY_KEY_COLLISION", "jobs:group_closed", "jobs:lease_lost"
)
_LEASE = errors("jobs:lease_lost", "jobs:lease_required", "jobs:result_conflict")
_RESULT = errors("jobs:integrity_missing", "jobs:result_integrity_fail")

SUBMISSION = NamedSchema(
    "JobSubmission",
    record(
        {"kind": _KIND},
        {
            "params": OBJECT,
            "idempotency_key": {"type": ["string", "null"], "minLength": 1, "maxLength": 256},
            "generated_key": {"type": ["boolean", "null"]},
            "queue": text(1, 64),
            "priority": {"anyOf": [whole(0, 9), {"enum": ["critical", "high", "normal", "low"]}]},
            "delay_ms": whole(0, _YEAR_MS),
            "run_at": TEXT,
            "max_attempts": whole(1, 100),
            "lease_sec": whole(1, 86_400),
            "timeout_ms": whole(0, _WEEK_MS),
            "on_failed": {"enum": ["return", "retry"]},
            "join": record({}, {"size": whole(1, 10_000), "on_failure": {"enum": ["wait", "cancel"]}}),
            "group": TEXT,
            "parent": record({"job_id": TEXT, "lease_token": TEXT, "name": text(1, 128)}),
            "unique": record({}, {"key": text(1, 256), "for_ms": whole(1, 2_678_400_000), "states": list_of(_STATES)}),
            "debounce": record({"key": text(1, 256), "delay_ms": whole(1, _YEAR_MS)}, {"max_ms": whole(1, _YEAR_MS)}),
            "client": OBJECT,
            "wait_ms": whole(0, 30_000),
        },
    ),
)
SUBMITTED = NamedSchema(
    "JobSubmitted",
    record(
        {
            "ok": FLAG,
            "job_id": TEXT,
            "request_id": TEXT,
            "dedup": FLAG,
            "status": {"enum": ["accepted", "in_progress", "completed", "failed"]},
            "state": _STATES,
            "attempt": COUNT,
            "revision": COUNT,
            "created_utc": TEXT,
            "expires_utc": nullable("string"),
        }
    ),
)
JOB = NamedSchema(
    "Job",
    record({"job_id": TEXT, "request_id": TEXT, "kind": TEXT, "queue": TEXT, "state": _STATES, "status": TEXT}),
)
CLAIM = NamedSchema(
    "JobClaim",
    record(
        {"worker_id": text(1, 128)},
        {
            "max": whole(1, 100),
            "kinds": list_of(_KIND, 1, 100),
            "queues": list_of(text(1, 64), 1, 100),
            "wait_ms": whole(0, 30_000),
            "lease_sec": whole(1, 86_400),
            "claim_id": text(1, 64),
        },
    ),
)
_OFFER = record({"job_id": TEXT, "kind": TEXT, "params": OBJECT, "queue": TEXT, "lease_token": TEXT, "epoch": COUNT})
_CLAIMED = record({"ok": FLAG, "jobs": list_of(_OFFER), "defer_ms": COUNT})
_INTEGRITY = record({"sha256": text(64, 64)}, {"mode": {"enum": ["sha256", "hmac"]}, "sig": text(64, 64)})
_ERROR = record({"code": text(1, 128)}, {"message": TEXT})
_LISTED = record({"ok": FLAG, "jobs": list_of(JOB), "next": nullable("string")})
_REPORTED = record({"ok": FLAG, "job_id": TEXT, "dedup": FLAG})
_RATE = {"anyOf": [{"type": "null"}, record({"count": whole(1, 1_000_000), "per_ms": whole(1, _DAY_MS)})]}
QUEUE = NamedSchema("JobQueue", record({"queue": TEXT, "max_inflight": COUNT, "inflight": COUNT, "waiting": COUNT}))
SCHEDULE = NamedSchema(
    "JobSchedule",
    record(
        {"cron": text(1, 1_000), "kind": _KIND},
        {
            "time_zone": TEXT,
            "params": OBJECT,
            "queue": text(1, 64),
            "priority": {"anyOf": [whole(0, 9), {"enum": ["critical", "high", "normal", "low"]}]},
            "max_attempts": whole(1, 100),
            "catch_up": {"enum": ["last", "all", "none"]},
            "paused": FLAG,
        },
    ),
)
_JOB_ID = HttpParameter("job_id", "path", "The id of the job.", text(5, 64, pattern="^job_[0-9A-Za-z]+$"))
_AFTER = HttpParameter("after", "query", "The `next` of the page before.", TEXT)
_LIMIT = HttpParameter("limit", "query", "How many; 100 if absent.", whole(1, 1_000))
_WAIT = HttpParameter("wait_ms", "query", "Wait for the end of the job.", whole(0, 30_000))
_KEY = HttpParameter("Idempotency-Key", "header", "The key, instead of the member.", text(1, 256))


def _ok(about: str, schema: AnySchema, status: int = 200) -> HttpSuccess:
    return HttpSuccess(status, about, schema)


def _post(name: str, path: str, about: str, success: HttpSuccess, body: AnySchema, role: str) -> HttpOperation:
    listed = _SHELL + _BODY + _WRITE
    return HttpOperation(name, "POST", path, about, (success,), listed, JOBS_FORM, (), HttpBody(body), role=role)


def _get(
    name: str, path: str, about: str, schema: AnySchema, role: str, parameters: tuple[HttpParameter, ...] = ()
) -> HttpOperation:
    success = (_ok("Found.", schema),)
    return HttpOperation(
        name, "GET", path, about, success, _SHELL, JOBS_FORM, parameters, None, role=role, has_head=True
    )


def _of_a_job(
    name: str, word: str, about: str, schema: Schema, body: Mapping[str, AnySchema], role: str
) -> HttpOperation:
    required = {member: shape for member, shape in body.items() if member in _REQUIRED}
    optional = {member: shape for member, shape in body.items() if member not in _REQUIRED}
    path = f"/v1/jobs/{{job_id}}/{word}"
    made = _post(name, path, about, _ok("Done.", schema), record(required, optional), role)
    return made._replace(parameters=(_JOB_ID,))


_REQUIRED = {"lease_token", "result", "error", "step_key"}
_REPORTS = tuple(
    one._replace(errors=one.errors + _LEASE + more)
    for one, more in (
        (
            _of_a_job(
                "heartbeat",
                "heartbeat",
                "Hold a lease.",
                record({"ok": FLAG, "lease_until_utc": TEXT, "cancel_requested": FLAG}),
                {"lease_token": _TOKEN, "progress": ANY},
                "work",
            ),
            (),
        ),
        (
            _of_a_job(
                "completeJob",
                "complete",
                "Report a result.",
                _REPORTED,
                {"lease_token": _TOKEN, "result": ANY, "integrity": _INTEGRITY},
                "work",
            ),
            _RESULT,
        ),
        (
            _of_a_job(
                "failJob",
                "fail",
                "Report an error.",
                _REPORTED,
                {
                    "lease_token": _TOKEN,
                    "error": _ERROR,
                    "retryable": FLAG,
                    "retry_after_ms": whole(0, _DAY_MS),
                    "integrity": _INTEGRITY,
                },
                "work",
            ),
            _RESULT,
        ),
        (
            _of_a_job(
                "deferJob",
                "defer",
                "Give a job back, uncharged.",
                _REPORTED,
                {
                    "lease_token": _TOKEN,
                    "delay_ms": whole(0, _DAY_MS),
                    "reason": text(0, 256),
                    "wait_children": FLAG,
                },
                "work",
            ),
            (),
        ),
        (
            _of_a_job(
                "jobStep",
                "steps",
                "Read or store the result of a step.",
                record({"ok": FLAG, "known": FLAG}),
                {"lease_token": _TOKEN, "step_key": text(1, 256)},
                "work",
            ),
            (),
        ),
    )
)
_ORDERS = (
    _of_a_job("cancelJob", "cancel", "Cancel a job.", OBJECT, {"force": FLAG, "members": FLAG}, "write"),
    _of_a_job("closeGroup", "close", "Close the group of a join.", OBJECT, {}, "write"),
    _of_a_job("requeueJob", "requeue", "Run a failed job again.", OBJECT, {}, "admin"),
)
_MESH_RESULT = record(
    {"job_id": TEXT, "ok": FLAG},
    {"lease_token": _TOKEN, "result": ANY, "error": {"anyOf": [TEXT, _ERROR]}, "integrity": _INTEGRITY},
)


def _submits(name: str, path: str) -> HttpOperation:
    made = _post(name, path, "Submit a job.", _ok("Submitted, or found.", SUBMITTED), SUBMISSION, "write")
    return made._replace(errors=made.errors + _SUBMIT, parameters=(_KEY,))


def _mesh_results(name: str, path: str) -> HttpOperation:
    made = _post(name, path, "Report a result or an error.", _ok("Done.", OBJECT), _MESH_RESULT, "work")
    return made._replace(errors=made.errors + _LEASE + _RESULT)


def _things(name: str, path: str, word: str, schema: AnySchema, body: AnySchema) -> tuple[HttpOperation, ...]:
    parameter = HttpParameter(word, "path", "Its name.", text(1, 128))
    shown = _get(f"get{name}", path, "Show it.", schema, "admin", (parameter,))
    put = _post(f"put{name}", path, "Set it.", _ok("Set.", schema), body, "admin")
    made = put.successes if name == "Queue" else (*put.successes, _ok("Created.", schema, 201))
    removed = HttpOperation(
        f"delete{name}",
        "DELETE",
        path,
        "Remove it.",
        (_ok("Removed.", OBJECT),),
        _SHELL + _BODY + _WRITE,
        JOBS_FORM,
        (parameter,),
        role="admin",
    )
    return shown, put._replace(method="PUT", successes=made, parameters=(parameter,)), removed


_QUEUE_DRAFT = record(
    {}, {"max_inflight": whole(0, 1_000_000), "default_timeout_ms": whole(0, _WEEK_MS), "rate_limit": _RATE}
)
_BATCH = _post(
    "submitJobs",
    "/v1/jobs/batch",
    "Submit many jobs; each is judged by itself.",
    _ok("One entry each.", record({"ok": FLAG, "jobs": list_of(record({"http": COUNT}))})),
    record({"jobs": list_of(SUBMISSION, 1, 100)}),
    "write",
)
_LOOKUP = _post(
    "lookupJob",
    "/v1/jobs/lookup",
    "Find a job by key or request id.",
    _ok("The job.", JOB),
    record({}, {"idempotency_key": text(1, 256), "request_id": TEXT, "principal": TEXT}),
    "read",
)
_RELEASE = _post(
    "releaseKey",
    "/v1/jobs/keys/release",
    "Forget a key.",
    _ok("Forgotten.", OBJECT),
    record({"principal": TEXT, "idempotency_key": text(1, 256)}, {"force": FLAG}),
    "admin",
)
_FILTERS = (
    HttpParameter("state", "query", "Only jobs in this state.", _STATES),
    HttpParameter("queue", "query", "Only jobs of this queue.", text(1, 64)),
    HttpParameter("kind", "query", "Only jobs of this kind.", _KIND),
)

OPERATIONS = (
    _submits("submitJob", "/v1/jobs"),
    _BATCH._replace(errors=_BATCH.errors + _SUBMIT),
    _get("listJobs", "/v1/jobs", "List jobs, newest first.", _LISTED, "read", (*_FILTERS, _AFTER, _LIMIT)),
    _LOOKUP,
    _post("claimJobs", "/v1/jobs/claim", "Claim jobs.", _ok("Leases.", _CLAIMED), CLAIM, "work"),
    _get("listDeadLetters", "/v1/jobs/dead", "List dead letters.", _LISTED, "admin", (_AFTER, _LIMIT)),
    _RELEASE._replace(errors=_RELEASE.errors + errors("jobs:job_active")),
    _get("listQueues", "/v1/jobs/queues", "List queues.", record({"queues": list_of(QUEUE)}), "admin"),
    *_things("Queue", "/v1/jobs/queues/{queue}", "queue", QUEUE, _QUEUE_DRAFT),
    _get("listSchedules", "/v1/jobs/schedules", "List schedules.", OBJECT, "admin"),
    *_things("Schedule", "/v1/jobs/schedules/{name}", "name", OBJECT, SCHEDULE),
    _get(
        "getJob", "/v1/jobs/{job_id}", "Read a job.", JOB, "read; work for one that the caller holds", (_JOB_ID, _WAIT)
    ),
    _get("getJobResult", "/v1/jobs/{job_id}/result", "Read the outcome whole.", OBJECT, "read", (_JOB_ID,))._replace(
        errors=_SHELL + errors(("jobs:result_integrity_fail", 500))
    ),
    _get(
        "listMembers",
        "/v1/jobs/{job_id}/members",
        "The jobs that a job waits for.",
        OBJECT,
        "read",
        (_JOB_ID, _AFTER, _LIMIT),
    ),
    *(one._replace(errors=one.errors + _ROOM + errors("jobs:job_active")) for one in _ORDERS),
    *_REPORTS,
    _submits("meshSubmit", "/mesh/submit_request"),
    _post("meshPull", "/mesh/pull_requests", "Claim jobs.", _ok("Leases.", _CLAIMED), CLAIM, "work"),
    _mesh_results("meshResult", "/mesh/results/submit"),
    _mesh_results("meshResultOld", "/mesh/submit_result"),
)
