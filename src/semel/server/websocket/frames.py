"""Frames of RFC 6455 that need no state: whole data messages of a client, and the frames of the server.

Most messages are one masked frame that arrives whole. `cut_message` reads it without the generators of `websockets`,
which keep the state of a protocol byte by byte. Everything else (control frames, fragments, parts of a frame, frames
that break the protocol) is left to `websockets`; `FrameEnds` then says where the next frame begins.
"""

from __future__ import annotations

from typing import NamedTuple

from websockets.frames import Opcode

try:
    from websockets.speedups import apply_mask
except ImportError:  # the platform has no wheel with the C function
    from websockets.utils import apply_mask

_FINAL = 0x80
_TEXT, _BINARY = _FINAL | Opcode.TEXT, _FINAL | Opcode.BINARY
_MASKED = 0x80
_LENGTH = 0x7F
_TWO_BYTES, _EIGHT_BYTES = 126, 127
_MASK_BYTES = 4
_NO_MASK = bytes(_MASK_BYTES)


class WholeMessage(NamedTuple):
    """A message of one frame."""

    body: bytes
    is_text: bool
    end: int
    """The index of the first byte after the frame."""


def cut_message(data: bytes, at: int, most: int) -> WholeMessage | None:
    """The message whose frame begins at this index, of at most `most` bytes; None if it has to be parsed."""
    available = len(data) - at
    if available < 6:
        return None
    kind, length = data[at], data[at + 1] - _MASKED
    if (kind != _TEXT and kind != _BINARY) or length < 0:
        return None
    start = at + 2
    if length >= _TWO_BYTES:
        start += 2 if length == _TWO_BYTES else 8
        length = int.from_bytes(data[at + 2 : start], "big")
    start += _MASK_BYTES
    end = start + length
    if end > len(data) or length > most:
        return None
    body, mask = data[start:end], data[start - _MASK_BYTES : start]
    return WholeMessage(body if mask == _NO_MASK else apply_mask(body, mask), kind == _TEXT, end)


def frame_of(kind: Opcode, body: bytes) -> bytes:
    """A whole frame of the server, which is not masked."""
    size = len(body)
    if size < _TWO_BYTES:
        return b"%c%c%b" % (_FINAL | kind, size, body)
    if size < 65_536:
        return b"%c%c%b%b" % (_FINAL | kind, _TWO_BYTES, size.to_bytes(2, "big"), body)
    return b"%c%c%b%b" % (_FINAL | kind, _EIGHT_BYTES, size.to_bytes(8, "big"), body)


class FrameEnds:
    """Follows the frames of a client through pieces of any size."""

    def __init__(self) -> None:
        self._head = b""
        self._left = 0
        """Bytes of the present frame that are still to come, after its head."""

    def follow(self, data: bytes) -> bool:
        """Whether a frame ends with the last byte of this piece."""
        at = 0
        while at < len(data):
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
                continue
            missing = _head_bytes(self._head) - len(self._head)
            self._head += data[at : at + missing]
            at += missing
            if len(self._head) == _head_bytes(self._head):
                self._left = _length_of(self._head)
                self._head = b""
        return not (self._head or self._left)


def _head_bytes(head: bytes) -> int:
    """The length of a frame's head, as far as it is known."""
    if len(head) < 2:
        return 2
    length = head[1] & _LENGTH
    mask = _MASK_BYTES if head[1] & _MASKED else 0
    return 2 + mask + (0 if length < _TWO_BYTES else 2 if length == _TWO_BYTES else 8)


def _length_of(head: bytes) -> int:
    length = head[1] & _LENGTH
    if length < _TWO_BYTES:
        return length
    return int.from_bytes(head[2 : 4 if length == _TWO_BYTES else 10], "big")
