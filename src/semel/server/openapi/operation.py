"""Plain values in which a surface declares its HTTP operations, beside its routes.

A `Surface` row has a tuple of `HttpOperation`. The OpenAPI document, the page of the documentation and the tests of
completeness read it; no request is handled by it. A schema is a JSON Schema as a dictionary, in which a `NamedSchema`
may stand in place of any schema: it becomes a component of the document.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

Schema = Mapping[str, Any]


class NamedSchema(NamedTuple):
    """A schema that the document has once, under its name."""

    name: str
    schema: Schema


AnySchema = Schema | NamedSchema


class HttpAccess(Enum):
    """What a caller of an operation must present."""

    OPEN = "open"
    """Nothing."""
    CREDENTIAL = "credential"
    """A credential of the server, in one of the headers of every surface."""
    API_KEY = "api_key"
    """The same; `X-Api-Key` may carry it too."""
    WAKE = "wake"
    """The token of a wake, as a bearer token."""


class HttpParameter(NamedTuple):
    """A parameter in the path, the query or a header."""

    name: str
    place: str
    """`path`, `query` or `header`."""
    about: str
    schema: AnySchema
    is_required: bool = False


class HttpBody(NamedTuple):
    """The body of a request."""

    schema: AnySchema
    media: tuple[str, ...] = ("application/json",)
    is_required: bool = True


class HttpSuccess(NamedTuple):
    """An answer that is no refusal."""

    status: int
    about: str
    schema: AnySchema | None = None
    """None if the answer has no body."""
    media: tuple[str, ...] = ("application/json",)
    headers: tuple[str, ...] = ()


class ErrorForm(NamedTuple):
    """How a surface renders its refusals."""

    media: str
    schema: NamedSchema


class HttpError(NamedTuple):
    """A refusal: its code in the registry of errors, and its status if that differs from the one of the registry."""

    code: str
    status: int | None = None


class HttpOperation(NamedTuple):
    """One method at one path."""

    id: str
    """Unique in the document."""
    method: str
    path: str
    """A path template, such as `/v1/jobs/{job_id}`."""
    about: str
    """What it does, in one line."""
    successes: tuple[HttpSuccess, ...]
    errors: tuple[HttpError, ...]
    form: ErrorForm
    parameters: tuple[HttpParameter, ...] = ()
    body: HttpBody | None = None
    access: HttpAccess = HttpAccess.CREDENTIAL
    role: str = ""
    """The roles that the caller needs, in words; empty if none."""
    has_head: bool = False
    """Whether HEAD works too, with the same head and no body."""
    is_websocket: bool = False
    """Whether the path is served to WebSocket handshakes."""

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that it declares."""
        return (self.method, "HEAD") if self.has_head else (self.method,)


def errors(*given: str | tuple[str, int]) -> tuple[HttpError, ...]:
    """Errors by their codes, or by code and status."""
    return tuple(HttpError(one) if isinstance(one, str) else HttpError(*one) for one in given)


def text(least: int = 0, most: int | None = None, **more: Any) -> Schema:
    """The schema of a string."""
    bounds: dict[str, Any] = {"type": "string"}
    if least:
        bounds["minLength"] = least
    if most is not None:
        bounds["maxLength"] = most
    return bounds | more


def whole(least: int = 0, most: int | None = None) -> Schema:
    """The schema of a whole number."""
    bounds: dict[str, Any] = {"type": "integer", "minimum": least}
    return bounds if most is None else bounds | {"maximum": most}


def list_of(item: AnySchema, least: int = 0, most: int | None = None) -> Schema:
    """The schema of a list."""
    bounds: dict[str, Any] = {"type": "array", "items": item}
    if least:
        bounds["minItems"] = least
    return bounds if most is None else bounds | {"maxItems": most}


def record(required: Mapping[str, AnySchema], optional: Mapping[str, AnySchema] | None = None) -> Schema:
    """The schema of an object; members that are not named may be there too."""
    members = {**required, **(optional or {})}
    shape: dict[str, Any] = {"type": "object", "properties": members}
    return shape | {"required": list(required)} if required else shape


def nullable(kind: str) -> Schema:
    """The schema of a value of a JSON type, or null."""
    return {"type": [kind, "null"]}


TEXT = text()
FLAG: Schema = {"type": "boolean"}
COUNT = whole()
ANY: Schema = {}
OBJECT: Schema = {"type": "object"}
BYTES: Schema = {"type": "string", "format": "binary"}

PROBLEM = NamedSchema(
    "Problem",
    record(
        {
            "type": {"type": "string", "description": "A relative reference that names the kind."},
            "title": TEXT,
            "status": whole(400, 599),
            "code": {"type": "string", "description": "The code, as in the table of errors."},
            "detail": {"type": "string", "description": "One sentence for people."},
            "retry": {"enum": ["same_key", "later", "never"]},
        },
        {
            "details": {"type": "object", "description": "Events: facts of the case."},
            "error_code": {"type": "string", "description": "Ledger: the number of the error, or a name."},
            "context": {"type": "object", "description": "Ledger: facts of the case."},
        },
    ),
)
"""An RFC 9457 problem document: the form of every refusal, unless a surface has its own."""
PROBLEM_FORM = ErrorForm("application/problem+json", PROBLEM)
