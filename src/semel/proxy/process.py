"""The proxy process: uvicorn with limits that it lacks, and an orderly shutdown.

On SIGTERM or Control-C it takes no new connection, running requests end within `stop_timeout`, and what is left is cut
off: a request with a key is then unknown. A second Control-C does not wait.
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

from semel.once.claims import Act, Change
from semel.once.functions import Once
from semel.once.identity import Identity
from semel.proxy.app import Proxy
from semel.proxy.forward import Forward, nowhere
from semel.proxy.settings import ProxySettings

MAX_HEAD_BYTES = 65_536
SPARE_CONNECTIONS = 256
"""Connections above the limit of requests, which are answered that there are too many."""
CUT_OFF_SECONDS = 5.0
"""Seconds for cancelled requests to abandon their claims; else a claim is unknown when its lease is over."""

_log = logging.getLogger("semel.proxy")


class ListenError(Exception):
    """The address cannot be listened on; the message says why."""


def checked(store: Once) -> None:
    """Read a key from the store: a missing table, or an unreachable store, is reported before the proxy listens."""
    store.store.change(Change(Act.FIND, Identity("", "semel-proxy")))


def run_proxy(
    settings: ProxySettings,
    store: Once,
    address: tuple[str, int],
    announce: Callable[[str], None],
    reached: Callable[[str], None] = nowhere,
) -> None:
    """Run until stopped; raises `ListenError`."""
    checked(store)
    ProxyServer(settings, store, listener_at(*address), announce, reached).run()


def listener_at(host: str, port: int) -> socket.socket:
    """A socket bound to an address; raises `ListenError`."""
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
        raise ListenError(
            f"Cannot listen on {host} port {port}: {error.strerror}. Choose another with --port."
        ) from error
    return bound


class _BoundedConfig(uvicorn.Config):
    """How uvicorn is set up: it adds no header, trusts none, and logs no request."""

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
    """One connection of a client: the time for the head of a request and the number of connections are bounded."""

    config: _BoundedConfig
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, or close it when there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.config.max_connections:
            transport.abort()
            return
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take bytes; the time for a head runs from its first one."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._watch()
        else:
            self._unwatch()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over."""
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
    """Serves on a listener that is bound."""

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
        """A signal asks for an orderly stop, and that is all: uvicorn would raise it again at the end."""
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
        """Make the clients, then listen."""
        self._forward.open()
        await super().startup([self._listener])
        host, port = self._listener.getsockname()[:2]
        self._announce(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let running requests end, then close the clients."""
        _log.info("stopping: running requests end first")
        await super().shutdown([self._listener])
        cut_off = set() if self.force_exit else set(self.server_state.tasks)
        if cut_off:
            await asyncio.wait(cut_off, timeout=CUT_OFF_SECONDS)
        await self._forward.close()
