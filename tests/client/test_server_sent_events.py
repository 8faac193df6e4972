"""Server-sent events: an event counts when the empty line after it has arrived, and is bounded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from semel.client.errors import AnswerTooLargeError
from semel.client.transport.server_sent_events import EventReader, ServerSentEvent


class Pieces:
    """An answer that arrives in pieces."""

    def __init__(self, text: bytes, size: int) -> None:
        self._pieces = [text[at : at + size] for at in range(0, len(text), size)]

    async def piece(self, seconds: float) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


def events(text: bytes, size: int = 1_000, most: int = 10_000) -> list[ServerSentEvent]:
    async def main() -> list[ServerSentEvent]:
        answer: Any = Pieces(text, size)
        reader, found = EventReader(answer, most), list[ServerSentEvent]()
        while (event := await reader.next()) is not None:
            found.append(event)
        return found

    return asyncio.run(main())


@pytest.mark.parametrize("size", [1, 2, 7, 1_000])
def test_events_end_with_an_empty_line(size: int) -> None:
    text = b": comment\nid: 7\nevent: data\ndata: two\ndata:lines \n\n"
    text += b"event: control\r\ndata:{}\r\n\r\nevent: data\ndata:cut"
    assert events(text, size) == [
        ServerSentEvent("data", b" two\nlines ", "7"),
        ServerSentEvent("control", b"{}", ""),
    ]
    assert events(b"event: data\ndata:\ndata:\n\n", size) == [ServerSentEvent("data", b"\n", "")]
    assert events(b"event: data\n\n\n", size) == []


@pytest.mark.parametrize("text", [b"data:" + b"x" * 200, b"data:x\n" * 200])
def test_an_event_without_an_end_is_refused(text: bytes) -> None:
    with pytest.raises(AnswerTooLargeError):
        events(text, 10, most=50)
