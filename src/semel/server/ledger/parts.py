"""The policy of the ledger, made from the settings."""

from __future__ import annotations

from semel.contracts.ledger.contract import Ledger
from semel.contracts.ledger.limits import Limits, Policy
from semel.server.context import Context
from semel.server.ledger.desk import Desk
from semel.server.ledger.hot import HotAnswers
from semel.server.ledger.journal import Journal
from semel.server.settings import settings_of
from semel.surfaces.ledger.metrics import LedgerMetrics
from semel.surfaces.ledger.settings import LedgerSettings


def policy_of(settings: LedgerSettings) -> Policy:
    """What the rules need of the settings."""
    return Policy(
        eviction_interval=settings.ledger_eviction_interval,
        ttl_seconds=settings.ledger_ttl_sec,
        fence=settings.ledger_fence,
        max_orgs=settings.ledger_max_orgs,
        max_vaults=settings.ledger_max_vaults,
        writes_per_second=settings.ledger_writes_per_sec,
    )


def limits_of(settings: LedgerSettings) -> Limits:
    """The bounds of one request."""
    return Limits(
        max_key_bytes=settings.ledger_max_key_bytes,
        max_value_bytes=settings.ledger_max_value_bytes,
        max_resource_characters=settings.ledger_max_resource_characters,
        max_relation_characters=settings.ledger_max_relation_characters,
        max_actor_characters=settings.ledger_max_actor_characters,
        max_operations=settings.ledger_max_operations,
        max_payload_bytes=settings.ledger_max_payload_bytes,
    )


def make_desk(context: Context) -> Desk:
    """Everything that the calls share, over HTTP and over gRPC."""
    settings = settings_of(context.settings, LedgerSettings)
    metrics = LedgerMetrics()
    hot = HotAnswers(settings.ledger_hot_items, settings.ledger_hot_sec * 1_000, context.world.monotonic_ms)
    metrics.hot = lambda: len(hot)
    return Desk(
        context=context,
        ledger=Ledger(policy_of(settings)),
        limits=limits_of(settings),
        hot=hot,
        journal=Journal(context.audit, metrics),
        node=settings.ledger_node_id,
    )
