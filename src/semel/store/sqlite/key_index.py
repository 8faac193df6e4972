"""A memory index from the 64-bit hash of a key to the places (rowids) of the rows that may have that key.

The index gives candidates, never answers: a caller reads each candidate row and compares its key. A hash collision, an
entry of a deleted row or a duplicate entry costs a read and nothing else; only a missing entry would be an error.

Structure: linear hashing. A bucket is a `bytearray` of 16-byte entries (hash, place), searched by `bytearray.find`. An
addition splits at most one bucket, so the index grows without a pause. Places are added in ascending order, so that the
entries of a bucket are in that order too and the oldest ones are a prefix of it.

A crash loses the index; the store builds it again from the rows. Readers in other threads hold `lock` while they
search, and the writer holds it while it changes the index; the writer's own searches need no lock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from itertools import count
from struct import Struct

BUCKET_ENTRIES = 32
"""Mean number of entries in a bucket: the bytearrays then stay below 512 bytes, where Python packs them tightly."""
BYTES_PER_KEY = 22
"""Measured resident bytes of one entry, with the overhead of its bucket (see `python -m bench key_index`)."""

_ENTRY = Struct("<qq")
_HASH = Struct("<q")
_SIZE = _ENTRY.size


class KeyIndex:
    """Maps hashes to places. `expected` is the number of entries for which buckets are made at once."""

    def __init__(self, expected: int = 0) -> None:
        self.lock = threading.Lock()
        level = max(expected // BUCKET_ENTRIES, 1).bit_length() - 1
        self._buckets = [bytearray() for _ in range(1 << level)]
        self._mask = (1 << level) - 1
        self._split = 0
        """The next bucket to split; the buckets before it have been split at this level."""
        self._count = 0
        self._room = BUCKET_ENTRIES << level

    def __len__(self) -> int:
        return self._count

    def add(self, hashed: int, place: int) -> None:
        """Add one entry; its place is above all others of the index."""
        at = hashed & self._mask
        if at < self._split:
            at = hashed & (self._mask * 2 + 1)
        self._buckets[at] += _ENTRY.pack(hashed, place)
        self._count += 1
        if self._count > self._room:
            self._grow()

    def load(self, entries: Iterable[tuple[int, int]]) -> None:
        """Add many entries (hash, place), in ascending order of the places."""
        for hashed, place in entries:
            self.add(hashed, place)

    def extend(self, hashes: Iterable[int], first: int) -> None:
        """Add one entry for each hash, at consecutive places."""
        self.load(zip(hashes, count(first)))

    def places(self, hashed: int) -> list[int]:
        """The candidate places of a hash; almost always none or one."""
        at = hashed & self._mask
        if at < self._split:
            at = hashed & (self._mask * 2 + 1)
        bucket = self._buckets[at]
        at = bucket.find(_HASH.pack(hashed))
        return [] if at < 0 else places_in(bucket, hashed, at)

    def remove(self, hashed: int, place: int) -> None:
        """Remove one entry, if it is there."""
        bucket = self._buckets[self._address(hashed)]
        at = bucket.find(_ENTRY.pack(hashed, place))
        while at >= 0 and at % _SIZE:
            at = bucket.find(_ENTRY.pack(hashed, place), at + 1)
        if at >= 0:
            del bucket[at : at + _SIZE]
            self._count -= 1

    @property
    def buckets(self) -> int:
        """The number of buckets."""
        return len(self._buckets)

    def forget(self, number: int, last: int) -> None:
        """Remove the entries of one bucket whose places are not above `last`."""
        bucket = self._buckets[number]
        end = entries_upto(bucket, last) * _SIZE
        if end:
            self._buckets[number] = bucket[end:]
            self._count -= end // _SIZE

    def _address(self, hashed: int) -> int:
        at = hashed & self._mask
        return hashed & (self._mask * 2 + 1) if at < self._split else at

    def _grow(self) -> None:
        """Split one bucket in two, by the next bit of the hashes."""
        bit = self._mask + 1
        stay, move = bytearray(), bytearray()
        for entry in _ENTRY.iter_unpack(self._buckets[self._split]):
            if entry[0] & bit:
                move += _ENTRY.pack(*entry)
            else:
                stay += _ENTRY.pack(*entry)
        self._buckets[self._split] = stay
        self._buckets.append(move)
        self._split += 1
        if self._split == bit:
            self._split, self._mask = 0, self._mask * 2 + 1
        self._room += BUCKET_ENTRIES


def packed(hashed: int, place: int) -> bytes:
    """One entry as bytes."""
    return _ENTRY.pack(hashed, place)


def places_in(entries: bytes | bytearray, hashed: int, at: int = 0) -> list[int]:
    """The places that packed entries have for a hash; the search begins at byte `at`."""
    found = []
    wanted = _HASH.pack(hashed)
    at = entries.find(wanted, at)
    while at >= 0:
        if at % _SIZE == 0:
            found.append(_ENTRY.unpack_from(entries, at)[1])
        at = entries.find(wanted, at + 1)
    return found


def entries_upto(entries: bytes | bytearray, last: int) -> int:
    """The number of leading entries whose places are not above `last`."""
    low, high = 0, len(entries) // _SIZE
    while low < high:
        middle = (low + high) // 2
        if _ENTRY.unpack_from(entries, middle * _SIZE)[1] <= last:
            low = middle + 1
        else:
            high = middle
    return low
