"""Unknown cursors: counted, and logged under a rate limit."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from semel.contracts.events.rules.epochs import Standing

LOG_EVERY_MS = 60_000

_log = logging.getLogger("semel.events")


class CursorWatch:
    """Counts and logs unknown cursors; one for each node."""

    def __init__(self, counts: Counter[str], wall_ms: Callable[[], int]) -> None:
        self._counts = counts
        self._wall_ms = wall_ms
        self._logged_at: dict[str, int] = {}

    def note(self, standing: Standing, since: int) -> None:
        """Count and log the standing of a client's cursor."""
        if standing.reset is not None:
            self._counts["resets"] += 1
            self._say("a cursor is of events that a restore has lost; its client was told to reset", since)
        elif standing.is_ahead:
            self._counts["cursors_ahead"] += 1
            self._say("a cursor is above every event of the log: was a backup restored without a new epoch?", since)

    def _say(self, words: str, since: int) -> None:
        """At most one line of each kind in a minute: how many there were is in the metrics."""
        now_ms = self._wall_ms()
        if abs(now_ms - self._logged_at.get(words, -LOG_EVERY_MS)) >= LOG_EVERY_MS:
            self._logged_at[words] = now_ms
            _log.warning(words, extra={"since": since})
