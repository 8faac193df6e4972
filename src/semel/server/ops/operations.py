"""The HTTP operations of the server itself, declared for the OpenAPI document."""

from __future__ import annotations

from semel.server.openapi.operation import (
    BYTES,
    OBJECT,
    PROBLEM_FORM,
    TEXT,
    HttpAccess,
    HttpOperation,
    HttpParameter,
    HttpSuccess,
    NamedSchema,
    errors,
    record,
)

_SHELL = errors("FORBIDDEN_ORIGIN", "METHOD_NOT_ALLOWED", "INTERNAL_ERROR")
_ADMITTED = _SHELL + errors("UNAUTHORIZED", "UNAVAILABLE", "QUOTA_EXCEEDED")
HEALTH = NamedSchema("Health", record({"status": TEXT}))
_READY = (HttpSuccess(200, "A write sent now would be taken.", HEALTH), HttpSuccess(503, "Not now.", HEALTH))
_ALIVE = (HttpSuccess(200, "The process answers.", HEALTH),)


def _open(name: str, path: str, about: str, successes: tuple[HttpSuccess, ...]) -> HttpOperation:
    return HttpOperation(
        name, "GET", path, about, successes, _SHELL, PROBLEM_FORM, access=HttpAccess.OPEN, has_head=True
    )


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
