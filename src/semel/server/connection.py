"""The connection under a request: what the application may know of it, and its send buffer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

CONNECTION = "semel.connection"
"""Its place in the scope of a request."""


class Connection:
    """The connection under a request, as the application may use it."""

    __slots__ = ("gone", "on_gone", "transport")

    def __init__(self) -> None:
        self.gone = False
        self.on_gone: Callable[[], None] | None = None
        self.transport: asyncio.Transport | None = None

    def bound_unsent(self, size: int) -> None:
        """Limit the unsent bytes in the kernel's send buffer to about `size`, so that a slow reader is noticed here."""
        own = None if self.transport is None else self.transport.get_extra_info("socket")
        if own is not None and hasattr(socket, "TCP_NOTSENT_LOWAT"):
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, size)

    def abort(self) -> None:
        """End it at once, whatever is still to be sent."""
        if self.transport is not None:
            self.transport.abort()
