"""The HTTP operations of the console, declared for the OpenAPI document."""

from __future__ import annotations

from semel.server.openapi.operation import (
    PROBLEM_FORM,
    TEXT,
    HttpAccess,
    HttpOperation,
    HttpParameter,
    HttpSuccess,
    errors,
)

_ERRORS = errors("FORBIDDEN_ORIGIN", "METHOD_NOT_ALLOWED", "NOT_FOUND", "WRONG_PLANE", "INTERNAL_ERROR", "OVERLOADED")
_CACHED = HttpParameter("If-None-Match", "header", "An ETag that the client has.", TEXT)
_HELD = HttpSuccess(304, "The copy of the client still holds.")
_FILE_MEDIA = ("text/javascript; charset=utf-8", "text/css; charset=utf-8", "image/svg+xml")


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
)
