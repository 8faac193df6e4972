"""Sockets that the server listens on."""

from __future__ import annotations

import errno
import socket
import sys

from semel.server.settings import ServerSettings


class ListenError(Exception):
    """The server cannot listen on the address; the message says why."""


def listen(host: str, port: int, flag: str) -> socket.socket:
    """A socket bound to an address; `flag` is the option that sets the port."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            if sys.platform != "win32":
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        is_host = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
        raise cannot_listen(host, port, error.strerror, "--host" if is_host else flag) from error
    return bound


def cannot_listen(host: str, port: int, reason: str | None, flag: str) -> ListenError:
    """The error for an address that is not available."""
    return ListenError(f"Cannot listen on {host} port {port}: {reason}. Choose another with {flag}.")


def listen_all(settings: ServerSettings) -> list[socket.socket]:
    """The socket of the data listener and, if configured, that of the control listener."""
    data = listen(settings.host, settings.port, "--port")
    if not settings.control_port:
        return [data]
    try:
        return [data, listen(settings.host, settings.control_port, "--control-port")]
    except ListenError:
        data.close()
        raise
