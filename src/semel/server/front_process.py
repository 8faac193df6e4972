"""A front process: `python -m semel.server.front_process`, started by the writer and by nothing else.

It accepts connections on the socket that it inherits, and relays their requests through the channel that it inherits.
It ends when the writer says so, or with the writer: the kernel kills it when the writer has ended, and a lost channel
ends it too. Signals of a terminal or of an operator are for the writer.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any

from semel.server.fronts.channel import READY
from semel.server.fronts.front_application import FrontApplication
from semel.server.fronts.front_protocol import FrontHost
from semel.server.http.connection_limit import HttpLimits
from semel.server.http.tls import HTTP, Tls
from semel.server.memory_budget import return_large_blocks
from semel.server.ops.logs import set_up_logs
from semel.server.process import allow_many_connections, collect_rarely, run_on_loop
from semel.surfaces.registry import SURFACES

WRITER_LOST = 3
"""The exit code of a front whose writer has ended."""
_PR_SET_PDEATHSIG = 1

_log = logging.getLogger("semel.server")


class Front:
    """The process, from its first message to its end."""

    def __init__(self, channel: socket.socket, listener: socket.socket) -> None:
        self._channel = channel
        self._listener = listener
        self._settings: asyncio.Future[Mapping[str, Any]] | None = None
        self._tls: Tls | None = None
        self._begin = asyncio.Event()
        self._stop: asyncio.Future[float] | None = None
        self._forced = asyncio.Event()

    async def run(self) -> None:
        """Serve until the writer says stop."""
        loop = asyncio.get_running_loop()
        self._settings, self._stop = loop.create_future(), loop.create_future()
        shapes = {row.name: row.front for row in SURFACES if row.front is not None}
        application = FrontApplication(shapes, self._lose_writer)
        application.on_hello, application.on_begin = self._settings.set_result, self._begin.set
        application.on_stop, application.on_reload = self._ask_to_stop, self._reload
        await loop.create_unix_connection(lambda: application.channel, sock=self._channel)
        told = await self._settings
        set_up_logs(told["log_format"], told["log_level"])
        if told["tls_certificate"]:
            self._tls = Tls(told["tls_certificate"], told["tls_key"])
        host = application.host = FrontHost(application, HttpLimits(*told["limits"]))
        application.channel.send((READY, 0))
        await self._begin.wait()
        await host.start([self._listener], None if self._tls is None else self._tls.context(HTTP))
        watch = asyncio.create_task(host.watch())
        seconds = await self._stop
        watch.cancel()
        await host.stop(seconds, self._forced)
        application.channel.flush()
        await asyncio.sleep(0)
        # The writer knows that this is the end, and a connection that is left has been aborted.
        os._exit(0)

    def _ask_to_stop(self, seconds: float) -> None:
        assert self._stop is not None
        if self._stop.done():
            self._forced.set()
        else:
            self._stop.set_result(seconds)

    def _reload(self) -> None:
        if self._tls is not None:
            asyncio.get_running_loop().run_in_executor(None, self._tls.reload)

    def _lose_writer(self) -> None:
        """End at once: no request can be answered any more."""
        os._exit(WRITER_LOST)


def _end_with(writer: int) -> None:
    """Let the kernel kill this process when the writer ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != writer:  # it ended before
        os._exit(WRITER_LOST)


def main(arguments: list[str]) -> None:
    """Run a front; the arguments are the process id of the writer, and the descriptors of channel and listener."""
    writer, channel, listener = map(int, arguments)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _end_with(writer)
    return_large_blocks()
    allow_many_connections()
    collect_rarely()

    async def serve() -> None:
        await Front(socket.socket(fileno=channel), socket.socket(fileno=listener)).run()

    run_on_loop(serve())


if __name__ == "__main__":
    main(sys.argv[1:])
