"""The reference of the Python API: signatures and docstrings of all public names."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from importlib import import_module
from typing import Any, ForwardRef

from semel import client, once

CALLS = {
    "client.streams": "semel.client.streams.calls:BlockingStreams",
    "client.streams.subscriptions": "semel.client.streams.subscriptions:BlockingSubscriptions",
    "client.events": "semel.client.events.calls:BlockingEvents",
    "client.jobs": "semel.client.jobs.calls:Jobs",
    "client.ledger": "semel.client.ledger.calls:Ledger",
    "client.deltas_admin": "semel.client.deltas.admin:DeltasAdmin",
    "client.tokens": "semel.client.tokens:Tokens",
    "client.server": "semel.client.server:Server",
}
"""Where the calls of each attribute of a client are."""


def once_reference() -> Iterator[str]:
    """The names of `semel.once`."""
    yield from _names(once, once.__all__)


def client_reference() -> Iterator[str]:
    """The clients, the worker, and their values; calls first, errors in a page of their own order."""
    for path, home in CALLS.items():
        module, _, name = home.partition(":")
        yield from (f"### {path}", "")
        yield from _members(getattr(import_module(module), name))
        yield ""
    yield from _names(client, client.__all__)


def error_reference() -> Iterator[str]:
    """The errors of the clients with their promise."""
    yield "| error | is a | meaning |"
    yield "|---|---|---|"
    for name in client.__all__:
        one = getattr(client, name)
        if _is_error(one):
            bases = ", ".join(f"`{base.__name__}`" for base in one.__bases__)
            yield f"| `{name}` | {bases} | {_one_line(inspect.getdoc(one) or '')} |"


def _is_error(one: Any) -> bool:
    return isinstance(one, type) and issubclass(one, client.SemelError)


def _names(package: Any, names: Iterable[str]) -> Iterator[str]:
    is_first = True
    for name in names:
        if package is client and _is_error(getattr(package, name)):
            continue
        yield from ([] if is_first else [""])
        is_first = False
        yield from (f"### {name}", "")
        yield from _described(name, getattr(package, name))


def _is_called(one: Any) -> bool:
    """Whether users call it: not an exception, an enumeration or a protocol."""
    if isinstance(one, type):
        return not issubclass(one, (BaseException, Enum)) and not getattr(one, "_is_protocol", False)
    return callable(one)


def _described(name: str, one: Any) -> Iterator[str]:
    if _is_called(one):
        yield from (f"`{name}{_signature(one)}`", "")
    yield from _paragraphs(_doc(one))
    if isinstance(one, type) and issubclass(one, Enum):
        yield from ("", "Values: " + ", ".join(f"`{each.name}`" for each in one) + ".")
    elif isinstance(one, type):
        members = list(_members(one))
        yield from ["", *members] if members else []


def _members(one: type) -> Iterator[str]:
    """Public methods and properties, those of public parents included."""
    for name, member in sorted(_public(one).items()):
        words = _one_line(_doc(member))
        if isinstance(member, property):
            yield f"- `{name}`" + (f": {words}" if words else "")
        elif callable(member) or isinstance(member, (classmethod, staticmethod)):
            plain = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
            yield f"- `{name}{_signature(plain)}`" + (f": {words}" if words else "")


def _public(one: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in reversed(one.__mro__):
        if kind.__module__.startswith("semel."):
            found |= {name: value for name, value in vars(kind).items() if not name.startswith("_")}
    fields = {field.name for field in dataclasses.fields(one)} if dataclasses.is_dataclass(one) else set()
    named = set(getattr(one, "_fields", ()))
    hidden = fields | named | {"calls"}  # what runs the calls is no call
    return {name: value for name, value in found.items() if name not in hidden}


def _signature(one: Any) -> str:
    """What a call takes and returns, with the annotations as they are written in the source."""
    try:
        found = inspect.signature(one)
    except (TypeError, ValueError):
        return ""
    parameters = [each for name, each in found.parameters.items() if name not in ("self", "cls")]
    plain = [each.replace(annotation=inspect.Parameter.empty, default=inspect.Parameter.empty) for each in parameters]
    bare = re.sub(r"^\(|\)$", "", str(inspect.Signature(plain))).split(", ") if parameters else []
    written = {each.name: _written(each) for each in parameters}
    shown = [written.get(part.lstrip("*"), part) if part.lstrip("*") else part for part in bare]
    returned = "" if isinstance(one, type) else _annotation(found.return_annotation)
    return f"({', '.join(shown)})" + (f" -> {returned}" if returned else "")


def _written(each: inspect.Parameter) -> str:
    stars = "*" * ((each.kind is each.VAR_POSITIONAL) + 2 * (each.kind is each.VAR_KEYWORD))
    annotation = _annotation(each.annotation)
    text = f"{stars}{each.name}" + (f": {annotation}" if annotation else "")
    if each.default is inspect.Parameter.empty:
        return text
    default = getattr(each.default, "__qualname__", None) or repr(each.default)
    if default.startswith("<"):
        default = "..." if "factory" in default else f"{type(each.default).__name__}()"
    return f"{text} = {default}" if annotation else f"{text}={default}"


def _annotation(annotation: Any) -> str:
    if annotation is inspect.Signature.empty:
        return ""
    if isinstance(annotation, ForwardRef):
        return annotation.__forward_arg__
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation).replace("typing.", "")


def _doc(one: Any) -> str:
    own = one.__doc__ if isinstance(one, type) else inspect.getdoc(one)
    text = inspect.cleandoc(own or "")
    return "" if isinstance(one, type) and text.startswith(f"{one.__name__}(") else text


def _paragraphs(text: str) -> Iterator[str]:
    yield from text.splitlines()


def _one_line(text: str) -> str:
    """The first paragraph."""
    return " ".join(text.partition("\n\n")[0].replace("|", "\\|").split())
