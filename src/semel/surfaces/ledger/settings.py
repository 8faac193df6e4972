"""Settings of ledger."""

from __future__ import annotations

from dataclasses import dataclass

from semel.server.setting_values import CENTURY, LARGE, MANY, setting
from semel.server.settings import SurfaceSettings


@dataclass(frozen=True)
class LedgerSettings(SurfaceSettings):
    """The settings of the ledger."""

    ledger_grpc_port: int = setting(
        -1, "TCP port of gRPC (semel[grpc]); 0 opens none, -1 opens 50051 if free", -1, 65_535
    )
    ledger_eviction_interval: int = setting(1_000, "log entries between two evictions, for new organizations", 1, MANY)
    ledger_ttl_sec: int = setting(86_400, "seconds that new organizations remember commits and clients", 1, CENTURY)
    ledger_fence: bool = setting(False, "new organizations keep the last sequence of every client for ever")
    ledger_hot_items: int = setting(
        100_000, "max answers in the replay cache, for full answers to gRPC retries", 1, MANY
    )
    ledger_max_orgs: int = setting(10_000, "max organizations; 0 is no limit", 0, MANY)
    ledger_max_vaults: int = setting(10_000, "max vaults of one organization; 0 is no limit", 0, MANY)
    ledger_writes_per_sec: int = setting(
        0, "rate limit of one organization in transactions a second; 0 is none", 0, MANY
    )
    ledger_max_operations: int = setting(1_000, "max operations of one transaction", 1, 1_000_000)
    ledger_max_payload_bytes: int = setting(100 * 1024 * 1024, "largest transaction: bytes of all keys and values", 1)
    ledger_max_key_bytes: int = setting(1_024, "largest key of an entity in bytes", 1, LARGE)
    ledger_max_value_bytes: int = setting(
        1024 * 1024, "largest value of an entity in bytes; 0 allows empty ones only", 0
    )
    ledger_node_id: str = setting("semel", "name of this node in block headers")


SETTINGS = LedgerSettings
