"""What deltas promise, written down in the plainest way: a list of deltas, a list of entries, and looking through them.

| question | is answered by |
|---|---|
| is a delta known? | looking through all deltas |
| what is a row? | folding all its deltas, in the order of their stamps |
| what has not been given to a client? | looking through all entries behind what it was last told |
| what does a cursor mean? | looking through all that was ever said about cursors |
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from semel.surfaces.deltas.model import Delta, DeltaColumn, DeltaEntry, DeltaOp, DeltaReplica
from tests.deltas.model.fold import Folded, fold, stamp_of

DRIFT_MS = 5_000
CLOCK_DRIFT, SCHEMA_ERROR, VALIDATION_ERROR = "CLOCK_DRIFT", "SCHEMA_ERROR", "VALIDATION_ERROR"


Place = tuple[str, str, str]
"""A row as one client has it: client, table, row."""


class Refused(NamedTuple):
    """Nothing was done, and these deltas of the push are why."""

    code: str
    indexes: tuple[int, ...]


class Pushed(NamedTuple):
    """What a push is answered."""

    server_hlc: int
    accepted: int
    duplicates: int
    entries: tuple[DeltaEntry, ...]
    first: int = 0
    """Told in the plain dialect alone."""
    known: tuple[bytes, ...] = ()
    """The ids of the deltas that were known before the push."""


class Meaning(NamedTuple):
    """What a cursor stands for: go on behind `start`, without own entries up to `skip`.

    Who has begun again is told anew what was there then, up to `mute`: its own entries, and no repairs. Up to `doubt` a
    row that is made may be there already. At the end it goes on behind `back`, if there is such a place.
    """

    start: int
    skip: int = 0
    mute: int = 0
    doubt: int = 0
    back: int | None = None

    @property
    def shown(self) -> int:
        """What the client has for certain that asks from there."""
        return self.start if self.back is None else self.back


class Page(NamedTuple):
    """What a pull is answered."""

    entries: tuple[DeltaEntry, ...]
    cursor: int
    has_more: bool
    rest: Meaning | None = None
    """What the cursor stands for, when it is not itself."""
    shown: int = 0
    """What the client has for certain that asked for it."""
    begun_at: int | None = None
    """The end of the log, when the client has gone back to an older cursor."""


class Item(NamedTuple):
    """An entry of the log, for everyone or for one client."""

    entry: DeltaEntry
    addressee: str | None = None

    def is_news_for(self, client: str, told: Told) -> bool:
        """Whether a client is still to hear of it, and does not know of it by itself."""
        position = self.entry.position
        if self.addressee is None:
            return position > told.seen and (self.entry.client != client or position <= told.mute)
        return self.addressee == client and position > max(told.seen, told.mute)

    def is_visible(self, client: str, meaning: Meaning) -> bool:
        """Whether a client that asks from there is told of it."""
        position = self.entry.position
        if position <= meaning.start:
            return False
        if self.addressee is not None:
            return self.addressee == client and position > meaning.mute
        return self.entry.client != client or not meaning.mute < position <= meaning.skip


class Logged(NamedTuple):
    """A delta, where it stands, and what was made of it."""

    position: int
    delta: Delta
    entry: DeltaEntry | None
    has_lost: bool
    """Whether any part of it had no effect when it came."""


@dataclass(slots=True)
class Told:
    """What one replica was given."""

    seen: int = 0
    """What it has shown."""
    mute: int = 0
    aliases: dict[int, Meaning] = field(default_factory=dict)
    """Every cursor that did not mean itself, ever."""
    is_known: bool = False
    """Whether it has pushed, or anything else was remembered of it."""

    @property
    def last_push(self) -> Meaning | None:
        """What the last push stood for, if that was more than itself and is the last thing that was remembered."""
        for number, meaning in reversed(self.aliases.items()):
            is_same = (meaning.shown, meaning.mute) == (self.seen, self.mute)
            return meaning if meaning.skip == number and is_same else None
        return None

    @property
    def last_page(self) -> Meaning | None:
        """What the end of a page stands for, if it is the last thing that was remembered, and was not shown."""
        for number, meaning in reversed(self.aliases.items()):
            return meaning if meaning.skip != number and meaning.start > self.seen else None
        return None


class Gateway:
    """One gateway."""

    def __init__(self, max_columns: int = 1_000) -> None:
        self._max_columns = max_columns
        self.high_water = 0
        self.log: list[Logged] = []
        self.items: list[Item] = []
        self.schemas: dict[str, set[str]] = {}
        self.told: dict[DeltaReplica, Told] = {}
        self.made: dict[Place, int] = {}
        """Where the log ended when a client was known to have made a row itself, not knowing of another's."""
        self.mended: dict[Place, set[str] | None] = {}
        """The columns that the last repair of a row for a client tells; None for all of them."""
        self.repaired: dict[str, int] = {}
        """Where the last repair for a client was put."""

    # -- Pushing ------------------------------------------------------------------------------------------------------

    def push(
        self, replica: DeltaReplica, deltas: Sequence[Delta], physical_ms: int, *, is_named: bool = True
    ) -> Pushed | Refused:
        """All of them, or none."""
        fresh: dict[int, Delta] = {}
        for index, delta in enumerate(deltas):
            if not self._is_known(delta) and all(other.id != delta.id for other in fresh.values()):
                fresh[index] = delta
        refused = self._refuse(fresh, physical_ms)
        if refused is not None:
            return refused
        known = tuple(delta.id for delta in deltas if self._is_known(delta))
        again = None if fresh else self._again(replica, deltas)
        if again is not None:
            return Pushed(again, len(deltas), len(deltas), (), known=known)
        before = len(self.log)
        entries = [entry for delta in fresh.values() if (entry := self._commit(delta)) is not None]
        self._repair(replica, self.log[before:], is_named=is_named)
        answer = self._answer(replica, physical_ms)
        return Pushed(answer, len(deltas), len(deltas) - len(fresh), tuple(entries), known=known)

    def _again(self, replica: DeltaReplica, deltas: Sequence[Delta]) -> int | None:
        """What a push of nothing new answers, if there is a number already that stands for the right thing."""
        told = self.told.get(replica, Told())
        if not told.is_known:
            return None
        is_behind = self.outstanding(replica) or told.mute > told.seen or self._is_repaired(replica, told)
        number = None
        if not is_behind:
            number = self.high_water
        elif told.last_push is not None:
            number = told.last_push.skip
        elif told.mute <= told.seen and told.seen not in told.aliases:
            has_pushed_since = any(one > told.seen and meaning.skip == one for one, meaning in told.aliases.items())
            number = None if has_pushed_since else told.seen
        return None if number is None or any(delta.hlc >= number for delta in deltas) else number

    def _refuse(self, fresh: dict[int, Delta], physical_ms: int) -> Refused | None:
        strange = [index for index, delta in fresh.items() if self._has_strange_column(delta)]
        if strange:
            return Refused(SCHEMA_ERROR, tuple(strange))
        ahead = [index for index, delta in fresh.items() if (delta.hlc >> 16) - physical_ms > DRIFT_MS]
        if ahead:
            return Refused(CLOCK_DRIFT, tuple(ahead))
        wide = [index for index, delta in fresh.items() if self._is_too_wide(delta, fresh.values())]
        return Refused(VALIDATION_ERROR, tuple(wide)) if wide else None

    def _is_too_wide(self, delta: Delta, fresh: Iterable[Delta]) -> bool:
        """Whether it is one of those that give their row more columns than it may have."""
        here = [other for other in fresh if (other.table, other.row) == (delta.table, delta.row)]
        columns = fold([*self.deltas_of(delta.table, delta.row), *here]).columns
        return delta.op is not DeltaOp.DELETE and len(columns) > self._max_columns

    def _is_known(self, delta: Delta) -> bool:
        return any(logged.delta.id == delta.id for logged in self.log)

    def _has_strange_column(self, delta: Delta) -> bool:
        columns = self.schemas.get(delta.table)
        return columns is not None and not columns.issuperset(column.name for column in delta.columns)

    def _commit(self, delta: Delta) -> DeltaEntry | None:
        """The next position, and the entry if there is one."""
        others = self.deltas_of(delta.table, delta.row)
        before, after = fold(others), fold([*others, delta])
        position = self.high_water = max(delta.hlc, self.high_water + 1)
        made = _effect(delta, before, after)
        entry = None
        if made is not None:
            op, columns = made
            text = f"[{','.join(columns)}]".encode()
            is_resolved = text != delta.columns_text or (delta.op is DeltaOp.DELETE and op is DeltaOp.UPDATE)
            entry = DeltaEntry(
                position, op, delta.table, delta.row, delta.client, delta.hlc, delta.id, text, is_resolved
            )
            self.items.append(Item(entry))
        self.log.append(Logged(position, delta, entry, _has_lost(delta, after)))
        return entry

    def _answer(self, replica: DeltaReplica, physical_ms: int) -> int:
        """A fresh tick, which is what the client will ask from: odd when it stands for more than itself.

        A page that was sent and not shown is outstanding. Where one of those has ended early, the client is told on
        behind it first, and then from what it has shown.
        """
        told = self.told.setdefault(replica, Told())
        told.is_known = True
        if not self.outstanding(replica) and told.mute <= told.seen and not self._is_repaired(replica, told):
            told.seen, told.mute = self._tick(physical_ms, 0), 0
            return told.seen
        number = self._tick(physical_ms, 1)
        self.high_water += 1
        same, page = told.last_push, told.last_page
        meaning = Meaning(told.seen, number, told.mute, number)
        if same is not None:
            meaning = same._replace(skip=number, doubt=number)
        elif page is not None:
            meaning = meaning._replace(start=page.start, back=told.seen)
        told.aliases[number] = meaning
        return number

    def _is_repaired(self, replica: DeltaReplica, told: Told) -> bool:
        """Whether there ever was a repair for it behind what it has shown; another one may stand for it now."""
        return self.repaired.get(replica.client, 0) > told.seen

    def _tick(self, physical_ms: int, odd: int) -> int:
        """The next number; odd or even."""
        self.high_water = max(self.high_water + 1, physical_ms << 16)
        self.high_water += self.high_water % 2 != odd
        return self.high_water

    def outstanding(self, replica: DeltaReplica) -> list[Item]:
        """What a replica has not been given, and does not know of by itself."""
        told = self.told.get(replica, Told())
        return [item for item in self.items if item.is_news_for(replica.client, told)]

    # -- Repairs ------------------------------------------------------------------------------------------------------

    def _repair(self, replica: DeltaReplica, pushed: Sequence[Logged], *, is_named: bool) -> None:
        """One for each author and row of the push that needs it, when all its deltas are in the log."""
        groups: dict[Place, list[Logged]] = {}
        for one in pushed:
            groups.setdefault((one.delta.client, one.delta.table, one.delta.row), []).append(one)
        for place, deltas in groups.items():
            here = [one for one in pushed if (one.delta.table, one.delta.row) == place[1:]]
            is_new = len(self.deltas_of(*place[1:])) == len(here)
            author = replica_of(replica, place[0], is_named=is_named)
            told = self.told.get(author, Told())
            if author != replica and not told.is_known:
                told = Told()  # what it has shown is held for its own pushes alone
            self._repair_row(told, place, deltas, is_new=is_new)

    def _repair_row(self, told: Told, place: Place, pushed: Sequence[Logged], *, is_new: bool) -> None:
        news = [item for item in self.items if item.is_news_for(place[0], told)]
        here = [item for item in news if (item.entry.table, item.entry.row) == place[1:]]
        others = [item.entry for item in here if item.addressee is None]
        has_begun_again = told.mute > told.seen and not is_new
        if not here and not any(one.has_lost for one in pushed) and not has_begun_again:
            return
        pending = [item for item in here if item.addressee is not None]
        self._replace_repair(place, pending, pushed)
        last = pushed[-1].delta
        # One that was sent may come behind this write, before it or never: then nobody knows whether there is a row.
        is_live = fold(self.deltas_of(*place[1:])).is_live
        may_turn = bool(pending) and (not is_live or any(item.entry.op is not DeltaOp.UPDATE for item in pending))
        if has_begun_again or may_turn:  # or it has yet to hear of its own former life: away with the row
            others.append(self._address(_entry(last, DeltaOp.DELETE)))
            self.mended[place] = None
        entry = self._repair_of(last, others)
        if entry is not None:
            self._address(entry)
        is_own_make = self.made.pop(place, 0) > max(told.seen, told.mute)
        for one in pushed:
            is_own_make = one.delta.op is DeltaOp.INSERT or (is_own_make and one.delta.op is not DeltaOp.DELETE)
        if is_own_make and (here or has_begun_again):
            self.made[place] = self.high_water

    def _replace_repair(self, place: Place, pending: Sequence[Item], pushed: Sequence[Logged]) -> None:
        """One that is still to come makes room; what it was to tell is told by the next, with what was written now."""
        self.items = [item for item in self.items if item not in pending]
        before = self.mended.get(place) if pending else set()
        is_update = all(one.delta.op is DeltaOp.UPDATE for one in pushed)
        names = {column.name for one in pushed for column in one.delta.columns}
        self.mended[place] = before | names if before is not None and is_update else None

    def _repair_of(self, last: Delta, others: Sequence[DeltaEntry]) -> DeltaEntry | None:
        """What an author is told about a row that it has written to; None if its copy is right by itself.

        `others` are the entries on the row that it has not been told of, and `last` is its own last word.
        """
        place = last.table, last.row
        state = fold(self.deltas_of(*place))
        decisive = [entry.op for entry in others if entry.op is not DeltaOp.UPDATE]
        will_be_absent = (decisive[-1] if decisive else last.op) is DeltaOp.DELETE
        if not state.is_live and will_be_absent:
            return None
        if not state.is_live:
            self.mended[last.client, *place] = None
            return _entry(last, DeltaOp.DELETE)
        mended = self.mended[last.client, *place]
        if will_be_absent:
            mended = self.mended[last.client, *place] = None
        names = state.known if mended is None else mended
        columns = [_column(name, state.columns.get(name, "null")) for name in sorted(names)]
        return _entry(last, DeltaOp.INSERT if will_be_absent else DeltaOp.UPDATE, columns)

    def _address(self, entry: DeltaEntry) -> DeltaEntry:
        """Put an entry in the log for the author of its delta alone."""
        self.high_water += 1
        self.high_water += self.high_water % 2
        placed = entry._replace(position=self.high_water)
        self.items.append(Item(placed, entry.client))
        self.repaired[entry.client] = self.high_water
        return placed

    # -- Pulling ------------------------------------------------------------------------------------------------------

    def pull(self, replica: DeltaReplica, since: int, limit: int) -> Page:
        """One page; whoever is given it is told of by `give`."""
        told = self.told.get(replica, Told())
        meaning = told.aliases.get(since, Meaning(since)) if since else Meaning(0, mute=self.high_water)
        page = self._page(replica, meaning, limit)
        if not page.entries and meaning.back is not None:
            page = self._page(replica, meaning._replace(start=meaning.back, back=None), limit)
        has_gone_back = meaning.shown < told.seen or (since == 0 and bool(told.aliases))
        begun_at = self.high_water if told.is_known and has_gone_back else None
        rest = page.rest
        if not told.is_known and self.repaired.get(replica.client, 0) <= page.cursor:
            rest = None  # it has no past
        return page._replace(rest=rest, shown=meaning.shown, begun_at=begun_at)

    def _page(self, replica: DeltaReplica, meaning: Meaning, limit: int) -> Page:
        visible = [item for item in self.items if item.is_visible(replica.client, meaning)]
        page: list[DeltaEntry] = []
        for item in visible:
            told_of = self._told_of(item, replica.client, meaning)
            if page and len(page) + len(told_of) > limit:
                break
            page += told_of
        else:
            if meaning.back is None or not page:
                return Page(tuple(page), self.high_water, False)
            cursor = page[-1].position
            doubt = max(meaning.doubt, cursor)
            return Page(tuple(page), cursor, True, Meaning(meaning.back, meaning.skip, meaning.mute, doubt))
        cursor = page[-1].position
        if meaning.back is not None:
            return Page(tuple(page), cursor, True, meaning._replace(start=cursor))
        rest = Meaning(cursor, *(bound if bound > cursor else 0 for bound in meaning[1:4]))
        return Page(tuple(page), cursor, True, rest if rest != Meaning(cursor) else None)

    def _told_of(self, item: Item, client: str, meaning: Meaning) -> list[DeltaEntry]:
        """An entry; before one that makes a row which the client may have, one that takes it away.

        It has it if it has made the row itself meanwhile, and it may have it if it was told of it and has not shown it.
        """
        entry = item.entry
        if entry.op is DeltaOp.INSERT and entry.position <= meaning.doubt:
            return [entry._replace(op=DeltaOp.DELETE, columns=b"[]", is_resolved=True), entry]
        made_at = self.made.get((client, entry.table, entry.row), 0)
        is_own = item.addressee is None and entry.client == client and entry.position > meaning.mute
        if entry.op is not DeltaOp.INSERT or is_own or made_at <= max(entry.position, meaning.mute):
            return [entry]
        return [entry._replace(op=DeltaOp.DELETE, columns=b"[]", is_resolved=True), entry]

    def give(self, replica: DeltaReplica, page: Page) -> int:
        """The cursor with which a page leaves; from now on what was asked behind counts as shown."""
        told = self.told.setdefault(replica, Told())
        is_end = page.cursor in told.aliases and told.aliases[page.cursor].skip != page.cursor
        is_noted = bool(page.entries) and (page.rest is not None or page.begun_at is not None or is_end)
        if page.begun_at is not None:
            if not page.entries:
                return page.cursor
            told.seen, told.mute = page.shown, page.begun_at
        # Of one that is not known, only what it showed last is.
        told.seen = max(told.seen, page.shown) if told.is_known else page.shown
        if is_noted:
            told.is_known = True
            told.aliases.pop(page.cursor, None)
            if page.rest is not None:
                told.aliases[page.cursor] = page.rest
        return page.cursor

    # -- Looking ------------------------------------------------------------------------------------------------------

    def deltas_of(self, table: str, row: str) -> list[Delta]:
        """All of a row, in the order in which they came."""
        return [one.delta for one in self.log if (one.delta.table, one.delta.row) == (table, row)]

    def rows(self) -> dict[tuple[str, str], Folded]:
        """Every row that anybody has ever written to."""
        names = {(one.delta.table, one.delta.row) for one in self.log}
        return {name: fold(self.deltas_of(*name)) for name in sorted(names)}


