"""Generated conversations for a server: requests of all surfaces, usual and unusual, and what their answers share.

A conversation is a list of byte strings, each sent on one of a few connections; the next one is sent when the answer of
the last has come. So two servers that get the same conversation must give the same answers, but for times and ids.
"""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Iterator
from typing import NamedTuple

CONNECTIONS = 3
TIMEOUT_SECONDS = 30.0


class Step(NamedTuple):
    """Bytes on a connection, and the methods of the requests in them."""

    connection: int
    data: bytes
    methods: tuple[str, ...]


def request(method: str, path: str, body: bytes | None = None, **fields: str) -> bytes:
    """One request; `_` in names of fields is `-`."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    if body is not None and "transfer_encoding" not in fields:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


def chunked(body: bytes, size: int) -> bytes:
    """The body in chunks."""
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


JSON = "application/json"


def _streams(chance: random.Random) -> tuple[bytes, str]:
    path = f"/v1/stream/s{chance.randrange(3)}"
    kind = chance.choices(("put", "append", "read", "odd", "delete"), (3, 24, 3, 4, 0.4))[0]
    number = chance.randrange(40)
    body = json.dumps({"n": number // 4 if chance.random() < 0.9 else -1}).encode()
    if kind == "put":
        return request("PUT", path, b"", content_type=chance.choice((*[JSON] * 9, "text/plain"))), "PUT"
    if kind == "append":
        fields = {"content_type": chance.choice((*[JSON] * 9, "text/plain"))}
        if chance.random() < 0.7:
            fields["idempotency_key"] = f"k{number}"
        return request("POST", path, body, **fields), "POST"
    if kind == "read":
        query = chance.choice(("", "?offset=-1", "?offset=now", "?offset=zzz", "?offset=-1&live=long-poll"))
        method = chance.choice(("GET", "GET", "HEAD"))
        return request(method, path + ("" if method == "HEAD" else query)), method
    if kind == "delete":
        return request("DELETE", path), "DELETE"
    return _odd_append(chance, path, body), "POST"


def _odd_append(chance: random.Random, path: str, body: bytes) -> bytes:
    """An append that no shape fits."""
    large = b"[" + b",".join([b'"' + b"x" * 1_000 + b'"'] * chance.choice((3, 30, 300))) + b"]"
    return chance.choice(
        (
            request("POST", path, b"{bad", content_type=JSON, idempotency_key="kb"),
            request("POST", path, b"", content_type=JSON),
            request("POST", path, body, idempotency_key="no-type"),
            request("POST", path, body, content_type=JSON, idempotency_key="k" * 300),
            request("POST", path, body, content_type=JSON, producer_id="p", producer_epoch="0", producer_seq="0"),
            request("POST", path, body, content_type=JSON, stream_closed="true"),
            request("POST", path, large, content_type=JSON, idempotency_key=f"l{chance.randrange(3)}"),
            request("POST", path, chunked(large, 700), content_type=JSON, transfer_encoding="chunked"),
            request("POST", path, body, content_type=JSON, origin="http://evil.example"),
            request("POST", path, body, content_type=JSON, content_encoding="gzip"),
        )
    )


def _jobs(chance: random.Random) -> tuple[bytes, str]:
    body = json.dumps(
        {"kind": "k", "params": {"n": chance.randrange(3)}, "idempotency_key": f"j{chance.randrange(5)}"}
    ).encode()
    return chance.choice(
        (
            (request("POST", "/v1/jobs", body, content_type=JSON), "POST"),
            (request("POST", "/v1/jobs", b"[]", content_type=JSON), "POST"),
            (request("GET", "/v1/jobs?limit=2"), "GET"),
            (request("GET", "/v1/jobs/none"), "GET"),
            (request("PATCH", "/v1/jobs", b"{}", content_type=JSON), "PATCH"),
        )
    )


def _events(chance: random.Random) -> tuple[bytes, str]:
    event = {"id": f"e{chance.randrange(6)}", "partitions": ["a"], "event": {"type": "t", "n": chance.randrange(2)}}
    body = json.dumps(chance.choice(({"events": [event]}, {"events": []}, {"events": [{"id": 1}]}))).encode()
    return chance.choice(
        (
            (request("POST", "/v1/events", body, content_type=JSON), "POST"),
            (request("GET", "/v1/events?partitions=a"), "GET"),
            (request("GET", "/v1/events"), "GET"),
        )
    )


def _others(chance: random.Random) -> tuple[bytes, str]:
    delta = json.dumps({"clientId": "c", "deltas": [], "lastSeenHlc": "0"}).encode()
    return chance.choice(
        (
            (request("GET", "/ledger/v1/organizations"), "GET"),
            (request("POST", "/ledger/v1/organizations", b'{"slug":"o"}', content_type=JSON), "POST"),
            (request("POST", "/sync/g1/push", delta, content_type=JSON), "POST"),
            (request("GET", "/sync/g1/pull?since=0&clientId=c"), "GET"),
            (request("GET", "/livez"), "GET"),
            (request("GET", "/readyz"), "GET"),
            (request("HEAD", "/readyz"), "HEAD"),
            (request("GET", "/nowhere"), "GET"),
            (request("OPTIONS", "/v1/jobs"), "OPTIONS"),
            (request("GET", "/v1/events", upgrade="websocket"), "GET"),
            (request("POST", "/livez", b"x"), "POST"),
            (b"GET /livez HTTP/1.0\r\n\r\n", "GET"),
            (request("GET", "/livez", connection="close"), "GET"),
        )
    )


def conversation(seed: int, length: int) -> Iterator[Step]:
    """Steps that are the same for every server; some pipeline two requests."""
    chance = random.Random(seed)
    for _ in range(length):
        kinds = chance.choices((_streams, _jobs, _events, _others), (8, 2, 2, 2), k=chance.choice((1, 1, 1, 2)))
        some = [kind(chance) for kind in kinds]
        yield Step(chance.randrange(CONNECTIONS), b"".join(one for one, _ in some), tuple(method for _, method in some))


class AnswerReader:
    """Reads answers from a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._data = b""
        self.request_id = ""
        self.head = ""
        self.body = b""
        """Of the last answer, like the head."""
        self.is_last = False

    def _more(self) -> None:
        data = self._sock.recv(1 << 20)
        if not data:
            raise EOFError
        self._data += data

    def _until(self, end: bytes) -> bytes:
        while end not in self._data:
            self._more()
        found, _, self._data = self._data.partition(end)
        return found

    def _exactly(self, size: int) -> bytes:
        while len(self._data) < size:
            self._more()
        found, self._data = self._data[:size], self._data[size:]
        return found

    def receive(self, method: str) -> None:
        """One answer."""
        head = self._until(b"\r\n\r\n").decode("latin-1")
        status, *lines = head.split("\r\n")
        fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        self.request_id = fields.get("x-request-id", "")
        body = b""
        if method != "HEAD" and status.split()[1] not in ("204", "304"):
            if fields.get("transfer-encoding") == "chunked":
                while size := int(self._until(b"\r\n"), 16):
                    body += self._exactly(size)
                    self._until(b"\r\n")
                self._until(b"\r\n")
            else:
                body = self._exactly(int(fields["content-length"]))
        self.is_last = fields.get("connection") == "close"
        self.head, self.body = head, body
