"""The server process: creates the parts, listens, and shuts down in order.

Shutdown: live reads end, open requests get their time, admitted writes are committed, soft changes are stored, and the
store is closed; exit code 0. After a failed commit the process answers its callers and exits with code 1, because only
a new start can tell what the disk holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from semel.contracts.deltas.contract import Deltas
from semel.contracts.events.contract import Events
from semel.contracts.jobs.contract import Jobs
from semel.contracts.ledger.contract import Ledger
from semel.contracts.schema import MIGRATIONS, TABLES
from semel.contracts.streams.contract import Streams
from semel.contracts.streams.tables import RECEIPT
from semel.engine.crash import crash_at
from semel.engine.engine import Engine, EngineLimits, nowhere
from semel.engine.generations import Generations
from semel.engine.lane import BatchLimits
from semel.engine.sweeper import Sweeper
from semel.kernel.retention import Window
from semel.server.admission import watch_rotation
from semel.server.allocator import return_large_blocks
from semel.server.app import App
from semel.server.audit import AuditLog
from semel.server.body import Bodies
from semel.server.connection_limit import connection_limit_of, http_limits_of
from semel.server.context import Context
from semel.server.credentials import read_principals, reload_credentials
from semel.server.deltas.parts import policy_of as deltas_policy_of
from semel.server.events.validators import load_validator
from semel.server.jobs.parts import policy_of
from semel.server.ledger.grpc import is_installed as is_grpc_installed
from semel.server.ledger.parts import policy_of as ledger_policy_of
from semel.server.ledger.upkeep import Upkeep as LedgerUpkeep
from semel.server.logs import set_up_logs
from semel.server.meter import Meter
from semel.server.metrics import Metrics
from semel.server.protocol import HostConfig, SemelProtocol, close_overdue
from semel.server.settings import Settings
from semel.server.websocket import WebSocket
from semel.server.world import SystemWorld
from semel.store.open import open_store

if TYPE_CHECKING:
    from semel.server.ledger.grpc.host import GrpcHost

if sys.platform != "win32":
    import resource

_log = logging.getLogger("semel.server")

GRPC_PORT = 50_051
"""The default port of gRPC; if another server of this machine has it, gRPC stays off."""


def run_server(settings: Settings, announce: Callable[[int], None], warnings: Iterable[str] = ()) -> int:
    """Run until stopped; returns the exit code. Warnings about the configuration are logged first."""
    return_large_blocks()
    if sys.platform != "win32":
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to read again
    set_up_logs(settings.log_format, settings.log_level)
    for warning in warnings:
        _log.warning("%s", warning)
    _allow_many_connections()
    collect_rarely()
    server = _Server(host_config(settings), settings, announce)
    server.run()
    return 1 if server.has_failed else 0


class ListenError(Exception):
    """The address cannot be listened on; the message says why."""


def listen(host: str, port: int, flag: str) -> socket.socket:
    """A socket bound to an address; the flag is what sets the port."""
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
        raise cannot_listen(host, port, error.strerror, flag) from error
    return bound


def cannot_listen(host: str, port: int, reason: str | None, flag: str) -> ListenError:
    """The message for an address that cannot be listened on."""
    return ListenError(f"Cannot listen on {host} port {port}: {reason}. Choose another with {flag}.")


def listen_all(settings: Settings) -> list[socket.socket]:
    """The listener, and behind it the one for control, if there is to be one."""
    listeners = [listen(settings.host, settings.port, "--port")]
    if settings.control_port:
        try:
            listeners.append(listen(settings.host, settings.control_port, "--control-port"))
        except ListenError:
            listeners[0].close()
            raise
    return listeners


def host_config(settings: Settings) -> HostConfig:
    """How uvicorn is set up; the application is put in when the loop runs."""
    return HostConfig(
        http_limits_of(settings),
        connection_limit_of(settings, _files()),
        app=_not_yet,
        host=settings.host,
        port=settings.port,
        http=SemelProtocol,
        ws=WebSocket,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=math.ceil(settings.shutdown_ms / 1_000),
        backlog=4_096,
    )


async def _not_yet(scope: object, receive: object, send: object) -> None:
    """Stands where the application will be once the loop runs."""


class _Server(uvicorn.Server):
    config: HostConfig

    def __init__(self, config: HostConfig, settings: Settings, announce: Callable[[int], None]) -> None:
        super().__init__(config)
        self._settings = settings
        self._announce = announce
        self._tasks: list[asyncio.Task[None]] = []
        self._grpc: GrpcHost | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hung_up = asyncio.Event()
        self.has_failed = False

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """A signal starts an orderly shutdown, and nothing else: uvicorn would raise it again at the end.

        SIGHUP asks for the credentials to be read again.
        """
        handlers = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        if sys.platform != "win32":
            handlers[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._hang_up)
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _hang_up(self, number: int, frame: object) -> None:
        if self._loop is None:
            self._hung_up.set()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._hung_up.set)

    async def _reload(self) -> None:
        while True:
            await self._hung_up.wait()
            self._hung_up.clear()
            await reload_credentials(self._settings, self._context.principals)

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """Open the store, then listen."""
        self._loop = asyncio.get_running_loop()
        listeners = listen_all(self._settings)
        try:
            self._context = _build(self._settings, lambda: self.started)
            self._context.connection_limit = self._context.metrics.connection_limit = self.config.connection_limit
        except BaseException:
            for listener in listeners:
                listener.close()
            raise
        app = self._app = App(self._context)
        app.control_port = self._settings.control_port
        self.config.loaded_app = app
        self._context.metrics.connections = lambda: len(self.server_state.connections)
        ledger = LedgerUpkeep(self._context.engine, self._context.ledger, self._context.world)
        await ledger.begin()
        await self._start_grpc(app)  # first: a client that learns over HTTP that this is ready may call it over gRPC
        await super().startup(listeners)
        engine = self._context.engine
        generations = Generations({RECEIPT: self._settings.streams_idempotency_ttl_ms})
        context = self._context
        contracts = (generations, context.streams, context.events, context.jobs, context.ledger, context.deltas)
        sweeper = Sweeper(engine, contracts, self._settings.sweep_interval_ms / 1_000)
        for work in (
            sweeper.run(),
            app.hub.feed.run(),
            app.jobs.upkeep.run(),
            ledger.run(),
            close_overdue(self.server_state, self.config),
            self._context.audit.run(),
            watch_rotation(self._context),
            self._watch(engine),
            self._reload(),
        ):
            self._tasks.append(asyncio.create_task(work))
        self._announce(listeners[0].getsockname()[1])

    async def _start_grpc(self, app: App) -> None:
        """Start gRPC, if it is wanted and its dependencies are installed."""
        wanted = self._settings.ledger_grpc_port
        if wanted and not is_grpc_installed():
            if wanted > 0:
                raise ListenError("The ledger's gRPC port needs semel[grpc]: install it, or set --ledger-grpc-port 0.")
            _log.info("gRPC is off: it needs semel[grpc]")
        elif wanted:
            from semel.server.ledger.grpc.host import GrpcHost  # noqa: PLC0415 - only there with semel[grpc]

            await self._listen_grpc(GrpcHost(self._context, app.ledger.desk), wanted)

    async def _listen_grpc(self, grpc: GrpcHost, wanted: int) -> None:
        host, port = self._settings.host, wanted if wanted > 0 else GRPC_PORT
        try:
            await grpc.start(host, port)
        except OSError as error:
            # asyncio puts an essay into the error; its number says it shorter.
            refused = cannot_listen(host, port, os.strerror(error.errno or 0), "--ledger-grpc-port")
            if wanted > 0:
                raise refused from error
            _log.warning("gRPC is off: %s", refused)
            return
        self._grpc = grpc
        _log.info("gRPC listens", extra={"port": grpc.port})

    async def shutdown(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """End live reads first: they would keep the listener open."""
        self._context.is_stopping = True
        self._context.engine.signals.send_all()
        self._app.stop()
        for task in self._tasks:
            task.cancel()
        if self._grpc is not None:
            await self._grpc.stop(self._settings.shutdown_ms / 1_000)
        await super().shutdown()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._context.engine.stop()
        self._context.audit.close()
        _log.info("stopped")

    async def _watch(self, engine: Engine) -> None:
        """A store that has failed ends the process."""
        await engine.failed.wait()
        self.has_failed = True
        self._context.is_stopping = True
        _log.error("the store failed; stopping so that a fresh start can read what is on disk")
        self.should_exit = True


def _build(settings: Settings, is_started: Callable[[], bool]) -> Context:
    world = SystemWorld()
    metrics = Metrics()
    events = Events(load_validator(settings.events_validator), settings.events_retention_ms)
    principals = read_principals(settings)  # before the store is opened: a mistake in a file touches nothing
    store = open_store(settings.store_url, TABLES, MIGRATIONS, world.wall_ms)
    batch = BatchLimits(writes=settings.batch_writes)
    limits = EngineLimits(settings.queue_writes, settings.queue_bytes, batch, settings.queue_principal_share)
    engine = Engine(store, world, limits, metrics, _test_hook(settings, is_started))
    metrics.engine = engine
    meter = metrics.meter = Meter(world.monotonic_ms)
    audit = metrics.audit = AuditLog(Path(settings.data) / "logs", world)
    return Context(
        settings=settings,
        engine=engine,
        world=world,
        principals=principals,
        metrics=metrics,
        meter=meter,
        audit=audit,
        bodies=Bodies(settings.max_body_bytes, settings.max_uploads_bytes),
        streams=Streams(Window(settings.streams_idempotency_ttl_ms)),
        events=events,
        jobs=Jobs(policy_of(settings, is_shared=store.is_shared)),
        ledger=Ledger(ledger_policy_of(settings)),
        deltas=Deltas(deltas_policy_of(settings)),
    )


def _allow_many_connections() -> None:
    """Each connection is an open file, and the usual soft limit of 1,024 is far below ours."""
    if sys.platform != "win32":
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _files() -> int:
    """File descriptors that this process may have; 0 where there is no limit."""
    if sys.platform == "win32":
        return 0
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 0 if soft == resource.RLIM_INFINITY else soft


def collect_rarely() -> None:
    """Requests leave next to no cycles behind; looking for them every 700 objects would cost a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _test_hook(settings: Settings, is_started: Callable[[], bool]) -> Callable[[str], None]:
    """The hook at the named points of the commit path: does nothing, except in tests."""
    if settings.crash_point:
        crash = crash_at(settings.crash_point, settings.crash_one_in)
        return lambda point: crash(point) if is_started() else None  # what the start itself commits is not its prey
    if settings.commit_delay_ms:
        delay = settings.commit_delay_ms / 1_000

        def wait(point: str) -> None:
            if point == "flushed":
                time.sleep(delay)

        return wait
    return nowhere
