"""Quotas are read again on SIGHUP, with the token file; an invalid file changes nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from semel.engine.engine import Engine
from semel.server.context import Context
from semel.server.quotas.accounts import Quotas
from semel.server.quotas.limits import QuotaFileError, QuotaLimits, default_limits, read_quotas
from semel.server.settings import ServerSettings

_log = logging.getLogger("semel.server")


def set_quotas(quotas: Quotas, engine: Engine, default: QuotaLimits, named: Mapping[str, QuotaLimits]) -> None:
    """Put limits into force; the engine asks for a limit of its own only if a principal has one."""
    quotas.replace(default, named)
    has_limit = any(limits.in_flight_writes for limits in (default, *named.values()))
    engine.shares.limit_of = (lambda actor: quotas.limits_of(actor).in_flight_writes) if has_limit else None


async def reload_quotas(settings: ServerSettings, context: Context) -> None:
    """Read the quotas of the token file again."""
    if not settings.tokens:
        return
    default = default_limits(settings)
    try:
        named = await asyncio.to_thread(read_quotas, settings.tokens, default)
    except QuotaFileError as error:
        _log.error(
            "SIGHUP: a quota of the token file is invalid; the loaded quotas stay in force",
            extra={"path": settings.tokens, "why": error.flaw},
        )
        return
    if named is not None and context.quotas.named != named:
        for one in context.all:
            set_quotas(one.quotas, one.engine, default, named)
        _log.info("SIGHUP: quotas have changed", extra={"path": settings.tokens, "named": len(named)})
