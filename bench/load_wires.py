"""Where an answer ends, for each protocol that the load generator speaks, and a blocking call for preparations."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any

from bench.load_loop import HOST, BrokenError

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"\r\ncontent-length: "
_HEADER_BYTES = {126: 4, 127: 10}
_ASK_SECONDS = 60


def cut_http(buffer: bytes) -> int:
    """HTTP/1.1: the bytes of the first response, 0 when it is not whole."""
    end = buffer.find(_HEAD_END)
    if end < 0:
        return 0
    end += len(_HEAD_END)
    if buffer.startswith(b"HTTP/1.1 204"):
        return end
    head = buffer[:end].lower()
    at = head.find(_LENGTH)
    if at < 0:
        if b"chunked" not in head:
            raise BrokenError(f"a body without a length: {buffer[:500]!r}")
        last = buffer.find(b"\r\n0\r\n\r\n", end - 2)
        return 0 if last < 0 else last + 7
    at += len(_LENGTH)
    whole = end + int(head[at : head.index(b"\r", at)])
    return whole if whole <= len(buffer) else 0


def cut_resp(buffer: bytes) -> int:
    """Redis: the bytes of the first reply that is no array."""
    end = buffer.find(b"\r\n") + 2
    if end < 2:
        return 0
    if buffer[:1] == b"$" and buffer[1:2] != b"-":
        end += int(buffer[1 : end - 2]) + 2
    return end if end <= len(buffer) else 0


def cut_nats(buffer: bytes) -> int:
    """NATS: the bytes of the first message or control line."""
    end = buffer.find(b"\r\n") + 2
    if end < 2:
        return 0
    if buffer.startswith((b"MSG ", b"HMSG ")):
        end += int(buffer[: end - 2].rsplit(b" ", 1)[1]) + 2
    return end if end <= len(buffer) else 0


def cut_websocket(buffer: bytes) -> int:
    """WebSocket: the bytes of the first frame of a server."""
    if len(buffer) < 2:
        return 0
    size = buffer[1]
    start = _HEADER_BYTES.get(size, 2)
    if len(buffer) < start:
        return 0
    if size >= 126:
        size = int.from_bytes(buffer[2:start], "big")
    return start + size if start + size <= len(buffer) else 0


def bulk(*words: bytes) -> bytes:
    """A command of Redis."""
    return b"*%d\r\n" % len(words) + b"".join([b"$%d\r\n%s\r\n" % (len(word), word) for word in words])


def post(path: str, body: bytes, *headers: str) -> bytes:
    """A whole HTTP request with a JSON body."""
    lines = [f"POST {path} HTTP/1.1", f"host: {HOST}", "content-type: application/json", *headers]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


def receive_until(caller: socket.socket, end: bytes) -> bytes:
    """What arrives, up to and including these bytes; for handshakes."""
    found = b""
    while not found.endswith(end):
        data = caller.recv(65_536)
        if not data:
            raise BrokenError(f"the server closed a connection: {found[:500]!r}")
        found += data
    return found


def ask(port: int, method: str, path: str, body: object = None) -> Any:
    """One HTTP request with its JSON answer, or None for an empty one; a refusal ends the run."""
    connection = http.client.HTTPConnection(HOST, port, timeout=_ASK_SECONDS)
    sent = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, sent, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    if not 200 <= answer.status < 300:
        raise BrokenError(f"{method} {path} was answered {answer.status}: {content[:500]!r}")
    return json.loads(content) if content.strip() else None
