"""WebSocket transport (RFC 6455) on the server's own port: frames, limits and close.

The protocol is implemented by the sans-I/O core of `websockets`; this module connects it to the transport. A message
that arrives whole in one frame does not pass through it (`frames.py`). Frames are written as bytes that were made
before, so that one frame can be sent to many clients. A message over the limit is answered before the close. After a
close by the server, the client's input is read and discarded for a moment, because the client would otherwise not
receive the reason; every close has a time limit. Input is parsed in slices, so that a flood of tiny frames does not
block other connections.

A class of the surface, derived from this one, authenticates the client of a handshake and starts its `Conversation`.
Every refusal of a handshake is an HTTP answer in the format of the surface (`handshake.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from websockets.exceptions import PayloadTooBig
from websockets.frames import Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from semel.server.http.answer import Answer
from semel.server.http.exchange import forget_frames
from semel.server.http.request import Request as HttpRequest
from semel.server.websocket.conversation import Conversation
from semel.server.websocket.frames import FrameEnds, cut_message, frame_of
from semel.server.websocket.handshake import Handshakes

LINGER_SECONDS = 5.0
MAX_REASON_BYTES = 123
SLICE_BYTES = 16 * 1024
WHOLE_BYTES = 64 * 1024
"""A longer message is parsed in slices."""
FRAMES_A_TURN = 500
REST_SECONDS = 0.02


class WebSocket(asyncio.Protocol):
    """One connection, from its handshake. Created by the HTTP protocol when a client requests the upgrade."""

    def __init__(self, handshakes: Handshakes, most_bytes: int, stranger_bytes: int, buffer_bytes: int) -> None:
        """Limits in bytes: of a message, of a message from a client without a credential, and of unsent data."""
        self._handshakes = handshakes
        self._most_bytes = most_bytes
        self._stranger_bytes = stranger_bytes
        self._whole_bytes = min(WHOLE_BYTES, most_bytes, stranger_bytes)
        self._buffer_bytes = buffer_bytes
        self._protocol = ServerProtocol(max_size=most_bytes)
        self._loop = asyncio.get_running_loop()
        self._conversation: Conversation | None = None
        self._unread = b""
        self._unfinished = 0
        """Bytes of an incomplete frame."""
        self._ends = FrameEnds()
        self._is_at_frame = True
        """Whether the next byte begins a frame."""
        self._held: list[bytes] = []
        """Frames that are sent at the end of this pass of the loop, in one write."""
        self._held_room = 0
        """Bytes that may still be held before the limit of unsent data is reached."""
        self._has_ended = False
        self._message = bytearray()
        self._is_text = True
        self._is_wanted = True
        self._rest: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None
        self.is_reading = True
        self.is_full = False
        self.on_lost: Callable[[], None] | None = None
        """Called once when the connection is lost."""

    # ---- Implemented by a surface ----

    def malformed(self) -> Exception:
        """The error of an invalid handshake, for the surface to render."""
        raise NotImplementedError

    def admit(self, request: HttpRequest) -> None:
        """Authenticate the client of a valid handshake; raises the refusal of the surface."""

    def begin(self) -> Conversation:
        """The handshake is accepted: returns the handler of the connection."""
        raise NotImplementedError

    # ---- Called by the transport ----

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take over the transport of the HTTP protocol."""
        self._transport = transport
        transport.set_write_buffer_limits(high=self._buffer_bytes)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is lost."""
        on_lost, self.on_lost = self.on_lost, None  # it refers to this connection, and to the one before
        if on_lost is not None:
            on_lost()
        # The parser of the library refers to itself, by its generator and by the frames of the error that ended it.
        self._protocol.parser.close()
        if self._protocol.parser_exc is not None:
            forget_frames(self._protocol.parser_exc)
        for timer in (self._linger, self._rest):
            if timer is not None:
                timer.cancel()
        if self._conversation is not None:
            self._conversation.lost()
            self._conversation = None

    def data_received(self, data: bytes) -> None:
        """Bytes from the client: the handshake first, then frames."""
        self._unread = self._unread + data if self._unread else data
        if self._rest is None:
            self._take_some()

    def eof_received(self) -> None:
        """The client sends no more; the transport closes after unsent data, or a little later."""
        self._protocol.receive_eof()
        self._end_soon()

    def pause_writing(self) -> None:
        """The client does not keep up."""
        self.is_full = True
        if self._conversation is not None:
            self._conversation.filled()

    def resume_writing(self) -> None:
        """The client reads again."""
        self.is_full = False
        if self._conversation is not None:
            self._conversation.drained()

    def shutdown(self) -> None:
        """The server is stopping."""
        if self._conversation is None:
            self._transport.close()
        else:
            self._conversation.shut_down()

    # ---- Called by the conversation ----

    @property
    def remote(self) -> str:
        """The remote address; empty when the transport does not know it."""
        peer = self._transport.get_extra_info("peername")
        return str(peer[0]) if isinstance(peer, tuple) else ""

    def frame(self, text: bytes) -> bytes:
        """A text message as a frame."""
        return frame_of(Opcode.TEXT, text)

    def binary_frame(self, body: bytes) -> bytes:
        """A binary message as a frame."""
        return frame_of(Opcode.BINARY, body)

    def write(self, frames: bytes) -> None:
        """Send frames, after those that are held."""
        if frames and not self._has_ended and not self._transport.is_closing():
            if self._held:
                self._held.append(frames)
                self._release()
            else:
                self._transport.write(frames)

    def write_soon(self, frame: bytes) -> None:
        """Send a frame in one write with others of this pass of the loop.

        The frame that reaches the limit of unsent data is sent at once with those before it, so that `is_full` is true
        after the same frame as with `write`.
        """
        if self._has_ended:
            return
        if not self._held:
            self._held_room = self._buffer_bytes - self.unsent()
            self._loop.call_soon(self._release)
        self._held.append(frame)
        self._held_room -= len(frame)
        if self._held_room < 0:
            self._release()

    def _release(self) -> None:
        """Send the held frames."""
        held, self._held = self._held, []
        if held and not self._transport.is_closing():
            self._transport.write(held[0] if len(held) == 1 else b"".join(held))

    def unsent(self) -> int:
        """The number of unsent bytes."""
        return self._transport.get_write_buffer_size()

    def ping(self) -> None:
        """Ask for a pong."""
        if self._protocol.state is OPEN:
            self._protocol.send_ping(b"")
            self._flush()

    def ping_frame(self, payload: bytes) -> bytes:
        """A ping frame, answered by a pong with the same payload; written after the data that the pong acknowledges."""
        return frame_of(Opcode.PING, payload)

    def close(self, code: int, reason: str) -> None:
        """Start to close; a client that does not answer is disconnected after a time limit."""
        self._release()
        if self._protocol.state is OPEN:
            self._protocol.send_close(code, reason.encode()[:MAX_REASON_BYTES].decode("utf-8", "ignore"))
        self._flush()
        self._end_soon()

    def read_on(self, wanted: bool) -> None:
        """Pause or resume reading."""
        self._is_wanted = wanted
        self._set_reading()

    def _set_reading(self) -> None:
        # Keep reading a closing connection: unread input of the client would reset it.
        wanted = (self._is_wanted or self._linger is not None) and self._rest is None
        if wanted != self.is_reading and not self._transport.is_closing():
            self.is_reading = wanted
            (self._transport.resume_reading if wanted else self._transport.pause_reading)()

    def _take_some(self) -> None:
        """Parse the input, one slice at a time; after many frames other connections run first."""
        frames = self._take_whole() if self._is_at_frame and self._conversation is not None else 0
        while self._unread and frames < FRAMES_A_TURN and not self._transport.is_closing():
            data, self._unread = self._unread[:SLICE_BYTES], self._unread[SLICE_BYTES:]
            frames += self._take(data)
        if frames >= FRAMES_A_TURN:
            self._rest = self._loop.call_later(REST_SECONDS, self._go_on)
        if self._conversation is not None:
            self._conversation.unfinished(len(self._unread) + self._unfinished + len(self._message))
        self._set_reading()

    def _go_on(self) -> None:
        self._rest = None
        self._take_some()

    def _take_whole(self) -> int:
        """Handle the messages at the start of the input that arrived whole in one frame; returns their number."""
        protocol, conversation, data = self._protocol, self._conversation, self._unread
        assert conversation is not None
        at = frames = 0
        # A message in fragments, a close or an error needs the state that `websockets` keeps.
        while frames < FRAMES_A_TURN and protocol.state is OPEN and protocol.current_size is None:
            message = cut_message(data, at, self._whole_bytes)
            if message is None:
                break
            body, is_text, at = message
            if not frames:
                conversation.heard()
            frames += 1
            conversation.received(body, is_text)
        self._unread = data[at:]
        return frames

    def _take(self, data: bytes) -> int:
        """Handle frames and return their number; frames after a malformed one are ignored."""
        is_broken = self._protocol.parser_exc is not None
        self._protocol.receive_data(data)
        if is_broken:
            return 0
        if self._conversation is not None:
            self._is_at_frame = self._ends.follow(data)
            self._conversation.heard()
        events = self._protocol.events_received()
        for event in events:
            if isinstance(event, Request):
                self._shake_hands(event)
            else:
                self._take_frame(event)
        self._unfinished = 0 if events else self._unfinished + len(data)
        self._refuse_large()
        return len(events)

    def _refuse_large(self) -> None:
        """A message over the limit closes the connection, in order: the conversation starts the close."""
        conversation = self._conversation
        if conversation is not None and isinstance(self._protocol.parser_exc, PayloadTooBig):
            conversation.too_large(self._most_bytes)
            return
        unfinished = self._unfinished + len(self._message)
        if conversation is not None and unfinished > self._stranger_bytes and conversation.is_stranger:
            conversation.too_large(self._stranger_bytes)
        self._flush()

    def _shake_hands(self, handshake: Request) -> None:
        request = self._handshakes.request_of(handshake, self.remote)
        response = self._protocol.accept(handshake)
        refusal = self._refusal_of(request, response.status_code == HTTPStatus.SWITCHING_PROTOCOLS)
        if refusal is None:
            self._protocol.send_response(response)
            self._flush()
            self._conversation = self.begin()
            self._handshakes.begun(request, self._conversation)
        else:
            self._transport.write(self._handshakes.render(request, refusal))
            self._end_soon()
            self._transport.close()

    def _refusal_of(self, request: HttpRequest, is_valid: bool) -> Answer | None:
        """The HTTP answer that refuses a handshake; None to accept it."""
        foreign = self._handshakes.foreign(request)
        if foreign is not None:
            return foreign
        if not is_valid:
            return self._handshakes.malformed(request, self.malformed())
        try:
            self.admit(request)
        except Exception as error:  # noqa: BLE001 - any error becomes an answer and is logged
            return self._handshakes.refused(request, error)
        return None

    def _take_frame(self, frame: Any) -> None:
        """Handle a frame; a message may consist of several."""
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
            self._is_text = frame.opcode is Opcode.TEXT
            self._message = bytearray()
        elif frame.opcode is Opcode.PONG:
            if self._conversation is not None:
                self._conversation.ponged(bytes(frame.data))
            return
        elif frame.opcode is not Opcode.CONT:
            return
        if not frame.fin:
            self._message += frame.data
        elif self._conversation is not None:
            raw = bytes(self._message + frame.data if self._message else frame.data)
            self._message = bytearray()
            self._conversation.received(raw, self._is_text)

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            self._release()
            if self._transport.is_closing():
                return
            if data:
                self._transport.write(data)
            elif self._protocol.close_rcvd is not None or self._conversation is None:
                self._end_soon()
                self._transport.close()
            else:
                self._end_soon()
                if self._transport.can_write_eof():
                    self._transport.write_eof()

    def _end_soon(self) -> None:
        """Make sure that the connection ends within a time limit."""
        self._release()
        self._has_ended = True
        if self._linger is None:
            self._linger = self._loop.call_later(LINGER_SECONDS, self._transport.abort)
            self._set_reading()
