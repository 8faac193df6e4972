"""The proxy process: the proxy application on uvicorn.

On SIGTERM or Control-C it accepts no new connections and waits `stop_timeout` for running requests. The rest are cut
off, and the outcome of those with a key is unknown. A second Control-C does not wait.
"""

from __future__ import annotations

import math
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

import uvicorn

from semel.proxy.app import Proxy
from semel.proxy.settings import ProxySettings

MAX_HEAD_BYTES = 65_536
SPARE_CONNECTIONS = 256
"""Connections above the request limit, which get the proxy's answer that there are too many requests."""


class ProxyListenError(Exception):
    """The proxy cannot listen on the address; the message says why."""


def run_proxy(settings: ProxySettings, app: Proxy, address: tuple[str, int], announce: Callable[[str], None]) -> None:
    """Run a proxy until a signal, which ends the process with status 0; raises `ProxyListenError`."""
    listener = listener_at(*address)
    # uvicorn raises a signal again once it has stopped: without these two lines the status would be that of a kill.
    signal.signal(signal.SIGTERM, lambda _, __: sys.exit(0))
    with suppress(KeyboardInterrupt):
        announce(url_of(listener))
        server_of(settings, app).run(sockets=[listener])


def server_of(settings: ProxySettings, app: Proxy) -> uvicorn.Server:
    """The server of a proxy: it adds no headers, trusts none, and logs no requests."""
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        limit_concurrency=settings.max_requests + SPARE_CONNECTIONS,
        timeout_keep_alive=math.ceil(settings.idle_timeout),
        timeout_graceful_shutdown=math.ceil(settings.stop_timeout),
    )
    return uvicorn.Server(config)


def listener_at(host: str, port: int) -> socket.socket:
    """A socket that listens on an address; raises `ProxyListenError`."""
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            if sys.platform != "win32":
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(place)
            bound.listen()
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise ProxyListenError(
            f"Cannot listen on {host} port {port}: {error.strerror}. Choose another with --port."
        ) from error
    return bound


def url_of(listener: socket.socket) -> str:
    """The URL of a listener."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
