"""Namespaces: their names, and where the rows of each one are.

A namespace is a store of its own beside the default one: a folder inside the data folder, or a schema of the same
PostgreSQL database. So it has its own logs, keys, positions, locks and leader, and shares no row with another
namespace. Names are valid in a URL path, as a folder on every system, and as a schema. Pure.
"""

from __future__ import annotations

import re
from pathlib import Path

DEFAULT = "default"
"""The name of the namespace at the root paths; its store is the one that the settings name."""
MOST = 63
"""Limit on the namespaces of one process besides the default one."""
SCHEMA = "semel"
"""The schema of a PostgreSQL store whose URL names none."""
WITHIN = "ns_"
"""Stands before the name of a namespace in the name of its folder or schema: no system reserves such a name."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
RULE = "a lower-case letter, then up to 31 lower-case letters, digits and underscores"


class NamespaceNameError(ValueError):
    """A name that no namespace can have; the message says what to give."""


def is_name(name: str) -> bool:
    """Whether a namespace can have this name."""
    return _NAME.fullmatch(name) is not None


def check_name(name: str) -> str:
    """The name, if a namespace can have it."""
    if not is_name(name):
        raise NamespaceNameError(f"{name[:64]!r} cannot be the name of a namespace: give {RULE}.")
    return name


def names_in(text: str) -> tuple[str, ...]:
    """The names of a list with commas, each once and none of them the default; `NamespaceNameError` otherwise."""
    names = tuple(check_name(name.strip()) for name in text.split(",")) if text else ()
    if DEFAULT in names:
        raise NamespaceNameError(f"The namespace {DEFAULT} is always there: remove it from the list.")
    if len(set(names)) < len(names) or len(names) > MOST:
        raise NamespaceNameError(f"Give each namespace once, and at most {MOST}.")
    return names


def folder_of(url: str) -> Path | None:
    """The folder of a store, as its URL names it; None if it has none."""
    scheme, _, rest = url.partition(":")
    return Path(rest.partition("?")[0].removeprefix("//")) if scheme == "sqlite" else None


def url_within(url: str, name: str) -> str:
    """The store URL of a namespace, from that of the default one."""
    if check_name(name) == DEFAULT:
        return url
    scheme, _, rest = url.partition(":")
    place, mark, query = rest.partition("?")
    if scheme == "sqlite":
        return f"{scheme}:{place.rstrip('/')}/{WITHIN}{name}{mark}{query}"
    if scheme == "memory":
        return url  # a memory store is nowhere: every one that is opened is another
    pairs = [pair.partition("=") for pair in query.split("&") if pair]
    schema = next((value for key, _, value in pairs if key == "schema"), SCHEMA)
    others = [f"{key}{equals}{value}" for key, equals, value in pairs if key != "schema"]
    return f"{scheme}:{place}?{'&'.join((*others, f'schema={schema}_{WITHIN}{name}'))}"
