"""The HTTP operations of the server itself, declared for the OpenAPI document."""

from __future__ import annotations

from semel.server.openapi.operation import (
    ANY,
    BYTES,
    COUNT,
    FLAG,
    OBJECT,
    PROBLEM_FORM,
    TEXT,
    HttpAccess,
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

NUMBER: Schema = {"type": "number"}
_SHELL = errors("FORBIDDEN_ORIGIN", "METHOD_NOT_ALLOWED", "INTERNAL_ERROR")
_ADMITTED = _SHELL + errors("UNAUTHORIZED", "UNAVAILABLE", "QUOTA_EXCEEDED")
HEALTH = NamedSchema("Health", record({"status": TEXT}))
_READY = (HttpSuccess(200, "A write sent now would be taken.", HEALTH), HttpSuccess(503, "Not now.", HEALTH))
_ALIVE = (HttpSuccess(200, "The process answers.", HEALTH),)


def _open(name: str, path: str, about: str, successes: tuple[HttpSuccess, ...]) -> HttpOperation:
    return HttpOperation(
        name, "GET", path, about, successes, _SHELL, PROBLEM_FORM, access=HttpAccess.OPEN, has_head=True
    )


def _asked(name: str, path: str, about: str, role: str, schema: NamedSchema) -> HttpOperation:
    """An operation that reads, with a credential; one of administrators is on the control listener."""
    more = errors("FORBIDDEN", "WRONG_PLANE") if role == "admin" else ()
    success = (HttpSuccess(200, about, schema),)
    return HttpOperation(name, "GET", path, about, success, _ADMITTED + more, PROBLEM_FORM, role=role, has_head=True)


_COUNTS: Schema = {"type": "object", "additionalProperties": COUNT}
LIVE = NamedSchema(
    "LiveCounts",
    record(
        {
            "now_ms": COUNT,
            "started_ms": COUNT,
            "version": TEXT,
            "namespace": TEXT,
            "ready": TEXT,
            "writes": {"type": "object", "additionalProperties": _COUNTS},
            "doubles_prevented": COUNT,
            "commits": _COUNTS,
            "commit_seconds": record({"bounds": list_of(NUMBER), "counts": list_of(COUNT), "sum": NUMBER}),
            "queue": record({"writes": COUNT, "bytes": COUNT, "oldest_seconds": NUMBER}),
            "live_readers": COUNT,
            "connections": COUNT,
        }
    ),
)
CALLER = NamedSchema(
    "Caller",
    record(
        {
            "name": TEXT,
            "actor": TEXT,
            "roles": list_of(TEXT),
            "has_scopes": FLAG,
            "needs_token": FLAG,
            "expires_ms": nullable("integer"),
            "namespace": TEXT,
            "version": TEXT,
        }
    ),
)
_SETTING = record({"name": TEXT, "value": ANY, "origin": TEXT, "place": TEXT, "default": ANY, "about": TEXT})
SETTINGS = NamedSchema("Settings", record({"settings": list_of(_SETTING)}))
AUDIT = NamedSchema("AuditLines", record({"lines": list_of(record({"ts": TEXT, "event": TEXT, "details": OBJECT}))}))

_METRICS = (
    HttpSuccess(200, "The metrics.", OBJECT),
    HttpSuccess(200, "The metrics.", TEXT, ("text/plain", "application/openmetrics-text")),
)
_DOCUMENT = (
    HttpSuccess(200, "The document.", OBJECT, headers=("ETag",)),
    HttpSuccess(304, "The copy of the client still holds."),
)

OPERATIONS = (
    _open("livez", "/livez", "Whether the process answers.", _ALIVE),
    _open("health", "/health", "The same as `/livez`.", _ALIVE),
    _open("readyz", "/readyz", "Whether a write sent now would be taken.", _READY),
    _open("ready", "/ready", "The same as `/readyz`.", _READY),
    _open("openapi", "/openapi.json", "This document.", _DOCUMENT)._replace(
        parameters=(HttpParameter("If-None-Match", "header", "An ETag that the client has.", TEXT),)
    ),
    HttpOperation(
        "metrics",
        "GET",
        "/metrics",
        "The metrics, as JSON or for Prometheus.",
        _METRICS,
        _ADMITTED,
        PROBLEM_FORM,
        role="any",
        has_head=True,
    ),
    _asked("live", "/v1/live", "Counts, commit times and the queue right now, from memory.", "any", LIVE),
    _asked("caller", "/v1/caller", "The name and the roles of the caller.", "any", CALLER),
    _asked("settings", "/v1/settings", "Every setting with its value and its origin.", "admin", SETTINGS),
    _asked("audit", "/v1/audit", "The latest lines of the audit log, newest first.", "admin", AUDIT)._replace(
        parameters=(
            HttpParameter("limit", "query", "The most lines; 100 if it is not given.", whole(1, 500)),
            HttpParameter("event", "query", "Only lines of this event.", text(0, 64)),
        )
    ),
    HttpOperation(
        "diagnose",
        "GET",
        "/v1/diagnose",
        "A diagnosis as a zip file.",
        (HttpSuccess(200, "The file.", BYTES, ("application/zip",)),),
        _ADMITTED + errors("FORBIDDEN", "WRONG_PLANE", "OVERLOADED"),
        PROBLEM_FORM,
        role="admin",
        has_head=True,
    ),
)
