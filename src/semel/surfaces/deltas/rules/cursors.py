"""The meaning of a cursor for the client that received it.

Clients of this dialect use the answer of every push as their cursor, although they have not received what others wrote
meanwhile. A push with outstanding entries therefore answers with a new number and stores its meaning: continue after
the position that the client has acknowledged, and skip the client's own entries up to this number. Any other cursor is
a plain position.

A pull that names a cursor acknowledges that everything up to it has arrived. A page that was sent and not acknowledged
may have been lost, so it is outstanding, and the number of the next push covers it too. The client may have received it
all the same: up to the number of the push every INSERT is therefore preceded by a DELETE of its row.

| what | is stored | when a crash loses it |
|---|---|---|
| the meaning of a push's number | in the commit of the push | it cannot |
| the meaning of the end of a page that ends early | on disk before the page is sent | it cannot |
| that a client has gone back, as after the loss of its database | on disk before the page is sent | it cannot |
| that a client has acknowledged a page | as a soft change | the page counts as outstanding, and is sent again |

After a crash `seen` may be too low, but never too high: no change is skipped, and a repeated entry does no harm. A
client that pushes between any two of its pulls never acknowledges a page. If its outstanding entries take more than a
page, its pages continue one after the other to the end of the log, and then begin again at `seen`.

`UnsavedCursors` holds the cursors of clients that have pulled and never pushed, in memory. No promise depends on it: a
client that is not in it is sent everything again at its first push, which does no harm. Each process has its own, so it
does not help if a client goes back to an older cursor at another process.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import orjson

from semel.surfaces.deltas.limits import KEPT_ALIASES, MAX_ALIASES
from semel.surfaces.deltas.model import NOWHERE, DeltaCursor, DeltaReplica


class CursorAlias(NamedTuple):
    """Cursor numbers that were given out, and their meaning.

    All pushes since one acknowledgement have the same meaning, so only the first and the last of their numbers are
    stored. Numbers of pushes are odd, and the ends of whole pages are even: an even number between the two is a plain
    position.
    """

    low: int
    high: int
    start: int
    skip: int | None
    """None for the numbers of pushes: each skips the client's own entries up to itself."""
    mute: int = 0
    back: int = NOWHERE
    """The position to continue from after the end of the log."""
    doubt: int = 0
    """As in `DeltaCursor`; a number of a push, and its successors, are in doubt at least up to `skip`."""
    is_old: bool = False
    """Whether it was stored when the numbers of pushes could be even."""

    @property
    def base(self) -> int:
        """The acknowledged position when it was made."""
        return self.start if self.back == NOWHERE else self.back

    def has(self, number: int) -> bool:
        """Whether a number may be one of these."""
        if not self.low <= number <= self.high:
            return False
        return self.skip is not None or self.is_old or number % 2 == 1


