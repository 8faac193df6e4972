"""Settings of streams."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from semel.server.setting_values import checked, setting
from semel.server.settings import SurfaceSettings


def check_base(url: str) -> None:
    """Check a base URL; raises `ValueError`."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment or url.endswith("/"):
        raise ValueError("no base URL")


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
    streams_retention_age_ms: int = setting(
        0, "drop content of new streams after this time in ms unless their PUT names a retention; 0 keeps all", 0
    )
    streams_retention_bytes: int = setting(
        0, "drop the oldest content of new streams above this size unless their PUT names a retention; 0 keeps all", 0
    )
    streams_subscriptions: int = setting(1_000, "max subscriptions; further ones get 429", 0, 100_000)
    streams_webhook_ms: int = setting(
        30_000, "time limit in ms of one webhook attempt, from the connection to the end of the answer", 100, 600_000
    )
    streams_webhook_private: bool = setting(
        False, "allow webhooks to private and loopback addresses; loopback alone is allowed in development mode"
    )
    streams_public_url: str = checked(
        check_base,
        "base URL of callbacks and key sets, such as https://streams.example; empty is the one that the client used",
    )


SETTINGS = StreamsSettings
