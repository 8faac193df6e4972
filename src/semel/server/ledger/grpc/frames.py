"""gRPC message framing: a flag, a length of four bytes, and that many bytes of content.

Sans I/O. A message that announces more than it may have is refused at its first five bytes, before anything of it is
kept; a compressed one is unpacked up to the same limit and not further.
"""

from __future__ import annotations

import gzip
import zlib
from typing import NamedTuple

from semel.contracts.ledger.refusals import RefusedLedger, invalid

PREFIX_BYTES = 5
IDENTITY, GZIP = b"identity", b"gzip"
ACCEPTED = b"identity,gzip"
WORTH_PACKING_BYTES = 1_024
_GZIP_WINDOW = 31  # zlib's word for a gzip header around the largest window


class Framed(NamedTuple):
    """A complete message, perhaps still compressed."""

    is_packed: bool
    content: bytes | bytearray


class Inbox:
    """The bytes of one call that are not a complete message yet."""

    __slots__ = ("_held", "_max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held = bytearray()

    @property
    def is_empty(self) -> bool:
        """Whether the last message is whole."""
        return not self._held

    def feed(self, data: bytes) -> list[Framed]:
        """The messages that these bytes complete."""
        if not self._held and len(data) >= PREFIX_BYTES and self._size(data) == len(data) - PREFIX_BYTES:
            return [Framed(data[0] == 1, data[PREFIX_BYTES:])]
        held = self._held
        held += data
        found = []
        while len(held) >= PREFIX_BYTES:
            end = PREFIX_BYTES + self._size(held)
            if len(held) < end:
                break
            is_packed = held[0] == 1
            if len(held) == end:
                del held[:PREFIX_BYTES]  # which copies nothing: a large message is copied in a thread, not here
                self._held = bytearray()
                found.append(Framed(is_packed, held))
                break
            found.append(Framed(is_packed, bytes(held[PREFIX_BYTES:end])))
            del held[:end]
        return found

    def _size(self, data: bytes | bytearray) -> int:
        if data[0] > 1:
            raise invalid("A message begins with a flag of 0 or 1.")
        size = int.from_bytes(data[1:PREFIX_BYTES], "big")
        if size > self._max_bytes:
            raise too_large(self._max_bytes)
        return size


def too_large(max_bytes: int) -> RefusedLedger:
    """The refusal of a message that is larger than this server takes."""
    return invalid(f"A message may have at most {max_bytes} bytes.", "message")


def unpacked_size(framed: Framed, max_bytes: int) -> int:
    """How many bytes the content of a message has when it is unpacked, as its end says; too many are refused here."""
    size = int.from_bytes(framed.content[-4:], "little") if framed.is_packed else len(framed.content)
    if size > max_bytes:
        raise too_large(max_bytes)
    return size


def unpack(framed: Framed, encoding: bytes, max_bytes: int) -> bytes | bytearray:
    """The content of a message, not compressed any more; never more of it than was announced.

    Of one that was not compressed it is the content itself: who has read it may clear it.
    """
    size = unpacked_size(framed, max_bytes)
    if not framed.is_packed:
        return framed.content
    if encoding != GZIP:
        raise invalid("The message is marked as compressed, and grpc-encoding names no compression.")
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    try:
        content = unpacker.decompress(framed.content, size + 1)
    except zlib.error as error:
        raise invalid("The message is not valid gzip.") from error
    if len(content) != size or not unpacker.eof or unpacker.unused_data:
        raise invalid("The message is not valid gzip.")
    return content


def frame(content: bytes, is_packed: bool = False) -> bytes:
    """A message as it is sent; packed only where that is worth it."""
    if is_packed and len(content) >= WORTH_PACKING_BYTES:
        packed = gzip.compress(content, 1)
        return prefix_of(packed, is_packed=True) + packed
    return prefix_of(content) + content


def prefix_of(content: bytes, *, is_packed: bool = False) -> bytes:
    """The prefix of a message's content."""
    return bytes((is_packed,)) + len(content).to_bytes(4, "big")
