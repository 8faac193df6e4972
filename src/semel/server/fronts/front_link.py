"""The writer's end of one front: its connections, its requests, and the grants that it holds.

When the front ends, by order or by a crash, all of its connections are lost: writes that were not decided are dropped,
and writes that were committed can be sent again with their key.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from semel.server.fronts.channel import (
    ABORT,
    ACCEPT,
    ACK,
    AGAIN,
    BODY,
    FORGET,
    GONE,
    GRANT,
    LAST,
    LOST,
    OPEN,
    PING,
    PLAIN,
    PONG,
    READY,
    REFUSE,
    REFUSED,
    REQUEST,
    TUNNEL,
    Channel,
    Message,
)
from semel.server.fronts.grant import GrantableShape
from semel.server.fronts.relay_transport import RelayTransport
from semel.server.fronts.relayed_connection import RelayedConnection
from semel.server.http.exchange import running_facts
from semel.server.http.head_shapes import MAX_SHAPES, HeadShape
from semel.server.http.protocol import HttpProtocol
from semel.server.http.request import Request
from semel.server.http.server import HttpHost
from semel.server.quotas.accounts import leave_account

_log = logging.getLogger("semel.server")


class FrontLink:
    """One front, as the writer sees it. Used on the event loop only."""

    def __init__(self, host: HttpHost, count_refusal: Callable[[int], None], lost: Callable[[FrontLink], None]) -> None:
        """`count_refusal` gets the status of input that the front refused, `lost` is called when the front ends."""
        self._host = host
        self._count_refusal = count_refusal
        self._on_lost = lost
        self.channel = Channel(self._receive, self._lose_all)
        self.channel.on_full = self.channel.pause_reading  # a front that does not read sends nothing more
        self.is_ready = asyncio.Event()
        self.unanswered_pings = 0
        self._connections: dict[int, RelayedConnection] = {}
        self._tunnels: dict[int, RelayTransport] = {}
        self._grants: dict[int, HeadShape] = {}
        self._granted = 0
        self._kinds: dict[int, Callable[[Message], None]] = {
            READY: lambda message: self.is_ready.set(),
            OPEN: self._open,
            REQUEST: self._begin,
            BODY: self._take,
            LOST: self._lose,
            GONE: self._end,
            ACK: self._ack,
            TUNNEL: self._tunnel,
            PLAIN: self._admit_plain,
            REFUSED: lambda message: self._count_refusal(message[2]),
            PONG: self._hear_pong,
            LAST: self._be_last,
        }

    def __len__(self) -> int:
        return len(self._connections) + len(self._tunnels)

    def ping(self) -> None:
        """Ask for a sign of life."""
        self.unanswered_pings += 1
        self.channel.send((PING, 0))

    def forget(self, *, reads_files: bool) -> None:
        """Withdraw all grants; with `reads_files` the front also reads the files of its settings again."""
        self._grants.clear()
        self.channel.send((FORGET, 0, reads_files))

    def grant(self, number: int, make: Callable[[bytes], HeadShape | None], request: Request, size: int) -> None:
        """Let the front send requests like the present one of a connection as plain ones."""
        sent = request.fields.all(b"idempotency-key")
        if len(sent) > 1 or self._host.relay is not None:  # what a front answers by itself could not be logged
            return
        shape = make(sent[0] if sent else b"")
        if shape is None:
            return
        if len(self._grants) >= MAX_SHAPES:
            self.forget(reads_files=False)
        self._granted += 1
        self._grants[self._granted] = shape
        surface, facts = (shape.surface, shape.facts()) if isinstance(shape, GrantableShape) else ("", ())
        self.channel.send((GRANT, number, self._granted, surface, size, facts))

    # ---- Messages ----

    def _receive(self, batch: list[Message]) -> None:
        kinds = self._kinds
        for message in batch:
            try:
                kinds[message[0]](message)
            except Exception as error:  # noqa: BLE001 - a fault of one connection must not end those beside it
                facts = {"kind": message[0], **running_facts(self._connections.get(message[1]))}
                _log.error("fault in a message of a front", exc_info=error, extra=facts)
                self.channel.send((ABORT, message[1]))

    def _open(self, message: Message) -> None:
        """Count a connection and accept it, or refuse it: the limits are those of all fronts together."""
        _, number, client, server, scheme, descriptor = message
        host = self._host
        transport = RelayTransport(self.channel, number, client, server, scheme)
        connection = (host.relay or RelayedConnection)(self, host, number, transport, scheme)
        opened = len(host.connections) + 1
        address = client[0] if client else ""
        refusal = host.connection_limit.refusal(address, opened, descriptor, connection.loop.time())
        if refusal is not None:
            self.channel.send((REFUSE, number, refusal.message))
            return
        host.connections.add(connection)
        self._connections[number] = connection
        self.channel.send((ACCEPT, number))

    def _begin(self, message: Message) -> None:
        connection = self._connections.get(message[1])
        if connection is not None:
            connection.take_request(message)

    def _take(self, message: Message) -> None:
        connection = self._connections.get(message[1])
        if connection is not None:
            connection.take(message[2])
            return
        tunnel = self._tunnels.get(message[1])
        if tunnel is not None:
            tunnel.receive(message[2])

    def _lose(self, message: Message) -> None:
        connection = self._connections.get(message[1])
        if connection is not None:
            connection.lose()

    def _be_last(self, message: Message) -> None:
        connection = self._connections.get(message[1])
        if connection is not None:
            connection.is_stopping = True

    def _ack(self, message: Message) -> None:
        connection = self._connections.get(message[1])
        transport = self._tunnels.get(message[1]) if connection is None else connection.transport
        if transport is not None:
            transport.acked(message[2])

    def _end(self, message: Message) -> None:
        """A connection has ended."""
        connection = self._connections.pop(message[1], None)
        if connection is not None:
            self._leave(connection)
            connection.transport.lost()
            connection.connection_lost(None)
            return
        tunnel = self._tunnels.pop(message[1], None)
        if tunnel is not None:
            tunnel.lost()
            tunnel.get_protocol().connection_lost(None)

    def _leave(self, connection: RelayedConnection) -> None:
        self._host.connections.discard(connection)
        if connection.account is not None:
            leave_account(connection)
        self._host.connection_limit.leave(connection.client[0] if connection.client else "")

    def _tunnel(self, message: Message) -> None:
        """Give a connection to a protocol of the writer, which reads it from the head of an upgrade on."""
        _, number, data = message
        connection = self._connections.pop(number, None)
        if connection is None:
            return
        self._leave(connection)  # the protocol counts it
        transport = self._tunnels[number] = connection.transport
        protocol = self._host.connection(connection.loop)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        transport.receive(data)

    def _admit_plain(self, message: Message) -> None:
        connection = self._connections.get(message[1])
        if connection is None:
            return
        shape = self._grants.get(message[2])
        if shape is None:  # the grant was withdrawn meanwhile
            self.channel.send((AGAIN, connection.number))
            return
        if isinstance(shape, GrantableShape):
            shape.admit(connection, message[3:])
        elif not shape.take(cast(HttpProtocol, connection), message[3], message[4]):
            connection.ask_again()

    def _hear_pong(self, message: Message) -> None:
        self.unanswered_pings = 0

    # ---- The end ----

    def _lose_all(self) -> None:
        self._receive([(GONE, number) for number in [*self._connections, *self._tunnels]])
        self._grants.clear()
        self._on_lost(self)
