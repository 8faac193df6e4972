"""The contexts of a process: that of the default namespace, and one for each further namespace.

A namespace has its own store, engine, counts and audit log. Credentials, clocks, the budget of request bodies and the
limits of connections are those of the process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from semel.engine.batch_runner import BatchLimits
from semel.engine.clock import SystemWorld
from semel.engine.commit_placement import CommitThread
from semel.engine.engine import Engine, EngineLimits
from semel.kernel.clock import World
from semel.kernel.namespace import DEFAULT, folder_of
from semel.server.auth.credentials import read_principals
from semel.server.auth.principals import Principals
from semel.server.auth.stored_tokens import StoredTokens, read_state
from semel.server.context import Context
from semel.server.http.body import Bodies
from semel.server.ops.access_log import AccessLog, RequestIds
from semel.server.ops.audit_log import AuditLog
from semel.server.ops.health_watch import HealthLook, HealthWatch
from semel.server.ops.meter import Meter
from semel.server.ops.metrics import Metrics
from semel.server.ops.self_check import sqlite_flaw
from semel.server.ops.traced_engine import TracedEngine
from semel.server.ops.traces import ServerTracing, start_tracing
from semel.server.quotas.accounts import Quotas
from semel.server.quotas.limits import default_limits, read_quotas
from semel.server.quotas.reload import set_quotas
from semel.server.settings import ServerSettings
from semel.server.traced_app import OWN_WORDS
from semel.server.writes.retry_log import RetryLog
from semel.store.backup_mark import age_of_mark
from semel.store.open import open_store, refuse_shared_locks
from semel.store.protocol import Store
from semel.surfaces.registry import SCOPE_RULES, SURFACES
from semel.surfaces.schema import MIGRATIONS, TABLES


def build_context(settings: ServerSettings, reach: Callable[[str], None]) -> Context:
    """Open the store and make what all surfaces share; on the event loop that will run them."""
    for surface in SURFACES:
        surface.check(settings)
    principals = read_principals(settings, SCOPE_RULES)  # before the store is opened, so that a mistake changes nothing
    read_quotas(settings.tokens, default_limits(settings))
    tracing = start_tracing(settings.store_url) if settings.otel else None
    bodies = Bodies(settings.max_body_bytes, settings.max_uploads_bytes)
    context = _context_of(settings, DEFAULT, principals, SystemWorld(), bodies, tracing, reach)
    if settings.access_log or settings.slow_log_ms:
        words = {"server": OWN_WORDS, "none": OWN_WORDS, **{row.name: row.route_words for row in SURFACES}}
        context.metrics.access = AccessLog(
            settings.logs, context.world, words, logs_all=settings.access_log, slow_ms=settings.slow_log_ms
        )
        _log_requests(context, context.metrics.access)
    return context


def _log_requests(context: Context, access: AccessLog) -> None:
    """Log the requests of a namespace; there is one log for all of them."""
    context.access = access
    context.request_ids = RequestIds(context.request_ids, access)


async def add_namespaces(context: Context, reach: Callable[[str], None]) -> None:
    """Open the stores of the other namespaces; if one cannot be opened, all are closed."""
    settings, others = context.settings, list[Context]()
    if not settings.namespace_names:
        return
    try:
        refuse_shared_locks([settings.within(name).store_url for name in (DEFAULT, *settings.namespace_names)])
        for name in settings.namespace_names:
            principals = context.principals.within(name)
            world, bodies, tracing = context.world, context.bodies, context.tracing
            one = _context_of(settings.within(name), name, principals, world, bodies, tracing, reach)
            others.append(one)
    except BaseException:
        for one in (context, *others):
            await one.engine.stop()
            one.audit.close()
        raise
    context.others = tuple(others)
    if context.access is not None:
        for one in others:
            _log_requests(one, context.access)
    context.metrics.join({one.namespace: one.metrics for one in others})
    if any(one.settings.stored_tokens for one in context.all):  # a token in one store closes all namespaces
        for one in context.all:
            one.settings = replace(one.settings, stored_tokens=True)


def _context_of(
    settings: ServerSettings,
    namespace: str,
    principals: Principals,
    world: World,
    bodies: Bodies,
    tracing: ServerTracing | None,
    reach: Callable[[str], None],
) -> Context:
    """Open the store of a namespace, its engine, its counts and its audit log."""
    store = open_store(
        settings.store_url, TABLES, MIGRATIONS, world.wall_ms, index_bytes=settings.sqlite_key_index_bytes
    )
    with store.read() as snapshot:
        tokens = read_state(snapshot)
    if tokens is not None and tokens.has_any:  # a store that has had a token stays closed, whatever became of it
        settings = replace(settings, stored_tokens=True)
    metrics = Metrics()
    engine = _engine_on(store, settings, world, metrics, reach, tracing)
    stored_tokens = StoredTokens(engine, principals, SCOPE_RULES, world)
    if settings.stored_tokens:
        principals.tokens.guard()
    if tokens is not None:
        stored_tokens.load(tokens)
    audit = AuditLog(settings.logs, world, settings.audit_file_bytes)
    limits = default_limits(settings)
    quotas = Quotas(audit, lambda: world.monotonic_ms() / 1_000)
    set_quotas(quotas, engine, limits, read_quotas(settings.tokens, limits) or {})
    context = Context(
        settings=settings,
        engine=engine,
        world=world,
        principals=principals,
        stored_tokens=stored_tokens,
        metrics=metrics,
        meter=Meter(world.monotonic_ms),
        audit=audit,
        bodies=bodies,
        quotas=quotas,
        retries=RetryLog(engine, world.wall_ms),
        tracing=tracing,
        namespace=namespace,
    )
    _measure(context)
    folder = folder_of(settings.store_url)
    library = "" if folder is None else sqlite_flaw()
    context.health = HealthWatch(HealthLook(lambda: context.settings, folder, world, store.health, library))
    return context


def _engine_on(
    store: Store,
    settings: ServerSettings,
    world: World,
    metrics: Metrics,
    reach: Callable[[str], None],
    tracing: ServerTracing | None,
) -> Engine:
    batch = BatchLimits(writes=settings.batch_writes)
    limits = EngineLimits(settings.queue_writes, settings.queue_bytes, batch, settings.queue_principal_share)
    on_loop = None if store.is_shared else CommitThread(settings.commit_thread)
    if tracing is None:
        return Engine(store, world, limits, metrics, reach, on_loop)
    engine = TracedEngine(store, world, limits, metrics, reach, on_loop)
    engine.trace(tracing, {row.name: row.verdict_of for row in SURFACES})
    return engine


def _measure(context: Context) -> None:
    """Let the metrics of a context know what they count."""
    metrics, world = context.metrics, context.world
    metrics.engine, metrics.meter, metrics.audit = context.engine, context.meter, context.audit
    metrics.quotas, metrics.namespace = context.quotas, context.namespace
    metrics.retries = context.retries
    metrics.key_refresh = context.principals.key_refresh
    metrics.store_kind = context.settings.store_url.partition(":")[0]
    metrics.store.receipts = {row.name: [table.name for table in row.receipts] for row in SURFACES}
    folder = folder_of(context.settings.store_url)
    if folder is not None:
        metrics.backup_age = lambda: age_of_mark(folder, world.wall_ms())
