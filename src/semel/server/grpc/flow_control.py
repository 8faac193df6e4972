"""HTTP/2 flow control and call order: windows and settings, limits on frames, and calls in the order of arrival.

Frames are cheap to send and expensive to read. A connection therefore reads a limited number of frames and then lets
other connections run, and frames without content (pings, settings, empty data) are limited: a client has an initial
number of them, and gets more with time, with its requests and with the answers that it reads.

Calls keep the order in which they arrived, although large ones are parsed in a thread. A client may send the sequences
1, 2, 3 without waiting for answers. If 1 is large and is parsed in a thread, 2 and 3 must not reach the service before
it: they would be refused as a gap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import DenialOfServiceError, FrameTooLargeError, ProtocolError
from h2.frame_buffer import FrameBuffer
from h2.settings import SettingCodes, Settings
from hpack import Encoder
from hyperframe.frame import DataFrame, Frame, HeadersFrame

from semel.server.thread_pool import APART_BYTES, apart

T = TypeVar("T")

MAX_STREAMS = 256
MAX_HEAD_BYTES = 64 * 1024
MAX_HEAD_FRAMES = 5
"""Limit on the frames of a head; each has at most 16 KiB."""
STREAM_WINDOW = 1024 * 1024
CONNECTION_WINDOW = 4 * 1024 * 1024
FRAMES_A_TURN = 64
"""Frames that a connection reads before other connections run."""
HEAD_FRAMES = 8
"""The head of a call counts as this many frames."""
SPARE_FRAMES = 1_000
"""The initial number of frames without content. Each frame with content and each second adds `FRAMES_EARNED`."""
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


class AbuseLimit:
    """A token bucket: an initial number, refilled by time and by useful requests, up to a limit."""

    __slots__ = ("_at", "_left", "_most", "_per_second")

    def __init__(self, start: float, most: float, per_second: float, now: float) -> None:
        self._left = start
        self._most = most
        self._per_second = per_second
        self._at = now

    def earn(self, count: float) -> None:
        """Add tokens."""
        self._left = min(self._most, self._left + count)

    def spend(self, now: float) -> bool:
        """Take a token; False if none is left."""
        if now > self._at:
            self.earn((now - self._at) * self._per_second)
            self._at = now
        self._left -= 1
        return self._left >= 0


class Frames(FrameBuffer):
    """The bytes that h2 has not read yet. It returns the frames of one turn, and then waits for the next turn."""

    def __init__(self, now: float) -> None:
        super().__init__(server=True)
        self.spare = AbuseLimit(SPARE_FRAMES, MOST_SPARE_FRAMES, FRAMES_EARNED, now)
        self.is_cut = False
        """Whether the turn ended before the frames did."""
        self._now = now
        self._turn = 0

    def begin_turn(self, now: float, *, is_new: bool = True) -> None:
        """Allow a full turn of frames, or, if it is not new, the rest of the current turn."""
        self._now = now
        if is_new:
            self._turn = FRAMES_A_TURN
        self.is_cut = False

    def __next__(self) -> Frame:
        size = int.from_bytes(self._data[:3], "big") if len(self._data) >= 3 else 0
        if size > self.max_frame_size:
            # Check as soon as the first bytes arrive: h2 would wait for the whole frame.
            raise FrameTooLargeError(f"A frame of {size} bytes is too large.")
        if len(self._headers_buffer) > MAX_HEAD_FRAMES:
            raise ProtocolError("The head of a call has too many frames.")
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
            raise DenialOfServiceError("There are too many frames without content.")
        return super()._update_header_buffer(f)


class _Encoder(Encoder):
    """Writes header texts uncompressed: compression costs more time here than it saves."""

    def encode(self, headers: Any, huffman: bool = True) -> bytes:
        return super().encode(headers, huffman=False)


def make_h2(frames: Frames) -> H2Connection:
    """A server-side h2 connection with our settings."""
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


class CallOrder:
    """Keeps the calls of one connection in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._last: asyncio.Future[None] | None = None

    async def read(self, size: int, work: Callable[[], T]) -> T:
        """Run the work on `size` bytes, in a thread if it is large, and return in order of arrival.

        The next call returns only after the caller of this one has awaited for the first time: by then its call has
        been admitted.
        """
        before = self._last
        if before is None and size <= APART_BYTES:
            return work()
        mine = self._last = self._loop.create_future()
        try:
            result = await apart(size, work)
            if before is not None:
                await asyncio.wait([before])  # a plain await would cancel `before` when this call is cancelled
            return result
        finally:
            if before is None:
                self._loop.call_soon(self._pass_on, mine)
            else:
                before.add_done_callback(lambda _: self._pass_on(mine))

    def _pass_on(self, mine: asyncio.Future[None]) -> None:
        mine.set_result(None)
        if self._last is mine:
            self._last = None
