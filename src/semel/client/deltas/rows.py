"""A row as this replica sees it: what the server has told of it, with own changes on top that it has not told back yet.

Two pictures are kept apart. The base is the server's: entries are applied in the order they come, without a question,
since the server has resolved them already. Own changes are laid over it until a pull has passed the place where they
were committed. Where both wrote a column the later stamp is shown, which is what the server will decide too; should it
decide otherwise, its word arrives in the base and stays. So replicas that have pushed and pulled everything are equal,
whatever was guessed on the way.

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
    """When, and by whom."""

    hlc: int
    client: str


class Written(NamedTuple):
    """One change of a row, own or told."""

    op: Op
    stamp: Stamp
    columns: Mapping[str, Any]


class Cell(NamedTuple):
    """A column of a row; None as its value is a column that was cleared."""

    value: Any
    stamp: Stamp


class Base(NamedTuple):
    """What the server has told of a row."""

    is_live: bool
    written: Stamp | None
    """The last change that was no deletion, of a row that is live."""
    deleted: Stamp | None
    """The last deletion; never later than `written` in a row that is live."""
    cells: Mapping[str, Cell]


NOTHING = Base(False, None, None, {})


def told(base: Base, change: Written) -> Base:
    """The base after one more entry."""
    if change.op == "DELETE":
        return Base(False, None, later(base.deleted, change.stamp), {})
    written = later(base.written, change.stamp)
    deleted = base.deleted if base.deleted is not None and is_later(written, base.deleted) else None
    # An INSERT has the whole row. An UPDATE of a row that is not there makes it.
    cells = {} if change.op == "INSERT" or not base.is_live else dict(base.cells)
    for name, value in change.columns.items():
        known = base.cells.get(name)
        # A row that is told whole has one stamp for all of it, and some columns in it were written later than that.
        cells[name] = Cell(value, change.stamp if known is None else later(known.stamp, change.stamp))
    return Base(True, written, deleted, cells)


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
    cells = {name: [cell.value, *cell.stamp] for name, cell in base.cells.items()}
    return dump(
        [base.is_live, base.written and list(base.written), base.deleted and list(base.deleted), cells]
    ).decode()


def load_base(stored: str) -> Base:
    """From the stored form."""
    facts: Any = parse(stored.encode())
    is_live, written, deleted, cells = facts
    return Base(
        is_live,
        None if written is None else Stamp(*written),
        None if deleted is None else Stamp(*deleted),
        {name: Cell(value, Stamp(hlc, client)) for name, (value, hlc, client) in cells.items()},
    )
