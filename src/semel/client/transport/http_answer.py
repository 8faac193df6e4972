"""An HTTP/1.1 answer as it arrives: status, headers, then the body in pieces. The parser is llhttp, by httptools.

Limits: 64 KiB of headers; the reader of the body sets its own. An answer is whole only if the parser says so, or if it
has no length and the server has closed its side: a truncated one raises `ConnectionResetError`.
"""

from __future__ import annotations

from collections.abc import Mapping

import httptools

from semel.client.transport.network import ByteStream

MOST_HEAD_BYTES = 65_536


class ProtocolError(OSError):
    """The peer does not speak HTTP/1.1."""


class AnswerParser:
    """Collects one answer; the callbacks of httptools."""

    __slots__ = ("body", "has_head", "head_bytes", "headers", "is_head", "is_reusable", "is_whole", "parser", "status")

    def __init__(self, *, is_head: bool) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body: list[bytes] = []
        self.has_head = self.is_whole = self.is_reusable = False
        self.head_bytes = 0
        self.is_head = is_head

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; repeated ones are joined by a comma. Trailers are counted and dropped."""
        if self.has_head:
            self.head_bytes += len(name) + len(value)
            return
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        """Status and headers are there; those of an interim answer (1xx) are dropped."""
        if self.is_whole:
            return
        self.status = self.parser.get_status_code()
        if self.status < 200 and self.status != 101:
            self.headers.clear()
            return
        self.has_head = True
        self.is_reusable = self.parser.should_keep_alive()
        self.is_whole = self.is_head  # an answer to HEAD has no body, whatever its length says

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body until it is read; an answer to HEAD, and a whole one, has none."""
        if not self.is_whole:
            self.body.append(body)
            return
        self.is_reusable = False

    def on_message_begin(self) -> None:
        """Bytes behind a whole answer belong to no request: the connection is not used again."""
        if self.is_whole:
            self.is_reusable = False

    def on_message_complete(self) -> None:
        """The answer is whole, unless it was an interim one."""
        self.is_whole = self.is_whole or self.has_head

    def feed(self, data: bytes) -> None:
        """Take bytes of the answer; empty bytes are the end of the connection."""
        if not data:
            self._end()
            return
        if not self.has_head:
            end = data.find(b"\r\n\r\n")
            self.head_bytes += len(data) if end < 0 else end
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.is_whole = True
        except httptools.HttpParserError as error:
            cause = error.__context__
            if cause is not None and not isinstance(cause, Exception):
                raise cause from None  # a KeyboardInterrupt inside a callback
            self.is_reusable = False
            if not self.is_whole:
                raise ProtocolError("the answer is not HTTP") from None
        if self.head_bytes > MOST_HEAD_BYTES and not self.is_whole:
            raise ProtocolError("the headers of the answer are too large")

    def _end(self) -> None:
        self.is_reusable = False
        has_length = "content-length" in self.headers or "transfer-encoding" in self.headers
        if not self.has_head or has_length:
            raise ConnectionResetError("the answer was truncated")
        self.is_whole = True


class OpenAnswer:
    """An answer whose head has arrived; its body is read piece by piece, then `close` gives the connection back."""

    def __init__(self, stream: ByteStream, parser: AnswerParser) -> None:
        self._stream = stream
        self._parser = parser

    @property
    def status(self) -> int:
        """The status code."""
        return self._parser.status

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, with names in lower case."""
        return self._parser.headers

    @property
    def is_reusable(self) -> bool:
        """Whether the connection can carry another request."""
        return self._parser.is_whole and self._parser.is_reusable and self._stream.is_idle

    async def piece(self, seconds: float) -> bytes:
        """The next bytes of the body, within `seconds`; empty at its end."""
        parser = self._parser
        while not parser.body and not parser.is_whole:
            parser.feed(await self._stream.receive(seconds))
        data = b"".join(parser.body)
        parser.body.clear()
        return data


async def read_head(stream: ByteStream, *, is_head: bool, seconds: float) -> OpenAnswer:
    """The head of an answer; its first bytes must come within `seconds`."""
    parser = AnswerParser(is_head=is_head)
    while not parser.has_head:
        parser.feed(await stream.receive(seconds))
    return OpenAnswer(stream, parser)
