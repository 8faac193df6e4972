"""Place an order as an event, and bill every order exactly once, even if this program is killed at any moment.

semel serve
python events_reader.py order-4711      # and again: the same order is placed and billed once
"""

from __future__ import annotations

import sqlite3
import sys

from semel import Client
from semel.client import TransactionCursor


def main(order: str) -> None:
    """Submit the order under its own id, then bill what was not billed yet."""
    base = sqlite3.connect("bills.db")
    TransactionCursor.migrate(base)
    base.execute("CREATE TABLE IF NOT EXISTS bills (event TEXT)")
    base.commit()
    with Client() as client:
        placed = client.events.submit("order.placed", {"qty": 2}, partitions="orders", id=order)
        print("already placed" if placed.replayed else "placed", order)
        follower = client.events.follow("orders", cursor=TransactionCursor(base, "billing"), live=False)
        for event in follower:
            base.execute("INSERT INTO bills VALUES (?)", (event.id,))
            follower.ack()  # the bill and the cursor commit together
            base.commit()
            print("billed", event.id)
    base.close()


if __name__ == "__main__":
    main(sys.argv[1])
