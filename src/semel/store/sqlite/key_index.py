"""A memory index from the 64-bit hash of a key to the places (rowids) of the rows that may have that key.

The index gives candidates, never answers: a caller reads each candidate row and compares its key. A hash collision, an
entry of a deleted row or a duplicate entry costs a read and nothing else; only a missing entry would be an error.

Structure: linear hashing. A bucket is a `bytes` object of 16-byte entries (hash, place), searched by `bytes.find`. An
addition splits at most one bucket, so the index grows without a pause.

A crash loses the index; the store builds it again from the rows. Readers in other threads hold `lock` while they
search, and the writer holds it while it changes the index; the writer's own searches need no lock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from itertools import count
from struct import Struct

BUCKET_ENTRIES = 16
"""Mean number of entries in a bucket: most buckets then stay below 512 bytes, where Python packs objects tightly."""
BYTES_PER_KEY = 24
"""Measured resident bytes of one entry, with the overhead of its bucket (see `python -m bench key_index`)."""

_ENTRY = Struct("<qq")
_HASH = Struct("<q")
_SIZE = _ENTRY.size


class KeyIndex:
    """Maps hashes to places. `expected` is the number of entries for which buckets are made at once."""

    def __init__(self, expected: int = 0) -> None:
        self.lock = threading.Lock()
        level = max(expected // BUCKET_ENTRIES, 1).bit_length() - 1
        self._buckets = [b""] * (1 << level)
        self._mask = (1 << level) - 1
        self._split = 0
        """The next bucket to split; the buckets before it have been split at this level."""
        self._count = 0
        self._room = BUCKET_ENTRIES << level

    def __len__(self) -> int:
        return self._count

    def add(self, hashed: int, place: int) -> None:
        """Add one entry."""
        at = hashed & self._mask
        if at < self._split:
            at = hashed & (self._mask * 2 + 1)
        self._buckets[at] += _ENTRY.pack(hashed, place)
        self._count += 1
        if self._count > self._room:
            self._grow()

    def load(self, entries: Iterable[tuple[int, int]]) -> None:
        """Add many entries (hash, place)."""
        buckets, mask, split, pack = self._buckets, self._mask, self._split, _ENTRY.pack
        for hashed, place in entries:
            at = hashed & mask
            if at < split:
                at = hashed & (mask * 2 + 1)
            buckets[at] += pack(hashed, place)
            self._count += 1
            if self._count > self._room:
                self._grow()
                mask, split = self._mask, self._split

    def extend(self, hashes: Iterable[int], first: int) -> None:
        """Add one entry for each hash, at consecutive places."""
        self.load(zip(hashes, count(first)))

    def places(self, hashed: int) -> list[int]:
        """The candidate places of a hash; almost always none or one."""
        return self.gather((hashed,))

    def gather(self, hashes: Iterable[int]) -> list[int]:
        """The candidate places of all these hashes."""
        found: list[int] = []
        buckets, mask, split, pack, unpack = self._buckets, self._mask, self._split, _HASH.pack, _ENTRY.unpack_from
        for hashed in hashes:
            at = hashed & mask
            if at < split:
                at = hashed & (mask * 2 + 1)
            bucket, wanted = buckets[at], pack(hashed)
            at = bucket.find(wanted)
            while at >= 0:
                if at % _SIZE == 0:  # else these bytes are not the hash of an entry
                    found.append(unpack(bucket, at)[1])
                at = bucket.find(wanted, at + 1)
        return found

    def remove(self, hashed: int, place: int) -> None:
        """Remove one entry, if it is there."""
        number, entry = self._address(hashed), _ENTRY.pack(hashed, place)
        bucket = self._buckets[number]
        at = bucket.find(entry)
        while at >= 0 and at % _SIZE:
            at = bucket.find(entry, at + 1)
        if at >= 0:
            self._buckets[number] = bucket[:at] + bucket[at + _SIZE :]
            self._count -= 1

    def _address(self, hashed: int) -> int:
        at = hashed & self._mask
        return hashed & (self._mask * 2 + 1) if at < self._split else at

    def _grow(self) -> None:
        """Split one bucket in two, by the next bit of the hashes."""
        bit = self._mask + 1
        bucket = self._buckets[self._split]
        byte, bit_there = (bit.bit_length() - 1) // 8, 1 << (bit.bit_length() - 1) % 8
        entries = [bucket[at : at + _SIZE] for at in range(0, len(bucket), _SIZE)]
        self._buckets[self._split] = b"".join([entry for entry in entries if not entry[byte] & bit_there])
        self._buckets.append(b"".join([entry for entry in entries if entry[byte] & bit_there]))
        self._split += 1
        if self._split == bit:
            self._split, self._mask = 0, self._mask * 2 + 1
        self._room += BUCKET_ENTRIES
