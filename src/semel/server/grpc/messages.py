"""Messages of a call: the length-prefixed frames that carry them, gzip, and a limit on their protobuf fields.

Sans I/O. A message that announces more bytes than the limit is rejected at its first five bytes, before any of it is
kept; a compressed message is decompressed up to the same limit and no further.

Two bytes on the wire can become an object of a hundred bytes, and unknown fields become objects too. The fields of a
message are therefore counted before protobuf parses it, and counting stops at the limit.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from semel.server.grpc.metadata import GZIP, GrpcError, invalid_message

M = TypeVar("M", bound=Message)
T = TypeVar("T")

Content = bytes | bytearray
"""A message as it arrived."""
OPEN_BYTES = 4 * 1024
"""The largest message of a call that needs no credential, in bytes."""
SPARE_FIELDS = 64
"""Limit on the fields of a message besides the repeated ones: all known fields, and some unknown ones."""
PREFIX_BYTES = 5
WORTH_PACKING_BYTES = 1_024
_GZIP_WINDOW = 31  # zlib's code for a gzip header with the largest window
_SHORTEST = 2
"""The smallest number of bytes of a field: a tag and a value."""
_VARINT, _FIXED64, _PIECE, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


# ---- Frames ----


class FramedMessage(NamedTuple):
    """A complete message, possibly compressed."""

    is_packed: bool
    content: bytes | bytearray


class MessageBuffer:
    """The bytes of one call that are not a complete message yet."""

    __slots__ = ("_held", "_max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held = bytearray()

    @property
    def is_empty(self) -> bool:
        """Whether the last message is complete."""
        return not self._held

    def feed(self, data: bytes) -> list[FramedMessage]:
        """Add bytes and return the messages that they complete."""
        if not self._held and len(data) >= PREFIX_BYTES and self._size(data) == len(data) - PREFIX_BYTES:
            return [FramedMessage(data[0] == 1, data[PREFIX_BYTES:])]
        held = self._held
        held += data
        found = []
        while len(held) >= PREFIX_BYTES:
            end = PREFIX_BYTES + self._size(held)
            if len(held) < end:
                break
            is_packed = held[0] == 1
            if len(held) == end:
                del held[:PREFIX_BYTES]  # this copies nothing: a large message is copied in a thread, not here
                self._held = bytearray()
                found.append(FramedMessage(is_packed, held))
                break
            found.append(FramedMessage(is_packed, bytes(held[PREFIX_BYTES:end])))
            del held[:end]
        return found

    def _size(self, data: bytes | bytearray) -> int:
        if data[0] > 1:
            raise invalid_message("A message begins with a flag of 0 or 1.")
        size = int.from_bytes(data[1:PREFIX_BYTES], "big")
        if size > self._max_bytes:
            raise too_large(self._max_bytes)
        return size


def too_large(max_bytes: int) -> GrpcError:
    """The refusal of a message that is larger than the limit."""
    return invalid_message(f"A message may have at most {max_bytes} bytes.", "message")


def unpacked_size(framed: FramedMessage, max_bytes: int) -> int:
    """The size of a message after decompression, as its gzip trailer says; a size above the limit is refused."""
    size = int.from_bytes(framed.content[-4:], "little") if framed.is_packed else len(framed.content)
    if size > max_bytes:
        raise too_large(max_bytes)
    return size


def unpack(framed: FramedMessage, encoding: bytes, max_bytes: int) -> bytes | bytearray:
    """The decompressed content of a message; never more bytes than its trailer announced.

    For an uncompressed message the content itself is returned: the caller may clear it.
    """
    size = unpacked_size(framed, max_bytes)
    if not framed.is_packed:
        return framed.content
    if encoding != GZIP:
        raise invalid_message("The message is marked as compressed, but grpc-encoding names no compression.")
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    try:
        content = unpacker.decompress(framed.content, size + 1)
    except zlib.error as error:
        raise invalid_message("The message is not valid gzip.") from error
    if len(content) != size or not unpacker.eof or unpacker.unused_data:
        raise invalid_message("The message is not valid gzip.")
    return content


def frame(content: bytes, is_packed: bool = False) -> bytes:
    """A message as it is sent; compressed only if that makes it smaller."""
    if is_packed and len(content) >= WORTH_PACKING_BYTES:
        packed = gzip.compress(content, 1)
        return prefix_of(packed, is_packed=True) + packed
    return prefix_of(content) + content


def prefix_of(content: bytes, *, is_packed: bool = False) -> bytes:
    """The five bytes before the content of a message."""
    return bytes((is_packed,)) + len(content).to_bytes(4, "big")


# ---- Fields ----


class WireField(NamedTuple):
    """A field: its number, and the range of its content if it has a length; numbers have none."""

    number: int
    start: int
    end: int
    has_content: bool = False


def unreadable(name: str) -> GrpcError:
    """The refusal of bytes that are not such a message."""
    return invalid_message(f"The message cannot be read as {name}.", "message")


def may_exceed(content: Content, most: int) -> bool:
    """Whether a message is long enough for more than `most` fields; a short one need not be counted."""
    return len(content) > _SHORTEST * most


def count_fields(content: Content, most: int, start: int = 0, end: int | None = None) -> int:
    """The number of fields in a message or a part of it; counting stops above the limit."""
    return sum(1 for _ in islice(wire_fields(content, start, end), most + 1))


def wire_fields(content: Content, start: int = 0, end: int | None = None) -> Iterator[WireField]:
    """The fields of a message, one by one; nested fields are not read."""
    place, end = start, len(content) if end is None else end
    while place < end:
        tag, start = _varint(content, place)
        kind = tag & 7
        if kind == _PIECE:
            size, start = _varint(content, start)
            place = start + size
        elif kind == _VARINT:
            _, place = _varint(content, start)
            start = place
        elif kind in (_FIXED64, _FIXED32):
            place = start = start + (8 if kind == _FIXED64 else 4)
        else:
            raise unreadable("one of ours: there is a group in it")
        if place > end:
            raise unreadable("one of ours: its end is missing")
        yield WireField(tag >> 3, start, place, kind == _PIECE)


def _varint(content: Content, place: int) -> tuple[int, int]:
    """A varint, and the offset after it."""
    value = 0
    for turn, byte in enumerate(content[place : place + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * turn)
        if byte < 0x80:
            return value, place + turn + 1
    raise unreadable("one of ours: a number in it has no end")


# ---- Parsing ----


def parser(
    kind: type[M], convert: Callable[[M], T], check: Callable[[Content], None] | None = None
) -> Callable[[Content], T]:
    """A function that parses the bytes of a message; `check` may reject the bytes before they are parsed."""
    check_content = check_fields if check is None else check

    def parse(content: Content) -> T:
        check_content(content)
        try:
            message = kind.FromString(bytes(content))
        except DecodeError:
            raise unreadable(kind.DESCRIPTOR.full_name) from None
        return convert(message)

    return parse


def check_fields(content: Content, repeated: int = 0) -> None:
    """Reject a message with many more fields than it may have, before each of them becomes an object."""
    most = repeated + SPARE_FIELDS
    if may_exceed(content, most) and count_fields(content, most) > most:
        raise invalid_message("The message has too many fields.", "message")


def same(message: M) -> M:
    """The identity function, for a message that needs no conversion."""
    return message
