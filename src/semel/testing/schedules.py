"""The schedules of a call: duplicate, lost answer, concurrent, killed. Each run has a new key.

A schedule has numbered runs from 1, and may have a run 0. Run n interrupts the call at its nth place, until a call ends
before it is interrupted: the number of places may differ between calls.
"""

from __future__ import annotations

from collections.abc import Callable

from semel.testing import racers
from semel.testing.calls import KeyedCall, Subject, ran
from semel.testing.processes import killed_at, retried
from semel.testing.report import CallOutcome, ScheduleRun

Schedule = Callable[[Subject, int], ScheduleRun | None]
"""Returns the run with a number, or None after the last."""

RETRIES = ("the second call", "the third call")


def duplicate(subject: Subject, number: int) -> ScheduleRun | None:
    """Make the call three times in sequence."""
    if number != 1:
        return None
    call = subject.begin()
    found = [("the first call", call.outcome()), *_retried(subject, call)]
    return ScheduleRun("duplicate", number, "The call was made three times in sequence.", found, call.effects())


def lost(subject: Subject, number: int) -> ScheduleRun | None:
    """Discard the first answer; a coroutine is also cancelled at each place where it waits."""
    if number < 1:
        return None
    if number > 1:
        return _cancelled(subject, number) if subject.is_async else None
    call = subject.begin()
    first = call.outcome()
    found = [("the call whose answer was lost", first), *_retried(subject, call)]
    return ScheduleRun("lost", number, "The answer of the first call was discarded.", found, call.effects())


def _cancelled(subject: Subject, number: int) -> ScheduleRun | None:
    from semel.testing import steps  # noqa: PLC0415 - only a coroutine needs asyncio

    call = subject.begin()
    cut = ran(steps.cancelled(subject, call, number - 1))
    if cut is None:
        return None
    place, first = cut
    begun = [] if first.kind == "cut off" else [("the cancelled call", first)]
    found = [*begun, *_retried(subject, call)]
    story = f"The first call was cancelled while it waited ({place})."
    return ScheduleRun("lost", number, story, found, call.effects(), is_cut=True)


def concurrent(subject: Subject, number: int) -> ScheduleRun | None:
    """For each place, make a second call while the first is held there; run 0 makes concurrent calls."""
    call = subject.begin()
    if number == 0:
        outcomes = _side_by_side(subject, call)
        story = f"{subject.racers} concurrent calls were made with the same key."
    else:
        held = _preempted(subject, call, number)
        if held is None:
            return None
        place, outcomes = held
        story = f"The first call was held {place} while a second one with the same key was made."
    found = [(f"call {place}", outcome) for place, outcome in enumerate(outcomes, 1)]
    return ScheduleRun("concurrent", number, story, found, call.effects())


def _side_by_side(subject: Subject, call: KeyedCall) -> list[CallOutcome]:
    if not subject.is_async:
        return racers.side_by_side(subject, call)
    from semel.testing import steps  # noqa: PLC0415 - as above

    outcomes: list[CallOutcome] = ran(steps.side_by_side(subject, call))
    return outcomes


def _preempted(subject: Subject, call: KeyedCall, number: int) -> tuple[str, list[CallOutcome]] | None:
    if not subject.is_async:
        return racers.preempted(subject, call, number)
    from semel.testing import steps  # noqa: PLC0415 - as above

    held: tuple[str, list[CallOutcome]] | None = ran(steps.preempted(subject, call, number))
    return None if held is None else (f"where it waited ({held[0]})", held[1])


def killed(subject: Subject, number: int) -> ScheduleRun | None:
    """Kill the process of the call (SIGKILL) at each place, then make the call twice in a new process."""
    if number < 1:
        return None
    call = subject.begin()
    first = killed_at(subject, call, number)
    if first.kind not in ("cut off", "error"):
        return None
    begun = [] if first.kind == "cut off" else [("the first call, in its own process,", first)]
    retries = [] if begun else retried(subject, call, RETRIES)
    story = f"The process of the first call was killed {first}." if not begun else "The call was not killed."
    return ScheduleRun("killed", number, story, [*begun, *retries], call.effects(), is_cut=True)


def _retried(subject: Subject, call: KeyedCall) -> list[tuple[str, CallOutcome]]:
    found = []
    for name in RETRIES:
        subject.before_retry()
        found.append((name, call.outcome()))
    return found


SCHEDULES: dict[str, Schedule] = {"duplicate": duplicate, "lost": lost, "concurrent": concurrent, "killed": killed}
