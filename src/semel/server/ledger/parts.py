"""The policy of the ledger, made from the settings."""

from __future__ import annotations

from semel.contracts.ledger.limits import Limits, Policy
from semel.server.context import Context
from semel.server.ledger.desk import Desk
from semel.server.ledger.hot import HotAnswers
from semel.server.ledger.journal import Journal
from semel.server.settings import Settings


def policy_of(settings: Settings) -> Policy:
    """The settings that the rules need."""
    return Policy(
        eviction_interval=settings.ledger_eviction_interval,
        ttl_seconds=settings.ledger_ttl_sec,
        fence=settings.ledger_fence,
        max_orgs=settings.ledger_max_orgs,
        max_vaults=settings.ledger_max_vaults,
        writes_per_second=settings.ledger_writes_per_sec,
    )


def limits_of(settings: Settings) -> Limits:
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
    settings = context.settings
    hot = HotAnswers(settings.ledger_hot_items, settings.ledger_hot_sec * 1_000, context.world.monotonic_ms)
    context.metrics.ledger_hot = lambda: len(hot)
    return Desk(
        context=context,
        ledger=context.ledger,
        limits=limits_of(settings),
        hot=hot,
        journal=Journal(context.audit, context.metrics),
    )
