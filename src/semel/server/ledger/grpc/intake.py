"""Flow control of HTTP/2 (`h2`): limits on the work that a client can cause with frames.

Frames are cheap to send and expensive to read. So a connection reads a limited number of frames and then lets others
have a turn, and empty frames are counted: a client has some to spare, and earns more by useful frames and time.
"""

from __future__ import annotations

from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import DenialOfServiceError, FrameTooLargeError, ProtocolError
from h2.frame_buffer import FrameBuffer
from h2.settings import SettingCodes, Settings
from hpack import Encoder
from hyperframe.frame import DataFrame, Frame, HeadersFrame

MAX_STREAMS = 256
MAX_HEAD_BYTES = 64 * 1024
MAX_HEAD_FRAMES = 5
"""Frames of 16 KiB, which is as large as they may be here."""
STREAM_WINDOW = 1024 * 1024
CONNECTION_WINDOW = 4 * 1024 * 1024
FRAMES_A_TURN = 64
"""Limit of frames that are read in one turn, before other connections have theirs."""
HEAD_FRAMES = 8
"""How many frames the head of a call counts as, since it makes as much work."""
SPARE_FRAMES = 1_000
"""Empty frames that a connection may send at the start; useful frames and time add a few more."""
MOST_SPARE_FRAMES = 10_000
FRAMES_EARNED = 10

_CONFIG = H2Configuration(
    client_side=False,
    header_encoding=None,
    validate_inbound_headers=False,
    normalize_inbound_headers=False,
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
)


class Allowance:
    """A token bucket: a number of frames at the start, refilled by time and by useful frames up to a limit."""

    __slots__ = ("_at", "_left", "_most", "_per_second")

    def __init__(self, start: float, most: float, per_second: float, now: float) -> None:
        self._left = start
        self._most = most
        self._per_second = per_second
        self._at = now

    def earn(self, count: float) -> None:
        """Good conduct."""
        self._left = min(self._most, self._left + count)

    def spend(self, now: float) -> bool:
        """Take one; False when there was none left."""
        if now > self._at:
            self.earn((now - self._at) * self._per_second)
            self._at = now
        self._left -= 1
        return self._left >= 0


class Frames(FrameBuffer):
    """The bytes that h2 has not read yet. It returns the frames of one turn, and then waits for the next."""

    def __init__(self, now: float) -> None:
        super().__init__(server=True)
        self.spare = Allowance(SPARE_FRAMES, MOST_SPARE_FRAMES, FRAMES_EARNED, now)
        self.is_cut = False
        """Whether the turn ended before the frames did."""
        self._now = now
        self._turn = 0

    def begin_turn(self, now: float, *, is_new: bool = True) -> None:
        """Return more frames; within the same turn, the rest of its frames."""
        self._now = now
        if is_new:
            self._turn = FRAMES_A_TURN
        self.is_cut = False

    def __next__(self) -> Frame:
        size = int.from_bytes(self._data[:3], "big") if len(self._data) >= 3 else 0
        if size > self.max_frame_size:
            # At its first bytes: h2 would wait until all of it is there.
            raise FrameTooLargeError(f"A frame of {size} bytes is too large.")
        if len(self._headers_buffer) > MAX_HEAD_FRAMES:
            raise ProtocolError("The head of a call comes in too many frames.")
        if self._turn <= 0:
            self.is_cut = len(self._data) >= 9 + size
            raise StopIteration
        return super().__next__()

    def _update_header_buffer(self, f: Frame | None) -> Frame | None:
        """Called by h2 once for every frame."""
        self._turn -= HEAD_FRAMES if isinstance(f, HeadersFrame) else 1
        if isinstance(f, HeadersFrame) or (isinstance(f, DataFrame) and f.data):
            self.spare.earn(FRAMES_EARNED)
        elif not self.spare.spend(self._now):
            raise DenialOfServiceError("There are too many frames that carry nothing.")
        return super()._update_header_buffer(f)


class _Encoder(Encoder):
    """Writes header texts uncompressed: compression costs more time here than it saves."""

    def encode(self, headers: Any, huffman: bool = True) -> bytes:
        return super().encode(headers, huffman=False)


def make_h2(frames: Frames) -> H2Connection:
    """Our side of a connection."""
    made = H2Connection(_CONFIG)
    made.local_settings = Settings(
        client=False,
        initial_values={
            SettingCodes.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
            SettingCodes.MAX_HEADER_LIST_SIZE: MAX_HEAD_BYTES,
            SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
        },
    )
    made.encoder = _Encoder()
    made.incoming_buffer = frames
    return made
