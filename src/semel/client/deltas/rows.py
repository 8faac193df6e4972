"""A row as this replica shows it: the server's state with unacknowledged own changes on top.

The two are stored separately. The base is the server's state: each entry gives values of columns at a position of the
server's log, and for each column the highest position counts. The server has resolved conflicts, so timestamps do not
matter here, and duplicate, late or reordered entries do no harm. An own change becomes part of the base when its push
is answered, at the position in the answer; the answer also has the rows in which other replicas won.

Unacknowledged own changes are applied on top of the base. If both wrote a column, the later stamp is shown, which is
the server's rule too; if the server decides differently, its value arrives in the base. So replicas that have pushed
and pulled everything are equal.

A stamp is the time of a change, then its author: no two changes of one replica have the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from semel.kernel.json.canonical import parse
from semel.kernel.json.fragment import dump

Op = Literal["INSERT", "UPDATE", "DELETE"]
OPS: tuple[Op, ...] = ("INSERT", "UPDATE", "DELETE")
Columns = dict[str, Any]


class ReplicaStamp(NamedTuple):
    """The time and the author of a change."""

    hlc: int
    client: str


class ReplicaChange(NamedTuple):
    """One change of a row, own or from the server."""

    op: Op
    stamp: ReplicaStamp
    columns: Mapping[str, Any]


class ReplicaCell(NamedTuple):
    """A column of a row; None is a cleared column."""

    value: Any
    stamp: ReplicaStamp
    at: int = 0
    """Position in the server's log; 0 if it is not acknowledged."""
    is_own: bool = False
    """Whether this replica has written the value."""


class Base(NamedTuple):
    """The server's state of a row."""

    is_live: bool
    written: ReplicaStamp | None
    """The last change of a live row that is not a deletion."""
    deleted: ReplicaStamp | None
    """The last deletion; in a live row never later than `written`."""
    cells: Mapping[str, ReplicaCell]
    live_at: int = 0
    """Position at which the row became live or deleted."""
    bare_at: int = 0
    """Position at which the columns were complete."""


NOTHING = Base(False, None, None, {})
UNDATED = ReplicaStamp(0, "")
"""The stamp of columns from a checkpoint, which has none per column: any own change wins over them."""


def told(base: Base, change: ReplicaChange, at: int, *, is_own: bool = False) -> Base:
    """The base after one more entry at a position; `is_own` if it is an acknowledged change of this replica."""
    is_last = at >= base.live_at
    # A DELETE leaves no columns, and an INSERT has all of them; columns with a later position stay.
    is_whole = change.op != "UPDATE"
    cells = {name: cell for name, cell in base.cells.items() if not is_whole or cell.at > at}
    bare_at = max(base.bare_at, at) if is_whole else base.bare_at
    for name, value in change.columns.items() if change.op != "DELETE" else ():
        known = base.cells.get(name)
        if at >= (base.bare_at if known is None else known.at):
            # A whole row has one stamp, although some columns were written later.
            stamp = change.stamp if known is None else later(known.stamp, change.stamp)
            cells[name] = ReplicaCell(value, stamp, at, is_own or _is_kept(known, value))
    is_live = change.op != "DELETE" if is_last else base.is_live
    written, deleted = base.written, base.deleted
    if change.op == "DELETE":
        deleted = later(deleted, change.stamp)
    else:
        written = later(written, change.stamp)
    if not is_live:
        written = None
    elif written is not None and deleted is not None and not is_later(written, deleted):
        deleted = None
    return Base(is_live, written, deleted, cells, max(base.live_at, at), bare_at)


def _is_kept(known: ReplicaCell | None, value: Any) -> bool:
    """Whether a value that the server sends is the own one that is known."""
    return known is not None and known.is_own and dump(known.value) == dump(value)


def whole(columns: Mapping[str, Any], at: int, known: Base = NOTHING) -> Base:
    """A row of a checkpoint; `known` is what it replaces."""
    cells = {
        name: ReplicaCell(value, UNDATED, at, _is_kept(known.cells.get(name), value)) for name, value in columns.items()
    }
    return Base(True, UNDATED, None, cells, at, at)


def settled(base: Base, own: Sequence[ReplicaChange], at: int) -> Base:
    """The base after acknowledged own changes that won, in the order of their stamps.

    An own INSERT may have met an existing row.
    """
    for change in own:
        base = told(base, change._replace(op="UPDATE") if change.op == "INSERT" else change, at, is_own=True)
    return base


def visible(base: Base, own: Sequence[ReplicaChange]) -> Mapping[str, ReplicaCell] | None:
    """The columns of a row, own changes applied to its base, with cleared ones; None if there is no row."""
    if not own:
        return base.cells if base.is_live else None
    written, deleted, cells = base.written, base.deleted, dict(base.cells)
    for change in own:
        if change.op == "DELETE":
            deleted = later(deleted, change.stamp)
            continue
        written = later(written, change.stamp)
        for name, value in change.columns.items():
            known = cells.get(name)
            if known is None or not is_later(known.stamp, change.stamp):
                cells[name] = ReplicaCell(value, change.stamp, is_own=True)
    if written is None or (deleted is not None and not is_later(written, deleted)):
        return None
    return {name: cell for name, cell in cells.items() if deleted is None or is_later(cell.stamp, deleted)}


def shown(base: Base, own: Sequence[ReplicaChange]) -> Columns | None:
    """The values of a row, without cleared columns; None if there is no row."""
    return values(visible(base, own))


def values(cells: Mapping[str, ReplicaCell] | None) -> Columns | None:
    """The values of visible columns, without cleared ones."""
    return None if cells is None else {name: cell.value for name, cell in cells.items() if cell.value is not None}


def is_later(one: ReplicaStamp, other: ReplicaStamp) -> bool:
    """Whether one stamp wins over another: by time, then by the author's name in UTF-16 order."""
    if one.hlc != other.hlc:
        return one.hlc > other.hlc
    return _utf16(one.client) > _utf16(other.client)


def later(one: ReplicaStamp | None, other: ReplicaStamp) -> ReplicaStamp:
    """The stamp that wins."""
    return one if one is not None and is_later(one, other) else other


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def dump_base(base: Base) -> str:
    """The stored form."""
    cells = {name: [cell.value, *cell.stamp, cell.at, cell.is_own] for name, cell in base.cells.items()}
    written, deleted = base.written and list(base.written), base.deleted and list(base.deleted)
    return dump([base.is_live, written, deleted, cells, base.live_at, base.bare_at]).decode()


def load_base(stored: str) -> Base:
    """The base of a stored form."""
    facts: Any = parse(stored.encode())
    is_live, written, deleted, cells, live_at, bare_at = facts
    return Base(
        is_live,
        None if written is None else ReplicaStamp(*written),
        None if deleted is None else ReplicaStamp(*deleted),
        {
            name: ReplicaCell(value, ReplicaStamp(hlc, client), at, is_own)
            for name, (value, hlc, client, at, is_own) in cells.items()
        },
        live_at,
        bare_at,
    )


def _cell(value: Any, hlc: int, client: str, at: int = 0, is_own: bool = False) -> ReplicaCell:
    return ReplicaCell(value, ReplicaStamp(hlc, client), at, is_own)
