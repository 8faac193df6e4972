"""Repairs: what an author is told of a row when its own picture of it may be wrong.

Entries carry what won, so the author of a write that lost would keep its losing value for ever; and an author that has
not been told all of a row yet would apply older entries over its newer write. Both get one entry of their own behind
the push, with the row's full state. Nobody else sees it.
"""

from __future__ import annotations

from collections.abc import Sequence

from semel.contracts.deltas.commands import Push
from semel.contracts.deltas.limits import KEPT_AIDS
from semel.contracts.deltas.model import Delta, Op
from semel.contracts.deltas.rules.cursors import Progress
from semel.contracts.deltas.rules.entries import NO_COLUMNS
from semel.contracts.deltas.rules.log import Log
from semel.contracts.deltas.rules.replicas import load_progress, progress_key, subject_of
from semel.contracts.deltas.rules.rows import Aid, Mark, RowState, last_of_others
from semel.contracts.deltas.tables import DELTA_AUTHOR, DELTA_REPLICA, text_key
from semel.engine.contract import View
from semel.kernel.delta_id import columns_text, plain_column


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
            known[author] = load_progress(view.get(DELTA_REPLICA, progress_key(subject_of(command, author))))
        _mend(view, log, own, state, known[author], is_lost=place in log.lost)


def _mend(view: View, log: Log, own: Sequence[Delta], state: RowState, progress: Progress, *, is_lost: bool) -> None:
    """Add a repair if the author of these deltas needs one."""
    author, told_to = own[-1].client, max(progress.seen, progress.muted)
    known = state.aid_of(author)
    aid = known.above(told_to)
    # One that has begun again is still to be told of its own former life, which no row keeps apart.
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
    if is_forgotten or has_begun_again or log.eye is not None:
        # Nobody knows what its copy will be, or which of the others' entries it will be shown: away with it first.
        position = log.add_repair(own[-1], Op.DELETE, NO_COLUMNS, state)
        turn = Mark(author, position, int(Op.DELETE))
        known = _aided(known, Op.DELETE, position)
    told = _repair(own[-1], state, aid, turn)
    if told is not None:
        known = _aided(known, told[0], log.add_repair(own[-1], *told, state))
    # Of repairs that it has been told is kept where they stand: a client may go back to an older cursor.
    has_inserted = is_behind and _has_inserted(own, aid, may_have=is_forgotten)
    known = known._replace(inserted_at=log.note_insert(author) if has_inserted else 0)
    state.aids = (known, *(one for one in state.aids if one.client != author))[:KEPT_AIDS]


def _is_forgotten(view: View, log: Log, author: str, state: RowState, told_to: int) -> bool:
    """Whether a repair may be on its way that the row no longer remembers, because it had too many authors."""
    if len(state.aids) < KEPT_AIDS or any(aid.client == author for aid in state.aids):
        return False
    row = view.get(DELTA_AUTHOR, (log.gateway.gateway, text_key(author)))
    return row is not None and row.repaired_at > told_to


def _aided(aid: Aid, op: Op, position: int) -> Aid:
    """After one more repair."""
    if op is Op.UPDATE:
        return aid._replace(position=position)
    return aid._replace(position=position, turn=position, op=int(op))


def _repair(delta: Delta, state: RowState, aid: Aid, turn: Mark | None) -> tuple[Op, str] | None:
    """The operation and the columns of a repair; None when the author's copy will be right without one."""
    # What the author has yet to apply comes last, be it of others or an earlier repair; else its own last word stands.
    last = (0, int(delta.op)) if turn is None else (turn.position, turn.op)
    if aid.turn > last[0]:
        last = (aid.turn, aid.op)
    will_be_absent = last[1] == Op.DELETE
    if not state.is_live:
        return None if will_be_absent else (Op.DELETE, NO_COLUMNS)
    return Op.INSERT if will_be_absent else Op.UPDATE, _all_columns(state)


def _has_inserted(own: Sequence[Delta], aid: Aid, *, may_have: bool) -> bool:
    """Whether the author's copy is one that it made itself; of one that was forgotten it must be taken for granted."""
    has = may_have or aid.inserted_at > 0
    for delta in own:
        has = delta.op is Op.INSERT or (has and delta.op is not Op.DELETE)
    return has


def _all_columns(state: RowState) -> str:
    """Every column the row ever had; those that are gone as null."""
    told = [plain_column(name, cell.value) for name, cell in state.cells.items()]
    told += [plain_column(name, "null") for name in state.gone]
    return columns_text(told)
