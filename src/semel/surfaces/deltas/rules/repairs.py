"""Repairs: entries for an author whose own copy of a row may be wrong.

Entries carry the winning values, so the author of a write that lost would keep its losing value forever; and an author
that has not received all of a row yet would apply older entries over its newer write. Both get one entry after the
push, which no other client sees.

A repair carries the columns that the author wrote, because older entries of others may still overwrite them in the
author's copy. If the author has inserted or deleted the row itself, its copy may lack other columns too, and the repair
carries all columns. A repair that the author has not acknowledged is replaced by the next one of the same row, which
repeats its columns: for each row and author at most one repair is outstanding. The earlier one may have been sent, and
so may be applied before the author's new write, after it, or never. If the earlier one inserted or deleted the row, or
the row is deleted now, the new one deletes the row first.
"""

from __future__ import annotations

from collections.abc import Sequence

from semel.engine.contract import View
from semel.kernel.hashes import columns_bytes, plain_column_bytes
from semel.surfaces.deltas.commands import PushDeltas
from semel.surfaces.deltas.limits import KEPT_AIDS, REPAIRED_COLUMNS
from semel.surfaces.deltas.model import Delta, DeltaOp
from semel.surfaces.deltas.rules.cursors import ReplicaProgress
from semel.surfaces.deltas.rules.last_writer_wins import AuthorMark, RepairHint, RowState, last_of_others
from semel.surfaces.deltas.rules.log import GatewayLog
from semel.surfaces.deltas.rules.replicas import progress_of, subject_of
from semel.surfaces.deltas.rules.visibility import NO_COLUMNS
from semel.surfaces.deltas.tables import DELTA_AUTHOR, text_key


def repair_all(view: View, command: PushDeltas, log: GatewayLog, pushed: Sequence[tuple[Delta, RowState]]) -> None:
    """One repair for each author and row that needs one, by the last delta of that author on the row."""
    deltas: dict[tuple[str, str, str], list[Delta]] = {}
    states: dict[tuple[str, str, str], RowState] = {}
    for delta, state in pushed:
        place = (delta.client, delta.table, delta.row)
        deltas.setdefault(place, []).append(delta)
        states[place] = state
    known: dict[str, ReplicaProgress] = {}
    for place, own in deltas.items():
        author, state = place[0], states[place]
        if author not in known:
            known[author] = progress_of(view, command, subject_of(command, author))
        _mend(view, log, own, state, known[author], is_lost=place in log.lost)


def _mend(
    view: View, log: GatewayLog, own: Sequence[Delta], state: RowState, progress: ReplicaProgress, *, is_lost: bool
) -> None:
    """Add a repair if the author of these deltas needs one."""
    author, told_to = own[-1].client, max(progress.seen, progress.muted)
    known = state.aid_of(author)
    aid = known.above(told_to)
    # A client that has begun again still has to get its earlier entries, which the row does not distinguish.
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
    elif aid.turn > (0 if turn is None else turn.position):  # made by an earlier version, which did not store `first`
        turn = AuthorMark(author, aid.turn, aid.op)
    known = known._replace(first=0)
    # The replaced repair may have been sent: it is applied before this author's write, after it, or never.
    may_turn = is_replaced and (aid.turn > 0 or not state.is_live)
    if is_forgotten or has_begun_again or log.recorder is not None or may_turn:
        # The author's copy, or the entries that it will be shown, are unknown: delete the row first.
        position = log.add_repair(own[-1], DeltaOp.DELETE, NO_COLUMNS, state)
        turn = AuthorMark(author, position, int(DeltaOp.DELETE))
        known = _aided(known, DeltaOp.DELETE, position, None)
    told = _repair(own[-1], state, turn)
    if told is not None:
        columns = columns if told is DeltaOp.UPDATE else None
        text = NO_COLUMNS if told is DeltaOp.DELETE else _told_columns(state, columns)
        known = _aided(known, told, log.add_repair(own[-1], told, text, state), columns)
    # Keep the positions of delivered repairs, because a client may go back to an older cursor.
    has_inserted = is_behind and _has_inserted(own, aid, may_have=is_forgotten)
    known = known._replace(inserted_at=log.note_insert(author) if has_inserted else 0)
    state.aids = (known, *(one for one in state.aids if one.client != author))[:KEPT_AIDS]


def _is_forgotten(view: View, log: GatewayLog, author: str, state: RowState, told_to: int) -> bool:
    """Whether a repair may be outstanding that the row no longer stores, because it had too many authors."""
    if len(state.aids) < KEPT_AIDS or any(aid.client == author for aid in state.aids):
        return False
    row = view.get(DELTA_AUTHOR, (log.gateway.gateway, text_key(author)))
    return row is not None and row.repaired_at > told_to


def _aided(aid: RepairHint, op: DeltaOp, position: int, columns: tuple[str, ...] | None) -> RepairHint:
    """The hint after one more repair, or after the second entry of one."""
    aid = aid._replace(position=position, first=aid.first or position, columns=columns)
    return aid if op is DeltaOp.UPDATE else aid._replace(turn=position, op=int(op))


def _columns(own: Sequence[Delta], aid: RepairHint) -> tuple[str, ...] | None:
    """The columns of a row that may differ for its author; None for all of them."""
    if any(delta.op is not DeltaOp.UPDATE for delta in own) or (aid.position and aid.columns is None):
        return None
    before = aid.columns if aid.position and aid.columns is not None else ()
    names = dict.fromkeys((*before, *(column.name for delta in own for column in delta.columns)))
    return tuple(names) if len(names) <= REPAIRED_COLUMNS else None


def _repair(delta: Delta, state: RowState, turn: AuthorMark | None) -> DeltaOp | None:
    """The operation of a repair; None if the author's copy will be correct without one."""
    # Entries of others that the author has not applied yet win; otherwise its own last write.
    will_be_absent = (int(delta.op) if turn is None else turn.op) == DeltaOp.DELETE
    if not state.is_live:
        return None if will_be_absent else DeltaOp.DELETE
    return DeltaOp.INSERT if will_be_absent else DeltaOp.UPDATE


def _has_inserted(own: Sequence[Delta], aid: RepairHint, *, may_have: bool) -> bool:
    """Whether the author has inserted its copy itself; assumed if the row no longer stores it."""
    has = may_have or aid.inserted_at > 0
    for delta in own:
        has = delta.op is DeltaOp.INSERT or (has and delta.op is not DeltaOp.DELETE)
    return has


def _told_columns(state: RowState, names: tuple[str, ...] | None) -> bytes:
    """These columns of a row, or every column that it ever had; removed ones as null."""
    wanted = (*state.cells, *state.gone) if names is None else names
    texts = ((name, state.cells[name].value if name in state.cells else "null") for name in wanted)
    return columns_bytes(plain_column_bytes(name, value) for name, value in texts)
