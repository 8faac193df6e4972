"""Repairs: entries that correct the copy of an author whose own change of a row may have lost.

Entries carry what won, so the author of a write that lost would keep its losing value for ever; and an author that has
not been told all of a row yet would apply older entries over its newer write. Both get one entry of their own behind
the push, which no other client sees.

It tells the columns that may differ for the author: those that the author wrote to, for others' older entries may yet
come over them. Where its copy of the row may lack any other column, because it has made the row itself or taken it
away, all columns are told. A repair that the author has not shown is replaced by the next one of the same row, which
tells what the former one told: there is one repair a row and author at most that is still to come. The former one may
have been sent, and so be applied before the author's new write, behind it, or never. Where it made the row or took it
away, or the row is gone now, the new one takes the row away first.
"""

from __future__ import annotations

from collections.abc import Sequence

from semel.contracts.deltas.commands import Push
from semel.contracts.deltas.limits import KEPT_AIDS, REPAIRED_COLUMNS
from semel.contracts.deltas.model import Delta, Op
from semel.contracts.deltas.rules.cursors import Progress
from semel.contracts.deltas.rules.entries import NO_COLUMNS
from semel.contracts.deltas.rules.log import Log
from semel.contracts.deltas.rules.replicas import progress_of, subject_of
from semel.contracts.deltas.rules.rows import Aid, Mark, RowState, last_of_others
from semel.contracts.deltas.tables import DELTA_AUTHOR, text_key
from semel.engine.contract import View
from semel.kernel.delta_id import columns_bytes, plain_column_bytes


def repair_all(view: View, command: Push, log: Log, pushed: Sequence[tuple[Delta, RowState]]) -> None:
    """One repair for each author and row that needs one, by the last delta of that author on the row."""
    deltas: dict[tuple[str, str, str], list[Delta]] = {}
    states: dict[tuple[str, str, str], RowState] = {}
    for delta, state in pushed:
        place = (delta.client, delta.table, delta.row)
        deltas.setdefault(place, []).append(delta)
        states[place] = state
    known: dict[str, Progress] = {}
    for place, own in deltas.items():
        author, state = place[0], states[place]
        if author not in known:
            known[author] = progress_of(view, command, subject_of(command, author))
        _mend(view, log, own, state, known[author], is_lost=place in log.lost)


def _mend(view: View, log: Log, own: Sequence[Delta], state: RowState, progress: Progress, *, is_lost: bool) -> None:
    """Add a repair if the author of these deltas needs one."""
    author, told_to = own[-1].client, max(progress.seen, progress.muted)
    known = state.aid_of(author)
    aid = known.above(told_to)
    # A client that has begun again still has to get the entries of its former life, which no row keeps apart.
    has_begun_again = progress.muted > progress.seen and not state.is_new
    is_forgotten = _is_forgotten(view, log, author, state, told_to)
    is_behind = (
        is_forgotten
        or has_begun_again
        or aid.position > 0
        or last_of_others(state.entries, author, progress.seen) is not None
    )
    if not is_behind and not is_lost:
        return
    turn = last_of_others(state.turns, author, progress.seen)
    columns = _columns(own, aid)
    is_replaced = aid.position > 0 and known.first > 0
    if is_replaced:
        log.dropped += {position for position in (known.first, known.position) if position > told_to}
        known = known._replace(position=0, turn=0, op=0)
    elif aid.turn > (0 if turn is None else turn.position):  # made by an earlier version, which did not note its first
        turn = Mark(author, aid.turn, aid.op)
    known = known._replace(first=0)
    # What is replaced may have been sent: it comes before this author's write, behind it, or never.
    may_turn = is_replaced and (aid.turn > 0 or not state.is_live)
    if is_forgotten or has_begun_again or log.eye is not None or may_turn:
        # It is unknown what its copy will be, or which of the others' entries it will be shown: delete it first.
        position = log.add_repair(own[-1], Op.DELETE, NO_COLUMNS, state)
        turn = Mark(author, position, int(Op.DELETE))
        known = _aided(known, Op.DELETE, position, None)
    told = _repair(own[-1], state, turn)
    if told is not None:
        columns = columns if told is Op.UPDATE else None
        text = NO_COLUMNS if told is Op.DELETE else _told_columns(state, columns)
        known = _aided(known, told, log.add_repair(own[-1], told, text, state), columns)
    # The positions of delivered repairs are kept: a client may go back to an older cursor.
    has_inserted = is_behind and _has_inserted(own, aid, may_have=is_forgotten)
    known = known._replace(inserted_at=log.note_insert(author) if has_inserted else 0)
    state.aids = (known, *(one for one in state.aids if one.client != author))[:KEPT_AIDS]


def _is_forgotten(view: View, log: Log, author: str, state: RowState, told_to: int) -> bool:
    """Whether a repair may be on its way that the row no longer remembers, because it had too many authors."""
    if len(state.aids) < KEPT_AIDS or any(aid.client == author for aid in state.aids):
        return False
    row = view.get(DELTA_AUTHOR, (log.gateway.gateway, text_key(author)))
    return row is not None and row.repaired_at > told_to


def _aided(aid: Aid, op: Op, position: int, columns: tuple[str, ...] | None) -> Aid:
    """After one more repair, or the second entry of one."""
    aid = aid._replace(position=position, first=aid.first or position, columns=columns)
    return aid if op is Op.UPDATE else aid._replace(turn=position, op=int(op))


def _columns(own: Sequence[Delta], aid: Aid) -> tuple[str, ...] | None:
    """The columns of a row that may differ for its author; None for all of them."""
    if any(delta.op is not Op.UPDATE for delta in own) or (aid.position and aid.columns is None):
        return None
    before = aid.columns if aid.position and aid.columns is not None else ()
    names = dict.fromkeys((*before, *(column.name for delta in own for column in delta.columns)))
    return tuple(names) if len(names) <= REPAIRED_COLUMNS else None


def _repair(delta: Delta, state: RowState, turn: Mark | None) -> Op | None:
    """The operation of a repair; None when the author's copy will be right without one."""
    # Others' entries that the author has not applied yet win; else its own last write.
    will_be_absent = (int(delta.op) if turn is None else turn.op) == Op.DELETE
    if not state.is_live:
        return None if will_be_absent else Op.DELETE
    return Op.INSERT if will_be_absent else Op.UPDATE


def _has_inserted(own: Sequence[Delta], aid: Aid, *, may_have: bool) -> bool:
    """Whether the author's copy is one that it made itself; of one that was forgotten it must be taken for granted."""
    has = may_have or aid.inserted_at > 0
    for delta in own:
        has = delta.op is Op.INSERT or (has and delta.op is not Op.DELETE)
    return has


def _told_columns(state: RowState, names: tuple[str, ...] | None) -> bytes:
    """These columns of a row, or every one it ever had; those that are gone as null."""
    wanted = (*state.cells, *state.gone) if names is None else names
    texts = ((name, state.cells[name].value if name in state.cells else "null") for name in wanted)
    return columns_bytes(plain_column_bytes(name, value) for name, value in texts)
