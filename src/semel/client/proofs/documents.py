"""Strict parser of JSON documents: anything that differs from the server's own form raises `ProofError`.

Each value has exactly one encoding. So no change can hide in a duplicate member, in unused bits of base64, in leading
or trailing zeros, or in a member that a check would ignore.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, NamedTuple, NoReturn

from semel.client.errors import SemelError


class ProofError(SemelError):
    """A proof failed. The message names the check that failed."""


HASH_BYTES = 32
MAX_U64 = 2**64 - 1

Document = Mapping[str, Any] | str | bytes
"""A JSON object of an answer: its text, or the parsed value."""

_NUMBER = re.compile(r"0|[1-9][0-9]{0,19}")
_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{3}|[0-9]{6}|[0-9]{9}))?Z"
)
_HASH = re.compile(r"[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=")
"""The last character before `=` has four bits of data, and its two unused bits are zero."""
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_SHOWN_CHARACTERS = 40


class ProofInstant(NamedTuple):
    """A time in the ledger."""

    seconds: int
    nanos: int


def load(text: str | bytes) -> dict[str, Any]:
    """The object of a JSON text. Refuses duplicate names, and values that no answer contains."""
    try:
        value = json.loads(
            text.decode("utf-8") if isinstance(text, bytes) else text,
            object_pairs_hook=_once,
            parse_int=_no_sign,
            parse_float=_no_such_number,
            parse_constant=_no_such_number,
        )
    except (ValueError, RecursionError):
        raise ProofError("The text is not JSON.") from None
    if not isinstance(value, dict):
        raise ProofError("The text is not a JSON object.")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise ProofError(f"The member {_shown(name)} occurs twice in one object.")
        members[name] = value
    return members


def _no_sign(text: str) -> int:
    return _no_such_number(text) if text.startswith("-") else int(text)


def _no_such_number(text: str) -> NoReturn:
    raise ProofError(f"The number {_shown(text)} occurs in no proof.")


def _shown(text: str) -> str:
    return ascii(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}...")


class ProofPart(NamedTuple):
    """One object of a document, with its path."""

    where: str
    members: Mapping[str, Any]

    @classmethod
    def of(cls, document: object, where: str) -> ProofPart:
        """A whole document, or a piece of one."""
        if isinstance(document, str | bytes):
            document = load(document)
        if not isinstance(document, Mapping):
            raise ProofError(f"{where} is not a JSON object.")
        return cls(where, document)

    def only(self, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> ProofPart:
        """This object, if it has no other members than these."""
        for name in self.members:
            if name not in required and name not in optional:
                raise ProofError(f"{self.where} has a member {_shown(str(name))} that is unknown.")
        for name in required:
            self._member(name)
        return self

    def path(self, name: str) -> str:
        """The name of a member in a message."""
        return f"{self.where}.{name}"

    def has(self, name: str) -> bool:
        """Whether a member is there."""
        return name in self.members

    def _member(self, name: str) -> Any:
        if name not in self.members:
            raise ProofError(f"{self.path(name)} is missing.")
        return self.members[name]

    def part(self, name: str) -> ProofPart:
        """A member that is an object."""
        value = self._member(name)
        if not isinstance(value, Mapping):
            raise ProofError(f"{self.path(name)} is not a JSON object.")
        return ProofPart(self.path(name), value)

    def items(self, name: str, most: int | None = None) -> list[Any]:
        """A member that is a list; a missing one is empty."""
        value = self.members.get(name, [])
        if not isinstance(value, list):
            raise ProofError(f"{self.path(name)} is not a list.")
        if most is not None and len(value) > most:
            raise ProofError(f"{self.path(name)} has {len(value)} members, more than the limit of {most}.")
        return value

    def parts(self, name: str, most: int | None = None) -> list[ProofPart]:
        """A member that is a list of objects."""
        return [
            ProofPart.of(_no_text(one), f"{self.path(name)}[{at}]") for at, one in enumerate(self.items(name, most))
        ]

    def number(self, name: str) -> int:
        """A number of up to 64 bits, encoded as a string of decimal digits."""
        value = self._member(name)
        if not isinstance(value, str) or not _NUMBER.fullmatch(value) or int(value) > MAX_U64:
            raise ProofError(f"{self.path(name)} is not a number of 64 bits in decimal digits.")
        return int(value)

    def small_number(self, name: str, most: int) -> int:
        """A number of up to 32 bits, encoded as a JSON number."""
        value = self._member(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise ProofError(f"{self.path(name)} is not a number from 0 to {most}.")
        return value

    def flag(self, name: str) -> bool:
        """A Boolean."""
        value = self._member(name)
        if not isinstance(value, bool):
            raise ProofError(f"{self.path(name)} is neither true nor false.")
        return value

    def text(self, name: str) -> bytes:
        """A string as UTF-8, the form that is hashed."""
        value = self._member(name)
        if not isinstance(value, str):
            raise ProofError(f"{self.path(name)} is not a string.")
        try:
            return value.encode("utf-8")
        except UnicodeEncodeError:
            raise ProofError(f"{self.path(name)} is not Unicode text.") from None

    def octets(self, name: str) -> bytes:
        """Bytes, encoded as base64."""
        value = self._member(name)
        try:
            found = b64decode(value, validate=True) if isinstance(value, str) else None
        except (Base64Error, ValueError):
            found = None
        if found is None or b64encode(found).decode() != value:
            raise ProofError(f"{self.path(name)} is not canonical base64.")
        return found

    def hash(self, name: str) -> bytes:
        """A hash, encoded as an object."""
        return _hash(self._member(name), self.path, name)

    def hashes(self, name: str) -> list[bytes]:
        """A member that is a list of hashes."""
        return [_hash(one, self.path, f"{name}[{at}]") for at, one in enumerate(self.items(name))]

    def instant(self, name: str) -> ProofInstant:
        """A time: RFC 3339 in UTC with 0, 3, 6 or 9 fractional digits, as few as possible."""
        value = self._member(name)
        found = _TIME.fullmatch(value) if isinstance(value, str) else None
        if found is None or (found[7] or "1").endswith("000"):
            raise ProofError(f"{self.path(name)} is not a time in canonical form.")
        year, month, day, hour, minute, second = (int(found[number]) for number in range(1, 7))
        if hour > 23 or minute > 59 or second > 59:
            raise ProofError(f"{self.path(name)} is not a time in canonical form.")
        try:
            days = date(year, month, day).toordinal() - _EPOCH_DAY
        except ValueError:
            raise ProofError(f"{self.path(name)} is not a valid date.") from None
        nanos = int((found[7] or "").ljust(9, "0"))
        return ProofInstant(((days * 24 + hour) * 60 + minute) * 60 + second, nanos)


def _hash(value: object, path: Callable[[str], str], name: str) -> bytes:
    """A hash, parsed in one step: state proofs have hundreds."""
    text = value.get("value") if isinstance(value, Mapping) and len(value) == 1 else None
    if not isinstance(text, str) or not _HASH.fullmatch(text):
        raise ProofError(f"{path(name)} is not a hash of {HASH_BYTES} bytes in canonical base64.")
    return a2b_base64(text)


def _no_text(value: object) -> object:
    """Refuse a string where an object is expected: a nested document is not parsed from text."""
    return None if isinstance(value, str | bytes) else value
