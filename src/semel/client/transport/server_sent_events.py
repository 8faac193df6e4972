"""Server-sent events of an open answer.

Everything after `data:` is content: the server sends no space before it. An event counts when the empty line after it
has arrived; a truncated event is dropped. One event has at most `most_bytes` bytes. One with an id and without data
tells a position.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from semel.client.errors import AnswerTooLargeError

SILENCE_SECONDS = 90.0
"""Read timeout of a live read, in seconds: the server sends something at least every 30 s."""
EVENT_STREAM = "text/event-stream"


class ServerSentEvent(NamedTuple):
    """One event."""

    kind: str
    """The name of the event; empty if it has none."""
    data: bytes
    event_id: str
    """The `id`; empty if it has none."""


class BodyPieces(Protocol):
    """A body that is read as it arrives."""

    async def piece(self, seconds: float) -> bytes:
        """The next bytes, within `seconds`; empty at the end."""


class EventReader:
    """Reads the events of an answer, one after another."""

    def __init__(self, answer: BodyPieces, most_bytes: int) -> None:
        self._answer = answer
        self._most_bytes = most_bytes
        self._rest = bytearray()
        self._seen = 0
        """Bytes of `_rest` that are known to have no line end."""
        self._size = 0
        self._kind = self._id = ""
        self._data: list[bytes] = []

    async def next(self, seconds: float = SILENCE_SECONDS) -> ServerSentEvent | None:
        """The next event; None if the answer has ended."""
        while True:
            line = await self._line(seconds)
            if line is None:
                return None
            if line:
                self._take(line)
            elif self._data or self._id:
                return self._done()
            else:
                self._reset()

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._kind = value.strip().decode("utf-8", "replace")
        elif name == b"id":
            self._id = value.strip().decode("utf-8", "replace")

    def _done(self) -> ServerSentEvent:
        event = ServerSentEvent(self._kind, b"\n".join(self._data), self._id)
        self._reset()
        return event

    def _reset(self) -> None:
        self._kind = self._id = ""
        self._data = []
        self._size = 0

    async def _line(self, seconds: float) -> bytes | None:
        """The next line without its end; None at the end of the answer, also inside a line."""
        while (end := self._rest.find(b"\n", self._seen)) < 0:
            self._seen = len(self._rest)
            piece = await self._answer.piece(seconds)
            if not piece:
                return None
            self._rest += piece
            if self._size + len(self._rest) > 2 * self._most_bytes and b"\n" not in piece:
                raise AnswerTooLargeError(f"An event is larger than {self._most_bytes} bytes: raise max_answer_bytes.")
        line = bytes(self._rest[:end])
        del self._rest[: end + 1]
        self._seen = 0
        self._size += len(line)
        if self._size > self._most_bytes:
            raise AnswerTooLargeError(f"An event is larger than {self._most_bytes} bytes: raise max_answer_bytes.")
        return line.removesuffix(b"\r")
