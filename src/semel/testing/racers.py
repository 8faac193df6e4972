"""Concurrent calls with one key in threads, and a call that is held while another runs."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from semel.testing.calls import KeyedCall, Subject
from semel.testing.places import CodePlace, PlaceWatch
from semel.testing.report import CallOutcome


class Racer:
    """A call in its own thread, with its places watched."""

    def __init__(
        self, call: KeyedCall, reached: Callable[[CodePlace], object] | None, over: Callable[[], object]
    ) -> None:
        self._call = call
        self._watch = None if reached is None else PlaceWatch(reached)
        self._over = over
        self._outcome: CallOutcome | None = None
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="semel-testing-racer", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        sys.setprofile(self._watch)
        try:
            self._outcome = self._call.outcome()
        except BaseException as error:  # noqa: BLE001 - raised again in the thread of the test
            self._fault = error
        finally:
            sys.setprofile(None)
            self._over()

    def join(self, seconds: float) -> None:
        """Wait at most this many seconds for its end."""
        self._thread.join(seconds)

    def outcome(self, seconds: float) -> CallOutcome:
        """The outcome of the call."""
        self._thread.join(seconds)
        if self._fault is not None:
            raise self._fault
        return self._outcome or CallOutcome("error", text=f"It did not end within {seconds:g} s.")


class Hold:
    """Holds a call at the nth place until it is released."""

    def __init__(self, number: int, seconds: float) -> None:
        self._left = number
        self._seconds = seconds
        self._go_on = threading.Event()
        self.stopped = threading.Event()
        """Set when the call is held, or has ended before."""
        self.place: CodePlace | None = None

    def reached(self, place: CodePlace) -> None:
        """Called at each place."""
        self._left -= 1
        if self._left == 0:
            self.place = place
            self.stopped.set()
            self._go_on.wait(self._seconds)

    def release(self) -> None:
        """Let the call continue."""
        self._go_on.set()


class Meeting:
    """A barrier at every place, so that all racers do the same thing at the same time.

    The wait is short, because a racer that waits for another one's lock cannot arrive.
    """

    def __init__(self, racers: int, seconds: float) -> None:
        self._seconds = seconds
        self._racers = racers
        self._waiting = 0
        self._round = 0
        self._changed = threading.Condition()

    def reached(self, _: CodePlace) -> None:
        """Wait until all running racers have reached a place, or until the short timeout."""
        with self._changed:
            self._waiting += 1
            before = self._round
            self._met()
            deadline = time.monotonic() + self._seconds
            while self._round == before and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            if self._round == before:
                self._waiting -= 1

    def left(self) -> None:
        """One racer has ended."""
        with self._changed:
            self._racers -= 1
            self._met()

    def _met(self) -> None:
        if self._waiting and self._waiting >= self._racers:
            self._waiting = 0
            self._round += 1
            self._changed.notify_all()


def preempted(subject: Subject, call: KeyedCall, number: int) -> tuple[str, list[CallOutcome]] | None:
    """Hold a call at a place while a second one runs. Returns None if the call ended before that place."""
    hold = Hold(number, subject.timeout)
    first = Racer(call, hold.reached, hold.stopped.set)
    hold.stopped.wait(subject.timeout)
    if hold.place is None:
        first.outcome(subject.timeout)
        return None
    second = Racer(call, None, lambda: None)
    second.join(subject.patience)
    hold.release()
    return str(hold.place), [first.outcome(subject.timeout), second.outcome(subject.timeout)]


def side_by_side(subject: Subject, call: KeyedCall) -> list[CallOutcome]:
    """Run calls in lockstep."""
    meeting = Meeting(subject.racers, subject.patience)
    racers = [Racer(call, meeting.reached, meeting.left) for _ in range(subject.racers)]
    return [racer.outcome(subject.timeout) for racer in racers]
