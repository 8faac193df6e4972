"""A thermometer that is offline for a while: it records into an outbox, and sends when it can.

python device_outbox.py record 1 21.5     # stored in device.db, whether the server is there or not
python device_outbox.py record 2 21.7
python device_outbox.py record 2 21.7     # recorded again after a crash: the same reading
python device_outbox.py send              # in the order of recording; each reading arrives once
"""

from __future__ import annotations

import os
import sys

from semel.once import Outbox

DEVICE = "thermometer-7"
STREAM = os.environ.get("SEMEL_URL", "http://127.0.0.1:8788") + f"/v1/stream/{DEVICE}"
JSON = {"Content-Type": "application/json"}


def record(box: Outbox, number: str, celsius: str) -> None:
    """Store a reading under its own key; the stream is created before the first reading arrives."""
    box.post(STREAM, method="PUT", headers=JSON, key=f"{DEVICE}-create", order_by=DEVICE)
    reading = {"number": int(number), "celsius": float(celsius)}
    posted = box.post(STREAM, json=reading, key=f"{DEVICE}-{number}", order_by=DEVICE)
    print("recorded" if posted.fresh else "known", posted.key)


def send(box: Outbox) -> None:
    """Send the readings that can be sent now, and print the keys of those that wait."""
    box.flush_sync(timeout=2)
    waiting = [message.key for message in box.messages("queued")]
    print("all sent" if not waiting else f"waiting: {', '.join(waiting)}")


def main() -> None:
    """Run one command."""
    box = Outbox("device.db", longest_wait="30s")
    try:
        match sys.argv[1:]:
            case ["record", number, celsius]:
                record(box, number, celsius)
            case ["send"]:
                send(box)
            case _:
                sys.exit(__doc__)
    finally:
        box.close()


if __name__ == "__main__":
    main()
