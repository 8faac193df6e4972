"""`assert_app_idempotent`: makes the dangers of a web application happen, and names what went wrong in one sentence.

| danger | how it is made |
|---|---|
| a lost answer | the client is gone when the answer begins |
| a commit that fails | the database driver raises in each commit, also in one behind the answer |
| a process that is killed | SIGKILL before and after each commit, and when the answer is ready |
| two blocks in one request | the first request shows it |
| two event loops | each request has its own; four are sent at once |
| a retry that is written differently | JSON in another order, a form with another boundary |
| a request that is cancelled | at each place where it waits; before its handler began nothing may be unknown |
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from semel.testing.apps import UNSAID, AppAnswer, AppRequest, Interruption, Lifespan, asgi_answer, is_asgi, send
from semel.testing.calls import Subject, subject_of
from semel.testing.places import CodePlace, PlaceWatch
from semel.testing.processes import Killer, in_process
from semel.testing.report import CallOutcome
from semel.testing.steps import SteppedCoroutine, waits_at

MAX_PLACES = 100
RACERS = 4
PAUSE_SECONDS = 0.02
WAITING = frozenset({"in_flight", "store_unavailable"})
"""Codes of answers that ask for a retry."""
UNKNOWN, MISMATCH = "outcome_unknown", "key_mismatch"


class AppNotIdempotentError(AssertionError):
    """The request of an application did not take effect exactly once, or its answers differ."""

    def __init__(self, request: str, faults: list[str]) -> None:
        super().__init__(f"{request} is not idempotent:\n" + "\n".join(f"- {fault}" for fault in faults))
        self.faults = faults
        """One sentence for each danger that went wrong."""


def assert_app_idempotent(
    app: Any,
    path: str,
    *,
    effects: Callable[[], int],
    method: str = "POST",
    json: Any = UNSAID,
    content: bytes = b"",
    files: Mapping[str, bytes] | None = None,
    headers: Mapping[str, str] | None = None,
    restart: Callable[[], object] = lambda: None,
    timeout: float = 60.0,
) -> None:
    """Fail with `AppNotIdempotentError` if a request with an `Idempotency-Key` may take effect twice, or not at all.

    `app` is an ASGI or WSGI application with its middleware. `effects` counts the effects of all requests so far.
    `restart` runs in each new process before its requests, to reopen connections.
    """
    request = AppRequest(app, path, method, headers or {}, json, content, files or {}, timeout)
    trial = Trial(request, effects, restart)
    first = _first(trial)
    faults = [first] if first else [fault for danger in DANGERS if (fault := danger(trial)) is not None]
    if faults:
        raise AppNotIdempotentError(f"{method} {path}", faults)


class Trial:
    """The application under test: new keys, retries, and the effects since the first attempt of a key."""

    def __init__(self, request: AppRequest, effects: Callable[[], int], restart: Callable[[], object]) -> None:
        self._request, self._effects = request, effects
        self._subject: Subject = subject_of(
            call=lambda key: None,
            count=effects,
            unknown=None,
            again=None,
            reset=None,
            answer=lambda value: value,
            restart=restart,
            before_retry=lambda: None,
            racers=RACERS,
            timeout=request.timeout,
            patience=0.0,
            max_places=MAX_PLACES,
            at=None,
        )
        self._before = 0
        self.attempts = 0

    @property
    def is_asgi(self) -> bool:
        """Whether the application has an event loop."""
        return is_asgi(self._request.app)

    def begin(self) -> AppRequest:
        """A request with a new key."""
        self._before, self.attempts = self._effects(), 0
        return replace(self._request, key=uuid.uuid4().hex)

    def effects(self) -> int:
        """The effects since `begin`."""
        return self._effects() - self._before

    def send(self, request: AppRequest, happens: Interruption | None = None) -> AppAnswer:
        """Send the next attempt, and again while the answer asks for it."""
        deadline = time.monotonic() + request.timeout
        self.attempts += 1
        while True:
            found = send(request, self.attempts - 1, happens)
            if found.code not in WAITING or time.monotonic() > deadline:
                return found
            time.sleep(PAUSE_SECONDS)

    def retry(self, request: AppRequest) -> AppAnswer:
        """Send a retry. A lease of an attempt that was cut off ends first, as it would with time."""
        end_leases()
        return self.send(request)

    def fault_of(self, request: AppRequest, what: str, *, may_be_unknown: bool) -> str | None:
        """Retry twice after a danger; what is wrong then, in one sentence."""
        answers = [self.retry(request), self.retry(request)]
        return self.judge(answers, what, may_be_unknown=may_be_unknown)

    def judge(self, answers: list[AppAnswer], what: str, *, may_be_unknown: bool) -> str | None:
        """What is wrong with the answers to one key and with its effects."""
        count, last = self.effects(), answers[-1]
        if any(answer.code == MISMATCH for answer in answers):
            return f"{what} the retry was taken for another request (422), because it was written differently."
        if count > 1:
            return f"{what} there are {count} effects."
        if may_be_unknown and last.code == UNKNOWN:
            return None
        if not last.is_success:
            return f"{what} the retry got {last.shown}{last.error and f' ({last.error})'}, with {count} effects."
        if count == 0:
            return f"{what} the client got {last.shown}, but there is no effect."
        if any(answer[::2] != last[::2] for answer in answers if answer.is_success):
            return f"{what} the answers differ: {', then '.join(answer.shown for answer in answers)}."
        return None

    def within(self, make: Callable[[int], list[CallOutcome]]) -> list[CallOutcome]:
        """Run something in a new process."""
        return in_process(self._subject, make)


def end_leases() -> None:
    """End the leases of all stores of this process, as if their time had passed.

    A store that does not answer, as one whose file is gone, has none that a retry could meet.
    """
    from semel.once.errors import OnceError  # noqa: PLC0415
    from semel.once.stores import known_stores  # noqa: PLC0415 - an application without the library has none

    for store in known_stores():
        with suppress(OnceError):
            store.end_leases()


def _first(trial: Trial) -> str | None:
    for loop in ("", "In a second event loop "):
        request = trial.begin()
        answer = trial.send(request)
        if "SecondBlock" in answer.error:
            return f"The request has two blocks of once.transaction() under one key: {answer.error}"
        if not answer.is_success or trial.effects() != 1:
            error = f" ({answer.error})" if answer.error else ""
            return f"{loop}a request was answered {answer.shown}{error}, with {trial.effects()} effects.".capitalize()
        again = trial.send(request)
        fault = trial.judge([answer, again], "When a request is sent twice,", may_be_unknown=False)
        if fault is not None:
            return fault
        if "idempotency-replayed" not in again.headers:
            return "A retry has no header Idempotency-Replayed: the path has no middleware, or its key is not read."
    return None


class LostAnswer(Interruption):
    """The client is gone when the answer begins."""

    def answer(self, message: dict[str, Any]) -> None:
        """Refuse it."""
        raise OSError("the client is gone")


def _lost_answer(trial: Trial) -> str | None:
    request = trial.begin()
    trial.send(request, LostAnswer())
    return trial.fault_of(request, "When the answer is lost,", may_be_unknown=False)


class CommitError(Exception):
    """A commit that was made to fail."""


class _FailingCommit:
    """Makes the nth commit of a request fail, in whichever thread it is."""

    def __init__(self, number: int) -> None:
        self._left = number
        self._lock = threading.Lock()
        self.place: CodePlace | None = None

    def reached(self, place: CodePlace) -> None:
        if not place.text.startswith("before ") or "commit" not in place.text:
            return
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self.place = place
                raise CommitError("the commit failed")


def _failed_commits(trial: Trial) -> str | None:
    for number in range(1, MAX_PLACES):
        request, failing = trial.begin(), _FailingCommit(number)
        with watched(failing.reached):
            answer = trial.send(request)
        if failing.place is None:
            return None
        what = f"When the commit fails {failing.place},"
        if answer.is_success and trial.effects() == 0:
            return f"{what} the client got {answer.shown} all the same."
        fault = trial.fault_of(request, what, may_be_unknown=True)
        if fault is not None:
            return fault
    return None


class watched:  # noqa: N801 - it is used as a function
    """Calls a function at each place of this thread and of those that it starts."""

    def __init__(self, reached: Callable[[CodePlace], object]) -> None:
        self._watch = PlaceWatch(reached)

    def __enter__(self) -> None:
        threading.setprofile(self._watch)
        sys.setprofile(self._watch)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)


def _kills(trial: Trial) -> str | None:
    for number in range(1, MAX_PLACES):
        request = trial.begin()
        first = trial.within(lambda writing: _killed(trial, request, number, writing))[0]  # noqa: B023 - run at once
        if first.kind == "answer":
            return None
        if first.kind == "error":
            return f"In a process of its own the application failed: {first.text.splitlines()[-1]}"
        answers = [
            AppAnswer(*found.value)
            for found in trial.within(
                lambda _: [CallOutcome("answer", tuple(trial.retry(request))) for _attempt in range(2)]  # noqa: B023
            )
            if found.kind == "answer"
        ]
        what = f"When the process is killed {first.text},"
        if len(answers) < 2:
            return f"{what} the retry did not end."
        fault = trial.judge(answers, what, may_be_unknown=True)
        if fault is not None:
            return fault
    return None


def _killed(trial: Trial, request: AppRequest, number: int, writing: int) -> list[CallOutcome]:
    """Send a request in a process that is killed at the nth commit, or when its answer is ready."""
    killer = Killer(number, writing)

    class Answering(Interruption):
        """The answer is ready, and its first message has not left."""

        is_first = True

        def answer(self, message: dict[str, Any]) -> None:
            """One place for the whole answer."""
            if self.is_first:
                self.is_first = False
                killer.reached(CodePlace("when its answer is ready", ""))

    with watched(lambda place: killer.reached(place) if "commit" in place.text else None):
        found = trial.send(request, Answering())
    return [CallOutcome("answer", tuple(found))]


def _at_once(trial: Trial) -> str | None:
    request = trial.begin()
    answers: list[AppAnswer] = []

    def run() -> None:
        answers.append(trial.send(request))

    threads = [threading.Thread(target=run, name="semel-testing-racer", daemon=True) for _ in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(request.timeout)
    if len(answers) < RACERS:
        return f"Of {RACERS} requests that were sent at once, {RACERS - len(answers)} got no answer."
    return trial.judge(answers, f"When {RACERS} requests are sent at once,", may_be_unknown=False)


def _cancellations(trial: Trial) -> str | None:
    if not trial.is_asgi:
        return None
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None  # a framework may leave what was cancelled to the garbage collector
    try:
        return _cancel_everywhere(trial)
    finally:
        gc.collect()
        sys.unraisablehook = hook


def _cancel_everywhere(trial: Trial) -> str | None:
    for number in range(1, MAX_PLACES):
        request = trial.begin()
        cut = asyncio.run(_cancelled(request, number))
        gc.collect()  # else what a framework left open holds the lock of the key, and the retry waits for it
        if cut is None:
            return None
        has_begun, place = cut
        when = f"in its handler ({place})" if has_begun else "while its key was claimed"
        fault = trial.fault_of(request, f"When a request is cancelled {when},", may_be_unknown=has_begun)
        if fault is not None:
            return fault
    return None


async def _cancelled(request: AppRequest, number: int) -> tuple[bool, str] | None:
    """Cancel a request at its nth wait. Whether its handler had begun, and where; None if it ended before."""
    found: list[tuple[bool, str]] = []
    waits = 0

    def cancel(made: Any) -> None:
        nonlocal waits
        waits += 1
        if waits == number:
            found.append((_has_begun(made), waits_at(made)))
            # After the loop has registered what the task waits for, so that this is cancelled too.
            asyncio.get_running_loop().call_soon(task.cancel)

    async with Lifespan(request.app):
        stepped = SteppedCoroutine(asgi_answer(request, 0, Interruption()), waits=cancel)
        task = asyncio.create_task(_await(stepped))
        await asyncio.wait({task}, timeout=request.timeout)
    return found[0] if found else None


async def _await(stepped: SteppedCoroutine) -> Any:
    return await stepped


def _has_begun(made: Any) -> bool:
    """Whether a request waits inside its application, and not in the middleware of this package."""
    while made is not None:
        frame = getattr(made, "cr_frame", None)
        place = None if frame is None else (frame.f_globals.get("__name__"), frame.f_code.co_qualname)
        if place == ("semel.once.asgi", "Middleware._run"):
            return True
        made = getattr(made, "cr_await", None)
    return False


DANGERS: tuple[Callable[[Trial], str | None], ...] = (
    _lost_answer,
    _at_once,
    _cancellations,
    _failed_commits,
    _kills,
)
