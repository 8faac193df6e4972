"""Partition names: normalized to NFC, deduplicated, sorted by code point; then checked for length.

Python sorts strings by code point, which is the order of their UTF-8 bytes and not that of UTF-16.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple
from unicodedata import is_normalized, normalize

from semel.kernel.json.fragment import dump
from semel.surfaces.events.limits import MAX_NAME_BYTES, MAX_NAMES

SHRINKS_AT_MOST = 4
"""The largest number of characters that NFC joins into one: a letter with three marks."""
REMEMBERED, REMEMBERED_CHARACTERS = 1_024, 1_024


class PartitionError(ValueError):
    """The names are invalid; the message says why."""


class PartitionSet(NamedTuple):
    """Normalized names, as they are compared, printed and stored."""

    names: tuple[str, ...]
    text: bytes
    """A JSON array, which is its own canonical form."""
    keys: tuple[bytes, ...]


NO_PARTITIONS = PartitionSet((), b"[]", ())


def normalized(names: Iterable[str]) -> tuple[str, ...]:
    """The set that is stored and compared. Names that exceed the limits are refused before they are normalized."""
    found: set[str] = set()
    for name in set(names):
        if len(name) > SHRINKS_AT_MOST * MAX_NAME_BYTES:
            raise PartitionError(f"the name of a partition has more than {MAX_NAME_BYTES} bytes")
        found.add(normalize("NFC", name))
        if len(found) > MAX_NAMES:
            raise PartitionError(f"there are more than {MAX_NAMES} partitions")
    return tuple(sorted(found))


def checked(names: tuple[str, ...]) -> PartitionSet:
    """The normalized set, if it is within the limits. Cached, because clients send the same few sets again and
    again.
    """
    is_small = len(names) <= MAX_NAMES and sum(map(len, names)) <= REMEMBERED_CHARACTERS
    return _remembered(names) if is_small else _checked(names)


def _checked(names: tuple[str, ...]) -> PartitionSet:
    found = normalized(names)
    if not found:
        raise PartitionError("at least one partition is needed")
    for name in found:
        refuse_name(name)
    return PartitionSet(found, dump(found), tuple(name.encode() for name in found))


_remembered = lru_cache(maxsize=REMEMBERED)(_checked)


def refuse_name(name: str) -> None:
    """Refuse a normalized name that is empty, too long, or holds half of a surrogate pair."""
    if not name:
        raise PartitionError("the name of a partition is empty")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise PartitionError("the name of a partition holds half of a surrogate pair") from None
    if size > MAX_NAME_BYTES:
        raise PartitionError(f"the name of a partition has {size} bytes, and {MAX_NAME_BYTES} is the most")


def is_usable(name: str) -> bool:
    """Whether a name is already normalized and within the limits."""
    try:
        refuse_name(name)
    except PartitionError:
        return False
    return is_normalized("NFC", name)
