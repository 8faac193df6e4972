"""The HTTP operations of stored tokens, declared for the OpenAPI document."""

from __future__ import annotations

from semel.server.auth.token_wire import MAX_NAME, MAX_OVERLAP_MS, MAX_SCOPE, MAX_SCOPES
from semel.server.openapi.operation import (
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
    whole,
)

_COMMON = errors(
    "UNAUTHORIZED",
    "FORBIDDEN",
    "FORBIDDEN_ORIGIN",
    "NOT_FOUND",
    "METHOD_NOT_ALLOWED",
    "WRONG_PLANE",
    "QUOTA_EXCEEDED",
    "INTERNAL_ERROR",
    "OVERLOADED",
    "UNAVAILABLE",
)
_WRITES = errors("NOT_STORED", "OUTCOME_UNKNOWN")
_BODIES = errors("INVALID_REQUEST", "PAYLOAD_TOO_LARGE", "REQUEST_TIMEOUT")
_ROLES = list_of({"enum": ["read", "write", "work", "admin"]}, 1, 4)
_TIME: dict[str, object] = {"type": "string", "format": "date-time"}
_SHA256 = text(64, 64, description="The SHA-256 of the token in hex digits; the token itself is not sent.")
_ID = HttpParameter("token_id", "path", "The id of a token.", text(16, 16), is_required=True)

_MEMBERS = {
    "id": text(16, 16),
    "name": TEXT,
    "roles": _ROLES,
    "scopes": {"type": ["array", "null"], "items": TEXT},
    "state": {"enum": ["active", "rotated", "expired", "revoked"]},
    "created_at": _TIME,
    "expires_at": nullable("string"),
    "ends_at": nullable("string"),
    "revoked_at": nullable("string"),
    "successor": nullable("string"),
}
_TOKEN = NamedSchema("StoredToken", record(_MEMBERS))
_CHANGED = NamedSchema("ChangedToken", record({**_MEMBERS, "changed": FLAG}, {"replaces": _TOKEN}))
_NEW = NamedSchema(
    "NewToken",
    record(
        {"name": text(1, MAX_NAME), "sha256": _SHA256},
        {"roles": _ROLES, "scopes": list_of(text(3, MAX_SCOPE), 1, MAX_SCOPES), "expires_at": _TIME},
    ),
)
_SUCCESSOR = NamedSchema(
    "TokenSuccessor", record({"sha256": _SHA256}, {"overlap_ms": whole(0, MAX_OVERLAP_MS), "expires_at": _TIME})
)
_DONE = (
    HttpSuccess(201, "The token is stored.", _CHANGED),
    HttpSuccess(200, "It was stored before, by the same request.", _CHANGED),
)


def _operation(name: str, method: str, path: str, about: str, successes: tuple[HttpSuccess, ...]) -> HttpOperation:
    parameters = (_ID,) if "{" in path else ()
    return HttpOperation(
        name,
        method,
        path,
        about,
        successes,
        _COMMON + (errors("TOKEN_NOT_FOUND") if parameters else ()),
        PROBLEM_FORM,
        parameters,
        role="admin",
        has_head=method == "GET",
    )


_CREATE = _operation("createToken", "POST", "/v1/tokens", "Store a token, by its hash.", _DONE)
_ROTATE = _operation("rotateToken", "POST", "/v1/tokens/{token_id}/rotate", "Store the successor of a token.", _DONE)
_REVOKE = _operation(
    "revokeToken",
    "POST",
    "/v1/tokens/{token_id}/revoke",
    "End a token at once.",
    (HttpSuccess(200, "The token is revoked.", _CHANGED),),
)

OPERATIONS = (
    _operation(
        "listTokens",
        "GET",
        "/v1/tokens",
        "All stored tokens, without secrets.",
        (HttpSuccess(200, "The tokens.", record({"tokens": list_of(_TOKEN)})),),
    ),
    _CREATE._replace(
        body=HttpBody(_NEW), errors=_CREATE.errors + _WRITES + _BODIES + errors("TOKEN_EXISTS", "TOKEN_LIMIT")
    ),
    _operation(
        "getToken", "GET", "/v1/tokens/{token_id}", "One stored token.", (HttpSuccess(200, "The token.", _TOKEN),)
    ),
    _ROTATE._replace(
        body=HttpBody(_SUCCESSOR),
        errors=_ROTATE.errors
        + _WRITES
        + _BODIES
        + errors("TOKEN_EXISTS", "TOKEN_ENDED", "TOKEN_ROTATED", "TOKEN_LIMIT"),
    ),
    _REVOKE._replace(errors=_REVOKE.errors + _WRITES),
)
