"""Token revocation: a token was removed from the file, or has other rights there now.

A request is checked against the current tokens. A long-lived connection, a WebSocket or an event stream, was checked
when it began: it watches the revocation of its token and is closed with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from semel.server.principals import Principal


class Revocation:
    """The revocation of one token; used on the event loop only."""

    __slots__ = ("_watchers", "has_come")

    def __init__(self) -> None:
        self.has_come = False
        self._watchers: set[Callable[[], object]] = set()

    def watch(self, watcher: Callable[[], object]) -> None:
        """Have this called when the token is revoked; at once if it was."""
        if self.has_come:
            watcher()
        else:
            self._watchers.add(watcher)

    def unwatch(self, watcher: Callable[[], object]) -> None:
        """No more of that."""
        self._watchers.discard(watcher)

    def come(self) -> None:
        """The token is revoked."""
        self.has_come = True
        watchers, self._watchers = self._watchers, set()
        for watcher in watchers:
            watcher()


class TokenChange(NamedTuple):
    """The difference between two states of a token file, in numbers of tokens."""

    tokens: int
    added: int
    changed: int
    revoked: int


def judge_change(old: Mapping[bytes, Principal], new: Mapping[bytes, Principal]) -> TokenChange:
    """Compare two states of a token file: added, removed and changed tokens."""
    both = old.keys() & new.keys()
    changed = sum(old[digest] != new[digest] for digest in both)
    return TokenChange(len(new), len(new) - len(both), changed, len(old) - len(both))
