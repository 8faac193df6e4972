"""Append an order once, and follow the log from where the last run stopped.

semel serve
python orders_stream.py 4711      # and again: the same order is stored once
"""

from __future__ import annotations

import sys
from pathlib import Path

from semel import Client

CURSOR = Path("orders.offset")


def main(order: str) -> None:
    """Store the order under its own number, then handle everything that was not handled yet."""
    with Client() as client:
        client.streams.create("orders", content_type="application/json")
        stored = client.streams.append("orders", {"order": order}, key=f"order-{order}")
        print("already stored" if stored.replayed else "stored", order)
        for page in client.streams.pages("orders", CURSOR.read_text() if CURSOR.exists() else "-1"):
            for message in page.messages():
                print("handling", message["order"])
            CURSOR.write_text(page.next_offset)


if __name__ == "__main__":
    main(sys.argv[1])
