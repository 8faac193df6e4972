"""The HTTP operations of keys and values, declared for the OpenAPI document."""

from __future__ import annotations

from semel.server.openapi.operation import (
    BYTES,
    PROBLEM_FORM,
    TEXT,
    HttpBody,
    HttpOperation,
    HttpParameter,
    HttpSuccess,
    errors,
    text,
)

_PATH = "/v1/kv/{name}"
_OCTETS = ("application/octet-stream",)
_SHELL = errors(
    "INVALID_REQUEST", "UNAUTHORIZED", "FORBIDDEN", "FORBIDDEN_ORIGIN", "METHOD_NOT_ALLOWED", "INTERNAL_ERROR"
)
_NAME = HttpParameter("name", "path", "The name.", text(1, 256))

OPERATIONS = (
    HttpOperation(
        "getValue",
        "GET",
        _PATH,
        "Read a value.",
        (HttpSuccess(200, "The value.", BYTES, _OCTETS, ("ETag",)),),
        _SHELL + errors("NOT_FOUND", "UNAVAILABLE"),
        PROBLEM_FORM,
        (_NAME,),
        role="read",
        has_head=True,
    ),
    HttpOperation(
        "putValue",
        "PUT",
        _PATH,
        "Set a value.",
        (HttpSuccess(204, "Stored, or stored before.", headers=("ETag", "Idempotency-Replayed")),),
        _SHELL
        + errors("PRECONDITION_FAILED", "IDEMPOTENCY_MISMATCH", "INVALID_IDEMPOTENCY_KEY", "PAYLOAD_TOO_LARGE")
        + errors("OVERLOADED", "NOT_STORED", "OUTCOME_UNKNOWN"),
        PROBLEM_FORM,
        (_NAME, *(HttpParameter(name, "header", "", TEXT) for name in ("Idempotency-Key", "If-Match"))),
        HttpBody(BYTES, _OCTETS, is_required=False),
        role="write",
    ),
)
