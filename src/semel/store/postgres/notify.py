"""LISTEN/NOTIFY between nodes: announces commits, so that live readers of other nodes read at once.

After a commit a node sends one NOTIFY for all commits collected meanwhile, on a separate connection and never inside a
transaction. A notification carries the marks of its commits and their topics. Notifications may be lost, so every node
also reads all marks once a second: a commit that has no notification within one second wakes every reader of the node.
A lost notification therefore costs one or two seconds, and the check is one small query for any number of readers.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import NamedTuple

from semel.store.postgres.commit_fate import NUMBERS
from semel.store.postgres.connection import PgConnection
from semel.store.protocol import Hear

POLL_SECONDS = 1.0
MAX_WAITING = 4_096
MAX_PAYLOAD = 7_900
"""PostgreSQL accepts payloads of less than 8,000 bytes."""
_NOTIFY = "SELECT pg_notify($1::text, $2::text)"
_AWAY_SECONDS = 3 * POLL_SECONDS
_GATHER_SECONDS = 0.005
"""Seconds that a notification waits to be merged with others: NOTIFY takes a lock that all nodes share."""


class CommitNotice(NamedTuple):
    """A notification: commits, and the topics whose readers are woken; None wakes all readers."""

    marks: dict[int, int]
    topics: list[bytes] | None


def encode(hint: CommitNotice) -> str:
    """Encode the payload; if the topics do not fit, all readers are woken."""
    marks = ",".join(f"{mark:x}.{number:x}" for mark, number in hint.marks.items())
    if hint.topics is not None:
        payload = f"{marks};" + ",".join(b64encode(topic).decode() for topic in hint.topics)
        if len(payload) <= MAX_PAYLOAD:
            return payload
    return f"{marks};*"


def decode(payload: str) -> CommitNotice | None:
    """Decode a payload; None if it is not from Semel."""
    marks, found, topics = payload.partition(";")
    try:
        pairs = [one.partition(".") for one in marks.split(",")]
        numbers = {int(mark, 16): int(number, 16) for mark, _, number in pairs}
        some = None if topics == "*" else [b64decode(topic, validate=True) for topic in topics.split(",") if topic]
    except ValueError:
        return None
    return CommitNotice(numbers, some) if found else None


class MissedCommits:
    """Detects commits of other nodes that had no notification. Pure: it compares the marks that it is given."""

    def __init__(self) -> None:
        self._heard: dict[int, int] = {}
        self._unheard: dict[int, int] = {}

    def hear(self, marks: dict[int, int]) -> None:
        """Record the marks of a notification."""
        for mark, number in marks.items():
            self._heard[mark] = max(number, self._heard.get(mark, 0))

    def start(self, marks: dict[int, int]) -> None:
        """Record that the readers have read everything up to these marks."""
        self._heard, self._unheard = dict(marks), {}

    def look(self, marks: dict[int, int]) -> bool:
        """Compare with the stored marks: true if the check before already saw a commit that still has no
        notification.
        """
        late = any(self._heard.get(mark, 0) < number for mark, number in self._unheard.items())
        if late:
            self.start(marks)
            return True
        self._heard = {mark: number for mark, number in self._heard.items() if mark in marks}
        self._unheard = {mark: number for mark, number in marks.items() if self._heard.get(mark, 0) < number}
        return False


class NotifySender(threading.Thread):
    """Sends the notifications of this node (NOTIFY)."""

    def __init__(self, line: PgConnection, channel: str) -> None:
        super().__init__(name="semel-speaker", daemon=True)
        self._line = line
        self._channel = channel
        self._waiting: queue.Queue[CommitNotice | None] = queue.Queue(MAX_WAITING)
        self._has_lost = False
        self.own: set[int] = set()
        """The marks of this node's current sessions."""

    def say(self, mark: int, number: int, topics: Iterable[bytes]) -> None:
        """Queue a notification after a commit; never waits. If the queue is full, it is dropped, and the next one wakes
        all readers.
        """
        try:
            self._waiting.put_nowait(CommitNotice({mark: number}, list(topics)))
        except queue.Full:
            self._has_lost = True

    def stop(self) -> None:
        """Send the queued notifications, then end."""
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=POLL_SECONDS)

    def run(self) -> None:
        """Send notifications until `stop`."""
        while (first := self._waiting.get()) is not None:
            time.sleep(_GATHER_SECONDS)
            is_last, hint = self._gather(first)
            # A node that receives a number assumes that it was notified of all lower ones: after a loss, the next
            # notification must wake all readers.
            had_lost, self._has_lost = self._has_lost, False
            try:
                self._line.open(time.monotonic())
                payload = encode(hint._replace(topics=None) if had_lost else hint)
                self._line.exchange([(_NOTIFY, (self._channel.encode(), payload.encode()))])
            except Exception:  # noqa: BLE001 - a notification may be lost, but the thread must not end
                self._has_lost = True  # if no later notification follows, the other nodes find the commit by polling
                self._line.drop()
            if is_last:
                break
        self._line.drop()

    def _gather(self, first: CommitNotice) -> tuple[bool, CommitNotice]:
        marks, topics = dict(first.marks), dict.fromkeys(first.topics or ())
        for _ in range(MAX_WAITING):
            try:
                more = self._waiting.get_nowait()
            except queue.Empty:
                break
            if more is None:
                return True, CommitNotice(marks, list(topics))
            marks.update(more.marks)
            topics.update(dict.fromkeys(more.topics or ()))
        return False, CommitNotice(marks, list(topics))


class NotifyListener(threading.Thread):
    """Receives the notifications of other nodes (LISTEN), and polls for lost ones."""

    def __init__(self, line: PgConnection, channel: str, own: set[int], hear: Hear) -> None:
        super().__init__(name="semel-listener", daemon=True)
        self._line = line
        self._channel = channel
        self._own = own
        self._hear = hear
        self._missed = MissedCommits()
        self._stopped = threading.Event()
        self.heard_at = time.monotonic()
        """When the database last answered, by the monotonic clock."""

    @property
    def is_away(self) -> bool:
        """Whether the database has not answered for some seconds."""
        return time.monotonic() - self.heard_at > _AWAY_SECONDS

    def stop(self) -> None:
        """Stop within one poll interval."""
        self._stopped.set()

    def run(self) -> None:
        """Listen until `stop`; a lost connection is reopened."""
        while not self._stopped.is_set():
            try:
                self._line.open(time.monotonic())
                self._line.exchange([(f'LISTEN "{self._channel}"', ())])
                self._missed.start(self._marks())
                self._hear(None)  # wake all readers: notifications were missed while the node did not listen
                while not self._stopped.is_set() and self._line.is_open:
                    self._listen()
            except Exception:  # noqa: BLE001 - the database may be unreachable, but the thread must not end
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

    def _take(self, hint: CommitNotice) -> None:
        others = {mark: number for mark, number in hint.marks.items() if mark not in self._own}
        if others:
            self._missed.hear(others)
            self._hear(hint.topics)

    def _marks(self) -> dict[int, int]:
        found = self._line.exchange([(NUMBERS, ())])[0]
        self.heard_at = time.monotonic()
        return {mark: number for mark, number in found if mark not in self._own}
