"""The revocation of one token: what was opened with it ends when it comes; and what a new token file changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple


class Revocation:
    """The revocation of one token; used on the event loop only."""

    __slots__ = ("_watchers", "has_come")

    def __init__(self) -> None:
        self.has_come = False
        self._watchers: set[Callable[[], object]] = set()

    def watch(self, watcher: Callable[[], object]) -> None:
        """Call `wake` when the token is revoked; at once if it was."""
        if self.has_come:
            watcher()
        else:
            self._watchers.add(watcher)

    def unwatch(self, watcher: Callable[[], object]) -> None:
        """Undo `watch`."""
        self._watchers.discard(watcher)

    def come(self) -> None:
        """Revoke the token and wake all watchers."""
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


def judge_change(old: Mapping[bytes, object], new: Mapping[bytes, object]) -> TokenChange:
    """Compare two states of a token file: added, removed and changed tokens."""
    both = old.keys() & new.keys()
    changed = sum(old[digest] != new[digest] for digest in both)
    return TokenChange(len(new), len(new) - len(both), changed, len(old) - len(both))
