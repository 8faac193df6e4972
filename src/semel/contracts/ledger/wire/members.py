"""Typed members of a JSON object, by the rules of proto3; the refusal names the member that breaks its type.

Names are lowerCamelCase; snake_case is taken too, but not both at once. null is as good as absent. 64-bit numbers are
strings or numbers, bytes are base64 in either alphabet, with or without padding. What is not known is refused.

A body of more pieces than its kind can need is refused before it is parsed: millions of tiny values take seconds, and
no other request gets a turn meanwhile.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from semel.contracts.ledger.refusals import RefusedLedger, invalid
from semel.kernel.json_error import JsonError, shown
from semel.kernel.json_marks import first_mark
from semel.kernel.json_parse import parse
from semel.kernel.json_text import MAX_DEPTH, outside_strings, too_deep
from semel.kernel.large_json import LargeJson, is_light, read_json

MOST = 2**64 - 1
_WHOLE_DOUBLES = 2.0**53
"""Up to here a number that was written with a point or an exponent is the number that was meant."""
_HUMP = re.compile(r"([A-Z])")
_FROM_URL = str.maketrans("-_", "+/")
MOST_PIECES = 4_096
"""Strings, brackets and commas of a body that is not about many things."""
_PIECES = (b'"', b"[", b"{", b",")


class Shape:
    """The allowed names of an object."""

    def __init__(self, *names: str) -> None:
        self.names = frozenset(names)
        self._spellings = {snake_of(name): name for name in names}

    def members(self, value: object, path: str) -> Mapping[str, Any]:
        """The members of an object under their proper names; `path` is how it is called in a refusal."""
        if isinstance(value, LargeJson) and value.is_object:
            value = value.members(lambda name: True)
        if not isinstance(value, dict):
            raise invalid(f"{path} must be an object.", path)
        if value.keys() <= self.names:
            return value
        members: dict[str, Any] = {}
        for given, member in value.items():
            name = self._spellings.get(given, given)
            if name not in self.names:
                raise invalid(f"There is no member {shown(given)} in {path}.", inside(path, given[:64]))
            if name in members:
                raise invalid(f"{path} has the member {name} twice.", inside(path, name))
            members[name] = member
        return members


def snake_of(name: str) -> str:
    """The other spelling of a name."""
    return _HUMP.sub(r"_\1", name).lower()


def inside(path: str, name: str) -> str:
    """How a member is called in a refusal."""
    return name if path == "body" else f"{path}.{name}"


def parse_body(body: bytes, shape: Shape, most_pieces: int = MOST_PIECES) -> Mapping[str, Any]:
    """The members of a request's body, which has at most `most_pieces` pieces; an empty one has none."""
    if not body:
        return {}
    if _has_more_pieces(body, most_pieces):
        raise invalid("The body has more values than a request of this kind can have.", "body")
    try:
        return shape.members(parse(body) if is_light(body) else read_large(body), "body")
    except JsonError as error:
        raise not_json(error) from None


def read_large(body: bytes) -> Any:
    """A body whose large lists are parsed in parts; limited to the same depth as any other."""
    value = read_json(body)
    if isinstance(value, LargeJson) and value.levels > MAX_DEPTH:
        raise too_deep()
    if not isinstance(value, LargeJson) or not value.is_object:
        return small(value)
    members = value.members(lambda name: True)
    return {name: one if _is_list(one) else small(one) for name, one in members.items()}


def not_json(error: JsonError) -> RefusedLedger:
    """The refusal of a body that is no JSON."""
    return invalid(f"The body is not valid JSON: {error}", "body")


def small(value: object) -> object:
    """A part of a large body, as a value; an invalid one is refused."""
    found = value.value() if isinstance(value, LargeJson) else value
    mark = first_mark(found)
    if mark is not None:
        raise mark
    return found


def _has_more_pieces(body: bytes, most: int) -> bool:
    """Whether strings, opening brackets and commas are more than `most`. No step of this depends on their number."""
    if sum(map(body.count, _PIECES)) <= most:
        return False  # even counting those inside strings
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    strings = body.count(b'"') // 2
    return strings > most or strings + sum(map(outside_strings(body).count, _PIECES)) > most


