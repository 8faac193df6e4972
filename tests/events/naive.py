"""A follower that does what the guide says and no more: one cursor, and the events that it has.

`docs/guide/events.md`, "Cursors": a cursor moves by pages until the history has ended, then by live
events too. `HastyFollower` reads only half of the sentence; tests show that it loses events, so that they would notice.
"""

from __future__ import annotations

from collections.abc import Sequence


class NaiveFollower:
    """What a program keeps between its connections."""

    def __init__(self) -> None:
        self.cursor = 0
        self.seen: list[int] = []
        """The events that it has, in the order in which it got them, each once."""
        self._known: set[int] = set()
        self._has_ended = False

    def connected(self) -> None:
        """A new connection: what was missed comes in pages first."""
        self._has_ended = False

    def page(self, ids: Sequence[int], next_since: int, *, has_more: bool) -> None:
        """A page moves the cursor to its end; the last one ends the history."""
        for committed_id in ids:
            self._apply(committed_id)
        self.cursor = next_since
        self._has_ended = not has_more

    def live(self, committed_id: int) -> None:
        """A live event moves the cursor once the history has ended."""
        self._apply(committed_id)
        if self._has_ended:
            self.cursor = committed_id

    def _apply(self, committed_id: int) -> None:
        if committed_id not in self._known:
            self._known.add(committed_id)
            self.seen.append(committed_id)


class HastyFollower(NaiveFollower):
    """Takes every live event as its position, while pages are still missing too."""

    def live(self, committed_id: int) -> None:
        """A live event moves the cursor, always."""
        self._apply(committed_id)
        self.cursor = committed_id