class ReplicaProgress(NamedTuple):
    """The progress of a replica."""

    seen: int = 0
    """The acknowledged position, or the number of a push with nothing outstanding."""
    muted: int = 0
    """Repairs up to this position were made for an earlier life of the replica."""
    aliases: tuple[CursorAlias, ...] = ()
    """Oldest first."""
    life: bytes = b""
    """Changes when the client goes back to an older cursor."""

    @property
    def mark(self) -> tuple[int, int, bytes]:
        """Changes with every number that is stored for the replica."""
        return self.seen, self.aliases[-1].high if self.aliases else 0, self.life

    def is_alias(self, number: int) -> bool:
        """Whether a number may be an alias."""
        return any(alias.has(number) for alias in self.aliases)

    def is_end(self, number: int) -> bool:
        """Whether a number is the end of a page and an alias."""
        return any(alias.has(number) for alias in self.aliases if alias.skip is not None)

    def meaning(self, since: int, *, is_entry: bool) -> DeltaCursor:
        """The meaning of a cursor; `is_entry` when it is the position of an entry."""
        for alias in reversed(self.aliases):
            if alias.has(since) and not (alias.skip is None and is_entry):
                skip = since if alias.skip is None else alias.skip
                return DeltaCursor(alias.start, skip, alias.mute, alias.back, max(skip, alias.doubt))
        return DeltaCursor(since)

    def pushed(self, number: int, *, is_behind: bool) -> ReplicaProgress:
        """The progress after a push with this number; `is_behind` if entries of others are outstanding."""
        aliases = self._kept(self.seen)
        if not is_behind:
            return self._replace(seen=number, muted=0, aliases=aliases)
        last = aliases[-1] if aliases else None
        if last is not None and self._goes_on(last):
            return self._replace(aliases=(*aliases[:-1], last._replace(high=number)))
        fresh = CursorAlias(number, number, self.seen, None, self.muted)
        if last is not None and last.skip is not None and last.start > self.seen:
            # An unacknowledged page ended there: continue after it, so that a client that never acknowledges gets the
            # rest.
            fresh = fresh._replace(start=last.start, back=self.seen)
        return self._replace(aliases=(*aliases, fresh)[-MAX_ALIASES:])

    def again(self, *, is_behind: bool, high_water: int) -> int | None:
        """The answer to a push without new deltas, if nothing has to be stored for it; otherwise None."""
        if not is_behind:
            return None if self.is_alias(high_water) else high_water
        last = self.aliases[-1] if self.aliases else None
        if last is not None and self._goes_on(last):
            return last.high
        # The client has pushed nothing since, so after this position there are no entries of its own to skip.
        is_last = all(alias.high <= self.seen for alias in self.aliases if alias.skip is None)
        is_itself = is_last and self.muted <= self.seen and not self.is_alias(self.seen)
        return self.seen if is_itself else None

    def _goes_on(self, last: CursorAlias) -> bool:
        """Whether a push has the same meaning as the last stored number."""
        return last.skip is None and not last.is_old and (last.base, last.mute) == (self.seen, self.muted)

    def noted(self, shown: int, cursor: int, rest: DeltaCursor | None) -> ReplicaProgress:
        """The progress after a page that ends at an alias; `shown` is the position that the request acknowledged."""
        aliases = [alias for alias in self._kept(shown) if not alias.low == alias.high == cursor]
        if rest is not None:
            aliases.append(CursorAlias(cursor, cursor, *rest))
        return self._replace(seen=max(self.seen, shown), aliases=tuple(aliases[-MAX_ALIASES:]))

    def gone_back(self, shown: int, high_water: int) -> ReplicaProgress:
        """The progress after a pull from an older cursor: from the end of the log on, the client counts as new."""
        life = (int.from_bytes(self.life) + 1).to_bytes(8)
        return self._replace(seen=shown, muted=high_water, life=life)

    def rested(self, since: int, cursor: int) -> ReplicaProgress:
        """The progress after an empty page that took long to read: the cursor becomes an alias of a later one."""
        kept = [alias for alias in self.aliases if alias.high >= since and not alias.low == alias.high == since]
        return self._replace(seen=cursor, muted=0, aliases=(*kept, CursorAlias(since, since, cursor, 0))[-MAX_ALIASES:])

    def _kept(self, shown: int) -> tuple[CursorAlias, ...]:
        """The aliases above the acknowledged position, and a few older ones in case an answer was lost."""
        recent = len(self.aliases) - KEPT_ALIASES
        return tuple(alias for place, alias in enumerate(self.aliases) if place >= recent or alias.high >= shown)


def load_aliases(stored: bytes) -> tuple[CursorAlias, ...]:
    """The aliases from their stored form."""
    facts: list[list[Any]] = orjson.loads(stored) if stored else []
    return tuple(_alias(one) for one in facts)


def _alias(facts: list[Any]) -> CursorAlias:
    """One alias. Up to schema version 7 the sixth member was a boolean, and the numbers of pushes could be even."""
    if len(facts) == 6 and isinstance(facts[5], bool):
        low, high, start, skip, mute = facts[:5]
        return CursorAlias(low, high, start, skip, mute, is_old=skip is None)
    return CursorAlias(*facts)


def dump_aliases(aliases: tuple[CursorAlias, ...]) -> bytes:
    """The stored form of aliases."""
    return orjson.dumps(aliases, default=tuple) if aliases else b""


MAX_SHOWN = 65_536
"""Limit on the number of clients in memory; the most recent ones are kept."""


class _Visit(NamedTuple):
    turn: int
    shown: int


class UnsavedCursors:
    """Cursors by client, in memory; used on the event loop only."""

    def __init__(self, most: int = MAX_SHOWN) -> None:
        self._most = most
        self._turns = 0
        self._visits: OrderedDict[DeltaReplica, _Visit] = OrderedDict()

    def begin(self, replica: DeltaReplica) -> int:
        """Start a pull of a client; its cursor is unknown until `note`. Returns the number of the pull."""
        self._turns += 1
        self._visits[replica] = _Visit(self._turns, 0)
        self._visits.move_to_end(replica)
        if len(self._visits) > self._most:
            self._visits.popitem(last=False)
        return self._turns

    def note(self, replica: DeltaReplica, turn: int, shown: int) -> None:
        """Store the cursor that a client without stored progress has acknowledged, if this is still its last pull."""
        if self.turn(replica) == turn:
            self._visits[replica] = _Visit(turn, shown)

    def turn(self, replica: DeltaReplica) -> int:
        """The number of a client's last pull; 0 if it is unknown."""
        visit = self._visits.get(replica)
        return 0 if visit is None else visit.turn

    def of(self, replica: DeltaReplica) -> int:
        """The acknowledged position of a client; 0 if it is unknown."""
        visit = self._visits.get(replica)
        return 0 if visit is None else visit.shown
