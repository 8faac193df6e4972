"""JSON values that are kept as text, and the printer that accepts them beside ordinary values.

As Python values they would take up to fifty times as much memory. The printer uses orjson where orjson is exact, and
Python's printer for values that orjson cannot print.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, TypeGuard

import orjson

from semel.kernel.json.text import JsonError


class JsonFragment(NamedTuple):
    """One array or object, kept as text."""

    text: bytes
    """The JSON text, with names in the order given."""
    canonical: bytes
    """The canonical JSON; empty if there is none."""
    flaw: JsonError | None = None
    """Why there is no canonical form; None if there is one."""
    mark: JsonError | None = None
    """The error of a value inside that is not accepted; if set, neither text is complete."""


class JsonOutline:
    """Some members of an object, by name."""

    __slots__ = ("_members", "fragment", "mark")

    def __init__(self, members: dict[str, Any], fragment: JsonFragment | None, mark: JsonError | None) -> None:
        self._members = members
        self.fragment = fragment
        """The text of the whole object, if the plan asked for it."""
        self.mark = mark
        """The error of a value that is not accepted, in the fragment or in a member that is not kept."""

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def __getitem__(self, name: str) -> Any:
        return self._members[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a kept member."""
        return self._members.get(name, default)

    def items(self) -> Any:
        """The kept members."""
        return self._members.items()

    def values(self) -> Any:
        """The values of the kept members."""
        return self._members.values()


JsonObject = dict[str, Any] | JsonOutline


_KEPT_AS_TEXT = (JsonFragment, JsonOutline)


def is_object(value: Any) -> TypeGuard[JsonObject]:
    """Whether a value is an object: a dictionary or an outline."""
    return isinstance(value, dict | JsonOutline)


def fragment_of(value: Any) -> JsonFragment | None:
    """The fragment that keeps a value as text; None for an ordinary value."""
    if isinstance(value, JsonFragment):
        return value
    return value.fragment if isinstance(value, JsonOutline) else None


def is_plain(members: JsonObject) -> bool:
    """Whether an object and the values of its members are ordinary values, not kept as text."""
    return isinstance(members, dict) and not any(isinstance(one, _KEPT_AS_TEXT) for one in members.values())


def dump(value: Any) -> bytes:
    """The JSON text, with names in the order given, of a value that a strict parser or an outline made."""
    try:
        return orjson.dumps(value, default=_fragment)
    except orjson.JSONEncodeError:  # integers beyond 64 bits, and lone surrogates
        if isinstance(value, dict) and not is_plain(value):
            return b"{%s}" % b",".join(b"%s:%s" % (dump(name), dump(one)) for name, one in value.items())
        return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()


def _fragment(value: Any) -> orjson.Fragment:
    found = fragment_of(value)
    if found is None:
        raise TypeError(f"{type(value).__name__} is not a JSON type")
    return orjson.Fragment(found.text)
