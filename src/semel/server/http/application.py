"""The interface between the HTTP host and its application."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from semel.kernel.errors import Refusal
from semel.server.http.answer import Answer
from semel.server.http.request import Request


class UpgradedConnection(Protocol):
    """A protocol that takes over a connection after `Upgrade: websocket`; it gets the bytes of the handshake again."""

    on_lost: Callable[[], None] | None
    """Called once when the connection is lost; the host sets it."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Take over the transport."""

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""

    def shutdown(self) -> None:
        """The server is stopping."""


class Application(Protocol):
    """Answers requests."""

    def handle(self, request: Request) -> Answer | None:
        """The answer; None if it is sent later. Never raises."""

    def failed(self, request: Request, error: Exception) -> Answer:
        """The answer for an error that a coroutine of `later` raised; logs the error."""

    def answered(self, request: Request, status: int) -> None:
        """Count an answer whose head is being sent."""

    def refused(self, refusal: Refusal) -> None:
        """Count a refusal of the host for input that never became a request."""

    def socket_at(self, raw_path: bytes) -> Callable[[], UpgradedConnection] | None:
        """The WebSocket handler of a path of the data listener; None without one."""

    def is_control(self, address: tuple[str, int] | None) -> bool:
        """Whether a local address is that of the control listener, which has no WebSockets."""
