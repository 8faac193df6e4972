"""A sender that dies where it is told to: `python -m tests.once.sender PLACE POINT MESSAGES`.

MESSAGES is a JSON list of arguments of `post`. POINT names where the process kills itself, when all messages are there:

| point | is |
|---|---|
| stored | behind `post`, before any lease |
| leased | behind the leases, before a byte is sent |
| delivered | behind the answers of the other side, before a note |
| noted | behind the notes |
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any

from semel.once import Outbox
from semel.once.delivery import Sending, delivered
from semel.once.messages import Delivery, OutboxMessage

POINTS = ("stored", "leased", "delivered", "noted")
LIMITS: dict[str, Any] = {"timeout": 0.9, "lease": 1.0, "longest_wait": 0.05}


class Death:
    """Kills the process when a number of messages have come to a point, and holds those that are there before."""

    def __init__(self, point: str, messages: int) -> None:
        self._point = point
        self._messages = messages
        self._lock = threading.Lock()

    def at(self, point: str) -> None:
        """A message has come to a point."""
        if point != self._point:
            return
        with self._lock:
            self._messages -= 1
            if self._messages == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        if point != "noted":
            time.sleep(60)


def main() -> None:
    """Post, send, and die."""
    place, point, text = sys.argv[1:]
    messages = json.loads(text)
    death = Death(point, len(messages))

    def transport(message: OutboxMessage, deadline: float) -> Delivery:
        death.at("leased")
        found = delivered(message, deadline + 20, Sending(5.0, os.environ.get, time.time))
        assert found.status is not None, found
        death.at("delivered")
        return found

    box = Outbox(place, transport=transport, **LIMITS)
    for message in messages:
        box.post(**message)
    if point == "stored":
        os.kill(os.getpid(), signal.SIGKILL)
    run = box.store.run

    def watched(statement: Any, patience: float = 10.0) -> Any:
        rows = run(statement, patience)
        if statement.sql.startswith("UPDATE") and "done_at" in statement.sql:
            death.at("noted")
        return rows

    box.store.run = watched  # type: ignore[method-assign]
    box.flush_sync(60)


if __name__ == "__main__":
    main()
