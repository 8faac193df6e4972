"""Work in a fork of the test that kills itself (-9) at the nth statement that any of its threads reaches."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

from semel.testing.calls import Subject, subject_of
from semel.testing.places import PlaceWatch
from semel.testing.processes import Killer, in_process
from semel.testing.report import CallOutcome

SUBJECT: Subject = subject_of(
    call=lambda key: None, count=lambda: 0, unknown=None, again=None, reset=None, answer=lambda value: value,
    restart=lambda: None, before_retry=lambda: None, racers=1, timeout=60.0, patience=0.0, max_places=1, at=None,
)  # fmt: skip


def killed_at(number: int, work: Callable[[], list[object]], begin: Callable[[], object] = lambda: None) -> bool:
    """Do the work in a new process, which is killed at the nth place before or behind a statement. Whether it was.

    `begin` runs in that process before places are counted.
    """

    def make(writing: int) -> list[CallOutcome]:
        killer = Killer(number, writing)
        begin()
        watch = PlaceWatch(killer.reached)
        threading.setprofile(watch)
        sys.setprofile(watch)
        try:
            found = work()
        finally:
            sys.setprofile(None)
        return [CallOutcome("answer", found)]

    outcome = in_process(SUBJECT, make)[0]
    assert outcome.kind in ("answer", "cut off"), outcome.text
    return outcome.kind == "cut off"
