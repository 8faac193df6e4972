"""The front processes of a writer: their sockets, their start, their end, and another start after a crash.

Fronts are children of the writer. Each has a listening socket of its own on the same port (SO_REUSEPORT), which the
writer holds too: connections that arrive while a front is being replaced wait in its queue. A front has no name in the
file system and no setting of its own, and never opens the store.

A front that crashes, or that gives no sign of life for `HUNG_PINGS` seconds, loses its connections and is replaced. If
the writer ends, the kernel kills the fronts, and those that the kernel does not kill end with their channel.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from semel.server.fronts.channel import BEGIN, HELLO, STOP
from semel.server.fronts.front_link import FrontLink
from semel.server.http.connection_limit import HttpLimits
from semel.server.http.server import BACKLOG, HttpHost
from semel.server.listen import ListenError
from semel.server.settings import ServerSettings

MODULE = "semel.server.front_process"
START_SECONDS = 60.0
"""Time limit for a front to be prepared."""
PING_SECONDS = 1.0
HUNG_PINGS = 10
"""A front that leaves this number of pings unanswered is killed."""
RETRY_SECONDS = 1.0
"""Wait before another start of a front that ended before it was ready."""
END_SECONDS = 5.0
"""Time limit for a front to end after its connections have ended."""

_log = logging.getLogger("semel.server")


def front_settings(settings: ServerSettings, limits: HttpLimits) -> dict[str, object]:
    """The settings of the server that a front needs; none of them is a secret."""
    return {
        "limits": tuple(limits),
        "tls_certificate": settings.tls_certificate,
        "tls_key": settings.tls_key,
        "log_format": settings.log_format,
        "log_level": settings.log_level,
    }


def _spawn(command: Sequence[str], descriptors: Sequence[int]) -> subprocess.Popen[bytes]:
    """Start a process on this thread: the kernel kills a front when the thread that started it ends."""
    return subprocess.Popen(  # noqa: S603 - the command is this interpreter with numbers
        command, stdin=subprocess.DEVNULL, pass_fds=descriptors, start_new_session=True
    )


class FrontStartError(ListenError):
    """A front did not start; the log has its own message."""


class FrontProcess:
    """One place of a front, with its listening socket; the process in it may be replaced."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.link: FrontLink | None = None
        self.process: subprocess.Popen[bytes] | None = None


class FrontProcesses:
    """All fronts of a server. Used on the event loop only."""

    def __init__(
        self,
        host: HttpHost,
        listeners: Sequence[socket.socket],
        settings: Mapping[str, object],
        count_refusal: Callable[[int], None],
    ) -> None:
        """`settings` are sent to each front; `count_refusal` gets the status of input that a front refused."""
        self._host = host
        self._settings = dict(settings)
        self._count_refusal = count_refusal
        self._fronts = [FrontProcess(listener) for listener in listeners]
        self._has_begun = False
        self._is_stopping = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.ends = 0
        """Fronts that ended without an order."""

    @property
    def ready(self) -> int:
        """Fronts that are prepared, or accept connections."""
        return sum(front.link is not None and front.link.is_ready.is_set() for front in self._fronts)

    async def start(self) -> None:
        """Start all fronts, and wait until they are prepared."""
        await asyncio.gather(*(self._start(front) for front in self._fronts))
        try:
            async with asyncio.timeout(START_SECONDS):
                for front in self._fronts:
                    assert front.link is not None
                    await front.link.is_ready.wait()
        except TimeoutError:
            raise FrontStartError(f"A front process did not start within {START_SECONDS:.0f} seconds.") from None
        if self.ends:
            raise FrontStartError("A front process ended while it started; the log says why.")

    def begin(self) -> None:
        """Let the fronts accept connections; from now on those that arrive wait in a queue at worst."""
        self._has_begun = True
        for front in self._fronts:
            front.listener.listen(BACKLOG)
            if front.link is not None:
                front.link.channel.send((BEGIN, 0))

    async def _start(self, front: FrontProcess) -> None:
        mine, other = socket.socketpair()
        with other:
            numbers = (other.fileno(), front.listener.fileno())
            command = [sys.executable, "-m", MODULE, str(os.getpid()), *map(str, numbers)]
            # A session of its own: Control-C on a terminal reaches the writer alone, which stops its fronts in order.
            front.process = _spawn(command, numbers)
        link = front.link = FrontLink(self._host, self._count_refusal, lambda link: self._lost(front, link))
        await asyncio.get_running_loop().create_unix_connection(lambda: link.channel, sock=mine)
        link.channel.send((HELLO, 0, self._settings))
        if self._has_begun:
            link.channel.send((BEGIN, 0))

    def _lost(self, front: FrontProcess, link: FrontLink) -> None:
        """The channel of a front has ended, and so has the front, or it is about to."""
        if front.link is not link:
            return
        front.link = None
        task = asyncio.get_running_loop().create_task(self._replace(front, has_started=link.is_ready.is_set()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if not self._is_stopping:
            self.ends += 1
            link.is_ready.set()  # for the start, which finds out by the count

    async def _replace(self, front: FrontProcess, *, has_started: bool) -> None:
        assert front.process is not None
        code = await self._collect(front.process)
        if self._is_stopping:
            return
        _log.error("a front process ended; its connections are lost, and another one is started", extra={"code": code})
        while not self._is_stopping:
            if not has_started:
                await asyncio.sleep(RETRY_SECONDS)
            try:
                await self._start(front)
            except OSError as error:
                _log.error("a front process cannot be started", extra={"reason": str(error)})
                has_started = False
            else:
                return

    async def _collect(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for the end of a process; one that does not end is killed."""
        with suppress(subprocess.TimeoutExpired):
            return await asyncio.to_thread(process.wait, END_SECONDS)
        process.kill()
        return await asyncio.to_thread(process.wait)

    async def watch(self) -> None:
        """Kill a front that hangs: connections that the kernel gives to it would wait for ever."""
        while True:
            await asyncio.sleep(PING_SECONDS)
            for front in self._fronts:
                link = front.link
                if link is None or not link.is_ready.is_set():
                    continue
                if link.unanswered_pings >= HUNG_PINGS:
                    _log.error("a front process hangs and is killed")
                    assert front.process is not None
                    front.process.kill()
                    link.channel.abort()
                else:
                    link.ping()

    def reload(self) -> None:
        """Let the fronts read the files of their settings again, and drop all grants."""
        self.forget(reads_files=True)

    def forget(self, *, reads_files: bool = False) -> None:
        """Drop all grants, and with them the credentials in the heads."""
        for front in self._fronts:
            if front.link is not None:
                front.link.forget(reads_files=reads_files)

    def stop(self, seconds: float) -> None:
        """Accept nothing new; the fronts end their connections within this time."""
        self._is_stopping = True
        for front in self._fronts:
            front.listener.close()
            if front.link is not None:
                front.link.channel.send((STOP, 0, seconds))

    async def join(self) -> None:
        """Wait for the end of all fronts, after their connections have ended; those that do not end are killed."""
        for front in self._fronts:
            if front.link is not None:
                front.link.channel.send((STOP, 0, 0.0))
        await asyncio.gather(*(self._collect(front.process) for front in self._fronts if front.process is not None))
        await asyncio.gather(*self._tasks, return_exceptions=True)
