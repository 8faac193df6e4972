"""The same client over gRPC, written out frame by frame.

A client library would take more of the two cores than the server that is measured. So a connection has one unary call
under way, its head is packed once, and of an answer only the message is looked at; a call that fails has none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from struct import Struct
from typing import cast

from hpack import Encoder

from bench.jobs_load import HOST, BrokenError
from bench.ledger_wire import VALUE, Client, Draft, Request, Scope
from bench.tally import Tally

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME = Struct(">IBI")
_NUMBER = Struct(">I")
_PREFIX = Struct(">BI")
_DATA, _HEADERS, _SETTINGS, _PING, _WINDOW = 0, 1, 4, 6, 8
_ACK = _END_STREAM = 1
_END_HEADERS = 4
_FRAME_BYTES = 16_384
_FIRST_WINDOW, _LARGEST_WINDOW = 65_535, 2**31 - 1

_SEQUENCE = 100
"""The number of this field; those of the others stand where they are written."""


class GrpcClient(Client):
    """Over HTTP/2."""

    success = b"\x0a"  # the field `success`; an error is another one

    def __init__(self, requests: Iterator[Request], tally: Tally, answers: list[bytes] | None = None) -> None:
        super().__init__(requests, tally, answers)
        self._encoder = Encoder()
        self._received = b""
        self._message = b""
        self._stream = -1
        self._window = _FIRST_WINDOW
        """How much the server takes at the moment."""
        self._unsent: list[bytes] = []

    @staticmethod
    def content(scope: Scope, draft: Draft) -> bytes:
        """The message, behind a byte that says which method."""
        setters = [_field(3, _field(1, b"user:%012d" % number) + _field(2, VALUE)) for number in draft.entities]
        if draft.is_batch:
            operations = _field(5, b"".join([_field(1, setter) for setter in setters]))
        else:
            operations = b"".join([_field(5, setter) for setter in setters])
        parts = (
            bytes((draft.is_batch,)),
            _field(1, b"\x08" + _varint(scope.org)),
            _field(2, b"\x08" + _varint(scope.vault)),
            _field(3, _field(1, b"client-%d" % draft.client)),
            _field(4, draft.key),
            operations,
            b"" if draft.sequence is None else _varint(_SEQUENCE << 3) + _varint(draft.sequence),
        )
        return b"".join(parts)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet, and let answers together be as long as they like."""
        window = _NUMBER.pack(_LARGEST_WINDOW - _FIRST_WINDOW)
        greeting = _PREFACE + _frame(_SETTINGS, 0, 0, b"") + _frame(_WINDOW, 0, 0, window)
        cast(asyncio.WriteTransport, transport).write(greeting)
        super().connection_made(transport)

    def send(self, content: bytes) -> None:
        """A call on the next stream."""
        self._stream += 2
        self._message = b""
        head = self._encoder.encode(_HEADS[content[0]], huffman=False)
        self.transport.write(_frame(_HEADERS, _END_HEADERS, self._stream, head))
        message = _PREFIX.pack(0, len(content) - 1) + content[1:]
        self._unsent = [message[place : place + _FRAME_BYTES] for place in range(0, len(message), _FRAME_BYTES)]
        self._send_rest()

    def _send_rest(self) -> None:
        while self._unsent and len(self._unsent[0]) <= self._window:
            part = self._unsent.pop(0)
            self._window -= len(part)
            self.transport.write(_frame(_DATA, 0 if self._unsent else _END_STREAM, self._stream, part))

    def data_received(self, data: bytes) -> None:
        """Take frames apart."""
        self._received += data
        try:
            while len(self._received) >= _FRAME.size:
                first, flags, stream = _FRAME.unpack_from(self._received)
                end = _FRAME.size + (first >> 8)
                if len(self._received) < end:
                    return
                payload, self._received = self._received[_FRAME.size : end], self._received[end:]
                self._take(first & 255, flags, stream, payload)
        except Exception as broken:  # noqa: BLE001 - whoever waits for the end hears of it
            self._end(broken)

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _DATA:
            self._message += payload
        elif kind == _HEADERS:
            if flags & _END_STREAM:
                self._finish(payload)
        elif kind == _WINDOW:
            self._window += 0 if stream else _NUMBER.unpack(payload)[0]
            self._send_rest()
        elif kind in (_SETTINGS, _PING):
            if not flags & _ACK:
                self.transport.write(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
        else:
            raise BrokenError(f"the server ended a call or the connection: frame {kind}, {payload[:500]!r}")

    def _finish(self, trailers: bytes) -> None:
        if not self._message:
            raise BrokenError(f"a call without an answer: {trailers!r}")
        self.answered(self._message[_PREFIX.size :])


def _heads(method: str) -> list[tuple[str, str]]:
    return [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", f"/ledger.v1.WriteService/{method}"),
        (":authority", HOST),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ]


_HEADS = (_heads("Write"), _heads("BatchWrite"))


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return _FRAME.pack(len(payload) << 8 | kind, flags, stream) + payload


def _field(number: int, content: bytes) -> bytes:
    """A field of bytes; an empty one is left out."""
    return bytes((number << 3 | 2,)) + _varint(len(content)) + content if content else b""


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)
