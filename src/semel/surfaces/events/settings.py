"""Settings of events."""

from __future__ import annotations

from dataclasses import dataclass

from semel.server.setting_values import setting
from semel.server.settings import SurfaceSettings


@dataclass(frozen=True)
class EventsSettings(SurfaceSettings):
    """The settings of events."""

    events_message_bytes: int = setting(1024 * 1024, "largest message or body in bytes, in both directions", 4_096)
    events_batch_items: int = setting(100, "max items in one submission", 1)
    events_in_flight_items: int = setting(
        200, "max items of one connection that wait for a commit; beyond it the connection is not read", 1
    )
    events_rate_messages: int = setting(0, "rate limit of one connection in messages a second; 0 is no limit", 0)
    events_idle_ms: int = setting(30_000, "close a connection without a heartbeat for this time in ms", 1)
    events_ping_ms: int = setting(20_000, "time in ms between two pings to clients that send no heartbeats", 1)
    events_slow_ms: int = setting(60_000, "close a connection whose client reads nothing for this time in ms", 1)
    events_buffer_bytes: int = setting(
        256 * 1024, "max unsent bytes of one connection; beyond it the client reads the log again", 1
    )
    events_validator: str = setting(
        "", "function that may reject events, module:callable or an entry point; empty is none"
    )
    events_strict_types: bool = setting(False, "accept only the event types of the connection's profile")
    events_model_version: int = setting(0, "version of the application's model, sent to clients; 0 sends none", 0)
    events_retention_ms: int = setting(0, "keep events for this time in ms; 0 is for ever; ids are always kept", 0)


SETTINGS = EventsSettings
