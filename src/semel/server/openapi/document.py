"""The OpenAPI 3.1 document of the whole server, made once from the declared operations; pure.

The same operations give the same bytes. The document contains no setting, no name and no secret of the server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from semel.kernel.errors import REGISTRY
from semel.server.openapi.operation import (
    PROBLEM_FORM,
    AnySchema,
    ErrorForm,
    HttpAccess,
    HttpError,
    HttpOperation,
    HttpParameter,
    HttpSuccess,
    NamedSchema,
    errors,
)

VERSION = "3.1.0"
HOST_ERRORS = errors("INVALID_REQUEST", "REQUEST_TIMEOUT", "HEADERS_TOO_LARGE", "OVERLOADED")
"""Refusals of HTTP itself, before the path is read; they are problem documents at every path."""
_ABOUT = (
    "One server that makes every write happen exactly once. Each path also answers OPTIONS with 204, and with two "
    "listeners each path is served on one of them (see the reference of HTTP). A server without credentials admits "
    "callers on loopback without any. Every answer has X-Request-Id."
)
_SCHEMES: Mapping[str, Mapping[str, str]] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token, or a JWT."},
    "semelToken": {"type": "apiKey", "in": "header", "name": "X-Semel-Token"},
    "sheratanToken": {"type": "apiKey", "in": "header", "name": "X-Sheratan-Token"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
    "wakeToken": {"type": "http", "scheme": "bearer", "description": "The token of a wake of a subscription."},
}
_ACCESS: Mapping[HttpAccess, tuple[str, ...]] = {
    HttpAccess.OPEN: (),
    HttpAccess.CREDENTIAL: ("bearer", "semelToken", "sheratanToken"),
    HttpAccess.API_KEY: ("bearer", "semelToken", "sheratanToken", "apiKey"),
    HttpAccess.WAKE: ("wakeToken",),
}


class OperationGroup(NamedTuple):
    """The operations of one surface, under its name."""

    name: str
    about: str
    operations: tuple[HttpOperation, ...]


class DocumentError(Exception):
    """The declarations contradict each other."""


def openapi_document(groups: Iterable[OperationGroup], version: str) -> dict[str, Any]:
    """The document as plain JSON values. Raises `DocumentError` if two operations have one path and method, or one id,
    or if two schemas have one name.
    """
    parts = _Components()
    paths: dict[str, dict[str, Any]] = {}
    ids: set[str] = set()
    tags = []
    for group in groups:
        tags.append({"name": group.name, "description": group.about})
        for one in group.operations:
            for method in one.methods:
                rendered = _operation(group.name, one, method, parts)
                place = paths.setdefault(one.path, {})
                if method.lower() in place or rendered["operationId"] in ids:
                    raise DocumentError(f"{method} {one.path} is declared twice, or its id is.")
                ids.add(rendered["operationId"])
                place[method.lower()] = rendered
    return {
        "openapi": VERSION,
        "info": {"title": "Semel", "version": version, "description": _ABOUT, "license": {"name": "Apache-2.0"}},
        "servers": [{"url": "/"}],
        "tags": tags,
        "security": _security(HttpAccess.CREDENTIAL),
        "paths": paths,
        "components": {**parts.shown, "securitySchemes": _SCHEMES},
    }


def openapi_bytes(groups: Iterable[OperationGroup], version: str) -> bytes:
    """The document as JSON."""
    return orjson.dumps(openapi_document(groups, version))


class _Components:
    """Schemas and responses that the document has once."""

    def __init__(self) -> None:
        self.schemas: dict[str, Any] = {}
        self.shown: dict[str, dict[str, Any]] = {"schemas": self.schemas, "parameters": {}, "responses": {}}
        self._known: dict[bytes, dict[str, str]] = {}
        self._counts: Counter[str] = Counter()
        self._sources: dict[str, NamedSchema] = {}

    def schema(self, given: AnySchema) -> Any:
        """A schema, with references in place of named schemas."""
        if isinstance(given, NamedSchema):
            known = self._sources.setdefault(given.name, given)
            if known != given:
                raise DocumentError(f"Two schemas have the name {given.name}.")
            if given.name not in self.schemas:
                self.schemas[given.name] = {}  # a schema may contain itself
                self.schemas[given.name] = self._plain(given.schema)
            return {"$ref": f"#/components/schemas/{given.name}"}
        return self._plain(given)

    def _plain(self, value: Any) -> Any:
        if isinstance(value, NamedSchema):
            return self.schema(value)
        if isinstance(value, Mapping):
            return {name: self._plain(member) for name, member in value.items()}
        return [self._plain(one) for one in value] if isinstance(value, list | tuple) else value

    def shared(self, kind: str, name: str, value: dict[str, Any]) -> dict[str, str]:
        """A reference to a parameter or a response; equal ones share a component."""
        content = orjson.dumps(value)
        known = self._known.get(content)
        if known is None:
            self._counts[name] += 1
            unique = f"{name}{self._counts[name]}"
            self.shown[kind][unique] = value
            known = self._known[content] = {"$ref": f"#/components/{kind}/{unique}"}
        return known


def _operation(tag: str, one: HttpOperation, method: str, parts: _Components) -> dict[str, Any]:
    is_head = method == "HEAD" and one.method != "HEAD"
    rendered: dict[str, Any] = {
        "operationId": f"{one.id}Head" if is_head else one.id,
        "tags": [tag],
        "summary": one.about,
        "responses": _responses(tag, one, method, parts),
    }
    if one.access is not HttpAccess.CREDENTIAL:
        rendered["security"] = _security(one.access)
    if one.role:
        rendered["x-role"] = one.role
    if one.is_websocket:
        rendered["x-websocket"] = True
    if one.parameters:
        rendered["parameters"] = [_parameter(parameter, parts) for parameter in one.parameters]
    if one.body is not None:
        content = {media: {"schema": parts.schema(one.body.schema)} for media in one.body.media}
        rendered["requestBody"] = {"required": one.body.is_required, "content": content}
    return rendered


def _security(access: HttpAccess) -> list[dict[str, list[str]]]:
    return [{scheme: []} for scheme in _ACCESS[access]]


def _parameter(parameter: HttpParameter, parts: _Components) -> dict[str, str]:
    shown = {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.is_required or parameter.place == "path",
        "description": parameter.about,
        "schema": parts.schema(parameter.schema),
    }
    return parts.shared("parameters", parameter.name, shown)


def _responses(tag: str, one: HttpOperation, method: str, parts: _Components) -> dict[str, Any]:
    has_body = method != "HEAD"
    found: dict[str, dict[str, Any]] = {}
    for success in one.successes:  # two of one status differ in their media types
        shown = _success(success, parts, has_body=has_body)
        known = found.setdefault(str(success.status), shown)
        known.get("content", {}).update(shown.get("content", {}))
    statuses: dict[int, list[tuple[ErrorForm, HttpError]]] = {}
    for form, listed in ((one.form, one.errors), (PROBLEM_FORM, HOST_ERRORS)):
        for error in listed:
            statuses.setdefault(status_of(error), []).append((form, error))
    for status, told in sorted(statuses.items()):
        name = f"{tag}{status}{'_' if has_body else '_head'}"
        if str(status) in found:  # the document of a refusal, beside a success of the same status
            _add_content(found[str(status)], told, parts, has_body=has_body)
        else:
            found[str(status)] = parts.shared("responses", name, _refusal(told, parts, has_body=has_body))
    return found


def _success(success: HttpSuccess, parts: _Components, *, has_body: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {"description": success.about}
    if success.headers:
        shown["headers"] = {name: {"schema": {"type": "string"}} for name in success.headers}
    if success.schema is not None and has_body:
        shown["content"] = {media: {"schema": parts.schema(success.schema)} for media in success.media}
    return shown


def _refusal(told: Sequence[tuple[ErrorForm, HttpError]], parts: _Components, *, has_body: bool) -> dict[str, Any]:
    codes = list(dict.fromkeys(REGISTRY[error.code].name for _, error in told))
    shown: dict[str, Any] = {"description": ", ".join(f"`{code}`" for code in codes), "x-error-codes": codes}
    _add_content(shown, told, parts, has_body=has_body)
    return shown


def _add_content(
    shown: dict[str, Any], told: Sequence[tuple[ErrorForm, HttpError]], parts: _Components, *, has_body: bool
) -> None:
    if has_body:
        content = shown.setdefault("content", {})
        for form, _ in told:
            content.setdefault(form.media, {"schema": parts.schema(form.schema)})


def status_of(error: HttpError) -> int:
    """The HTTP status of a declared error."""
    return REGISTRY[error.code].status if error.status is None else error.status