def text(members: Mapping[str, Any], name: str, path: str) -> str:
    """A string; empty when it is absent."""
    value = members.get(name)
    if value is None:
        return ""
    return checked_text(value, inside(path, name))


def checked_text(value: object, path: str) -> str:
    """A value that must be a string which UTF-8 can carry."""
    if not isinstance(value, str):
        raise invalid(f"{path} must be a string.", path)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise invalid(f"{path} holds half of a surrogate pair.", path) from None
    return value


def number(members: Mapping[str, Any], name: str, path: str) -> int | None:
    """A whole number of 64 bits; None when it is absent."""
    value = members.get(name)
    if value is None:
        return None
    found = whole(value)
    if found is None:
        path = inside(path, name)
        raise invalid(f"{path} must be a whole number from 0 to {MOST}, as a string or a number.", path)
    return found


def whole(value: object) -> int | None:
    """A 64-bit number as JSON has it; None for anything else."""
    if isinstance(value, str):
        return digits(value)
    if isinstance(value, float):
        value = int(value) if 0 <= value <= _WHOLE_DOUBLES and value.is_integer() else -1
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= MOST else None


def digits(text_: str) -> int | None:
    """A 64-bit number in decimal digits; None for anything else."""
    if not (text_.isascii() and text_.isdigit() and len(text_) <= 20):
        return None
    found = int(text_)
    return found if found <= MOST else None


def flag(members: Mapping[str, Any], name: str, path: str) -> bool | None:
    """true or false; None when it is absent."""
    value = members.get(name)
    if value is not None and not isinstance(value, bool):
        path = inside(path, name)
        raise invalid(f"{path} must be true or false.", path)
    return value


def data(members: Mapping[str, Any], name: str, path: str) -> bytes:
    """Bytes in base64; empty when they are absent."""
    value = members.get(name)
    if value is None:
        return b""
    found = unbase64(value) if isinstance(value, str) else None
    if found is None:
        path = inside(path, name)
        raise invalid(f"{path} must be bytes in base64.", path)
    return found


def items(members: Mapping[str, Any], name: str, path: str, check: Callable[[int], None]) -> Iterable[Any]:
    """A list; empty when it is absent. `check` gets the number of items before the last of them is returned."""
    value = members.get(name)
    if value is None:
        return []
    if _is_list(value):
        return _counted(value, check)
    if not isinstance(value, list):
        path = inside(path, name)
        raise invalid(f"{path} must be a list.", path)
    check(len(value))
    return value


def _is_list(value: Any) -> bool:
    return isinstance(value, LargeJson) and not value.is_object


def _counted(large: LargeJson, check: Callable[[int], None]) -> Iterator[Any]:
    for number, value in enumerate(large.elements(), 1):
        check(number)
        yield value


def choice(members: Mapping[str, Any], name: str, path: str, names: Mapping[str, int]) -> int | None:
    """A value of an enumeration, by its full name or its number; None when it is absent."""
    value = members.get(name)
    if value is None:
        return None
    found = names.get(value) if isinstance(value, str) else value
    if not isinstance(found, int) or isinstance(found, bool) or found not in names.values():
        raise not_one_of(inside(path, name), names)
    return found


def not_one_of(path: str, names: Mapping[str, int]) -> RefusedLedger:
    """The refusal of a value that an enumeration does not have."""
    return invalid(f"{path} must be one of {', '.join(names)}.", path)


def unbase64(given: str) -> bytes | None:
    """The bytes behind base64 in either alphabet, padded or not; None for anything else."""
    if "-" in given or "_" in given:
        given = given.translate(_FROM_URL)
    stem = given.rstrip("=")
    padding = -len(stem) % 4
    if len(given) - len(stem) not in (0, padding):
        return None
    try:
        return a2b_base64(stem + "=" * padding, strict_mode=True)
    except ValueError:
        return None
