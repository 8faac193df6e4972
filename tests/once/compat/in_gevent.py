"""Rows of the table in a process of gevent: `python -m tests.once.compat.in_gevent URL FILE`.

Threads, sockets and sleeps are greenlets here, those of the runner too.
"""

from gevent import monkey

monkey.patch_all()

import sys  # noqa: E402 - what is imported now is what gevent has put in its place

from tests.once.compat.run import play_row  # noqa: E402
from tests.once.compat.table import ON_GEVENT, ON_POSTGRES, ON_SQLITE  # noqa: E402


def main(url: str, file: str) -> None:
    """Play all rows that are tried here."""
    for name in ON_GEVENT:
        make, place = (ON_POSTGRES[name], url) if name in ON_POSTGRES else (ON_SQLITE[name], file)
        row = make(place)
        play_row(row, f"gevent, {name}")
        row.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
