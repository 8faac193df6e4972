"""`assert_idempotent`: runs a call under every schedule and counts its effects with a function of the user."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from semel.testing.report import IdempotencyReport, NotIdempotentError, ScheduleRun

if TYPE_CHECKING:
    from semel.testing.calls import Subject
    from semel.testing.schedules import Schedule

RACERS = 4
TIMEOUT_SECONDS = 60.0
PATIENCE_SECONDS = 0.1
MAX_PLACES = 200


def assert_idempotent(
    call: Callable[[str], Any] | Callable[[], Any],
    *,
    effects: Callable[[], Any],
    schedules: Iterable[str] = ("duplicate", "lost", "concurrent", "killed"),
    at: int | None = None,
    answer: Callable[[Any], Any] = lambda value: value,
    unknown: Callable[[object], bool] | None = None,
    again: Callable[[object], bool] | None = None,
    reset: Callable[[], object] | None = None,
    restart: Callable[[], object] = lambda: None,
    before_retry: Callable[[], object] = lambda: None,
    racers: int = RACERS,
    timeout: float = TIMEOUT_SECONDS,
    patience: float = PATIENCE_SECONDS,
    max_places: int = MAX_PLACES,
) -> IdempotencyReport:
    """Fail with `NotIdempotentError` if the effect of a call does not happen exactly once, or its answers differ.

    `call` takes a key, which is new in each run; a call without a parameter needs `reset`, which restores the initial
    state. It may be a coroutine function. `effects` counts the effects of all calls so far.

    - duplicate: three calls in sequence.
    - lost: the first answer is discarded; a coroutine is also cancelled at each place where it waits.
    - concurrent: a second call while the first is held at each place, in threads or as tasks of one loop; then
      concurrent calls. If a call waits for a lock of the held one, that one continues after `patience` seconds.
    - killed: SIGKILL at each place in a fork of this process, then two retries in a new process; `restart` runs in each
      new process before its calls, to reopen connections.

    `answer` converts the return value of a call to the value that is compared. `unknown` tells which answers or
    exceptions mean that the outcome is unknown (default: `OutcomeUnknown`): after a call was cut off, one effect or
    none is then correct. `again` tells which ask for a retry (default: `InFlight` and `RunAgain`). `before_retry` runs
    before each retry, for example to move a clock. `at` repeats one run of a schedule, by the number in a report.
    """
    from semel.testing.calls import subject_of  # noqa: PLC0415 - the plugin imports this module in every run of pytest

    subject = subject_of(
        call=call,
        count=effects,
        answer=answer,
        unknown=unknown,
        again=again,
        reset=reset,
        restart=restart,
        before_retry=before_retry,
        racers=racers,
        timeout=timeout,
        patience=patience,
        max_places=max_places,
        at=at,
    )
    return _judged(subject, [schedules] if isinstance(schedules, str) else list(schedules))


def _judged(subject: Subject, names: list[str]) -> IdempotencyReport:
    from semel.testing.schedules import SCHEDULES  # noqa: PLC0415 - as above

    for name in names:
        if name not in SCHEDULES:
            raise ValueError(f"{name!r} is not a schedule: use {', '.join(SCHEDULES)}.")
    report = IdempotencyReport()
    with warnings.catch_warnings():
        # A driver whose connect() is cancelled may leave its connection to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        found = [_first_fault(subject, name, SCHEDULES[name], report) for name in names]
        if subject.is_async:
            gc.collect()
    faults = [one for one in found if one is not None]
    if faults:
        raise NotIdempotentError(getattr(subject.call, "__qualname__", repr(subject.call)), faults, len(names))
    return report


def _first_fault(
    subject: Subject, name: str, schedule: Schedule, report: IdempotencyReport
) -> tuple[ScheduleRun, str] | None:
    """Run a schedule to its end or its first fault."""
    for run in _runs(subject, name, schedule):
        report.add(run)
        fault = run.fault()
        if fault is not None:
            return run, fault
    return None


def _runs(subject: Subject, name: str, schedule: Schedule) -> Iterator[ScheduleRun]:
    """The runs of a schedule: one per place, then run 0, which has no place. A fault with a place tells more."""
    if subject.at is not None:
        run = schedule(subject, subject.at)
        if run is not None:
            yield run
        return
    for number in range(1, subject.max_places + 2):
        run = schedule(subject, number)
        if run is None:
            break
        yield run
    else:
        from semel.testing.calls import UnusableCallError  # noqa: PLC0415 - as above

        raise UnusableCallError(
            f"The schedule {name!r} has more than {subject.max_places} places: test less, or give max_places=."
        )
    run = schedule(subject, 0)
    if run is not None:
        yield run
