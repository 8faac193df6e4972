"""JSON values that are kept as text, and the printer that takes them beside ordinary values.

As values they would take up to fifty times as much memory. The printer is quick where that is exact, and complete where
a client sent what the quick printer cannot carry.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, TypeGuard

import orjson

from semel.kernel.json.text import JsonError


class JsonFragment(NamedTuple):
    """One list or object."""

    text: bytes
    """In print, its names in the order given."""
    canonical: bytes
    """In canonical form; empty if there is none."""
    flaw: JsonError | None = None
    """Why it has no canonical form."""
    mark: JsonError | None = None
    """A value inside that cannot be taken; then neither text is whole."""


class JsonOutline:
    """Some members of an object, by name."""

    __slots__ = ("_members", "fragment", "mark")

    def __init__(self, members: dict[str, Any], fragment: JsonFragment | None, mark: JsonError | None) -> None:
        self._members = members
        self.fragment = fragment
        """All of it, where that was asked for."""
        self.mark = mark
        """A value that cannot be taken, in a member that is not kept or in the fragment."""

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def __getitem__(self, name: str) -> Any:
        return self._members[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a member that is kept."""
        return self._members.get(name, default)

    def items(self) -> Any:
        """The members that are kept."""
        return self._members.items()

    def values(self) -> Any:
        """Their values."""
        return self._members.values()


JsonObject = dict[str, Any] | JsonOutline


_KEPT_AS_TEXT = (JsonFragment, JsonOutline)


def is_object(value: Any) -> TypeGuard[JsonObject]:
    """Whether a value is an object, all of it or an outline."""
    return isinstance(value, dict | JsonOutline)


def fragment_of(value: Any) -> JsonFragment | None:
    """The text that a value is kept as; None for a plain value."""
    if isinstance(value, JsonFragment):
        return value
    return value.fragment if isinstance(value, JsonOutline) else None


def is_plain(members: JsonObject) -> bool:
    """Whether an object is made of values alone, at least in its first level."""
    return isinstance(members, dict) and not any(isinstance(one, _KEPT_AS_TEXT) for one in members.values())


def dump(value: Any) -> bytes:
    """A value that a strict parser or an outline could have made, as JSON with its names in the order given."""
    try:
        return orjson.dumps(value, default=_fragment)
    except orjson.JSONEncodeError:  # integers beyond 64 bits, and halves of surrogate pairs
        if isinstance(value, dict) and not is_plain(value):
            return b"{%s}" % b",".join(b"%s:%s" % (dump(name), dump(one)) for name, one in value.items())
        return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()


def _fragment(value: Any) -> orjson.Fragment:
    found = fragment_of(value)
    if found is None:
        raise TypeError(f"{type(value).__name__} is not a JSON type")
    return orjson.Fragment(found.text)
