"""The proxy process: uvicorn with additional limits and a graceful shutdown.

On SIGTERM or Control-C it accepts no new connections and waits `stop_timeout` for running requests. The rest are cut
off, and the outcome of those with a key is unknown. A second Control-C does not wait.
"""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from semel.once.claims import Act, ReceiptChange
from semel.once.functions import Once
from semel.once.identity import OnceIdentity
from semel.proxy.app import Proxy
from semel.proxy.forward import Forward, nowhere
from semel.proxy.settings import ProxySettings

MAX_HEAD_BYTES = 65_536
SPARE_CONNECTIONS = 256
"""Connections above the request limit, which get an answer that there are too many."""
CUT_OFF_SECONDS = 5.0
"""Seconds for cancelled requests to abandon their claims; after that, a claim is unknown when its lease ends."""

_log = logging.getLogger("semel.proxy")


class ProxyListenError(Exception):
    """The proxy cannot listen on the address; the message says why."""


def checked(store: Once) -> None:
    """Read a key from the store, so that a missing table or an unreachable store is reported before startup."""
    store.store.change(ReceiptChange(Act.FIND, OnceIdentity("", "semel-proxy")))


def run_proxy(
    settings: ProxySettings,
    store: Once,
    address: tuple[str, int],
    announce: Callable[[str], None],
    reached: Callable[[str], None] = nowhere,
) -> None:
    """Run until stopped; raises `ProxyListenError`."""
    checked(store)
    ProxyServer(settings, store, listener_at(*address), announce, reached).run()


def listener_at(host: str, port: int) -> socket.socket:
    """A socket bound to an address; raises `ProxyListenError`."""
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            if sys.platform != "win32":
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(place)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise ProxyListenError(
            f"Cannot listen on {host} port {port}: {error.strerror}. Choose another with --port."
        ) from error
    return bound


class _BoundedConfig(uvicorn.Config):
    """The configuration of uvicorn: it adds no headers, trusts none, and logs no requests."""

    def __init__(self, settings: ProxySettings, app: Proxy) -> None:
        super().__init__(
            app,
            http=_BoundedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            timeout_keep_alive=math.ceil(settings.idle_timeout),
            timeout_graceful_shutdown=math.ceil(settings.stop_timeout),
        )
        self.head_seconds = settings.idle_timeout
        self.max_connections = settings.max_requests + SPARE_CONNECTIONS


class _BoundedProtocol(H11Protocol):
    """A client connection with limits on the time for a request head and on the number of connections."""

    config: _BoundedConfig
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or close it if there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.config.max_connections:
            transport.abort()
            return
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Receive bytes; the time limit of a request head starts with its first byte."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._watch()
        else:
            self._unwatch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._unwatch()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.config.head_seconds, self._late)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        self._deadline = None
        if self.conn.their_state is h11.IDLE:
            self.transport.close()


class ProxyServer(uvicorn.Server):
    """Serves on a bound listener."""

    def __init__(
        self,
        settings: ProxySettings,
        store: Once,
        listener: socket.socket,
        announce: Callable[[str], None],
        reached: Callable[[str], None] = nowhere,
    ) -> None:
        self._forward = Forward(settings, reached)
        super().__init__(_BoundedConfig(settings, Proxy(settings, store, self._forward, reached)))
        self._listener = listener
        self._announce = announce

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop gracefully on a signal. Unlike uvicorn, this does not raise the signal again at the end."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the HTTP clients, then listen."""
        self._forward.open()
        await super().startup([self._listener])
        host, port = self._listener.getsockname()[:2]
        self._announce(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for running requests, then close the HTTP clients."""
        _log.info("stopping: waiting for running requests")
        await super().shutdown([self._listener])
        cut_off = set() if self.force_exit else set(self.server_state.tasks)
        if cut_off:
            await asyncio.wait(cut_off, timeout=CUT_OFF_SECONDS)
        await self._forward.close()
