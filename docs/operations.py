"""The tables of the page of operations, made from the OpenAPI document that the server serves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from semel.server.api_document import api_document, operation_groups

Document = dict[str, Any]
Code = tuple[str, str]


def operation_tables() -> Iterator[str]:
    """One section for each surface, one row for each method and path; HEAD stands beside its GET."""
    document: Document = json.loads(api_document())
    ids = {one["operationId"] for methods in document["paths"].values() for one in methods.values()}
    for place, group in enumerate(operation_groups()):
        if place:
            yield ""
        yield f"## {group.name.capitalize()}"
        yield ""
        rows = [
            (method.upper(), path, one, "head" in methods)
            for path, methods in document["paths"].items()
            for method, one in methods.items()
            if one["tags"] == [group.name] and not (method == "head" and one["operationId"].endswith("Head"))
        ]
        common = set.intersection(*(set(_codes(document, one)) for _, _, one, _ in rows))
        told = ", ".join(f"{status} `{code}`" for status, code in sorted(common))
        yield f"{group.about}. Every operation may also answer {told}."
        yield ""
        yield "| method | path | does | role | query and headers | body | answers |"
        yield "|---|---|---|---|---|---|---|"
        for method, path, one, has_head in rows:
            shown = f"{method}, HEAD" if has_head and f"{one['operationId']}Head" in ids else method
            yield _operation_row(document, shown, path, one, common)


def _operation_row(document: Document, shown: str, path: str, one: Document, common: set[Code]) -> str:
    named = [_found(document, given) for given in one.get("parameters", ())]
    asked = [
        f"`{given['name']}`" + (" (needed)" if given["required"] else "") for given in named if given["in"] != "path"
    ]
    content = one.get("requestBody", {}).get("content", {})
    body = " or ".join(dict.fromkeys(_schema_name(media, given["schema"]) for media, given in content.items()))
    is_open = one.get("security") == []
    role = one.get("x-role") or ("no credential" if is_open else "the token of a wake")
    answers = [status for status, given in one["responses"].items() if "x-error-codes" not in _found(document, given)]
    answers += [f"{status} `{code}`" for status, code in _codes(document, one) if (status, code) not in common]
    cells = (shown, f"`{path}`", one["summary"], role, ", ".join(asked), body, ", ".join(answers))
    return "".join(f"| {cell} " if cell else "| " for cell in cells) + "|"


def _codes(document: Document, one: Document) -> list[Code]:
    """The statuses and codes of the refusals of an operation."""
    return [
        (status, code)
        for status, given in one["responses"].items()
        for code in _found(document, given).get("x-error-codes", ())
    ]


def _found(document: Document, given: Document) -> Document:
    """The value itself, or the component that it refers to."""
    found = document
    if "$ref" not in given:
        return given
    for name in given["$ref"].removeprefix("#/").split("/"):
        found = found[name]
    return found


def _schema_name(media: str, schema: Document) -> str:
    name = schema.get("$ref", "").rpartition("/")[2]
    return f"`{name}`" if name else f"`{media}`"
