"""What the HTTP host asks of the application behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from semel.kernel.errors import Refusal
from semel.server.http.answer import Answer
from semel.server.http.request import Request


class UpgradedConnection(Protocol):
    """A protocol that takes a connection over after `Upgrade: websocket`; it gets the bytes of the handshake again."""

    on_lost: Callable[[], None] | None
    """Called once when the connection is gone; the host sets it."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """The transport is its own from now on."""

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""

    def shutdown(self) -> None:
        """The server stops."""


class Application(Protocol):
    """Answers requests."""

    def handle(self, request: Request) -> Answer | None:
        """The answer; None when it comes later. Never raises."""

    def failed(self, request: Request, error: Exception) -> Answer:
        """What is answered when a coroutine of `later` raised; the error is logged here."""

    def answered(self, request: Request, status: int) -> None:
        """The head of an answer leaves; for metrics."""

    def refused(self, refusal: Refusal) -> None:
        """The host refused what never became a request; for metrics."""

    def socket_at(self, raw_path: bytes) -> Callable[[], UpgradedConnection] | None:
        """What speaks WebSocket at a path of the data listener; None where none does."""

    def is_control(self, address: tuple[str, int] | None) -> bool:
        """Whether an address of ours is the control listener's, on which no WebSocket is spoken."""
