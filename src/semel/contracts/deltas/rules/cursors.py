"""Cursor rules: which entries a cursor covers for the client that holds it.

Clients of this dialect use the answer of every push as their cursor, although they have not received what others wrote
meanwhile. So a push with outstanding entries answers with a new number, an alias, and stores its meaning: continue
behind the acknowledged position, and skip the client's own entries up to here. Any other cursor is a plain position.

A pull acknowledges its cursor: everything up to it has arrived. A page that was sent and not acknowledged may have been
lost, so it is outstanding, and the next push's number covers it as well. The client may have it all the same: up to the
number of the push every INSERT is preceded by a DELETE of its row.

| what | is kept | when a crash forgets it |
|---|---|---|
| the meaning of a push's number | in the commit of the push | it cannot |
| the meaning of the end of a page that ends early | on disk before the page leaves | it cannot |
| that a client has gone back, as after the loss of its database | on disk before the page leaves | it cannot |
| that a client has acknowledged a page | as a soft change | the page counts as not acknowledged, and is sent again |

So `seen` may be too low after a crash, and never too high: no change is skipped, and a repeated one does no harm. A
client that pushes between any two of its pulls never acknowledges a page. Where all that it has not acknowledged takes
more than a page, its pages continue to the end of the log, and then begin again at `seen`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from semel.contracts.deltas.limits import KEPT_ALIASES, MAX_ALIASES
from semel.contracts.deltas.model import NOWHERE, Cursor


class Alias(NamedTuple):
    """Cursor numbers that were given out, and their meaning.

    Those of pushes stand for the same until the client shows more, so the first and the last of them are kept. They are
    odd, and the ends of whole pages are even: between the two there are else positions, which stand for themselves.
    """

    low: int
    high: int
    start: int
    skip: int | None
    """None for the numbers of pushes: each passes over the client's own entries up to itself."""
    mute: int = 0
    back: int = NOWHERE
    """The position to begin again from when the end of the log is reached."""
    doubt: int = 0
    """As in `Cursor`; the numbers of pushes and what follows from them are in doubt up to `skip` at least."""
    is_old: bool = False
    """Whether it is of a time when the numbers of pushes could be even."""

    @property
    def base(self) -> int:
        """The acknowledged position when it was made."""
        return self.start if self.back == NOWHERE else self.back

    def has(self, number: int) -> bool:
        """Whether a number may be one of them."""
        if not self.low <= number <= self.high:
            return False
        return self.skip is not None or self.is_old or number % 2 == 1


class Progress(NamedTuple):
    """The progress of a replica."""

    seen: int = 0
    """The acknowledged position, or the number of a push with nothing outstanding."""
    muted: int = 0
    """Repairs up to here were made for an earlier life of it."""
    aliases: tuple[Alias, ...] = ()
    """Oldest first."""
    life: bytes = b""
    """Changes when it goes back."""

    @property
    def mark(self) -> tuple[int, int, bytes]:
        """Changes with every number that is remembered for it."""
        return self.seen, self.aliases[-1].high if self.aliases else 0, self.life

    def is_alias(self, number: int) -> bool:
        """Whether a number may be an alias."""
        return any(alias.has(number) for alias in self.aliases)

    def is_end(self, number: int) -> bool:
        """Whether a number is the end of a page and an alias."""
        return any(alias.has(number) for alias in self.aliases if alias.skip is not None)

    def meaning(self, since: int, *, is_entry: bool) -> Cursor:
        """The meaning of a cursor; `is_entry` when it is the position of an entry."""
        for alias in reversed(self.aliases):
            if alias.has(since) and not (alias.skip is None and is_entry):
                skip = since if alias.skip is None else alias.skip
                return Cursor(alias.start, skip, alias.mute, alias.back, max(skip, alias.doubt))
        return Cursor(since)

    def pushed(self, number: int, *, is_behind: bool) -> Progress:
        """After a push that answers this; `is_behind` when something of others is outstanding."""
        aliases = self._kept(self.seen)
        if not is_behind:
            return self._replace(seen=number, muted=0, aliases=aliases)
        last = aliases[-1] if aliases else None
        if last is not None and self._goes_on(last):
            return self._replace(aliases=(*aliases[:-1], last._replace(high=number)))
        fresh = Alias(number, number, self.seen, None, self.muted)
        if last is not None and last.skip is not None and last.start > self.seen:
            # An unacknowledged page ended there: continue behind it, so that a client that never acknowledges gets the
            # rest.
            fresh = fresh._replace(start=last.start, back=self.seen)
        return self._replace(aliases=(*aliases, fresh)[-MAX_ALIASES:])

    def again(self, *, is_behind: bool, high_water: int) -> int | None:
        """The answer to a push of nothing new, if it needs nothing to be stored."""
        if not is_behind:
            return None if self.is_alias(high_water) else high_water
        last = self.aliases[-1] if self.aliases else None
        if last is not None and self._goes_on(last):
            return last.high
        # It has pushed nothing since: then behind that there is nothing of its own to pass over.
        is_last = all(alias.high <= self.seen for alias in self.aliases if alias.skip is None)
        is_itself = is_last and self.muted <= self.seen and not self.is_alias(self.seen)
        return self.seen if is_itself else None

    def _goes_on(self, last: Alias) -> bool:
        """Whether a push has the same meaning as the last remembered number."""
        return last.skip is None and not last.is_old and (last.base, last.mute) == (self.seen, self.muted)

    def noted(self, shown: int, cursor: int, rest: Cursor | None) -> Progress:
        """The progress after a page that ends at an alias; `shown` is the position that the request acknowledged."""
        aliases = [alias for alias in self._kept(shown) if not alias.low == alias.high == cursor]
        if rest is not None:
            aliases.append(Alias(cursor, cursor, *rest))
        return self._replace(seen=max(self.seen, shown), aliases=tuple(aliases[-MAX_ALIASES:]))

    def gone_back(self, shown: int, high_water: int) -> Progress:
        """The progress after a pull from an older cursor: the client counts as new from the end of the log on."""
        life = (int.from_bytes(self.life) + 1).to_bytes(8)
        return self._replace(seen=shown, muted=high_water, life=life)

    def rested(self, since: int, cursor: int) -> Progress:
        """The progress after an empty page that was long to make: the cursor becomes an alias of a later one."""
        kept = [alias for alias in self.aliases if alias.high >= since and not alias.low == alias.high == since]
        return self._replace(seen=cursor, muted=0, aliases=(*kept, Alias(since, since, cursor, 0))[-MAX_ALIASES:])

    def _kept(self, shown: int) -> tuple[Alias, ...]:
        """Without older numbers than the client has shown; a few of them stay, for an answer that got lost."""
        recent = len(self.aliases) - KEPT_ALIASES
        return tuple(alias for place, alias in enumerate(self.aliases) if place >= recent or alias.high >= shown)


def load_aliases(stored: bytes) -> tuple[Alias, ...]:
    """The aliases from their stored form."""
    facts: list[list[Any]] = orjson.loads(stored) if stored else []
    return tuple(_alias(one) for one in facts)


def _alias(facts: list[Any]) -> Alias:
    """Up to schema version 7 the sixth fact was a truth value, and the numbers of pushes could be even."""
    if len(facts) == 6 and isinstance(facts[5], bool):
        low, high, start, skip, mute = facts[:5]
        return Alias(low, high, start, skip, mute, is_old=skip is None)
    return Alias(*facts)


def dump_aliases(aliases: tuple[Alias, ...]) -> bytes:
    """The stored form of aliases."""
    return orjson.dumps(aliases, default=tuple) if aliases else b""
