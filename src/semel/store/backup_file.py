"""The file of a backup: frames with checksums, written in one pass and read in one pass.

    file   magic (12 bytes), format version (1 byte), one header, pages, one end
    frame  kind (1 byte), number of content bytes (4 bytes), content,
           SHA-256 of every byte of the file before this checksum (32 bytes)

The header and the end are JSON. A page is the number of its part (2 bytes) and its rows, column by column, compressed
with zstd. The end has the number of rows of each part, and its checksum is that of the whole file. So every changed,
missing, moved or added byte is found at the end of its frame at the latest, before the content of the frame is used. A
file without an end was not finished.

Memory is bounded by the largest page, and a page by the rows that a snapshot gives at once.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from semel.store.protocol import AnyTable, Row, StoreError
from semel.store.table import ColumnKind, TableColumn, TablePart, parts_of

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAGIC = b"\x89SEMELBAK\r\n\x1a"
"""The first bytes. A transfer that changes line ends or the eighth bit of bytes changes them too."""
FORMAT = 2
MAX_CONTENT_BYTES = 2**31 - 1
"""Limit of a frame, and of a page before its compression. The largest row of a store has 1,000,000,000 bytes."""
_LEVEL = 3
_HEAD = struct.Struct(">cI")
_PART = struct.Struct(">H")
_COUNT = struct.Struct(">I")
_DIGEST_BYTES = 32
_HEADER, _PAGE, _END = b"H", b"P", b"E"
_NUMBERS = {ColumnKind.I64: "q", ColumnKind.U64: "Q"}
_FILL: Mapping[ColumnKind, Any] = {ColumnKind.I64: 0, ColumnKind.U64: 0, ColumnKind.BYTES: b""}


class BackupFileError(StoreError):
    """The file is no backup, is damaged or not complete, or is of another version. Nothing was restored from it."""


class ByteSource(Protocol):
    """An open file, or anything else that is read from its beginning to its end."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most this number; none at the end."""


class ByteSink(Protocol):
    """An open file, or anything else that is written from its beginning to its end."""

    def write(self, data: bytes, /) -> Any:
        """Write all of these bytes."""


class BackupHeader(NamedTuple):
    """The facts of a backup that are known at its beginning."""

    version: str
    """The version of Semel that wrote it."""
    schema: int
    """The schema version of its rows."""
    taken_at: int
    """The instant of the snapshot in milliseconds since 1970, by the clock of the store."""
    source: str
    """The kind of the store: `sqlite` or `postgresql`."""
    is_moved: bool = False
    """Whether the store was marked as moved before this backup began, so that it took no write since."""


class BackupSummary(NamedTuple):
    """The facts of a whole backup, all of whose checksums were right."""

    header: BackupHeader
    rows: Mapping[TablePart, int]
    size: int
    """Bytes of the file."""
    sha256: str
    """The last checksum: that of all bytes before it."""

    @property
    def total(self) -> int:
        """The number of all rows."""
        return sum(self.rows.values())


class BackupPage(NamedTuple):
    """Some rows of one part, in the order in which they are written back."""

    part: TablePart
    rows: Sequence[Row]


class BackupWriter:
    """Writes the frames of one file: a header, pages in the order of `parts_of`, and `finish`."""

    def __init__(self, sink: ByteSink, header: BackupHeader, tables: Sequence[AnyTable]) -> None:
        self._sink = sink
        self._header = header
        self._sum = hashlib.sha256()
        self._size = 0
        self._rows = dict.fromkeys(parts_of(tables), 0)
        self._numbers = {part: number for number, part in enumerate(self._rows)}
        self._put(MAGIC + bytes([FORMAT]))
        self._frame(_HEADER, _as_json({**header._asdict(), "parts": list(map(_described, self._rows))}))

    def page(self, part: TablePart, rows: Sequence[Row]) -> None:
        """Write a page."""
        packed = zstd.compress(pack_rows(part.table.columns, rows), _LEVEL)
        self._frame(_PAGE, _PART.pack(self._numbers[part]) + packed)
        self._rows[part] += len(rows)

    def finish(self) -> BackupSummary:
        """Write the end; without it the file is not complete."""
        self._frame(_END, _as_json({"rows": list(self._rows.values())}))
        return BackupSummary(self._header, self._rows, self._size, self._last.hex())

    def _frame(self, kind: bytes, content: bytes) -> None:
        if len(content) > MAX_CONTENT_BYTES:
            raise BackupFileError(f"A page has {len(content)} bytes, which is more than a backup can hold.")
        self._put(_HEAD.pack(kind, len(content)))
        self._put(content)
        self._last = self._sum.digest()
        self._put(self._last)

    def _put(self, data: bytes) -> None:
        self._sum.update(data)
        self._size += len(data)
        self._sink.write(data)


