"""What a cursor means for the client that was given it.

Clients of this dialect take the answer of every push for their cursor, although they have not been told what others did
meanwhile. So a push with something outstanding gives out a fresh number and remembers what it stands for: go on where
the last pull ended, and pass over the client's own entries up to here. Any other cursor means itself.

A crash loses none of it: a number is remembered in the commit that makes it, and a page leaves after its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from semel.contracts.deltas.limits import KEPT_ALIASES, MAX_ALIASES
from semel.contracts.deltas.model import Cursor


class Alias(NamedTuple):
    """Numbers that were given out, and what they stand for.

    Those of pushes in a row stand for the same, so the first and the last of them are kept: between the two there are
    positions of entries, which stand for themselves, and nothing else that a client can have been given.
    """

    low: int
    high: int
    start: int
    skip: int | None
    """None for the numbers of pushes: each passes over the client's own entries up to itself."""
    mute: int = 0
    is_open: bool = False
    """Whether nothing else has been given out since, so that the next push belongs to them."""


class Progress(NamedTuple):
    """How far a replica was told."""

    seen: int = 0
    """The last cursor that a pull gave it, or a push with nothing outstanding."""
    muted: int = 0
    """Repairs up to here were made for an earlier life of it."""
    aliases: tuple[Alias, ...] = ()
    """Oldest first."""

    @property
    def mark(self) -> tuple[int, int]:
        """Changes with every number that is given out."""
        return self.seen, self.aliases[-1].high if self.aliases else 0

    def is_alias(self, number: int) -> bool:
        """Whether a number may stand for something else."""
        return any(alias.low <= number <= alias.high for alias in self.aliases)

    def meaning(self, since: int, *, is_entry: bool) -> Cursor:
        """What a cursor stands for; `is_entry` when it is the position of one."""
        for alias in reversed(self.aliases):
            if alias.low <= since <= alias.high and not (alias.skip is None and is_entry):
                return Cursor(alias.start, since if alias.skip is None else alias.skip, alias.mute)
        return Cursor(since)

    def pushed(self, tick: int, *, is_behind: bool) -> Progress:
        """After a push that answers `tick`; `is_behind` when something of others is outstanding."""
        if not is_behind:
            return Progress(tick, 0, _closed(self.aliases))
        if self.aliases and self.aliases[-1].is_open:
            *others, last = self.aliases
            return self._replace(aliases=(*others, last._replace(high=tick)))
        fresh = Alias(tick, tick, self.seen, None, self.muted, is_open=True)
        return self._replace(aliases=(*self.aliases, fresh)[-MAX_ALIASES:])

    def given(self, since: int, cursor: int, skip: int, mute: int) -> Progress:
        """After a page that began at `since` and ends at `cursor`.

        Older numbers are kept for an answer that got lost, until the client shows a later one.
        """
        others = [alias for alias in _closed(self.aliases) if not alias.low == alias.high == cursor]
        recent = len(others) - KEPT_ALIASES
        kept = [alias for place, alias in enumerate(others) if place >= recent or alias.high >= since]
        if skip or mute:
            kept.append(Alias(cursor, cursor, cursor, skip, mute))
        return Progress(cursor, mute, tuple(kept[-MAX_ALIASES:]))

    def rested(self, since: int, cursor: int) -> Progress:
        """After an empty page that was long to make: the client keeps its cursor, which stands for a later one now."""
        aliases = _closed(self.aliases)
        kept = [alias for alias in aliases if alias.high >= since and not alias.low == alias.high == since]
        return Progress(cursor, 0, (*kept, Alias(since, since, cursor, 0))[-MAX_ALIASES:])

    def told(self, cursor: int) -> Progress:
        """After a page that nobody had asked for, behind `seen`, has arrived: what stood for more stands for less."""
        aliases = (
            alias._replace(start=cursor) if self.seen <= alias.start < cursor else alias
            for alias in _closed(self.aliases)
        )
        return self._replace(seen=max(self.seen, cursor), aliases=tuple(aliases))


def _closed(aliases: tuple[Alias, ...]) -> tuple[Alias, ...]:
    """The same, when something else is given out."""
    if not aliases or not aliases[-1].is_open:
        return aliases
    return (*aliases[:-1], aliases[-1]._replace(is_open=False))


def load_aliases(stored: bytes) -> tuple[Alias, ...]:
    """The aliases from their stored form."""
    facts: list[list[Any]] = orjson.loads(stored) if stored else []
    return tuple(Alias(*one) for one in facts)


def dump_aliases(aliases: tuple[Alias, ...]) -> bytes:
    """The stored form of aliases."""
    return orjson.dumps(aliases, default=tuple) if aliases else b""
