"""What answers is no server of ours, or not a sane one: the error says so, and never shows the token."""

from __future__ import annotations

import asyncio
import re
import traceback

import pytest

from semel.client import NoAnswerError, OutcomeUnknown, Patience, RefusedError, SemelError
from tests.client.jobs_room import OpenJobs
from tests.client.names import TOKEN
from tests.harness.server import HOST

ANSWERS = [
    (b"HTTP/1.1 banana\r\n\r\n", OutcomeUnknown, 2),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{}", NoAnswerError, 2),
    (b"", NoAnswerError, 2),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", OutcomeUnknown, 2),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", OutcomeUnknown, 2),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n" + b"x" * 20_000, OutcomeUnknown, 1),
    (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", OutcomeUnknown, 1),
    (b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnope", RefusedError, 1),
    (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\nnope", OutcomeUnknown, 2),
    (b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\nRetry-After: soon\r\n\r\nnope", OutcomeUnknown, 2),
]


@pytest.mark.parametrize(("answer", "kind", "tries"), ANSWERS, ids=lambda value: str(value)[:40])
def test_a_strange_answer(answer: bytes, kind: type[SemelError], tries: int, open_jobs: OpenJobs) -> None:
    async def main() -> None:
        asked = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            # Its body, too: the system resets a connection that is closed with something unread.
            length = re.search(rb"(?i)content-length: (\d+)", asked[-1])
            await reader.readexactly(int(length[1]) if length else 0)
            writer.write(answer)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, HOST, 0)
        url = f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
        async with (
            server,
            open_jobs(url, token=TOKEN, patience=Patience(tries=2), max_answer_bytes=10_000) as jobs,
        ):
            with pytest.raises(kind) as raised:
                await jobs.submit("k")
        assert TOKEN not in "".join(traceback.format_exception(raised.value)) + repr(raised.value)
        assert len(asked) == tries
        assert all(f"Authorization: Bearer {TOKEN}".encode() in request for request in asked)

    asyncio.run(main())