class BackupReader:
    """Reads one file from its beginning: the header at once, then the pages, and after the last page the summary."""

    def __init__(self, source: ByteSource, tables: Sequence[AnyTable]) -> None:
        self._source = source
        self._sum = hashlib.sha256()
        self.size = 0
        """Bytes read so far."""
        self._begin()
        content = self._frame(_HEADER)[1]
        facts = _from_json(content)
        self.header = BackupHeader(**{name: facts[name] for name in BackupHeader._fields})
        self._told = facts["parts"]
        self._parts = parts_of(tables)
        self._rows = [0] * len(self._parts)
        self._summary: BackupSummary | None = None

    def refuse_other_schema(self, version: int) -> None:
        """Raise unless the rows are of this schema version, with the same tables and columns."""
        own = self.header
        if own.schema > version:
            raise BackupFileError(
                f"The backup is of the newer schema version {own.schema}: use Semel {own.version}, which wrote it, "
                "or a newer one."
            )
        if own.schema < version:
            raise BackupFileError(
                f"The backup is of the older schema version {own.schema}: restore it with Semel {own.version}, which "
                "wrote it, then run `semel migrate` of this version."
            )
        if self._told != list(map(_described, self._parts)):
            raise BackupFileError(
                f"The tables of the backup are not those of this build: restore it with Semel {own.version}, which "
                "wrote it."
            )

    def pages(self) -> Iterator[BackupPage]:
        """All pages; each is checked before it is given, and the counts and the end of the file after the last one."""
        last = 0
        while True:
            kind, content = self._frame(_PAGE, _END)
            if kind == _END:
                break
            (number,) = _PART.unpack_from(content)
            if not last <= number < len(self._parts):
                raise BackupFileError("The backup has its tables in a wrong order.")
            last, part = number, self._parts[number]
            rows = unpack_rows(part.table, _decompressed(content[_PART.size :]))
            self._rows[number] += len(rows)
            yield BackupPage(part, rows)
        self._end(_from_json(content))

    @property
    def summary(self) -> BackupSummary:
        """The facts of the whole file, after the last page."""
        assert self._summary is not None, "the pages were read to their end"
        return self._summary

    def _begin(self) -> None:
        start = self._read(len(MAGIC) + 1, is_first=True)
        if start[: len(MAGIC)] != MAGIC:
            raise BackupFileError("This is not a backup of Semel.")
        if start[-1] != FORMAT:
            raise BackupFileError(
                f"The backup has the format version {start[-1]}, but this Semel reads version {FORMAT} only: use the "
                "Semel that wrote it."
            )

    def _end(self, facts: Mapping[str, Any]) -> None:
        digest = self._last
        if facts["rows"] != self._rows:
            raise BackupFileError("The backup is damaged: the numbers of its rows are not those of its pages.")
        if self._source.read(1):
            raise BackupFileError(f"The backup is damaged: it ends at byte {self.size}, and the file goes on.")
        rows = dict(zip(self._parts, self._rows, strict=True))
        self._summary = BackupSummary(self.header, rows, self.size, digest.hex())

    def _frame(self, *kinds: bytes) -> tuple[bytes, bytes]:
        start = self.size
        kind, length = _HEAD.unpack(self._read(_HEAD.size))
        if kind not in kinds or length > MAX_CONTENT_BYTES:
            raise BackupFileError(f"The backup is damaged at byte {start}.")
        content = self._read(length)
        expected = self._sum.digest()
        self._last = self._read(_DIGEST_BYTES)
        if self._last != expected:
            raise BackupFileError(f"The backup is damaged between the bytes {start} and {self.size}: a wrong checksum.")
        return kind, content

    def _read(self, length: int, *, is_first: bool = False) -> bytes:
        pieces, left = list[bytes](), length
        while left and (piece := self._source.read(left)):
            pieces.append(piece)
            left -= len(piece)
        data = b"".join(pieces)
        self._sum.update(data)
        self.size += len(data)
        if left and is_first:
            raise BackupFileError("This is not a backup of Semel.")
        if left:
            raise BackupFileError(f"The backup is not complete: it ends at byte {self.size}, in the middle.")
        return data


def pack_rows(columns: Sequence[TableColumn], rows: Sequence[Row]) -> bytes:
    """Rows column by column: their number, then for each column the nulls if it can have any, and the values."""
    packed = [_COUNT.pack(len(rows))]
    for column, given in zip(columns, zip(*rows, strict=True), strict=True):
        values = given
        if column.nullable:
            packed.append(bytes(value is None for value in given))
            values = tuple(_FILL[column.kind] if value is None else value for value in given)
        if column.kind is ColumnKind.BYTES:
            packed.append(struct.pack(f">{len(rows)}I", *map(len, values)))
            packed += values
        else:
            packed.append(struct.pack(f">{len(rows)}{_NUMBERS[column.kind]}", *values))
    return b"".join(packed)


def unpack_rows(table: AnyTable, packed: bytes) -> list[Row]:
    """The rows of `pack_rows`."""
    (count,), place = _COUNT.unpack_from(packed), _COUNT.size
    columns: list[Sequence[Any]] = []
    for column in table.columns:
        nulls = b""
        if column.nullable:
            nulls, place = packed[place : place + count], place + count
        numbers = struct.Struct(f">{count}{_NUMBERS.get(column.kind, 'I')}")
        values: Sequence[Any] = numbers.unpack_from(packed, place)
        place += numbers.size
        if column.kind is ColumnKind.BYTES:
            values, place = _sliced(packed, place, values)
        if any(nulls):
            values = [None if is_null else value for is_null, value in zip(nulls, values, strict=True)]
        columns.append(values)
    return list(map(table.row._make, zip(*columns, strict=True)))


def _sliced(packed: bytes, place: int, lengths: Sequence[int]) -> tuple[list[bytes], int]:
    values = []
    for length in lengths:
        values.append(packed[place : place + length])
        place += length
    return values, place


def _decompressed(content: bytes) -> bytes:
    reader = zstd.ZstdDecompressor()
    data = reader.decompress(content, MAX_CONTENT_BYTES)
    if not reader.eof:
        raise BackupFileError(f"A page of the backup has more than {MAX_CONTENT_BYTES} bytes.")
    return data


def _described(part: TablePart) -> list[Any]:
    columns = [[one.name, one.kind.value, one.nullable] for one in part.table.columns]
    return [part.table.name, part.age, part.table.key, columns]


def _as_json(facts: Mapping[str, Any]) -> bytes:
    return json.dumps(facts, separators=(",", ":")).encode()


def _from_json(content: bytes) -> Mapping[str, Any]:
    facts: Mapping[str, Any] = json.loads(content)
    return facts
