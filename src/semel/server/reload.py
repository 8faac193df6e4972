"""Settings that change while a server runs: on SIGHUP the configuration file is read again.

`RELOADED` lists the settings that take effect at once; all others are reported as needing a restart, by name and never
by value. Environment variables and flags of a process cannot change, so they still override the file. A file with any
error changes nothing. A crash loses nothing: the next start reads the same file.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from semel.engine.sweep import Sweeper
from semel.server.context import Context
from semel.server.http.connection_limit import http_limits_of
from semel.server.http.server import HttpHost
from semel.server.ops.logs import set_log_level
from semel.server.quotas.limits import QuotaLimits, default_limits
from semel.server.quotas.reload import set_quotas
from semel.server.setting_values import SettingsError
from semel.server.settings import ServerSettings
from semel.server.settings_loader import setting_fields

_log = logging.getLogger("semel.server")


class ReloadedParts(NamedTuple):
    """The parts of a server that take changed settings."""

    contexts: Sequence[Context]
    """Those of all namespaces."""
    host: HttpHost
    sweepers: Sequence[Sweeper]


Apply = Callable[[ReloadedParts, ServerSettings], None]


def _log_level(parts: ReloadedParts, settings: ServerSettings) -> None:
    set_log_level(settings.log_level)


def _http_limits(parts: ReloadedParts, settings: ServerSettings) -> None:
    """Open connections keep their limits; new ones have the new limits."""
    parts.host.limits = http_limits_of(settings)


def _connections(parts: ReloadedParts, settings: ServerSettings) -> None:
    parts.host.connection_limit.change(settings.http_max_connections, settings.http_max_connections_per_address)


def _queue(parts: ReloadedParts, settings: ServerSettings) -> None:
    """Writes that wait already stay in the queue."""
    for context in parts.contexts:
        context.engine.change_queue(settings.queue_writes, settings.queue_bytes, settings.queue_principal_share)


def _sweeps(parts: ReloadedParts, settings: ServerSettings) -> None:
    for sweeper in parts.sweepers:
        sweeper.interval = settings.sweep_interval_ms / 1_000


def _quotas(parts: ReloadedParts, settings: ServerSettings) -> None:
    """The token file, with the quotas of named principals, is read again afterwards."""
    for context in parts.contexts:
        set_quotas(context.quotas, context.engine, default_limits(settings), context.quotas.named)


def _from_context(parts: ReloadedParts, settings: ServerSettings) -> None:
    """Nothing to do: it is read from the context at each use."""


RELOADED: Mapping[str, Apply] = {
    "log_level": _log_level,
    "ready_free_bytes": _from_context,
    "ready_clock_ms": _from_context,
    "shutdown_ms": _from_context,
    "http_silence_ms": _http_limits,
    "http_head_ms": _http_limits,
    "http_body_ms": _http_limits,
    "http_idle_ms": _http_limits,
    "http_stall_ms": _http_limits,
    "http_max_connections": _connections,
    "http_max_connections_per_address": _connections,
    "queue_writes": _queue,
    "queue_bytes": _queue,
    "queue_principal_share": _queue,
    "sweep_interval_ms": _sweeps,
    **{f"quota_{name}": _quotas for name in QuotaLimits._fields},
}
"""The settings that take effect at once."""


async def reload_settings(
    parts: ReloadedParts, now: ServerSettings, reread: Callable[[], ServerSettings]
) -> ServerSettings:
    """Apply what has changed and can change now, and log the names of both kinds of settings.

    `now` are the settings as they were loaded, with the changes of earlier calls; returns them with those of this one.
    """
    try:
        wanted = await asyncio.to_thread(reread)
    except SettingsError as error:
        _log.error("SIGHUP: the settings are invalid; those of the start stay in force", extra={"why": str(error)})
        return now
    changed = [one.name for one in setting_fields() if getattr(now, one.name) != getattr(wanted, one.name)]
    applied = [name for name in changed if name in RELOADED]
    waiting = [name for name in changed if name not in RELOADED]
    values = {name: getattr(wanted, name) for name in applied}
    for context in parts.contexts:
        context.settings = replace(context.settings, **values)
    for apply in dict.fromkeys(RELOADED[name] for name in applied):
        apply(parts, wanted)
    if applied:
        _log.warning("SIGHUP: settings have changed", extra={"settings": applied})
    if waiting:
        _log.warning("SIGHUP: these changed settings need a restart", extra={"settings": waiting})
    if not changed:
        _log.info("SIGHUP: no setting has changed")
    return replace(now, **values)
