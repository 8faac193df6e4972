"""A client of the binary surface: frames over a WebSocket, answers in their order, broadcasts as they come."""

from __future__ import annotations

import json
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import quote

from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed
from websockets.frames import Close, Frame, Opcode
from websockets.http11 import Response
from websockets.sync.client import ClientConnection, connect
from websockets.uri import parse_uri

from semel.surfaces.deltas.proto.sync_pb2 import ColumnDelta, RowDelta, SyncPull, SyncPush, SyncResponse
from tests.deltas.vectors import Message
from tests.harness.server import HOST

PUSH, PULL, BROADCAST = b"\x01", b"\x02", b"\x03"
PATIENCE_SECONDS = 25.0
"""Less than the time after which a server looks by itself: what comes in time has come because it was told."""
OPS = {"INSERT": 1, "UPDATE": 2, "DELETE": 3}
NAMES = {number: name for name, number in OPS.items()}


class Told(NamedTuple):
    """A response, in the words of the JSON wire."""

    deltas: list[Message]
    hlc: int
    has_more: bool

    @property
    def ids(self) -> list[str]:
        """The ids of the entries, in order."""
        return [entry["deltaId"] for entry in self.deltas]


def row_delta(delta: Message) -> RowDelta:
    """A delta of the JSON wire as a message; a column without a value has no bytes."""
    return RowDelta(
        op=OPS.get(delta["op"], 0),  # type: ignore[arg-type]
        table=delta["table"],
        row_id=delta["rowId"],
        columns=[
            ColumnDelta(column=one["column"], value=json.dumps(one["value"]).encode() if "value" in one else b"")
            for one in delta["columns"]
        ],
        hlc=int(delta["hlc"]),
        client_id=delta["clientId"],
        delta_id=delta["deltaId"],
    )


def push_frame(deltas: Sequence[Message], client: str) -> bytes:
    """A push."""
    message = SyncPush(client_id=client, deltas=map(row_delta, deltas), last_seen_hlc=7)
    return PUSH + message.SerializeToString()


def pull_frame(client: str, since: int, limit: int = 1_000) -> bytes:
    """A pull."""
    return PULL + SyncPull(client_id=client, since_hlc=since, max_deltas=limit).SerializeToString()


def read_response(raw: bytes) -> Told:
    """An answer, or a broadcast without its first byte."""
    message = SyncResponse.FromString(raw)
    return Told([_entry(delta) for delta in message.deltas], message.server_hlc, message.has_more)


def _entry(delta: RowDelta) -> Message:
    cells = [{"column": one.column, "value": json.loads(one.value)} for one in delta.columns]
    return {
        "op": NAMES[delta.op],
        "table": delta.table,
        "rowId": delta.row_id,
        "clientId": delta.client_id,
        "columns": cells,
        "hlc": str(delta.hlc),
        "deltaId": delta.delta_id,
    }


class Socket:
    """One connection of one client. What is broadcast while an answer is awaited is kept."""

    def __init__(self, connection: ClientConnection, client: str) -> None:
        self.connection = connection
        self.client = client
        self.heard: deque[Told] = deque()

    def send(self, raw: bytes) -> None:
        """Send a frame and wait for nothing."""
        self.connection.send(raw)

    def answer(self) -> Told:
        """The next answer."""
        while True:
            raw = self._receive(PATIENCE_SECONDS)
            if not raw.startswith(BROADCAST):
                return read_response(raw)
            self.heard.append(read_response(raw[1:]))

    def broadcast(self) -> Told:
        """The next broadcast; no answer may come before it."""
        if self.heard:
            return self.heard.popleft()
        raw = self._receive(PATIENCE_SECONDS)
        assert raw.startswith(BROADCAST), raw
        return read_response(raw[1:])

    def push(self, *deltas: Message, client: str | None = None) -> Told:
        """Push, and wait for the answer."""
        self.send(push_frame(deltas, client or self.client))
        return self.answer()

    def pull(self, since: int = 0, limit: int = 1_000) -> Told:
        """Pull, and wait for the answer."""
        self.send(pull_frame(self.client, since, limit))
        return self.answer()

    def ending(self) -> tuple[int, str]:
        """How the server ends the connection; what comes before is read and thrown away."""
        said: Close | None = None
        while said is None:
            try:
                self._receive(PATIENCE_SECONDS)
            except ConnectionClosed as closed:
                said = closed.rcvd or Close(1006, "cut off")
        assert len(said.reason.encode()) <= 123, said
        return said.code, said.reason

    def _receive(self, seconds: float) -> bytes:
        raw = self.connection.recv(seconds)
        assert isinstance(raw, bytes)
        return raw


def address(port: int, gateway: str, version: str = "/v1", query: str = "") -> str:
    """Where the WebSocket of a gateway is."""
    return f"ws://{HOST}:{port}{version}/sync/{quote(gateway, safe='')}/ws{query}"


