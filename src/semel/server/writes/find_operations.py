"""The HTTP operations of look-ups of writes, declared for the OpenAPI document."""

from __future__ import annotations

from semel.server.openapi.operation import (
    COUNT,
    FLAG,
    PROBLEM_FORM,
    TEXT,
    HttpBody,
    HttpOperation,
    HttpParameter,
    HttpSuccess,
    NamedSchema,
    errors,
    list_of,
    nullable,
    record,
    text,
)
from semel.server.writes.lookup import MAX_ID_BYTES, MAX_MATCHES, MAX_PLACE_BYTES

_ERRORS = errors(
    "UNAUTHORIZED",
    "FORBIDDEN_ORIGIN",
    "INVALID_REQUEST",
    "METHOD_NOT_ALLOWED",
    "INTERNAL_ERROR",
    "OVERLOADED",
    "UNAVAILABLE",
    "QUOTA_EXCEEDED",
)
_TIME: dict[str, object] = {"type": ["string", "null"], "format": "date-time"}
_IDENTITY = text(1, MAX_ID_BYTES, description="Any identity of a write: a key, an id, a sequence or a name.")
_PLACE = text(1, MAX_PLACE_BYTES, description="The stream, partition, principal, organization or gateway to look in.")
_RETRY = record({"at": _TIME, "principal": nullable("string"), "address": nullable("string")})
_LIFE = NamedSchema(
    "WriteLife",
    record(
        {
            "surface": TEXT,
            "identity": TEXT,
            "in": nullable("string"),
            "first": record({"at": _TIME, "principal": nullable("string"), "verdict": TEXT}),
            "effect": record({"kind": TEXT, "path": nullable("string")}),
            "answer": {"type": ["object", "null"]},
            "retries": record({"count": COUNT, "last": list_of(_RETRY, 0, 16)}),
            "expires_at": _TIME,
        }
    ),
)
_LIVES = NamedSchema(
    "WriteLives",
    record(
        {
            "id": TEXT,
            "in": nullable("string"),
            "writes": list_of(_LIFE, 0, MAX_MATCHES),
            "complete": FLAG,
            "hint": nullable("string"),
        }
    ),
)
_FOUND = (HttpSuccess(200, "The writes that the caller may read; an empty list if there is none.", _LIVES),)
_ASKED = NamedSchema("WriteLookup", record({"id": _IDENTITY}, {"in": _PLACE}))

OPERATIONS = (
    HttpOperation(
        "getWrite",
        "GET",
        "/v1/writes/{id}",
        "The life of a write, by any of its identities.",
        _FOUND,
        _ERRORS,
        PROBLEM_FORM,
        (
            HttpParameter("id", "path", "The identity, percent-encoded.", _IDENTITY, is_required=True),
            HttpParameter("in", "query", "Where to look.", _PLACE),
        ),
        role="any",
        has_head=True,
    ),
    HttpOperation(
        "findWrite",
        "POST",
        "/v1/writes/find",
        "The same, for an identity that belongs in no URL.",
        _FOUND,
        _ERRORS + errors("PAYLOAD_TOO_LARGE", "REQUEST_TIMEOUT"),
        PROBLEM_FORM,
        body=HttpBody(_ASKED),
        role="any",
    ),
)
