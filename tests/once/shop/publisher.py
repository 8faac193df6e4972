"""The shop's publisher: `python -m tests.once.shop.publisher` sends the events that were stored with orders."""

from __future__ import annotations

import os

from semel.client import Client, EventOutbox


def main() -> None:
    """Send for ever."""
    EventOutbox(os.environ["SHOP_DATABASE"], Client(), timeout="3s", lease="4s", longest_wait="1s").run()


if __name__ == "__main__":
    main()
