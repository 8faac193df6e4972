"""The shop's accounts: `python -m tests.once.shop.follower` writes a bill for each event of an order.

The bill and the cursor commit together.
"""

from __future__ import annotations

import os

import psycopg

from semel import Client
from semel.client import TransactionCursor


def main() -> None:
    """Follow for ever."""
    with psycopg.connect(os.environ["SHOP_DATABASE"]) as connection, Client() as client:
        follower = client.events.follow("orders", cursor=TransactionCursor(connection, "bills"))
        for event in follower:
            connection.execute("INSERT INTO bills (name) VALUES (%s)", [event.id])
            follower.ack()
            connection.commit()


if __name__ == "__main__":
    main()
