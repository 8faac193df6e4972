"""A process that appends to a log table until it is killed: `python -m tests.store.log_committer FOLDER FIRST`.

Transaction n looks for stub n, appends it, and only when `commit` has returned is n written to standard output. The
index holds a few keys, so that most of the time is spent on moving others out of memory.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.store.conformance import LOCKS, changes
from tests.store.log_tables import STUB, open_logs, stub

INDEX_KEYS = 20


def main(folder: Path, number: int) -> None:
    """Commit from that number on, for ever."""
    store = open_logs(folder, index_keys=INDEX_KEYS)
    while True:
        tx = store.begin(LOCKS)
        row = stub(number)
        if not tx.load({STUB: [STUB.key_of(row)]}, []).rows[STUB]:
            tx.flush(changes([(STUB, row)]))
            tx.commit()
        tx.rollback()
        os.write(sys.stdout.fileno(), b"%d\n" % number)
        store.tidy()
        number += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
