"""Sockets that the server listens on."""

from __future__ import annotations

import errno
import socket
import sys

from semel.server.settings import ServerSettings


class ListenError(Exception):
    """The server cannot listen on the address; the message says why."""


def listen(host: str, port: int, flag: str, *, is_shared: bool = False) -> socket.socket:
    """A socket bound to an address; `flag` is the option that sets the port.

    With `is_shared` further sockets can be bound to the same port, and the kernel spreads connections over them.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            if sys.platform != "win32":
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if is_shared:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        is_host = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
        raise cannot_listen(host, port, error.strerror, "--host" if is_host else flag) from error
    return bound


def listen_shared(host: str, port: int, flag: str, count: int) -> list[socket.socket]:
    """Sockets on one port, which no other server has: it is first bound for this process alone."""
    alone = listen(host, port, flag)
    port = alone.getsockname()[1]
    alone.close()
    return [listen(host, port, flag, is_shared=True) for _ in range(count)]


def cannot_listen(host: str, port: int, reason: str | None, flag: str) -> ListenError:
    """The error for an address that is not available."""
    return ListenError(f"Cannot listen on {host} port {port}: {reason}. Choose another with {flag}.")


def listen_all(settings: ServerSettings) -> list[socket.socket]:
    """The sockets of the data listener, one for each front if there are fronts, and, if configured, the socket of the
    control listener.
    """
    if settings.fronts:
        listeners = listen_shared(settings.host, settings.port, "--port", settings.fronts)
    else:
        listeners = [listen(settings.host, settings.port, "--port")]
    if settings.control_port:
        try:
            listeners.append(listen(settings.host, settings.control_port, "--control-port"))
        except ListenError:
            for listener in listeners:
                listener.close()
            raise
    return listeners
