"""A server that answers what a test tells it to: refusals and answers that the real one does not give on demand."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import orjson

from semel.client import Patience
from tests.client.replica_kinds import Opened, open_replica
from tests.harness.server import HOST


class ClientRequest(NamedTuple):
    """What was asked."""

    target: str
    authorization: str
    body: bytes

    @property
    def is_push(self) -> bool:
        """Whether it is a push, and not a pull."""
        return self.target.endswith("/push")

    @property
    def is_checkpoint(self) -> bool:
        """Whether it asks for a checkpoint."""
        return "/checkpoint?" in self.target

    @property
    def deltas(self) -> list[dict[str, Any]]:
        """The deltas of a push."""
        deltas: list[dict[str, Any]] = orjson.loads(self.body)["deltas"]
        return deltas


class Says(NamedTuple):
    """An answer."""

    status: int
    body: Mapping[str, Any] | bytes
    headers: Mapping[str, str] = {}
    seconds: float = 0.0
    """How long the body takes to be sent, piece by piece."""


Script = Callable[[ClientRequest], Says]
CUT = Says(200, b"{", {"Content-Length": "1000"})
"""An answer that ends before its end."""
PIECES = 32


def refused(status: int, code: str, **more: Any) -> Says:
    """A refusal in the words of the protocol."""
    return Says(status, {"error": "No.", "code": code, "requestId": "r", **more})


def taken(request: ClientRequest, through: int = 1_000, *entries: Mapping[str, Any]) -> Says:
    """A push that is acknowledged as of a position, with what others have won."""
    count = len(request.deltas)
    answer: dict[str, Any] = {"serverHlc": str(through), "accepted": count, "settled": count, "duplicates": 0}
    answer["deltas"] = [{"position": str(through), **one} for one in entries]
    return Says(200, {**answer, "cursor": orjson.loads(request.body)["cursor"], "epoch": 0})


def page(cursor: int, *entries: Mapping[str, Any], has_more: bool = False) -> Says:
    """The answer to a pull."""
    placed = [{"position": str(cursor), **one} for one in entries]
    return Says(200, {"deltas": placed, "serverHlc": str(cursor), "hasMore": has_more, "epoch": 0})


def entry(row: str, hlc: int, op: str = "INSERT", client: str = "other", **columns: Any) -> dict[str, Any]:
    """An entry of the table `todos`."""
    told = [{"column": name, "value": value} for name, value in columns.items()]
    fixed = {"op": op, "table": "todos", "rowId": row, "clientId": client, "deltaId": "0" * 64}
    return {**fixed, "columns": told, "hlc": str(hlc)}


class Scripted:
    """Serves in the loop of the test, and remembers what it was asked."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.read_seconds = 0.0
        """How long the body of a request takes to be read, piece by piece."""
        self.has_checkpoint = False
        """Whether the script has something to say about checkpoints; else there is none."""
        self.asked: list[ClientRequest] = []
        self._lines: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://{HOST}:{self.port}"

    @property
    def pushes(self) -> list[ClientRequest]:
        """The pushes among what was asked."""
        return [request for request in self.asked if request.is_push]

    async def __aenter__(self) -> Self:
        # What waits unread in the system's buffers is little, so that a client notices who reads slowly.
        listening = socket.create_server((HOST, 0))
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        self._server = await asyncio.start_server(self._serve, sock=listening)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for line in self._lines:
            line.cancel()
        await asyncio.gather(*self._lines)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request a connection."""
        line = asyncio.current_task()
        assert line is not None
        self._lines.add(line)
        # Whoever asked may have given up, and the test may have ended.
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._answer(reader, writer)
        writer.close()
        with suppress(OSError, asyncio.CancelledError):
            await writer.wait_closed()
        self._lines.discard(line)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = re.search(r"(?i)^content-length: (\d+)", head, re.MULTILINE)
        token = re.search(r"(?i)^authorization: (.*?)\r", head, re.MULTILINE)
        body = b""
        for size in _sizes(int(length[1]) if length else 0, self.read_seconds):
            await asyncio.sleep(self.read_seconds / PIECES)
            body += await reader.readexactly(size)
        request = ClientRequest(head.split(" ")[1], token[1] if token else "", body)
        if (request.is_checkpoint and not self.has_checkpoint) or "/ws" in request.target:
            said = refused(404, "NOT_FOUND")
        else:
            self.asked.append(request)
            said = self.script(request)
        content = said.body if isinstance(said.body, bytes) else orjson.dumps(said.body)
        headers = {"Content-Length": str(len(content)), **said.headers, "Connection": "close"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if value)
        writer.write(f"HTTP/1.1 {said.status} Said\r\n{lines}\r\n".encode())
        for size in _sizes(len(content), said.seconds):
            piece, content = content[:size], content[size:]
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(said.seconds / PIECES)


def _sizes(length: int, seconds: float) -> Iterator[int]:
    """The sizes of the pieces that a body is read or sent in: one, or many when that takes time."""
    size = length // PIECES + 1 if seconds else length
    for start in range(0, length, size or 1):
        yield min(size, length - start)


Play = Callable[[Opened, Scripted], Awaitable[None]]


def play(path: Path, script: Script, scene: Play, **options: Any) -> None:
    """A scene between a client with a new file and a server that follows a script; each call is tried once."""

    async def main() -> None:
        async with Scripted(script) as server:
            fixed: dict[str, Any] = {
                "gateway": "shop",
                "url": server.url,
                "client_id": "me",
                "patience": Patience(tries=1),
            }
            async with open_replica(path / "app.db", **fixed | options) as db:
                await scene(db, server)

    asyncio.run(main())


def number_in(request: ClientRequest, name: str) -> int:
    """A number in the query of a request."""
    found = re.search(rf"[?&]{name}=(\d+)", request.target)
    assert found is not None
    return int(found[1])


def log_of(entries: Sequence[Mapping[str, Any]]) -> Script:
    """Answers pulls from a log; the entry at index i has the position i + 1."""

    def script(request: ClientRequest) -> Says:
        since, limit = number_in(request, "since"), number_in(request, "limit")
        told = [{**one, "position": str(place)} for place, one in enumerate(entries[since : since + limit], since + 1)]
        return page(since + len(told), *told, has_more=since + len(told) < len(entries))

    return script
