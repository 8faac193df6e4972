"""Settings of deltas."""

from __future__ import annotations

from dataclasses import dataclass

from semel.server.setting_values import LARGE, MANY, SettingsError, secret, setting
from semel.server.settings import ServerSettings, SurfaceSettings


@dataclass(frozen=True)
class DeltasSettings(SurfaceSettings):
    """What deltas run with."""

    deltas_max_body_bytes: int = setting(1024 * 1024, "largest body of a push", 1, 64 * 1024 * 1024)
    deltas_max_deltas: int = setting(10_000, "deltas of one push", 1, 10_000)
    deltas_check_ids: bool = setting(
        True, "refuse deltas whose id is not the hash of their content; off for legacy data"
    )
    deltas_gateways: str = setting("", "names of the gateways there are, with commas between; empty takes any name")
    deltas_max_gateways: int = setting(10_000, "gateways; 0 is no limit", 0, MANY)
    deltas_max_clients: int = setting(1_000_000, "clients that have pushed to one gateway", 1, MANY)
    deltas_client_ttl_sec: int = setting(
        90 * 86_400, "how long a client of deltas is remembered that is not heard of; 0 is for ever", 0, MANY
    )
    deltas_keep_log_sec: int = setting(
        0, "how long the log of a gateway is kept behind its checkpoint; 0 is for ever", 0, MANY
    )
    deltas_pushes_per_sec: int = setting(0, "pushes a second of one client; 0 is no limit", 0, MANY)
    deltas_jwt_secret: str = secret("the key (HS256) that clients of deltas sign their JWTs with")
    deltas_jwt_secret_next: str = secret("the key that follows it; both hold while it is set")
    deltas_live_bytes: int = setting(1024 * 1024, "what may wait unsent for one WebSocket of deltas", 1_024, LARGE)
    deltas_max_sockets: int = setting(10_000, "WebSockets of deltas at once", 1, MANY)
    deltas_answers_bytes: int = setting(
        256 * 1024 * 1024, "answers of deltas that wait for their readers, all together", 2 * LARGE
    )
    deltas_checkpoints_bytes: int = setting(
        4 * 1024 * 1024 * 1024, "files of checkpoints that are written or sent, all together", LARGE
    )

    def check(self, server: ServerSettings) -> None:
        """The second secret follows a first."""
        if self.deltas_jwt_secret_next and not self.deltas_jwt_secret:
            raise SettingsError("deltas_jwt_secret_next follows deltas_jwt_secret: give both.")
