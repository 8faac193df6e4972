"""The lines of an open answer, such as JSON lines; each has at most `most_bytes` bytes."""

from __future__ import annotations

from semel.client.errors import AnswerTooLargeError
from semel.client.transport.http_transport import ANSWER_SECONDS, LiveAnswer


class LineReader:
    """Reads an answer line by line. A truncated answer raises `NoAnswerError`."""

    def __init__(self, answer: LiveAnswer, most_bytes: int) -> None:
        self._answer = answer
        self._most_bytes = most_bytes
        self._rest = bytearray()
        self._start = 0
        """Where the next line begins in `_rest`."""

    async def next(self, seconds: float = ANSWER_SECONDS) -> bytes | None:
        """The next line without its end; None at the end. A last line without an end is dropped."""
        seen = self._start
        while (end := self._rest.find(b"\n", seen)) < 0:
            del self._rest[: self._start]
            self._start, seen = 0, len(self._rest)
            if seen > self._most_bytes:
                raise self._too_large()
            piece = await self._answer.piece(seconds)
            if not piece:
                return None
            self._rest += piece
        line = bytes(self._rest[self._start : end])
        self._start = end + 1
        if len(line) > self._most_bytes:
            raise self._too_large()
        return line

    def _too_large(self) -> AnswerTooLargeError:
        return AnswerTooLargeError(
            f"A line of the answer is larger than {self._most_bytes} bytes: raise max_answer_bytes."
        )
