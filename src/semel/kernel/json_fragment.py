"""JSON values that are kept as text, because as values they would take up to fifty times as much memory.

A `JsonFragment` is a list or an object in print. A `JsonOutline` is an object of which only members with some names are
kept as values, perhaps with all of it in print beside them. Both are made by `json_outline`, stand where a parser would
have put the value, and are printed by `json_print.dump`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeGuard

from semel.kernel.json_error import JsonError


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
