"""Settings of deltas."""

from __future__ import annotations

from dataclasses import dataclass

from semel.server.setting_values import LARGE, MANY, SettingsError, secret, setting
from semel.server.settings import ServerSettings, SurfaceSettings


@dataclass(frozen=True)
class DeltasSettings(SurfaceSettings):
    """The settings of deltas."""

    deltas_max_body_bytes: int = setting(1024 * 1024, "largest body of a push in bytes", 1, 64 * 1024 * 1024)
    deltas_max_deltas: int = setting(10_000, "max deltas of one push", 1, 10_000)
    deltas_check_ids: bool = setting(
        True, "refuse deltas whose id is not the hash of their content; switch off for legacy data"
    )
    deltas_gateways: str = setting("", "names of allowed gateways, separated by commas; empty allows any name")
    deltas_max_gateways: int = setting(10_000, "max gateways; 0 is no limit", 0, MANY)
    deltas_max_clients: int = setting(
        1_000_000, "max clients that push to one gateway; a further one gets 429", 1, MANY
    )
    deltas_client_ttl_sec: int = setting(
        90 * 86_400, "forget a client inactive for this time in seconds; 0 is never", 0, MANY
    )
    deltas_keep_log_sec: int = setting(
        0, "keep log entries for this time in seconds; older ones are only in checkpoints; 0 is for ever", 0, MANY
    )
    deltas_pushes_per_sec: int = setting(0, "rate limit of one client in pushes a second; 0 is no limit", 0, MANY)
    deltas_jwt_secret: str = secret("the secret (HS256) that JWTs of deltas clients are signed with")
    deltas_jwt_secret_next: str = secret("the successor of deltas_jwt_secret; both are accepted while it is set")
    deltas_live_bytes: int = setting(1024 * 1024, "max unsent bytes of one WebSocket of deltas", 1_024, LARGE)
    deltas_max_sockets: int = setting(10_000, "max open WebSockets of deltas", 1, MANY)
    deltas_answers_bytes: int = setting(256 * 1024 * 1024, "max bytes of all unsent answers of deltas", 2 * LARGE)
    deltas_checkpoints_bytes: int = setting(
        4 * 1024 * 1024 * 1024, "max bytes of all checkpoint files that are being written or sent", LARGE
    )

    def check(self, server: ServerSettings) -> None:
        """Check that the next secret has a first one."""
        if self.deltas_jwt_secret_next and not self.deltas_jwt_secret:
            raise SettingsError(
                "deltas_jwt_secret_next is the successor of deltas_jwt_secret: give deltas_jwt_secret too."
            )


SETTINGS = DeltasSettings
