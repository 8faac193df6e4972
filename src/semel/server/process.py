"""The server process: creates the parts, listens, and shuts down in order.

Shutdown: live reads end, open requests get time to end, admitted writes are committed, soft changes are stored, and the
store is closed; exit code 0. After a failed commit the process answers its callers and exits with code 1, because only
a restart can tell what is on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any

from semel.engine.contract import Contract, EngineError, NoWritesError
from semel.engine.engine import Engine, nowhere
from semel.engine.generations import Generations, StoredWindows
from semel.engine.sweep import Sweeper
from semel.kernel.namespace import DEFAULT
from semel.server.app import App
from semel.server.auth.authentication import watch_rotation
from semel.server.auth.credentials import reload_credentials
from semel.server.context import Context
from semel.server.http.application import Application
from semel.server.http.connection_limit import connection_limit_of, http_limits_of
from semel.server.http.server import HttpHost
from semel.server.http.tls import HTTP, Tls
from semel.server.listen import listen_all
from semel.server.logged_app import LoggedApp, LoggedHost, LoggedTracedApp
from semel.server.memory_budget import return_large_blocks
from semel.server.namespace_app import NamespaceApp
from semel.server.namespaces import add_namespaces, build_context
from semel.server.ops.access_log import AccessLog
from semel.server.ops.log_facts import lines_of
from semel.server.ops.logs import set_up_logs
from semel.server.quotas.reload import reload_quotas
from semel.server.reload import ReloadedParts, reload_settings
from semel.server.setting_values import GivenValue
from semel.server.settings import ServerSettings
from semel.server.settings_loader import SettingsSource
from semel.server.surface import ExtraListener
from semel.server.traced_app import TracedApp
from semel.store.protocol import AnyTable, StoreError
from semel.surfaces.registry import SCOPE_RULES, SURFACES

if sys.platform != "win32":
    import resource

_log = logging.getLogger("semel.server")

WINDOW_PAUSES = (0.2, 0.5, 1.0, 2.0)
"""Seconds between two tries to store how long keys are kept: transactions of other nodes may hold the lock for that."""
WINDOW_SECONDS = 1.0
"""Seconds between two looks whether a rotation has forgotten how long this node keeps keys."""

Announce = Callable[[int, ServerSettings], None]
"""Called with the port when the server is ready, and with the settings that are in force."""


def run_server(
    settings: ServerSettings,
    announce: Announce,
    warnings: Iterable[str] = (),
    reread: SettingsSource | None = None,
    reach: Callable[[str], None] = nowhere,
) -> int:
    """Run until a stop is requested; returns the exit code. Warnings about the configuration are logged first.

    `announce` is called when the server is ready, `reread` on SIGHUP, to load the settings again, and `reach` at each
    crash point of the commit path.
    """
    return_large_blocks()
    if sys.platform != "win32":
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the handler is installed
    set_up_logs(settings.log_format, settings.log_level)
    for warning in warnings:
        _log.warning("%s", warning)
    allow_many_connections()
    collect_rarely()
    server = ServerProcess(settings, announce, reach, reread)
    server.run()
    return 1 if server.has_failed else 0


def make_app(context: Context) -> App:
    """The application: with spans if tracing is on, and with lines if requests are logged."""
    if context.access is None:
        return App(context) if context.tracing is None else TracedApp(context)
    return LoggedApp(context) if context.tracing is None else LoggedTracedApp(context)


def make_host(settings: ServerSettings, application: Application, access: AccessLog | None = None) -> HttpHost:
    """The HTTP host of an application, with the limits from the settings."""
    limits, connection_limit = http_limits_of(settings), connection_limit_of(settings, _files())
    if access is None:
        return HttpHost(application, limits, connection_limit)
    host = LoggedHost(application, limits, connection_limit)
    host.access = access
    return host


def run_on_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop if it is installed, otherwise on the asyncio loop."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with contextlib.suppress(ImportError):
        from uvloop import new_event_loop as factory  # noqa: PLC0415 - not on Windows
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)


class ServerProcess:
    """Starts the parts in order, waits for a signal or a failed store, and stops them in order."""

    def __init__(
        self,
        settings: ServerSettings,
        announce: Announce,
        reach: Callable[[str], None],
        reread: SettingsSource | None = None,
    ) -> None:
        self._settings = self._loaded = settings
        self._reread = reread
        self._sweepers: list[Sweeper] = []
        self._stored_windows: dict[Engine, StoredWindows] = {}
        self._announce = announce
        self._reach = reach
        self._tasks: list[asyncio.Task[None]] = []
        self._extra: list[ExtraListener] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._forced = asyncio.Event()
        self._hung_up = asyncio.Event()
        self.has_failed = False

    def run(self) -> None:
        """Run until a signal, or until the store has failed."""
        with self._signals():
            run_on_loop(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._start()
        await self._stop.wait()
        await self._shut_down()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM stop in order, a second SIGINT stops quickly, SIGHUP reloads files."""
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
            if self._reread is not None:
                parts = ReloadedParts(self._context.all, self._host, self._sweepers)
                self._loaded = await reload_settings(parts, self._loaded, self._reread)
                self._settings = self._context.settings
            if self._tls is not None:
                await asyncio.to_thread(self._tls.reload)
            await reload_credentials(self._settings, SCOPE_RULES, self._context.principals)
            await reload_quotas(self._settings, self._context)
            self._host.forget_shapes()

    async def _start(self) -> None:
        """Open the store, then listen."""
        settings = self._settings
        self._tls = Tls(settings.tls_certificate, settings.tls_key) if settings.tls_certificate else None
        listeners = listen_all(settings)
        try:
            context = self._context = build_context(settings, self._reach)
            await add_namespaces(context, self._reach)
        except BaseException:
            for listener in listeners:
                listener.close()
            raise
        settings = self._settings = context.settings
        apps = self._apps = {one.namespace: make_app(one) for one in context.all}
        application = NamespaceApp(apps) if context.others else apps[DEFAULT]
        host = self._host = make_host(settings, application, context.access)
        for one, app in zip(context.all, apps.values(), strict=True):
            app.control_port = settings.control_port
            one.tls, one.connection_limit = self._tls, host.connection_limit
            one.stored_tokens.on_change = host.forget_shapes  # no cached head may count on a token that has changed
            one.given_settings = self._given
        context.metrics.connection_limit = host.connection_limit
        context.metrics.connections.append(host.kinds)
        if context.principals.key_refresh is not None:
            await context.principals.key_refresh.refresh()
        for one in context.all:
            await self._store_windows(one.engine)
        await self._start_surfaces(apps)
        await host.start(listeners, None if self._tls is None else self._tls.context(HTTP))
        self._start_tasks()
        self._announce(listeners[0].getsockname()[1], settings)

    @property
    def _windows(self) -> Mapping[AnyTable, int]:
        """How long this node keeps the receipts of each table that forgets by age, in milliseconds."""
        return {table: age for row in SURFACES for table, age in row.windows(self._settings).items()}

    async def _store_windows(self, engine: Engine) -> None:
        """Tell the other nodes how long this one keeps receipts, before it takes a write."""
        windows = self._stored_windows[engine] = StoredWindows(engine, self._windows)
        for pause in (*WINDOW_PAUSES, None):
            try:
                await windows.store()
            except NoWritesError:
                return  # no write is taken before they are stored
            except EngineError as error:
                if pause is None:
                    told = "The time for which this server keeps keys cannot be stored, so it does not start."
                    raise StoreError(f"{told} {error}") from error
                await asyncio.sleep(pause)
            else:
                return

    async def _watch_windows(self, engine: Engine) -> None:
        """Store them later if the store takes no writes now, and again after each rotation by another node."""
        while True:
            await asyncio.sleep(WINDOW_SECONDS)
            with contextlib.suppress(EngineError):  # the next look tries again
                await self._stored_windows[engine].store()
                if not engine.is_shared:
                    return

    def _given(self) -> Mapping[str, GivenValue]:
        return {} if self._reread is None else self._reread.given

    async def _start_surfaces(self, apps: Mapping[str, App]) -> None:
        """Start surfaces before HTTP listens: a client that gets "ready" over HTTP may use any other port."""
        for same in zip(*(app.surfaces for app in apps.values()), strict=True):
            for namespace, surface in zip(apps, same, strict=True):
                with lines_of(namespace):
                    await surface.start()
            by_name = dict(zip(apps, same, strict=True))
            for listener in by_name.pop(DEFAULT).listeners(by_name):
                await listener.start()
                self._extra.append(listener)

    def _start_tasks(self) -> None:
        """Start the background tasks."""
        keys = self._context.principals.key_refresh
        for work in (
            *(() if keys is None else (keys.run(),)),
            *(() if self._context.access is None else (self._context.access.run(),)),
            self._host.watch(),
            watch_rotation(self._context),
            self._reload(),
        ):
            self._tasks.append(asyncio.create_task(work))
        for context in self._context.all:
            with lines_of(context.namespace):
                self._tasks += [asyncio.create_task(work) for work in self._tasks_of(context)]

    def _tasks_of(self, context: Context) -> Iterator[Coroutine[Any, Any, None]]:
        """The background tasks of one namespace."""
        app = self._apps[context.namespace]
        contracts: tuple[Contract, ...] = (
            Generations(self._windows),
            app.token_contract,
            context.retries.contract,
            *(surface.contract for surface in app.surfaces),
        )
        sweeper = Sweeper(context.engine, contracts, self._settings.sweep_interval_ms / 1_000)
        self._sweepers.append(sweeper)
        context.metrics.store.sweep_lag = lambda: sweeper.lag_seconds
        yield sweeper.run()
        yield self._watch_windows(context.engine)
        for surface in app.surfaces:
            yield from surface.tasks()
        yield context.audit.run()
        yield context.retries.run()
        if context.health is not None:
            yield context.health.run()
        yield context.stored_tokens.run()
        yield self._watch(context.engine)

    async def _shut_down(self) -> None:
        """Stop in order. Live reads end first, because they would keep the listener open."""
        for context in self._context.all:
            context.is_stopping = True
            context.engine.signals.send_all()
            self._apps[context.namespace].stop()
        for task in self._tasks:
            task.cancel()
        grace = self._context.settings.shutdown_ms / 1_000
        for listener in self._extra:
            await listener.stop(grace)
        await self._host.stop(grace, self._forced)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for context in self._context.all:
            await context.retries.finish()
            await context.engine.stop()
        if self._context.tracing is not None:
            await self._context.tracing.stop()
        self._close_logs()

    def _close_logs(self) -> None:
        """Write the last lines."""
        if self._context.access is not None:
            self._context.access.close()
        for context in self._context.all:
            context.audit.close()
        _log.info("stopped")

    async def _watch(self, engine: Engine) -> None:
        """Stop the process after the store has failed."""
        await engine.failed.wait()
        self.has_failed = True
        for context in self._context.all:
            context.is_stopping = True
        _log.error("the store failed; stopping, because only a restart can read what is on disk")
        self._stop.set()


def allow_many_connections() -> None:
    """Raise the soft limit on open files: each connection is one, and the usual limit is 1,024."""
    if sys.platform != "win32":
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _files() -> int:
    """The limit on file descriptors of this process; 0 if there is none."""
    if sys.platform == "win32":
        return 0
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 0 if soft == resource.RLIM_INFINITY else soft


def collect_rarely() -> None:
    """Run the garbage collector less often: requests leave few cycles, and a run every 700 objects would take a tenth
    of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
