"""The tables of all operations over HTTP, made from the OpenAPI document that the server serves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from semel.server.api_document import api_document, operation_groups

Document = dict[str, Any]
Code = tuple[str, str]


def operation_tables() -> Iterator[str]:
    """One section for each surface, one row for each operation; HEAD stands beside its GET, and paths that do the same
    stand together."""
    document: Document = json.loads(api_document())
    ids = {one["operationId"] for methods in document["paths"].values() for one in methods.values()}
    for place, group in enumerate(operation_groups()):
        yield from ([""] if place else [])
        yield from (f"### {group.name.capitalize()}", "")
        rows = [
            (method.upper(), path, one, "head" in methods)
            for path, methods in document["paths"].items()
            for method, one in methods.items()
            if one["tags"] == [group.name] and not (method == "head" and one["operationId"].endswith("Head"))
        ]
        common = set.intersection(*(set(_codes(document, one)) for _, _, one, _ in rows))
        told = ", ".join(f"{status} `{code}`" for status, code in sorted(common))
        yield from (f"{group.about}. Every operation may also answer {told}.", "")
        yield "| method | path | does | role | query and headers | body | answers |"
        yield "|---|---|---|---|---|---|---|"
        paths: dict[tuple[str, Sequence[str]], list[str]] = {}
        for method, path, one, has_head in rows:
            shown = f"{method}, HEAD" if has_head and f"{one['operationId']}Head" in ids else method
            paths.setdefault((shown, _operation_cells(document, one, common)), []).append(f"`{path}`")
        for (shown, cells), same in paths.items():
            yield "".join(f"| {cell} " if cell else "| " for cell in (shown, ", ".join(same), *cells)) + "|"


def _operation_cells(document: Document, one: Document, common: set[Code]) -> Sequence[str]:
    named = [_found(document, given) for given in one.get("parameters", ())]
    asked = [
        f"`{given['name']}`" + (" (required)" if given["required"] else "") for given in named if given["in"] != "path"
    ]
    content = one.get("requestBody", {}).get("content", {})
    body = " or ".join(dict.fromkeys(_schema_name(media, given["schema"]) for media, given in content.items()))
    is_open = one.get("security") == []
    role = one.get("x-role") or ("no credential" if is_open else "the token of a wake")
    answers = [status for status, given in one["responses"].items() if "x-error-codes" not in _found(document, given)]
    answers += [f"{status} `{code}`" for status, code in _codes(document, one) if (status, code) not in common]
    return one["summary"], role, ", ".join(asked), body, ", ".join(answers)


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
