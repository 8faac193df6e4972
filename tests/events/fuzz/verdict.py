"""What a run of wrong input has found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

MOST_FAULTS = 40
SHOWN_BYTES = 300


@dataclass(slots=True)
class FuzzVerdict:
    """What was sent, what came of it, and what should not have."""

    frames: int = 0
    connections: int = 0
    healthy: int = 0
    pongs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    wrong: int = 0
    grown_bytes: int = 0

    def blame(self, what: str) -> None:
        """Write a fault down."""
        self.wrong += 1
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(what)

    def __str__(self) -> str:
        return (
            f"{self.frames} frames of {len(self.kinds)} kinds on {self.connections} connections, "
            f"{self.healthy} answers to a healthy client, {self.grown_bytes / 1e6:.0f} MB grown: {self.wrong} faults"
        )


def token(message: dict[str, Any]) -> str:
    """What an answer says, in the oracle's words."""
    payload = message["payload"]
    if message["type"] == "error":
        return str(payload["code"])
    if message["type"] == "submit_events_result":
        first = payload["results"][0]
        return "committed" if first["status"] == "committed" else f"{first['status']} {first['reason']}"
    return str(message["type"])
