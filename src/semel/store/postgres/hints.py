"""LISTEN/NOTIFY between nodes: announces commits, so that live readers of other nodes read at once.

After a commit a node sends one NOTIFY for everything that has gathered meanwhile, on a connection of its own and
never inside a transaction. A notification carries the marks of its commits besides the topics. Notifications may be
lost, so every node also reads all marks once a second: a commit without a notification within a second wakes every
reader of the node. So a lost notification costs a second or two, and the check is one small query whatever the number
of readers.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import NamedTuple

from semel.store.postgres.line import Line
from semel.store.postgres.marks import NUMBERS
from semel.store.protocol import Hear

POLL_SECONDS = 1.0
MAX_WAITING = 4_096
MAX_PAYLOAD = 7_900
"""PostgreSQL takes less than 8,000 bytes."""
_NOTIFY = "SELECT pg_notify($1::text, $2::text)"
_AWAY_SECONDS = 3 * POLL_SECONDS
_GATHER_SECONDS = 0.005
"""Seconds that a notification waits to be merged with others: NOTIFY takes a lock that all nodes share."""


class Hint(NamedTuple):
    """A notification: commits, and the topics of readers to wake; None wakes all."""

    marks: dict[int, int]
    topics: list[bytes] | None


def encode(hint: Hint) -> str:
    """Encode the payload; topics that do not fit become a wake-up of all readers."""
    marks = ",".join(f"{mark:x}.{number:x}" for mark, number in hint.marks.items())
    if hint.topics is not None:
        payload = f"{marks};" + ",".join(b64encode(topic).decode() for topic in hint.topics)
        if len(payload) <= MAX_PAYLOAD:
            return payload
    return f"{marks};*"


def decode(payload: str) -> Hint | None:
    """Decode a payload; None when it is not one of ours."""
    marks, found, topics = payload.partition(";")
    try:
        pairs = [one.partition(".") for one in marks.split(",")]
        numbers = {int(mark, 16): int(number, 16) for mark, _, number in pairs}
        some = None if topics == "*" else [b64decode(topic, validate=True) for topic in topics.split(",") if topic]
    except ValueError:
        return None
    return Hint(numbers, some) if found else None


class Missed:
    """Detects commits of other nodes without a notification. Pure: marks in, whether one was missed out."""

    def __init__(self) -> None:
        self._heard: dict[int, int] = {}
        self._unheard: dict[int, int] = {}

    def hear(self, marks: dict[int, int]) -> None:
        """A notification has arrived."""
        for mark, number in marks.items():
            self._heard[mark] = max(number, self._heard.get(mark, 0))

    def start(self, marks: dict[int, int]) -> None:
        """Everything up to here has been read."""
        self._heard, self._unheard = dict(marks), {}

    def look(self, marks: dict[int, int]) -> bool:
        """Compare with the stored marks: true when the last check already saw a commit without a notification."""
        late = any(self._heard.get(mark, 0) < number for mark, number in self._unheard.items())
        if late:
            self.start(marks)
            return True
        self._heard = {mark: number for mark, number in self._heard.items() if mark in marks}
        self._unheard = {mark: number for mark, number in marks.items() if self._heard.get(mark, 0) < number}
        return False


class Speaker(threading.Thread):
    """Sends the notifications of this node (NOTIFY)."""

    def __init__(self, line: Line, channel: str) -> None:
        super().__init__(name="semel-speaker", daemon=True)
        self._line = line
        self._channel = channel
        self._waiting: queue.Queue[Hint | None] = queue.Queue(MAX_WAITING)
        self._has_lost = False
        self.own: set[int] = set()
        """The marks of this node's lines, as they are now."""

    def say(self, mark: int, number: int, topics: Iterable[bytes]) -> None:
        """Notify after a commit; never waits. When full, this one is dropped, and the next wakes all readers."""
        try:
            self._waiting.put_nowait(Hint({mark: number}, list(topics)))
        except queue.Full:
            self._has_lost = True

    def stop(self) -> None:
        """Send what waits, then end."""
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=POLL_SECONDS)

    def run(self) -> None:
        """Until stopped."""
        while (first := self._waiting.get()) is not None:
            time.sleep(_GATHER_SECONDS)
            is_last, hint = self._gather(first)
            # A node that hears a later number believes to have heard of all before it: so that one must make up for
            # them.
            had_lost, self._has_lost = self._has_lost, False
            try:
                self._line.open(time.monotonic())
                payload = encode(hint._replace(topics=None) if had_lost else hint)
                self._line.exchange([(_NOTIFY, (self._channel.encode(), payload.encode()))])
            except Exception:  # noqa: BLE001 - hints may be lost, but nothing may end their sending
                self._has_lost = True  # if there is no later one, the others find out by themselves
                self._line.drop()
            if is_last:
                break
        self._line.drop()

    def _gather(self, first: Hint) -> tuple[bool, Hint]:
        marks, topics = dict(first.marks), dict.fromkeys(first.topics or ())
        for _ in range(MAX_WAITING):
            try:
                more = self._waiting.get_nowait()
            except queue.Empty:
                break
            if more is None:
                return True, Hint(marks, list(topics))
            marks.update(more.marks)
            topics.update(dict.fromkeys(more.topics or ()))
        return False, Hint(marks, list(topics))


class Listener(threading.Thread):
    """Receives the notifications of other nodes (LISTEN), and polls for lost ones."""

    def __init__(self, line: Line, channel: str, own: set[int], hear: Hear) -> None:
        super().__init__(name="semel-listener", daemon=True)
        self._line = line
        self._channel = channel
        self._own = own
        self._hear = hear
        self._missed = Missed()
        self._stopped = threading.Event()
        self.heard_at = time.monotonic()
        """When the database last answered."""

    @property
    def is_away(self) -> bool:
        """Whether the database has not answered for some seconds."""
        return time.monotonic() - self.heard_at > _AWAY_SECONDS

    def stop(self) -> None:
        """End within a poll's time."""
        self._stopped.set()

    def run(self) -> None:
        """Until stopped; a lost connection is made again."""
        while not self._stopped.is_set():
            try:
                self._line.open(time.monotonic())
                self._line.exchange([(f'LISTEN "{self._channel}"', ())])
                self._missed.start(self._marks())
                self._hear(None)  # whatever was notified while this node did not listen
                while not self._stopped.is_set() and self._line.is_open:
                    self._listen()
            except Exception:  # noqa: BLE001 - a database may be away, but nothing may end the listening
                self._line.drop()
                self._stopped.wait(POLL_SECONDS)
        self._line.drop()

    def _listen(self) -> None:
        end = time.monotonic() + POLL_SECONDS
        while not self._stopped.is_set() and (left := end - time.monotonic()) > 0:
            for payload in self._line.notifications(left):
                hint = decode(payload)
                if hint is not None:
                    self._take(hint)
        if self._missed.look(self._marks()):
            self._hear(None)

    def _take(self, hint: Hint) -> None:
        others = {mark: number for mark, number in hint.marks.items() if mark not in self._own}
        if others:
            self._missed.hear(others)
            self._hear(hint.topics)

    def _marks(self) -> dict[int, int]:
        found = self._line.exchange([(NUMBERS, ())])[0]
        self.heard_at = time.monotonic()
        return {mark: number for mark, number in found if mark not in self._own}
