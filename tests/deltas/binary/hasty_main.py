"""`semel` whose WebSockets of deltas wait for room in memory for a moment only."""

from __future__ import annotations

from semel.cli.main import main
from semel.surfaces.deltas import conversation

if __name__ == "__main__":
    conversation.ROOM_SECONDS = 0.3
    main()
