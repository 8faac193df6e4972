"""The server process: builds the parts, listens, and stops in order.

Stopping: live reads end, open requests get their time, admitted writes are committed, soft changes are stored, and the
store is closed; exit code 0. After a failed commit the process answers what it must and exits with code 1, because only
a fresh start can tell what the disk holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from semel.server.http.application import Application
from semel.server.http.server import HttpHost
from semel.server.http.tls import HTTP, HTTP2, Tls
from semel.server.jobs.parts import policy_of
from semel.server.ledger.grpc import is_installed as is_grpc_installed
from semel.server.ledger.parts import policy_of as ledger_policy_of
from semel.server.ledger.upkeep import Upkeep as LedgerUpkeep
from semel.server.logs import set_up_logs
from semel.server.meter import Meter
from semel.server.metrics import Metrics
from semel.server.settings import Settings
from semel.server.world import SystemWorld
from semel.store.open import open_store

if TYPE_CHECKING:
    from semel.server.ledger.grpc.host import GrpcHost

if sys.platform != "win32":
    import resource

_log = logging.getLogger("semel.server")

GRPC_PORT = 50_051
"""Where gRPC listens unless told otherwise; another server of this machine that has it is not in the way."""


def run_server(settings: Settings, announce: Callable[[int], None], warnings: Iterable[str] = ()) -> int:
    """Run until told to stop; the exit code. The warnings about how it was configured go into the log first."""
    return_large_blocks()
    if sys.platform != "win32":
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to read again
    set_up_logs(settings.log_format, settings.log_level)
    for warning in warnings:
        _log.warning("%s", warning)
    _allow_many_connections()
    collect_rarely()
    server = ServerProcess(settings, announce)
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
    """What is said of an address that cannot be had."""
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


def make_host(settings: Settings, application: Application) -> HttpHost:
    """The HTTP host of an application, with the limits that the settings name."""
    return HttpHost(application, http_limits_of(settings), connection_limit_of(settings, _files()))


def run_on_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run it on uvloop where that is installed, else on the loop of asyncio."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with contextlib.suppress(ImportError):
        from uvloop import new_event_loop as factory  # noqa: PLC0415 - not on Windows
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)


class ServerProcess:
    """Starts the parts in order, waits for a signal or a failed store, and stops them in order."""

    def __init__(self, settings: Settings, announce: Callable[[int], None]) -> None:
        self._settings = settings
        self._announce = announce
        self._tasks: list[asyncio.Task[None]] = []
        self._grpc: GrpcHost | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._forced = asyncio.Event()
        self._hung_up = asyncio.Event()
        self._is_started = False
        self.has_failed = False

    def run(self) -> None:
        """Until a signal, or until the store has failed."""
        with self._signals():
            run_on_loop(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._start()
        await self._stop.wait()
        await self._shut_down()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM ask for an orderly stop, a second SIGINT for a quick one, SIGHUP for files to be read."""
        handlers = {number: signal.signal(number, self._ask_to_stop) for number in (signal.SIGINT, signal.SIGTERM)}
        if sys.platform != "win32":
            handlers[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._hang_up)
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _ask_to_stop(self, number: int, frame: object) -> None:
        if number == signal.SIGINT and self._stop.is_set():
            self._set(self._forced)
        self._set(self._stop)

    def _hang_up(self, number: int, frame: object) -> None:
        self._set(self._hung_up)

    def _set(self, event: asyncio.Event) -> None:
        """Set an event of the loop from a signal handler."""
        if self._loop is None:
            event.set()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(event.set)

    async def _reload(self) -> None:
        while True:
            await self._hung_up.wait()
            self._hung_up.clear()
            if self._tls is not None:
                await asyncio.to_thread(self._tls.reload)
            await reload_credentials(self._settings, self._context.principals)

    async def _start(self) -> None:
        """Open the store, then listen."""
        settings = self._settings
        self._tls = Tls(settings.tls_certificate, settings.tls_key) if settings.tls_certificate else None
        listeners = listen_all(settings)
        try:
            self._context = _build(settings, lambda: self._is_started)
        except BaseException:
            for listener in listeners:
                listener.close()
            raise
        context = self._context
        app = self._app = App(context)
        app.control_port = settings.control_port
        host = self._host = make_host(settings, app)
        context.connection_limit = context.metrics.connection_limit = host.connection_limit
        context.metrics.connections = lambda: len(host.connections)
        ledger = LedgerUpkeep(context.engine, context.ledger, context.world)
        await ledger.begin()
        await self._start_grpc(app)  # first: whoever hears over HTTP that this is ready may call it over gRPC
        await host.start(listeners, None if self._tls is None else self._tls.context(HTTP))
        self._is_started = True
        self._start_chores(app, ledger)
        self._announce(listeners[0].getsockname()[1])

    def _start_chores(self, app: App, ledger: LedgerUpkeep) -> None:
        """What runs beside requests until the end."""
        context = self._context
        generations = Generations({RECEIPT: self._settings.streams_idempotency_ttl_ms})
        contracts = (generations, context.streams, context.events, context.jobs, context.ledger, context.deltas)
        sweeper = Sweeper(context.engine, contracts, self._settings.sweep_interval_ms / 1_000)
        for work in (
            sweeper.run(),
            app.hub.feed.run(),
            app.jobs.upkeep.run(),
            ledger.run(),
            self._host.watch(),
            context.audit.run(),
            watch_rotation(context),
            self._watch(context.engine),
            self._reload(),
        ):
            self._tasks.append(asyncio.create_task(work))

    async def _start_grpc(self, app: App) -> None:
        """The ledger's other wire, if it is wanted and what it needs is installed."""
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
            await grpc.start(host, port, None if self._tls is None else self._tls.context(HTTP2))
        except OSError as error:
            # asyncio puts an essay into the error; its number says it shorter.
            refused = cannot_listen(host, port, os.strerror(error.errno or 0), "--ledger-grpc-port")
            if wanted > 0:
                raise refused from error
            _log.warning("gRPC is off: %s", refused)
            return
        self._grpc = grpc
        _log.info("gRPC listens", extra={"port": grpc.port})

    async def _shut_down(self) -> None:
        """End live reads first: they would keep the listener open."""
        self._context.is_stopping = True
        self._context.engine.signals.send_all()
        self._app.stop()
        for task in self._tasks:
            task.cancel()
        grace = self._settings.shutdown_ms / 1_000
        if self._grpc is not None:
            await self._grpc.stop(grace)
        await self._host.stop(grace, self._forced)
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
        self._stop.set()


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
    """What happens at the named points of the commit path: nothing, unless a test asks for it."""
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
