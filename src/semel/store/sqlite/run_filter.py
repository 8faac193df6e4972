"""A filter in memory over the runs of a log table: most keys that are not in the runs are recognized without a read.

Format: for each bucket of the runs, two bytes of the hash of each of its entries. A key of a bucket with 300 entries
passes by chance in about 1 of 100 cases; then the bucket is read. The filters of all log tables share a limit on
their bytes: the buckets beyond it are left out, and always read.

The promise: a filter has every entry that its bucket has in the last committed state. It is for the writer only: a
snapshot may show an older state of the bucket. A crash loses it; the next start builds it from the runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

BUCKETS = 1 << 14
"""Buckets of the runs of a log table: a million keys are 61 entries, or one kilobyte, for each."""
BUCKET_SHIFT = 64 - BUCKETS.bit_length() + 1
_ENTRY_BYTES = 16
_MARK = Struct("<H")
_OBJECT_BYTES = 96
"""Memory of an entry of a dictionary and of a short `bytes` object, besides its content."""

FILTER_BYTES_PER_KEY = 2


class FilterBudget:
    """The bytes that the filters of all log tables may still take."""

    def __init__(self, left: int) -> None:
        self.left = left


class RunFilter:
    """The filter of the runs of one log table."""

    def __init__(self, budget: FilterBudget) -> None:
        self._budget = budget
        self._buckets: dict[int, bytes] = {}
        self._left_out: set[int] = set()
        self._is_cleared = False
        self.bytes = 0
        """The memory that it takes."""

    def set(self, bucket: int, entries: bytes) -> None:
        """Take over the entries of a bucket, after their COMMIT."""
        self._remove(bucket)
        marks = bytearray(len(entries) // _ENTRY_BYTES * FILTER_BYTES_PER_KEY)
        marks[0::2], marks[1::2] = entries[0::_ENTRY_BYTES], entries[1::_ENTRY_BYTES]
        size = len(marks) + _OBJECT_BYTES
        if size <= self._budget.left:
            self._budget.left -= size
            self.bytes += size
            self._buckets[bucket] = bytes(marks)
            self._left_out.discard(bucket)
        else:
            self._left_out.add(bucket)

    def passing(self, hashes: Iterable[int]) -> dict[int, list[int]]:
        """Those of the hashes that may have an entry, by bucket."""
        found: dict[int, list[int]] = {}
        marks_of, pack = self._buckets.get, _MARK.pack
        for hashed in hashes:
            bucket = bucket_of(hashed)
            marks = marks_of(bucket)
            if marks is None:
                if not (self._is_cleared or bucket in self._left_out):
                    continue
            else:
                wanted = pack(hashed & 0xFFFF)
                at = marks.find(wanted)
                while at >= 0 and at & 1:
                    at = marks.find(wanted, at + 1)
                if at < 0:
                    continue
            found.setdefault(bucket, []).append(hashed)
        return found

    def clear(self) -> None:
        """Give all memory back; every bucket is read from now on."""
        self._budget.left += self.bytes
        self.bytes = 0
        self._buckets = {}
        self._is_cleared = True

    def _remove(self, bucket: int) -> None:
        marks = self._buckets.pop(bucket, None)
        if marks is not None:
            size = len(marks) + _OBJECT_BYTES
            self.bytes -= size
            self._budget.left += size


def bucket_of(hashed: int) -> int:
    """The bucket of a hash."""
    return (hashed & 0xFFFFFFFFFFFFFFFF) >> BUCKET_SHIFT
