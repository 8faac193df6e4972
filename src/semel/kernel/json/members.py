"""Reads the members of a JSON object: each is checked by its type, and a refusal names the member.

A surface passes in its refusal: a function of the path of the member and of the rule that it breaks ("must be a
string"), which makes an exception of the surface with its own code and a complete sentence. Rules that differ between
surfaces are arguments. An absent member and `null` are the same, unless a surface asks to tell them apart.

A body is an object of values, or a `LargeJson` if its values would take much memory; both are read in the same way.
Members with other names are ignored, or refused by `MemberNames`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from semel.kernel.json.fragment import JsonObject, is_object
from semel.kernel.json.large import LargeJson, read_json
from semel.kernel.json.parse import first_mark
from semel.kernel.json.text import MAX_DEPTH, too_deep

E = TypeVar("E", bound=Exception)
T = TypeVar("T")

STRING_RULE = "must be a string"
SOME_STRING_RULE = "must be a non-empty string"
LENGTH_RULE = "must be a string of {least} to {most} characters"
INTEGER_RULE = "must be a whole number from {least} to {most}"
FLAG_RULE = "must be true or false"
OBJECT_RULE = "must be an object"
UTF8_RULE = "holds half of a surrogate pair"


class MemberSource(Protocol):
    """The members of an object, by name: a dictionary, or an outline."""

    def get(self, name: str, /) -> Any:
        """The value of a member; None when it is absent."""

    def __contains__(self, name: str, /) -> bool: ...


class MemberReader(Generic[E]):
    """Reads the members of one object. `base` names the object in refusals; it is empty for the body itself."""

    __slots__ = ("_base", "_refusal", "_source")

    def __init__(self, source: MemberSource, refusal: Callable[[str, str], E], base: str = "") -> None:
        self._source = source
        self._refusal = refusal
        self._base = base

    def __contains__(self, name: str) -> bool:
        return name in self._source

    def path(self, name: str) -> str:
        """The name of a member in a refusal."""
        return f"{self._base}.{name}" if self._base else name

    def refuse(self, name: str, rule: str) -> E:
        """The refusal of a member that breaks a rule."""
        return self._refusal(self.path(name), rule)

    def optional(self, name: str, parse: Callable[[Any], T | None], rule: str) -> T | None:
        """The result of `parse` for a member; if that is None, the member is refused. None if it is absent or null."""
        value = self._source.get(name)
        if value is None:
            return None
        found = parse(value)
        if found is None:
            raise self.refuse(name, rule)
        return found

    def required(self, name: str, parse: Callable[[Any], T | None], rule: str) -> T:
        """As `optional`, for a required member: `parse` gets None if the member is absent, and refuses it."""
        found = parse(self._source.get(name))
        if found is None:
            raise self.refuse(name, rule)
        return found

    def string(self, name: str, least: int, most: int, rule: str = LENGTH_RULE) -> str | None:
        """A string of `least` to `most` characters of any kind; None if the member is absent or null."""
        value = self._source.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or not least <= len(value) <= most:
            raise self.refuse(name, rule.format(least=least, most=most))
        return value

    def integer(self, name: str, least: int, most: int, rule: str = INTEGER_RULE) -> int | None:
        """An integer in a range, written without fraction or exponent; None if the member is absent or null."""
        value = self._source.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.refuse(name, rule.format(least=least, most=most))
        return value

    def flag(self, name: str, rule: str = FLAG_RULE) -> bool | None:
        """true or false; None if the member is absent or null."""
        value = self._source.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.refuse(name, rule)
        return value

    def nested(self, name: str, rule: str = OBJECT_RULE) -> JsonObject:
        """A required member that is an object: a dictionary or an outline."""
        value = self._source.get(name)
        if not is_object(value):
            raise self.refuse(name, rule)
        return value

    def elements(self, name: str, rule: str, check: Callable[[int], None]) -> Iterable[Any]:
        """The elements of a list, large or not; none if the member is absent or null.

        `check` is called with the number of elements before the last of them is read; for a large list it is called
        with the number so far, while the list is read.
        """
        value = self._source.get(name)
        if value is None:
            return []
        if is_large_list(value):
            return _counted(value, check)
        if not isinstance(value, list):
            raise self.refuse(name, rule)
        check(len(value))
        return value

    def check_utf8(self, name: str, text: str) -> None:
        """Refuse a string of a member that cannot be encoded as UTF-8."""
        if not is_utf8(text):
            raise self.refuse(name, UTF8_RULE)


class MemberNames:
    """The members that an object may have. `spellings` maps other names to some of them."""

    def __init__(self, names: Iterable[str], spellings: Mapping[str, str]) -> None:
        self.names = frozenset(names)
        self._spellings = spellings

    def known(
        self,
        members: dict[str, Any],
        path: str,
        unknown: Callable[[str, str], Exception],
        repeated: Callable[[str, str], Exception],
    ) -> dict[str, Any]:
        """The members of the object at a path, under their proper names.

        The first unknown name, and a member given in two spellings, is refused: `unknown` and `repeated` make the
        refusal from the path and the name.
        """
        if members.keys() <= self.names:
            return members
        found: dict[str, Any] = {}
        for given, value in members.items():
            name = self._spellings.get(given, given)
            if name not in self.names:
                raise unknown(path, given)
            if name in found:
                raise repeated(path, name)
            found[name] = value
        return found


def any_string(value: object) -> str | None:
    """A string."""
    return value if isinstance(value, str) else None


def some_string(value: object) -> str | None:
    """A string that is not empty."""
    return value if isinstance(value, str) and value else None


def string_of(least: int, most: int) -> Callable[[object], str | None]:
    """A parser of strings of `least` to `most` characters."""
    return lambda value: value if isinstance(value, str) and least <= len(value) <= most else None


def matching(pattern: re.Pattern[str]) -> Callable[[object], str | None]:
    """A parser of strings that match a pattern from end to end."""
    return lambda value: value if isinstance(value, str) and pattern.fullmatch(value) else None


def is_utf8(text: str) -> bool:
    """Whether a string can be encoded as UTF-8: it has no lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def every_name(name: str) -> bool:
    """Keep every member of a large object."""
    return True


def members_of(value: object, keep: Callable[[str], bool] = every_name) -> dict[str, Any] | None:
    """The members of an object (of a large object, those to keep); None for any other value."""
    if isinstance(value, dict):
        return value
    return value.members(keep) if isinstance(value, LargeJson) and value.is_object else None


def is_large_list(value: object) -> bool:
    """Whether a value is a list that is read element by element."""
    return isinstance(value, LargeJson) and not value.is_object


def read_body(raw: bytes, levels: int = MAX_DEPTH) -> Any:
    """Parse a body whose large parts stay text; one nested more than `levels` deep is refused."""
    value = read_json(raw)
    if isinstance(value, LargeJson) and value.levels > levels:
        raise too_deep()
    return value


def unmarked(value: T) -> T:
    """The value itself; `JsonError` if a value inside it is not accepted."""
    mark = first_mark(value)
    if mark is not None:
        raise mark
    return value


def _counted(large: LargeJson, check: Callable[[int], None]) -> Iterator[Any]:
    for number, value in enumerate(large.elements(), 1):
        check(number)
        yield value
