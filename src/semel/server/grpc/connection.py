"""One HTTP/2 connection of gRPC clients, with limits and flow control.

`h2` implements the protocol without a socket; this module connects it to the transport. Limits exist for the streams of
a connection, the size of a head, the bytes of a message, the unsent bytes, and the time without progress. A client that
breaks the protocol gets a GOAWAY and its connection ends; other connections are not affected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from hyperframe.frame import GoAwayFrame

from semel.kernel.errors import Grpc
from semel.kernel.header_fields import HeaderFields
from semel.server.grpc.call import GrpcCall, GrpcService
from semel.server.grpc.flow_control import CONNECTION_WINDOW, FRAMES_EARNED, AbuseLimit, CallOrder, Frames, make_h2
from semel.server.grpc.messages import FramedMessage
from semel.server.grpc.metadata import GrpcError, GrpcHeader
from semel.server.quotas.accounts import QuotaAccount, leave_account

LARGEST_FRAME = 64 * 1024
"""Maximum bytes of a sent frame: a large answer must not delay small ones on the same connection."""
SPARE_RESETS = 300
"""Streams that a client may reset, beyond one for each answer and one for each second; more is treated as an attack."""
MOST_SPARE_RESETS = 1_000
PREFACE_SECONDS = 30.0
IDLE_SECONDS = 600.0
PING_SECONDS = 60.0
SILENCE_SECONDS = 90.0
STALL_SECONDS = 60.0
UPLOAD_SECONDS = 600.0
UPLOAD_SILENCE_SECONDS = 30.0
STREAM_SILENCE_SECONDS = 60.0
"""Limit on the seconds between two messages of a client stream."""
STREAM_SECONDS = 600.0
"""Limit on the seconds of a whole client stream."""

_OVERFULL = "Too many uploads are under way; try again in a moment."
_SLOW = "The request took too long to arrive."


class CallReceiver(Protocol):
    """What a connection needs of its server."""

    @property
    def service(self) -> GrpcService:
        """The service of a call that names no namespace."""

    def arrive(self, connection: GrpcConnection) -> bool:
        """Register a new connection; False if the limit is reached."""

    def depart(self, connection: GrpcConnection) -> None:
        """Remove a closed connection."""

    def open(self, call: GrpcCall) -> None:
        """Check the head of a call: refuse it, or set its method."""

    def hold(self, size: int) -> bool:
        """Count `size` more bytes of requests in memory (fewer, if negative); False if all together exceed the
        limit.
        """

    def hold_answer(self, size: int) -> bool:
        """As `hold`, for answers that the client has not read yet."""

    def start_call(self, call: GrpcCall, message: FramedMessage | None) -> None:
        """The message of a call is complete."""

    def count(self, call: GrpcCall, number: int) -> None:
        """Count a call that has ended."""


class GrpcConnection(asyncio.Protocol):
    """One connection, from accept to close."""

    def __init__(self, reception: CallReceiver, loop: asyncio.AbstractEventLoop) -> None:
        self.reception = reception
        self.loop = loop
        self.calls: dict[int, GrpcCall] = {}
        self.order = CallOrder(loop)
        self.account: QuotaAccount | None = None
        self._is_paused = False
        self.peer = ""
        self.descriptor = 0
        self.now = self._opened_at = loop.time()
        self._data_at = self._busy_at = self.now
        self._stalled_at: float | None = None
        self._heard = False
        self._pinged = False
        self._is_closed = False
        self._is_flushing = False
        self._is_retired = False
        self._is_reading = True
        self._is_continuing = False
        self._has_turn = False
        self._wakes_all = False
        self._resets = AbuseLimit(SPARE_RESETS, MOST_SPARE_RESETS, 1, self.now)
        self._transport: asyncio.Transport | None = None
        self._frames = Frames(self.now)
        self._h2 = make_h2(self._frames)

    # ---- Calls from the transport ----

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Send the settings, or abort if there are too many connections."""
        self._transport = transport
        address = transport.get_extra_info("peername")
        self.peer = str(address[0]) if address else ""
        own = transport.get_extra_info("socket")
        self.descriptor = 0 if own is None else own.fileno()
        if not self.reception.arrive(self):
            transport.abort()
            return
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(CONNECTION_WINDOW)
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is lost: end its calls."""
        self._leave_all()
        self.reception.depart(self)
        leave_account(self)
        vars(self._h2).clear()  # it refers to itself, and holds what it has read

    def data_received(self, data: bytes) -> None:
        """Process bytes of the client."""
        self._data_at = self.loop.time()
        self._heard = True
        self._pinged = False
        self._read(data)

    def _read(self, data: bytes = b"") -> None:
        """Read at most one turn of frames; the rest waits for the next turn, and reading from the client pauses."""
        if self._is_closed:
            return
        self.now = self.loop.time()
        self._frames.begin_turn(self.now, is_new=not self._has_turn)
        if not self._has_turn:  # the loop may deliver two megabytes in pieces before other tasks run
            self._has_turn = True
            self.loop.call_soon(self._end_turn)
        try:
            events = self._h2.receive_data(data)
        except ProtocolError:
            self.close()  # with the GOAWAY that h2 has prepared
            return
        for event in events:
            handler = _HANDLERS.get(type(event))
            if handler is not None and not self._is_closed:
                handler(self, event)
        if self._wakes_all:
            self._wakes_all = False
            self._wake()
        self._flush()
        self.listen()

    def listen(self) -> None:
        """Resume reading from the transport, unless frames are waiting or the client does not read our output."""
        if self._is_closed or self._transport is None or self._transport.is_closing():
            return
        is_ready = self._stalled_at is None and not self._frames.is_cut and not self._is_paused
        if is_ready != self._is_reading:
            self._is_reading = is_ready
            (self._transport.resume_reading if is_ready else self._transport.pause_reading)()
        if self._frames.is_cut and self._stalled_at is None and not self._is_continuing:
            self._is_continuing = True
            self.loop.call_soon(self._go_on)

    def pause(self, seconds: float) -> None:
        """Read nothing for this time, because the client sends more calls than its quota allows: they wait outside."""
        if not self._is_paused:
            self._is_paused = True
            self.loop.call_later(seconds, self._end_pause)

    def _end_pause(self) -> None:
        self._is_paused = False
        self.listen()

    def _end_turn(self) -> None:
        self._has_turn = False

    def _go_on(self) -> None:
        self._is_continuing = False
        if self._stalled_at is None and self._frames.is_cut:
            self._read()

    def eof_received(self) -> None:
        """The client has closed its side: the transport closes."""

    def pause_writing(self) -> None:
        """Back pressure: the client does not read, so stop reading its input, or unsent answers would pile up."""
        self._stalled_at = self.loop.time()
        self.listen()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._stalled_at = None
        self.listen()
        self._wake()

    # ---- Events of HTTP/2 ----

    def _on_request(self, event: RequestReceived) -> None:
        call = GrpcCall(self, event.stream_id, HeaderFields(event.headers), self.now)
        if self._is_retired:
            self._send(lambda: self._h2.reset_stream(event.stream_id, ErrorCodes.REFUSED_STREAM))
            return
        self.calls[event.stream_id] = call
        self._busy_at = self.now
        self.reception.open(call)

    def _on_data(self, event: DataReceived) -> None:
        call = self.calls.get(event.stream_id)
        size = event.flow_controlled_length or 0
        if call is None:
            self.acknowledge(event.stream_id, size)
            return
        if not call.keep(size):
            call.refuse(GrpcError(Grpc.UNAVAILABLE, _OVERFULL, retry_after_ms=1_000))
        elif call.take(event.data or b"", size):
            return
        self.acknowledge(event.stream_id, size)

    def _on_ended(self, event: StreamEnded) -> None:
        call = self.calls.get(event.stream_id)
        if call is not None:
            call.end()

    def _on_reset(self, event: StreamReset) -> None:
        call = self.calls.get(event.stream_id)
        if call is not None:
            call.leave()
        if not self._resets.spend(self.now):
            self._send(lambda: self._h2.close_connection(ErrorCodes.ENHANCE_YOUR_CALM))
            self.close()

    def _on_window(self, event: WindowUpdated) -> None:
        call = self.calls.get(event.stream_id or 0)
        if call is not None:
            call.wake()
        elif not event.stream_id:
            self._wakes_all = True

    def _on_settings(self, _: object) -> None:
        self._wakes_all = True

    def _on_terminated(self, _: object) -> None:
        self.close()

    # ---- Calls from gRPC calls ----

    def room(self, stream_id: int) -> int:
        """The number of bytes of a message that may be sent now; 0 means none."""
        if self._is_closed or self._stalled_at is not None:
            return 0
        try:
            window = self._h2.local_flow_control_window(stream_id)
        except ProtocolError:
            return 0  # the stream is closed, and its call will be told
        return min(window, self._h2.max_outbound_frame_size, LARGEST_FRAME)

    def head(self, stream_id: int, headers: Sequence[GrpcHeader]) -> None:
        """Send the headers of an answer."""
        self._send(lambda: self._h2.send_headers(stream_id, headers))

    def put(self, stream_id: int, data: bytes) -> None:
        """Send a piece of a message, not larger than `room`."""
        self._send(lambda: self._h2.send_data(stream_id, data))
        self._frames.spare.earn(FRAMES_EARNED)
        if len(data) >= LARGEST_FRAME // 4:
            self._flush()  # at once, so that the transport can signal back pressure

    def end(self, stream_id: int, trailers: Sequence[GrpcHeader], *, is_arriving: bool) -> None:
        """Send the trailers; if the client is still sending, the stream is reset."""
        self._resets.earn(1)
        self._send(lambda: self._h2.send_headers(stream_id, trailers, end_stream=True))
        if is_arriving:
            self._send(lambda: self._h2.reset_stream(stream_id, ErrorCodes.NO_ERROR))

    def acknowledge(self, stream_id: int, size: int) -> None:
        """Open the flow-control window by `size` bytes."""
        if size:
            self._send(lambda: self._h2.acknowledge_received_data(size, stream_id))

    def forget(self, call: GrpcCall) -> None:
        """Remove a call that has ended."""
        self.calls.pop(call.stream_id, None)
        self.reception.hold(-call.held)
        self.acknowledge(call.stream_id, call.unread)
        self._busy_at = self.now
        if self._is_retired and not self.calls:
            self.loop.call_soon(self.close)

    # ---- Calls from the server ----

    def check(self, now: float) -> None:
        """Close calls and connections without progress; called every few seconds."""
        self.now = now
        if self._is_lost(now):
            self.abort()
        elif not self.calls and now - self._busy_at >= IDLE_SECONDS:
            self.retire()
        else:
            self._check_calls(now)
            if now - self._data_at >= PING_SECONDS and not self._pinged:
                self._pinged = True
                self._send(lambda: self._h2.ping(b"are you?"))

    def _is_lost(self, now: float) -> bool:
        """Whether the client does not read, never sent anything, or did not answer a ping."""
        is_stalled = self._stalled_at is not None and now - self._stalled_at >= STALL_SECONDS
        is_mute = not self._heard and now - self._opened_at >= PREFACE_SECONDS
        return is_stalled or is_mute or (self._pinged and now - self._data_at >= SILENCE_SECONDS)

    def retire(self) -> None:
        """Accept no further calls; close after the last one is answered."""
        if self._is_retired or self._is_closed or self._transport is None:
            return
        self._is_retired = True
        self._flush()
        # h2 treats a connection as closed once it sends GOAWAY itself, and would reject answers to the open calls.
        goodbye = GoAwayFrame(0, last_stream_id=self._h2.highest_inbound_stream_id)
        self._transport.write(goodbye.serialize())
        for call in list(self.calls.values()):
            call.hang_up()
        if not self.calls:
            self.close()

    def close(self) -> None:
        """Close after the bytes that are already written."""
        if self._transport is not None and not self._is_closed:
            self._flush()
            self._transport.close()
        self._leave_all()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()
        self._leave_all()

    def _leave_all(self) -> None:
        self._is_closed = True
        for call in list(self.calls.values()):
            call.leave()

    def _check_calls(self, now: float) -> None:
        for call in list(self.calls.values()):
            if call.stalled_at is not None and now - call.stalled_at >= STALL_SECONDS:
                self._send(lambda call=call: self._h2.reset_stream(call.stream_id, ErrorCodes.CANCEL))  # type: ignore[misc]
                call.leave()
            elif call.task is None and (
                now - call.data_at >= UPLOAD_SILENCE_SECONDS or now - call.began_at >= UPLOAD_SECONDS
            ):
                call.refuse(GrpcError(Grpc.DEADLINE_EXCEEDED, _SLOW))
            elif call.takes_many and (
                now - call.data_at >= STREAM_SILENCE_SECONDS or now - call.began_at >= STREAM_SECONDS
            ):
                call.hang_up()

    def _wake(self) -> None:
        """Wake the calls whose answers wait for flow control, if it has opened."""
        for call in self.calls.values():
            if call.stalled_at is not None and self.room(call.stream_id) > 0:
                call.wake()

    def _send(self, act: Callable[[], None]) -> None:
        """Let h2 write; an error for a stream that has just ended is ignored."""
        if self._is_closed:
            return
        try:
            act()
        except ProtocolError:
            return
        if not self._is_flushing:
            self._is_flushing = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        if self._transport is None or self._is_closed:
            return
        data = self._h2.data_to_send()
        if data:
            self._transport.write(data)


_HANDLERS: dict[type[Any], Callable[[GrpcConnection, Any], None]] = {
    RequestReceived: GrpcConnection._on_request,
    DataReceived: GrpcConnection._on_data,
    StreamEnded: GrpcConnection._on_ended,
    StreamReset: GrpcConnection._on_reset,
    WindowUpdated: GrpcConnection._on_window,
    RemoteSettingsChanged: GrpcConnection._on_settings,
    ConnectionTerminated: GrpcConnection._on_terminated,
}
"""By class, not in each connection: there they would refer to it."""
