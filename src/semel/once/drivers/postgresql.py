"""What all drivers of PostgreSQL share."""

from __future__ import annotations

PATIENCE = "SELECT current_setting('lock_timeout'), set_config('lock_timeout', ?, true)"
"""Set `lock_timeout` until the transaction ends; the value from before comes back."""
RESTORE = "SELECT set_config('lock_timeout', ?, true)"


def milliseconds(seconds: float) -> str:
    """A bound as PostgreSQL reads it; 0 would be none at all."""
    return f"{max(1, round(seconds * 1_000))}ms"
