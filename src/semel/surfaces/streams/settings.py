"""Settings of streams."""

from __future__ import annotations

from dataclasses import dataclass

from semel.server.setting_values import setting
from semel.server.settings import SurfaceSettings


@dataclass(frozen=True)
class StreamsSettings(SurfaceSettings):
    """The settings of streams."""

    streams_long_poll_ms: int = setting(
        30_000, "longest wait of a long poll in ms; also interval of idle SSE events", 1
    )
    streams_sse_max_ms: int = setting(60_000, "end an SSE connection after this time in ms; the client reconnects", 1)
    streams_page_bytes: int = setting(
        1024 * 1024, "max content bytes of one read; a single larger append is sent whole", 1
    )
    streams_max_messages: int = setting(100_000, "max messages of one append to a JSON stream; more get 413", 1)
    streams_idempotency_ttl_ms: int = setting(86_400_000, "time in ms that an Idempotency-Key is kept", 1)


SETTINGS = StreamsSettings
