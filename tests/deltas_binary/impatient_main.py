"""`semel` with little patience for clients of deltas that take nothing and say nothing."""

from __future__ import annotations

from semel.cli import main
from semel.server.deltas import conversation, holdings

PATIENCE_SECONDS = 0.6
PING_SECONDS = 0.7

if __name__ == "__main__":
    conversation.Conversation.patience_seconds = PATIENCE_SECONDS
    conversation.PING_SECONDS = PING_SECONDS
    holdings.Holdings.longest_seconds = 1.5
    main()
