"""A row as this replica sees it: the server's state, with unacknowledged own changes on top.

Two pictures are kept apart. The base is the server's: each entry says that some columns of a row are so as of a
position in the server's log, and for each column the highest position counts. The server has resolved conflicts
already, so dates decide nothing here, and what is told twice, late or out of order does no harm. An own change becomes
part of the base when its push is answered, as of the position that the answer tells; where others had won, the answer
says so.

Own changes that are not answered are laid over the base. Where both wrote a column the later stamp is shown, which is
what the server will decide too; should it decide otherwise, its word arrives in the base and stays. So replicas that
have pushed and pulled everything are equal, whatever was guessed on the way.

A stamp is the time of a change and then its author: within one replica no two changes have the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from semel.kernel.canonical import parse
from semel.kernel.json_print import dump

Op = Literal["INSERT", "UPDATE", "DELETE"]
OPS: tuple[Op, ...] = ("INSERT", "UPDATE", "DELETE")
Columns = dict[str, Any]


class Stamp(NamedTuple):
    """The time and the author of a change."""

    hlc: int
    client: str


class Written(NamedTuple):
    """One change of a row, own or from the server."""

    op: Op
    stamp: Stamp
    columns: Mapping[str, Any]


class Cell(NamedTuple):
    """A column of a row; None as its value is a column that was cleared."""

    value: Any
    stamp: Stamp
    at: int = 0
    """As of which position."""


class Base(NamedTuple):
    """The server's state of a row."""

    is_live: bool
    written: Stamp | None
    """The last change that was no deletion, of a row that is live."""
    deleted: Stamp | None
    """The last deletion; never later than `written` in a row that is live."""
    cells: Mapping[str, Cell]
    live_at: int = 0
    """As of which position it is live, or not."""
    bare_at: int = 0
    """As of which position it has no other columns."""


NOTHING = Base(False, None, None, {})
UNDATED = Stamp(0, "")
"""The stamp of columns from a checkpoint, which has no stamps of columns: any own change wins over them."""


def told(base: Base, change: Written, at: int) -> Base:
    """The base after one more entry, which is so as of a position."""
    is_last = at >= base.live_at
    # A DELETE leaves nothing, and an INSERT has the whole row; of both what was said as of later stays.
    is_whole = change.op != "UPDATE"
    cells = {name: cell for name, cell in base.cells.items() if not is_whole or cell.at > at}
    bare_at = max(base.bare_at, at) if is_whole else base.bare_at
    for name, value in change.columns.items() if change.op != "DELETE" else ():
        known = base.cells.get(name)
        if at >= (base.bare_at if known is None else known.at):
            # A row that is told whole has one stamp for all of it, and some columns were written later than that.
            cells[name] = Cell(value, change.stamp if known is None else later(known.stamp, change.stamp), at)
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


def whole(columns: Mapping[str, Any], at: int) -> Base:
    """A row of a checkpoint."""
    return Base(True, UNDATED, None, {name: Cell(value, UNDATED, at) for name, value in columns.items()}, at, at)


def settled(base: Base, own: Sequence[Written], at: int) -> Base:
    """The base after own changes, in the order of their stamps, that the server has and that won over all others.

    An own INSERT may have met a row that was there.
    """
    for change in own:
        base = told(base, change._replace(op="UPDATE") if change.op == "INSERT" else change, at)
    return base


def shown(base: Base, own: Sequence[Written]) -> Columns | None:
    """The columns of a row, own changes over its base, without those that are cleared; None when there is no row."""
    if not own:
        return (
            {name: cell.value for name, cell in base.cells.items() if cell.value is not None} if base.is_live else None
        )
    written, deleted, cells = base.written, base.deleted, dict(base.cells)
    for change in own:
        if change.op == "DELETE":
            deleted = later(deleted, change.stamp)
            continue
        written = later(written, change.stamp)
        for name, value in change.columns.items():
            known = cells.get(name)
            if known is None or not is_later(known.stamp, change.stamp):
                cells[name] = Cell(value, change.stamp)
    if written is None or (deleted is not None and not is_later(written, deleted)):
        return None
    return {
        name: cell.value
        for name, cell in cells.items()
        if cell.value is not None and (deleted is None or is_later(cell.stamp, deleted))
    }


def is_later(one: Stamp, other: Stamp) -> bool:
    """Whether one stamp wins over the other: by time, then by the author's name as UTF-16."""
    if one.hlc != other.hlc:
        return one.hlc > other.hlc
    return _utf16(one.client) > _utf16(other.client)


def later(one: Stamp | None, other: Stamp) -> Stamp:
    """The one that wins."""
    return one if one is not None and is_later(one, other) else other


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def dump_base(base: Base) -> str:
    """The stored form."""
    cells = {name: [cell.value, *cell.stamp, cell.at] for name, cell in base.cells.items()}
    written, deleted = base.written and list(base.written), base.deleted and list(base.deleted)
    return dump([base.is_live, written, deleted, cells, base.live_at, base.bare_at]).decode()


def load_base(stored: str) -> Base:
    """From the stored form; in the first format of files there are no positions."""
    facts: Any = parse(stored.encode())
    is_live, written, deleted, cells, *positions = facts
    return Base(
        is_live,
        None if written is None else Stamp(*written),
        None if deleted is None else Stamp(*deleted),
        {name: Cell(value, Stamp(hlc, client), *at) for name, (value, hlc, client, *at) in cells.items()},
        *positions,
    )
