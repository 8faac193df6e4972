"""The checksums of rows: stored with each row, so that a check finds a changed bit in any of its columns.

A table whose row ends with the column `checksum` has them. The engine computes them for the rows that it writes; copies
and backups carry them as they are, so that damage is found in the copy too. Nothing reads a checksum but a check of the
store. It is a CRC-32: it finds damage by accident, and is no proof against a person who changes rows on purpose.

A soft change writes single columns and not the checksum, so the columns that have soft changes are left out of it. So
are columns that another check compares with other rows, where the time of each write counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Any
from zlib import crc32

if TYPE_CHECKING:
    from semel.store.table import TableColumn

COLUMN = "checksum"
PRIME = 4_294_967_291
"""The greatest prime below 2**32: a number modulo this one depends on each of its bits."""
_new_tuple = tuple.__new__

Values = tuple[Any, ...]
ChecksumOf = Callable[[Values], int]
"""The checksum of a row."""


def row_checksum(
    columns: Sequence[TableColumn], left_out: Collection[str], left_out_if: Callable[[Any], bool] | None
) -> ChecksumOf:
    """A function that computes the checksum of a row.

    `left_out_if` says of which rows the columns are left out; without it they are left out of all.
    """
    in_part = _checksum_over(columns, left_out)
    if left_out_if is None:
        return in_part
    whole = _checksum_over(columns, ())
    return lambda row: in_part(row) if left_out_if(row) else whole(row)


def _checksum_over(columns: Sequence[TableColumn], left_out: Collection[str]) -> ChecksumOf:
    counted = [(at, one) for at, one in enumerate(columns) if one.name != COLUMN and one.name not in left_out]
    texts_of = _getter([at for at, one in counted if not one.nullable and one.kind.value == "bytes"])
    numbers = [(at, one.kind.value) for at, one in counted if not one.nullable and one.kind.value != "bytes"]
    numbers_of = _getter([at for at, _ in numbers])
    pack = Struct(">" + "".join("Q" if kind == "u64" else "q" for _, kind in numbers)).pack
    optional = [at for at, one in counted if one.nullable]
    optional_of = _getter(optional)

    def checksum_of(row: Values) -> int:
        return crc32(b"\xff".join(texts_of(row)), crc32(pack(*numbers_of(row))))

    def checksum_with_optional(row: Values) -> int:
        values = optional_of(row)
        found = checksum_of(row)
        return found if values.count(None) == len(optional) else crc32(b"\xff".join(map(_dumped, values)), found)

    return checksum_with_optional if optional else checksum_of


def with_checksums(row_type: type[Any], checksum_of: ChecksumOf, rows: Sequence[Any]) -> list[Any]:
    """These rows, each with its checksum in the last column."""
    return [_new_tuple(row_type, (*row[:-1], checksum_of(row))) for row in rows]


def _dumped(value: int | bytes | None) -> bytes:
    if isinstance(value, bytes):
        return b"b" + value
    return b"" if value is None else b"%d" % value


def _getter(places: Sequence[int]) -> Callable[[Values], Values]:
    if not places:
        return lambda row: ()
    if len(places) == 1:
        place = places[0]
        return lambda row: (row[place],)
    return itemgetter(*places)
