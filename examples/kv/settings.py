"""Settings of keys and values."""

from __future__ import annotations

from dataclasses import dataclass

from semel.server.setting_values import setting
from semel.server.settings import SurfaceSettings


@dataclass(frozen=True)
class KvSettings(SurfaceSettings):
    """The settings of keys and values."""

    kv_max_value_bytes: int = setting(64 * 1024, "largest value in bytes; a larger one gets 413", 1)
    kv_idempotency_ttl_ms: int = setting(86_400_000, "time in ms that an Idempotency-Key is kept", 1)


SETTINGS = KvSettings
