"""Members of JSON objects by the rules of proto3, and the enumerations by the full names of their values.

Each member is read by its type (`kernel/json/members.py`), and an error names the member. Names are lowerCamelCase;
snake_case is accepted too, but not both at once. `null` counts as absent. 64-bit numbers are strings or numbers, bytes
are base64 in either alphabet, with or without padding. Unknown members are refused.

A body with more tokens than its kind can need is refused before it is parsed: millions of tiny values take seconds,
during which no other request is served.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from semel.kernel.errors import Refused
from semel.kernel.json.large import LargeJson, is_light
from semel.kernel.json.members import (
    OBJECT_RULE,
    STRING_RULE,
    UTF8_RULE,
    MemberNames,
    MemberReader,
    any_string,
    is_large_list,
    is_utf8,
    members_of,
    read_body,
    unmarked,
)
from semel.kernel.json.parse import parse
from semel.kernel.json.text import JsonError, outside_strings, shown
from semel.surfaces.ledger.commands import WriteErrorCode, invalid
from semel.surfaces.ledger.model import ORG_STATUSES, VAULT_STATUSES, LedgerStatus, Side

ERROR_CODES = {code: f"WRITE_ERROR_CODE_{code.name}" for code in WriteErrorCode}
DIRECTIONS = {Side.LEFT: "DIRECTION_LEFT", Side.RIGHT: "DIRECTION_RIGHT"}
CONSISTENCIES = {
    "READ_CONSISTENCY_UNSPECIFIED": 0,
    "READ_CONSISTENCY_EVENTUAL": 1,
    "READ_CONSISTENCY_LINEARIZABLE": 2,
}
RETENTION_MODES = {
    "BLOCK_RETENTION_MODE_UNSPECIFIED": 0,
    "BLOCK_RETENTION_MODE_FULL": 1,
    "BLOCK_RETENTION_MODE_COMPACTED": 2,
}


def _numbered(prefix: str, statuses: tuple[LedgerStatus, ...]) -> dict[str, int]:
    names = ("UNSPECIFIED", *(status.name for status in statuses))
    return {f"{prefix}_{name}": place for place, name in enumerate(names)}


ORG_STATUS_NAMES = _numbered("ORGANIZATION_STATUS", ORG_STATUSES)
VAULT_STATUS_NAMES = _numbered("VAULT_STATUS", VAULT_STATUSES)


MOST = 2**64 - 1
_WHOLE_DOUBLES = 2.0**53
"""Up to this value, a number that was written with a point or an exponent is exact."""
_HUMP = re.compile(r"([A-Z])")
_FROM_URL = str.maketrans("-_", "+/")
MOST_PIECES = 4_096
"""Limit of strings, brackets and commas in a body without long lists."""
_PIECES = (b'"', b"[", b"{", b",")
_NUMBER_RULE = f"must be a whole number from 0 to {MOST}, as a string or a number"


class ObjectMembers(MemberNames):
    """The allowed names of an object."""

    def __init__(self, *names: str) -> None:
        super().__init__(names, {snake_of(name): name for name in names})

    def members(self, value: object, path: str = "body") -> LedgerMembers:
        """The members of an object under their lowerCamelCase names; `path` names the object in a refusal."""
        members = members_of(value)
        if members is None:
            raise _refused(path, OBJECT_RULE)
        return LedgerMembers(self.known(members, path, _unknown, _repeated), path)


class LedgerMembers(MemberReader[Refused]):
    """The members of one object: of the body, or of the object at `path`."""

    __slots__ = ("values",)

    def __init__(self, values: Mapping[str, Any], path: str = "body") -> None:
        # Sets the slots of the reader without a call to it: a transaction has thousands of these objects.
        self._source = self.values = values
        self._refusal = _refused
        self._base = "" if path == "body" else path

    def text(self, name: str) -> str:
        """A string; empty if absent."""
        value = self.optional(name, any_string, STRING_RULE)
        if value is None:
            return ""
        self.check_utf8(name, value)
        return value

    def number(self, name: str) -> int | None:
        """A whole number of 64 bits; None if absent."""
        return self.optional(name, whole, _NUMBER_RULE)

    def data(self, name: str) -> bytes:
        """Bytes in base64; empty if absent."""
        return self.optional(name, _bytes_of, "must be bytes in base64") or b""

    def items(self, name: str, check: Callable[[int], None]) -> Iterable[Any]:
        """A list; empty if absent. `check` gets the number of items before the last one is returned."""
        return self.elements(name, "must be a list", check)

    def choice(self, name: str, names: Mapping[str, int]) -> int | None:
        """A value of an enumeration, by its full name or its number; None if absent."""
        value = self.values.get(name)
        if value is None:
            return None
        found = names.get(value) if isinstance(value, str) else value
        if not isinstance(found, int) or isinstance(found, bool) or found not in names.values():
            raise not_one_of(self.path(name), names)
        return found


def _refused(path: str, rule: str) -> Refused:
    return invalid(f"{path} {rule}.", path)


def _unknown(path: str, given: str) -> Refused:
    return invalid(f"There is no member {shown(given)} in {path}.", inside(path, given[:64]))


def _repeated(path: str, name: str) -> Refused:
    return invalid(f"{path} has the member {name} twice.", inside(path, name))


def snake_of(name: str) -> str:
    """The snake_case spelling of a name."""
    return _HUMP.sub(r"_\1", name).lower()


def inside(path: str, name: str) -> str:
    """The name of a member in a refusal."""
    return name if path == "body" else f"{path}.{name}"


def parse_body(body: bytes, shape: ObjectMembers, most_pieces: int = MOST_PIECES) -> LedgerMembers:
    """Parse a request body with at most `most_pieces` strings, brackets and commas; an empty body has no members."""
    if not body:
        return LedgerMembers({})
    if _has_more_pieces(body, most_pieces):
        raise invalid("The body has more values than a request of this kind can have.", "body")
    try:
        return shape.members(parse(body) if is_light(body) else read_large(body))
    except JsonError as error:
        raise not_json(error) from None


def read_large(body: bytes) -> Any:
    """A body whose large lists are parsed in parts; the depth limit is that of any other body."""
    value = read_body(body)
    if not isinstance(value, LargeJson) or not value.is_object:
        return small(value)
    members = members_of(value) or {}
    return {name: one if is_large_list(one) else small(one) for name, one in members.items()}


def not_json(error: JsonError) -> Refused:
    """The refusal of a body that is not JSON."""
    return invalid(f"The body is not valid JSON: {error}", "body")


def small(value: object) -> object:
    """Parse a part of a large body; refuse it if it is invalid."""
    return unmarked(value.value() if isinstance(value, LargeJson) else value)


def _has_more_pieces(body: bytes, most: int) -> bool:
    """Whether strings, opening brackets and commas are more than `most`. The number of passes is constant."""
    if sum(map(body.count, _PIECES)) <= most:
        return False  # even if those inside strings are counted
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    strings = body.count(b'"') // 2
    return strings > most or strings + sum(map(outside_strings(body).count, _PIECES)) > most


def checked_text(value: object, path: str) -> str:
    """A value that must be a string and that UTF-8 can encode."""
    if not isinstance(value, str):
        raise _refused(path, STRING_RULE)
    if not is_utf8(value):
        raise _refused(path, UTF8_RULE)
    return value


def whole(value: object) -> int | None:
    """A 64-bit number as JSON represents it; None for anything else."""
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


def not_one_of(path: str, names: Mapping[str, int]) -> Refused:
    """The refusal of a value that is not in an enumeration."""
    return invalid(f"{path} must be one of {', '.join(names)}.", path)


def unbase64(given: str) -> bytes | None:
    """Decode base64 in either alphabet, padded or not; None for anything else."""
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


def _bytes_of(value: object) -> bytes | None:
    return unbase64(value) if isinstance(value, str) else None
