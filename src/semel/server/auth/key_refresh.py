"""The interface of keys that are fetched while the server runs: what starts, stops and measures them needs no more."""

from __future__ import annotations

from typing import Protocol


class KeyRefresh(Protocol):
    """Keys of JWTs that are fetched while the server runs."""

    @property
    def failures(self) -> int:
        """Fetches that have failed since the start."""

    def age_seconds(self) -> float | None:
        """Seconds since the last fetch that succeeded; None before the first."""

    async def refresh(self) -> None:
        """Fetch the keys; never raises."""

    async def run(self) -> None:
        """Fetch the keys when it is time, until cancelled."""