def replica_of(replica: DeltaReplica, author: str, *, is_named: bool) -> DeltaReplica:
    """As whom an author pulls whose deltas somebody else has pushed."""
    if author == replica.client:
        return replica
    subject: str = json.loads(author) if is_named else replica.subject
    return DeltaReplica(replica.gateway, author, subject)


def _has_lost(delta: Delta, after: Folded) -> bool:
    """Whether the row is otherwise than this delta alone would have it."""
    if delta.op is DeltaOp.DELETE:
        return after.is_live
    stamp = stamp_of(delta)
    if after.tombstone is not None and after.tombstone > stamp:
        return True
    return any(after.writers[column.name] != stamp for column in delta.columns)


def _effect(delta: Delta, before: Folded, after: Folded) -> tuple[DeltaOp, list[str]] | None:
    """What is delivered of a delta that leads from one state to the other."""
    if not after.is_live:
        if before.is_live:
            return DeltaOp.DELETE, []
        is_later = before.tombstone is None or stamp_of(delta) > before.tombstone
        return (DeltaOp.DELETE, []) if delta.op is DeltaOp.DELETE and is_later else None
    if not before.is_live:
        was_deleted = before.tombstone is not None
        return DeltaOp.INSERT if delta.op is DeltaOp.INSERT or was_deleted else DeltaOp.UPDATE, _texts(delta.columns)
    won = [column for column in delta.columns if after.writers.get(column.name) == stamp_of(delta)]
    gone = sorted(before.columns.keys() - after.columns.keys())
    columns = _texts(won) + [_column(name, "null") for name in gone]
    return (DeltaOp.UPDATE, columns) if columns else None


def _entry(delta: Delta, op: DeltaOp, columns: Sequence[str] = ()) -> DeltaEntry:
    """An entry that was put together by the server, without its position."""
    text = f"[{','.join(columns)}]".encode()
    return DeltaEntry(0, op, delta.table, delta.row, delta.client, delta.hlc, delta.id, text, is_resolved=True)


def _texts(columns: Iterable[DeltaColumn]) -> list[str]:
    """As they were sent; a value that was left out is null."""
    return [(column.has_value and column.text) or _column(column.name, column.value) for column in columns]


def _column(name: str, value: str) -> str:
    return f'{{"column":"{name}","value":{value}}}'