@contextmanager
def joined(port: int, gateway: str, client: str, *, token: str = "", **where: str) -> Iterator[Socket]:
    """A client that is connected; a token goes into the header."""
    headers = {"Authorization": f"Bearer {token}"} if token else None
    with connect(
        address(port, gateway, **where),
        additional_headers=headers,
        open_timeout=PATIENCE_SECONDS,
        close_timeout=PATIENCE_SECONDS,
        ping_interval=None,
        max_size=None,
        compression=None,
        proxy=None,
    ) as connection:
        yield Socket(connection, client)


class Line:
    """A client in one thread: what it has read, and only that, it says that it has; or not even that by itself."""

    def __init__(
        self, port: int, gateway: str, client: str, *, is_mute: bool = False, line: socket.socket | None = None
    ) -> None:
        self._client = client
        self._is_mute = is_mute
        self._protocol = ClientProtocol(parse_uri(address(port, gateway)), max_size=None)
        self._messages: deque[bytes] = deque()
        self._broadcasts: list[bytes] = []
        self._owed = 0
        """Broadcasts whose ping has not come yet."""
        self._pings: deque[bytes] = deque()
        self._is_open = False
        self._line = line or socket.create_connection((HOST, port), PATIENCE_SECONDS)
        self._protocol.send_request(self._protocol.connect())
        self._flush()
        while not self._is_open:
            self._read()

    def pull(self, since: int = 0) -> Told:
        """Pull, and wait for the answer."""
        return self._ask(pull_frame(self._client, since))

    def push(self, *deltas: Message) -> Told:
        """Push, and wait for the answer."""
        return self._ask(push_frame(deltas, self._client))

    def broadcast(self) -> Told:
        """The next broadcast."""
        raw = self._message()
        assert raw.startswith(BROADCAST), raw
        return read_response(raw[1:])

    def pong(self) -> None:
        """Say after all that it has what came before the next ping that was not answered."""
        while not self._pings:
            self._read()
        self._protocol.send_pong(self._pings.popleft())
        self._flush()

    @classmethod
    def mute(cls, port: int, gateway: str, client: str) -> Self:
        """One that says what it has when it is told to."""
        return cls(port, gateway, client, is_mute=True)

    def before(self) -> list[Told]:
        """Broadcasts that came before the last answer."""
        told = [read_response(raw[1:]) for raw in self._broadcasts]
        self._broadcasts.clear()
        return told

    def behind(self, seconds: float = 0.0) -> list[Told]:
        """Broadcasts that have come since; or, when there are none, that come within this time."""
        if not self._messages and seconds:
            self._line.settimeout(seconds)
            with suppress(TimeoutError):
                self._read()
            self._line.settimeout(PATIENCE_SECONDS)
        self._broadcasts += self._messages
        self._messages.clear()
        return self.before()

    def send(self, raw: bytes) -> None:
        """Send a frame and wait for nothing."""
        self._protocol.send_binary(raw)
        self._flush()

    def ending(self) -> tuple[int, str]:
        """How the server ends the connection."""
        while self._protocol.close_rcvd is None:
            self._read_some()
        return self._protocol.close_rcvd.code, self._protocol.close_rcvd.reason

    def leave(self) -> None:
        """Close as one should; what still comes is neither looked at nor said to have come."""
        self._is_mute = True
        self._protocol.send_close(1000)
        self._flush()
        while self._line.recv(65_536):
            pass
        self._line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.close()

    def _ask(self, raw: bytes) -> Told:
        self.send(raw)
        return self.answer()

    def answer(self) -> Told:
        """The next answer; what is broadcast before it is kept."""
        while True:
            answer = self._message()
            if not answer.startswith(BROADCAST):
                return read_response(answer)
            self._broadcasts.append(answer)

    def _message(self) -> bytes:
        while not self._messages:
            self._read()
        return self._messages.popleft()

    def _read(self) -> None:
        """What has come; a broadcast counts when its ping is there, too."""
        self._read_some()
        while self._owed > 0:
            self._line.settimeout(PATIENCE_SECONDS)
            self._read_some()

    def _read_some(self) -> None:
        data = self._line.recv(65_536)
        assert data, "the connection was closed"
        self._protocol.receive_data(data)
        self._protocol.data_to_send()  # its pongs, which are not sent
        for event in self._protocol.events_received():
            if isinstance(event, Response):
                self._is_open = True
            elif isinstance(event, Frame) and event.opcode is Opcode.BINARY:
                self._messages.append(bytes(event.data))
                self._owed += self._messages[-1].startswith(BROADCAST)
            elif isinstance(event, Frame) and event.opcode is Opcode.PING:
                self._pings.append(bytes(event.data))
                self._owed -= 1
        if self._pings and not self._is_mute:
            self.pong()

    def _flush(self) -> None:
        self._line.sendall(b"".join(self._protocol.data_to_send()))
