"""A process that commits until it is killed: `python -m tests.store.committer URL FIRST`.

Transaction n inserts thing n and parcel n, and raises a counter from n - 1 to n. Only when `commit` has returned is n
written to standard output. With FIRST = "open" the process only opens the store and says how that went.
"""

from __future__ import annotations

import os
import sys

from semel.store.open import open_store
from semel.store.protocol import Store, StoreError
from tests.store.conformance import LOCKS, MIGRATIONS, PARCEL, TABLES, THING, Clock, ParcelRow, changes, thing

COUNTER = thing(b"counter", 0, 0)
PAYLOAD_BYTES = 3_000


def commit(store: Store, number: int) -> None:
    """Transaction `number`."""
    tx = store.begin(LOCKS)
    try:
        rows = tx.load({THING: [THING.key_of(COUNTER)]}, []).rows[THING]
        counter = rows.get(THING.key_of(COUNTER), COUNTER)
        assert counter.weight == number - 1, f"counter {counter.weight} before transaction {number}"
        raised = counter._replace(weight=number)
        parcel = ParcelRow(number, b"committer", number.to_bytes(8, "big") * (PAYLOAD_BYTES // 8))
        tx.flush(changes([(THING, thing(b"thing", number)), (PARCEL, parcel)], [(THING, raised)]))
        tx.commit()
    finally:
        tx.rollback()


def main(url: str, first: str) -> None:
    """Commit from that number on, for ever."""
    try:
        store = open_store(url, TABLES, MIGRATIONS, Clock())
    except StoreError as error:
        say(type(error).__name__)
        return
    if first == "open":
        store.close()
        say("opened")
        return
    number = int(first)
    while True:
        commit(store, number)
        say(str(number))
        store.tidy()
        number += 1


def say(word: str) -> None:
    """One line, at once."""
    os.write(sys.stdout.fileno(), word.encode() + b"\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
