"""`semel` with little patience for clients of deltas that take nothing and say nothing."""

from __future__ import annotations

import os

from semel.cli.main import main
from semel.surfaces.deltas import conversation

PATIENCE_SECONDS = 0.6
PING_SECONDS = 0.7
LONGEST_SECONDS = 1.5
TIMES = "IMPATIENT_TIMES"
"""The variable that says how many times as long each of them is."""

if __name__ == "__main__":
    times = float(os.environ[TIMES])
    conversation.PING_SECONDS = times * PING_SECONDS
    os.environ["SEMEL_HTTP_STALL_MS"] = str(round(times * PATIENCE_SECONDS * 1_000))
    os.environ["SEMEL_HTTP_BODY_MS"] = str(round(times * LONGEST_SECONDS * 1_000))
    main()
