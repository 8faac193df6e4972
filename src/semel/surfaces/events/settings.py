"""Settings of events."""

from __future__ import annotations

from dataclasses import dataclass

from semel.server.setting_values import setting
from semel.server.settings import SurfaceSettings


@dataclass(frozen=True)
class EventsSettings(SurfaceSettings):
    """What events run with."""

    events_message_bytes: int = setting(1024 * 1024, "largest message or body, to the server and from it", 4_096)
    events_batch_items: int = setting(100, "items in one submission", 1)
    events_in_flight_items: int = setting(200, "items of one connection that may wait for a commit", 1)
    events_rate_messages: int = setting(0, "messages a second that one connection is listened to; 0 is no limit", 0)
    events_bad_messages: int = setting(100, "so many malformed messages in a row end a connection", 1)
    events_idle_ms: int = setting(30_000, "silence after which a connection that should send heartbeats is closed", 1)
    events_ping_ms: int = setting(20_000, "pace of pings to clients that send no heartbeats", 1)
    events_slow_ms: int = setting(60_000, "a client that reads nothing for so long is cut off", 1)
    events_buffer_bytes: int = setting(256 * 1024, "what may wait unsent for one connection before it is refilled", 1)
    events_validator: str = setting("", "module:callable or entry point that may reject events; empty is none")
    events_strict_types: bool = setting(False, "take only the event types of the connection's profile")
    events_model_version: int = setting(0, "version of the application's model, told to clients; 0 is none", 0)
    events_retention_ms: int = setting(0, "how long events are kept; 0 is for ever; ids are remembered anyway", 0)
