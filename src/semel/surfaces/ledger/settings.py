"""Settings of ledger."""

from __future__ import annotations

from dataclasses import dataclass

from semel.server.setting_values import CENTURY, LARGE, MANY, setting
from semel.server.settings import SurfaceSettings


@dataclass(frozen=True)
class LedgerSettings(SurfaceSettings):
    """What ledger runs with."""

    ledger_grpc_port: int = setting(
        -1, "port of the ledger's gRPC, with semel[grpc]; 0 is none, -1 is 50051 where that is free", -1, 65_535
    )
    ledger_eviction_interval: int = setting(1_000, "log entries between two evictions, in new organizations", 1, MANY)
    ledger_ttl_sec: int = setting(86_400, "how long commits and clients are remembered, in new ones", 1, CENTURY)
    ledger_fence: bool = setting(False, "new organizations keep the last sequence of a client for ever")
    ledger_hot_items: int = setting(100_000, "answers remembered in memory, for replays in full over gRPC", 1, MANY)
    ledger_hot_sec: int = setting(86_400, "for how long", 1, CENTURY)
    ledger_max_orgs: int = setting(10_000, "organizations; 0 is no limit", 0, MANY)
    ledger_max_vaults: int = setting(10_000, "vaults of one organization; 0 is no limit", 0, MANY)
    ledger_writes_per_sec: int = setting(0, "transactions a second of one organization; 0 is no limit", 0, MANY)
    ledger_max_operations: int = setting(1_000, "operations of one transaction", 1, 1_000_000)
    ledger_max_payload_bytes: int = setting(100 * 1024 * 1024, "keys and values of one transaction", 1)
    ledger_max_key_bytes: int = setting(1_024, "largest key of an entity", 1, LARGE)
    ledger_max_value_bytes: int = setting(1024 * 1024, "largest value of an entity", 0)
    ledger_max_resource_characters: int = setting(512, "longest resource or subject of a relationship", 1, LARGE)
    ledger_max_relation_characters: int = setting(64, "longest relation of a relationship", 1, LARGE)
    ledger_max_actor_characters: int = setting(128, "longest actor", 1, LARGE)
    ledger_node_id: str = setting("semel", "how this node is named in the headers of blocks")
