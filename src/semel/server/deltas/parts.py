"""The policy of deltas, made from the settings."""

from __future__ import annotations

import logging

from semel.contracts.deltas.contract import Deltas
from semel.contracts.deltas.limits import Policy
from semel.server.budget import Budget
from semel.server.context import Context
from semel.server.deltas.access import gate_of
from semel.server.deltas.desk import Desk
from semel.server.deltas.journal import Journal
from semel.server.deltas.spools import Spools, folder_for
from semel.server.rates import Rates
from semel.server.settings import settings_of
from semel.surfaces.deltas.metrics import DeltasMetrics
from semel.surfaces.deltas.settings import DeltasSettings

_log = logging.getLogger("semel.deltas")

SECRET_BYTES = 32
"""A shorter secret can be guessed from a token that it has signed."""
SHARES = 2
"""One caller holds at most this part of what all may hold in memory together."""


def policy_of(settings: DeltasSettings) -> Policy:
    """What the rules need of the settings."""
    return Policy(
        checks_ids=settings.deltas_check_ids,
        max_deltas=settings.deltas_max_deltas,
        max_gateways=settings.deltas_max_gateways,
        max_clients=settings.deltas_max_clients,
        client_ttl_ms=settings.deltas_client_ttl_sec * 1_000,
        keep_log_ms=settings.deltas_keep_log_sec * 1_000,
    )


def make_desk(context: Context) -> Desk:
    """Everything that the calls share, over HTTP and over WebSocket."""
    server, settings = context.settings, settings_of(context.settings, DeltasSettings)
    metrics = DeltasMetrics()
    for name in ("deltas_jwt_secret", "deltas_jwt_secret_next"):
        if 0 < len(getattr(settings, name).encode()) < SECRET_BYTES:
            _log.warning("%s is short: take at least %d random bytes", name, SECRET_BYTES)
    answers = Budget(settings.deltas_answers_bytes, settings.deltas_answers_bytes // SHARES)
    most, largest = server.max_uploads_bytes, settings.deltas_max_body_bytes + 1
    uploads = Budget(most, max(most // SHARES, SHARES * largest))
    spools = Spools(folder_for(server.store_url), settings.deltas_checkpoints_bytes)
    metrics.held = {"answers": answers, "uploads": uploads, "checkpoints": spools.bytes}
    return Desk(
        context=context,
        settings=settings,
        deltas=Deltas(policy_of(settings)),
        policy=policy_of(settings),
        gate=gate_of(context),
        gateways=frozenset(_listed(settings.deltas_gateways)),
        rates=Rates(settings.deltas_pushes_per_sec, context.world.monotonic_ms),
        journal=Journal(context.audit, metrics),
        answers=answers,
        uploads=uploads,
        spools=spools,
    )


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
