"""The tables of compatible drivers and servers, and of refused combinations, from the rows that the tests run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.once.compat.refusals import REFUSED
from tests.once.compat.servers import SERVERS
from tests.once.compat.table import BEHIND_POOLER, ON_GEVENT, ON_POSTGRES, ON_SQLITE, parts_of


def driver_table() -> Iterator[str]:
    """One row for each driver or store: its doors, its loops, and where it is run."""
    yield "| driver or store | doors | loops | run on |"
    yield "|---|---|---|---|"
    found: dict[str, tuple[set[str], set[str], set[str]]] = defaultdict(lambda: (set(), set(), set()))
    for name in [*ON_POSTGRES, *ON_SQLITE]:
        door, driver, loop = parts_of(name)
        doors, loops, places = found[driver.removesuffix(", SQLite")]
        doors.add(door)
        loops.add(loop)
        loops |= {"gevent"} if name in ON_GEVENT else set()
        places |= {"SQLite"} if name in ON_SQLITE else {"PostgreSQL", "SERIALIZABLE"}
        places |= {"pgbouncer"} if name in BEHIND_POOLER else set()
    for driver, columns in found.items():
        cells = [", ".join(sorted(column)) for column in columns]
        yield f"| {driver} | {cells[0]} | {cells[1]} | {cells[2]} |"


def server_table() -> Iterator[str]:
    """One row for each server: its handlers."""
    yield "| server, with two workers | handlers |"
    yield "|---|---|"
    for name, kind in SERVERS.items():
        yield f"| {name} | {', '.join(path.strip('/') for path in kind.paths)} |"


def refusal_table() -> Iterator[str]:
    """One row for each combination that is refused: what the error says."""
    yield "| refused | the error says |"
    yield "|---|---|"
    for name, (_, sentence) in REFUSED.items():
        yield f"| {name} | {sentence} |"
