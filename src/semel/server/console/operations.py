"""The HTTP operations of the console, declared for the OpenAPI document."""

from __future__ import annotations

from semel.server.openapi.operation import (
    PROBLEM_FORM,
    TEXT,
    HttpAccess,
    HttpBody,
    HttpOperation,
    HttpParameter,
    HttpSuccess,
    NamedSchema,
    errors,
    nullable,
    record,
    text,
)

_ERRORS = errors("FORBIDDEN_ORIGIN", "METHOD_NOT_ALLOWED", "NOT_FOUND", "WRONG_PLANE", "INTERNAL_ERROR", "OVERLOADED")
_CACHED = HttpParameter("If-None-Match", "header", "An ETag that the client has.", TEXT)
_HELD = HttpSuccess(304, "The copy of the client still holds.")
_FILE_MEDIA = ("text/javascript; charset=utf-8", "text/css; charset=utf-8", "image/svg+xml")

_CALLS = errors(
    "UNAUTHORIZED",
    "FORBIDDEN_ORIGIN",
    "NOT_FOUND",
    "METHOD_NOT_ALLOWED",
    "WRONG_PLANE",
    "INTERNAL_ERROR",
    "OVERLOADED",
    "UNAVAILABLE",
    "NOT_STORED",
    "OUTCOME_UNKNOWN",
)
_TIME: dict[str, object] = {"type": "string", "format": "date-time"}
_CODE = text(1, 128, description="The code of a link.")
_LINK = NamedSchema("ConsoleLink", record({"code": nullable("string"), "expires_at": nullable("string")}))
_SESSION = NamedSchema("ConsoleSession", record({"token": TEXT, "name": TEXT, "expires_at": _TIME}))


def _file(name: str, path: str, about: str, media: tuple[str, ...], *parameters: HttpParameter) -> HttpOperation:
    successes = (HttpSuccess(200, about, TEXT, media, ("ETag",)), _HELD)
    return HttpOperation(
        name,
        "GET",
        path,
        about,
        successes,
        _ERRORS,
        PROBLEM_FORM,
        (*parameters, _CACHED),
        access=HttpAccess.OPEN,
        has_head=True,
    )


OPERATIONS = (
    _file("console", "/console", "The page of the console.", ("text/html; charset=utf-8",)),
    _file(
        "consoleFile",
        "/console/static/{file}",
        "A script, a style sheet or an image of the console.",
        _FILE_MEDIA,
        HttpParameter("file", "path", "The name of the file.", TEXT, is_required=True),
    ),
    HttpOperation(
        "createConsoleLink",
        "POST",
        "/console/links",
        "Make a code that signs a browser in once, as the caller.",
        (
            HttpSuccess(201, "The code; it counts for 60 seconds.", _LINK),
            HttpSuccess(200, "No credential is needed: the console is open without a code.", _LINK),
        ),
        _CALLS + errors("FORBIDDEN", "QUOTA_EXCEEDED", "CONSOLE_LIMIT"),
        PROBLEM_FORM,
    ),
    HttpOperation(
        "openConsoleSession",
        "POST",
        "/console/sessions",
        "Exchange the code of a link for a session of the console, once.",
        (HttpSuccess(201, "The session; its token has the rights of the caller who made the link.", _SESSION),),
        _CALLS + errors("INVALID_REQUEST", "PAYLOAD_TOO_LARGE", "REQUEST_TIMEOUT"),
        PROBLEM_FORM,
        body=HttpBody(record({"code": _CODE})),
        access=HttpAccess.OPEN,
    ),
    HttpOperation(
        "endConsoleSession",
        "DELETE",
        "/console/sessions",
        "End the session whose token is sent; any other token is left as it is.",
        (HttpSuccess(204, "No session of this token counts any longer."),),
        _CALLS,
        PROBLEM_FORM,
        access=HttpAccess.OPEN,
    ),
)
