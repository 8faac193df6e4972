"""A process that delivers an outbox: it stops after a signal, when the attempts that are under way have ended."""

from __future__ import annotations

import signal
import sqlite3
import threading
from pathlib import Path

from semel.kernel.shown_url import shown_url
from semel.once.dispatcher import Flushed
from semel.once.errors import StoreUnavailable
from semel.once.outbox import Outbox
from semel.once.stores import refuse_keywords

LOOK_SECONDS = 0.2


def deliver_until_signal(box: Outbox, seconds: float | None = None) -> Flushed:
    """Send messages until SIGTERM or Control-C; with `seconds`, until none can be sent, or for that time at most.

    Call it from the main thread. A second signal ends the process at once.
    """
    found: list[Flushed | BaseException] = []

    def work() -> None:
        try:
            found.append(box.run() if seconds is None else box.flush_sync(seconds))
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            found.append(error)

    def stop(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        box.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        # In a thread, so that the main thread can handle signals at once.
        thread = threading.Thread(target=work, name="semel-outbox-run", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(LOOK_SECONDS)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    result = found[0]
    if isinstance(result, BaseException):
        raise result
    return result


def refuse_missing(place: str, table: str) -> None:
    """Raise `StoreUnavailable` if an outbox in a file was never created; `Outbox` itself would create the file."""
    refuse_keywords(place)
    if "://" in place:
        return
    path = Path(place)
    if not path.is_file():
        raise StoreUnavailable(f"There is no outbox at {shown_url(place)}: create it with `semel outbox init`.")
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise StoreUnavailable(f"{shown_url(place)} is not an outbox: {error}.") from error
    if not found:
        raise StoreUnavailable(f"{place} has no table {table}: create it with `semel outbox init`.")
