"""Keyed writes as the load generator sends them: appends over HTTP, a script of Redis, and messages of NATS.

Requests are prepared bytes with a key put in; of an answer as little is looked at as tells that it is the right one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import socket
from collections.abc import Callable

from bench.load_keys import BODY, KEYS, repeated_key
from bench.load_loop import HOST, NOT_AN_ANSWER, BrokenError
from bench.load_wires import ask, bulk, cut_http, cut_nats, cut_resp, post, receive_until

SCRIPT = b"""
if redis.call('SET', KEYS[1], '1', 'NX', 'EX', 86400) then
  return redis.call('XADD', KEYS[2], '*', 'd', ARGV[1])
end
return 'known'
"""
"""What people write for an idempotent append in Redis: the key with its expiry and the entry, in one script."""


class HttpSource:
    """What sources over HTTP share."""

    cut = staticmethod(cut_http)

    def prepare(self, port: int) -> None:
        """Nothing."""

    def open(self, caller: socket.socket, connection: int) -> None:
        """Nothing."""


class Appends(HttpSource):
    """Appends to streams, each with a fresh key, a known one or none."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self._new_key = KEYS[asked.keys]
        self._path = asked.path
        self._streams = asked.streams
        self._put = asked.put
        heads = [post(path, BODY)[: -len(BODY) - 2] for path in paths(asked.path, asked.streams)]
        self._heads = [head for head, _ in zip(itertools.cycle(heads), range(asked.connections), strict=False)]
        self._before_key = b"idempotency-key: " if self._new_key else b""

    def prepare(self, port: int) -> None:
        """Create the streams, and store what is to be repeated."""
        for path in paths(self._path, self._streams) if self._put else []:
            ask(port, "PUT", path)
        if self._new_key is repeated_key:
            with socket.create_connection((HOST, port), 30) as caller:
                caller.sendall(self.request(0))
                self.answered(0, caller.recv(65_536))

    def request(self, connection: int) -> bytes:
        """One append; a connection keeps to one of the streams."""
        if self._new_key is None:
            return b"%s\r\n%s" % (self._heads[connection], BODY)
        return b"%sidempotency-key: %s\r\n\r\n%s" % (self._heads[connection], self._new_key(), BODY)

    def answered(self, connection: int, answer: bytes) -> int:
        """Any success is good: services answer 200, 201 or 204."""
        if answer[9:10] != b"2":
            raise BrokenError(f"refused: {answer[:500]!r}")
        return 1


def paths(path: str, streams: int) -> list[str]:
    """The path itself, or as many as asked for that begin with it."""
    return [f"{path}-{number}" for number in range(streams)] if streams else [path]


class RedisScript:
    """The script with SET NX and XADD, or XADD alone when there is no key."""

    cut = staticmethod(cut_resp)

    def __init__(self, asked: argparse.Namespace) -> None:
        self._new_key = KEYS[asked.keys]
        self._sha = b""

    def prepare(self, port: int) -> None:
        """Load the script, and store what is to be repeated."""
        with socket.create_connection((HOST, port), 30) as caller:
            caller.sendall(bulk(b"SCRIPT", b"LOAD", SCRIPT))
            self._sha = receive_until(caller, b"\r\n").split(b"\r\n")[1]
            caller.sendall(self.request(0))
            receive_until(caller, b"\r\n")

    def open(self, caller: socket.socket, connection: int) -> None:
        """Nothing."""

    def request(self, connection: int) -> bytes:
        """One call."""
        if self._new_key is None:
            return bulk(b"XADD", b"bench", b"*", b"d", BODY)
        return b"*6\r\n$7\r\nEVALSHA\r\n$40\r\n%s\r\n$1\r\n2\r\n$36\r\n%s\r\n$5\r\nbench\r\n$%d\r\n%s\r\n" % (
            self._sha,
            self._new_key(),
            len(BODY),
            BODY,
        )

    def answered(self, connection: int, answer: bytes) -> int:
        """The id of the entry, or that the key is known."""
        is_known = answer == b"$5\r\nknown\r\n"
        if answer[:1] != b"$" or is_known != (self._new_key is repeated_key):
            raise BrokenError(f"unexpected: {answer[:500]!r}")
        return 1


class NatsMessages:
    """Messages of JetStream with a Nats-Msg-Id, each acknowledged by the stream."""

    cut = staticmethod(cut_nats)

    def __init__(self, asked: argparse.Namespace) -> None:
        self._new_key: Callable[[], bytes] | None = KEYS[asked.keys]

    def prepare(self, port: int) -> None:
        """Create the stream, and store what is to be repeated."""
        config = {"name": "BENCH", "subjects": ["bench"], "storage": "file", "duplicate_window": 86_400 * 10**9}
        asked = json.dumps(config).encode()
        with socket.create_connection((HOST, port), 30) as caller:
            self.open(caller, 0)
            caller.sendall(b"PUB $JS.API.STREAM.CREATE.BENCH _IN.0 %d\r\n%s\r\n" % (len(asked), asked))
            created = receive_until(caller, b"}\r\n")
            if b'"error"' in created and b"already in use" not in created:
                raise BrokenError(f"no stream: {created!r}")
            caller.sendall(self.request(0))
            receive_until(caller, b"}\r\n")

    def open(self, caller: socket.socket, connection: int) -> None:
        """Listen for acknowledgements on an inbox of one's own."""
        receive_until(caller, b"\r\n")
        caller.sendall(b'CONNECT {"verbose":false,"headers":true}\r\nSUB _IN.%d 1\r\nPING\r\n' % connection)
        receive_until(caller, b"PONG\r\n")

    def request(self, connection: int) -> bytes:
        """One message."""
        if self._new_key is None:
            return b"PUB bench _IN.%d %d\r\n%s\r\n" % (connection, len(BODY), BODY)
        head = b"NATS/1.0\r\nNats-Msg-Id: %s\r\n\r\n" % self._new_key()
        whole = len(head) + len(BODY)
        return b"HPUB bench _IN.%d %d %d\r\n%s%s\r\n" % (connection, len(head), whole, head, BODY)

    def answered(self, connection: int, answer: bytes) -> int:
        """The stream's acknowledgement."""
        if answer == b"PING\r\n":
            return NOT_AN_ANSWER  # the server hears enough from us to keep the connection
        if b'"seq":' not in answer or (b'"duplicate"' in answer) != (self._new_key is repeated_key):
            raise BrokenError(f"unexpected: {answer[:500]!r}")
        return 1
