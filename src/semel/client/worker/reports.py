"""The report of a run (its result as JSON, its error or its deferral), and the exceptions that control it.

Any other exception fails the run, and the job runs again while it has attempts left. Reports of exceptions are cut to
the size limits. When a function returns, its effects have happened, so a result that cannot be stored must not fail the
job, which would run again: the job is completed with a note instead of the result.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple, get_type_hints

import orjson

from semel.client.errors import ConfigurationError
from semel.client.jobs.integrity import canonical_bytes


class Permanent(Exception):  # noqa: N818 - an instruction to the worker, not an error
    """Fail the job permanently: it cannot succeed. `code` is the name of the class by default."""

    def __init__(self, message: str = "", *, code: str | None = None, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.details = details


class RetryLater(Exception):  # noqa: N818 - as above
    """Fail this run, and retry the job after a delay in seconds if it has attempts left."""

    def __init__(
        self, after: float, message: str = "", *, code: str | None = None, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.after = after
        self.code = code
        self.details = details


class Cancelled(Exception):  # noqa: N818 - as above
    """End the run because the job's owner has cancelled it (`is_cancelled`): the job does not run again."""


class WaitForChildren(Exception):  # noqa: N818 - as above
    """Run the job again when its children have ended, without counting this attempt."""


class Defer(Exception):  # noqa: N818 - as above
    """Run the job again after a delay in seconds, without counting this attempt."""

    def __init__(self, delay: float = 0.0, reason: str = "") -> None:
        super().__init__(reason)
        self.delay = delay
        self.reason = reason


NO_RESULT = "no_result"
"""The only member of the note that replaces a result that cannot be stored."""
MAX_LEVELS = 64
_SIMPLE = (str, int, float, bool, type(None))
_UNPRINTABLE = (bytearray, memoryview, complex)


def plain(value: Any) -> Any:
    """The value as plain JSON types: tuples, dataclasses, dates, times, UUIDs and enums as orjson encodes them.

    Raises TypeError for other types, ValueError for too deep nesting.
    """
    return _plain(value, MAX_LEVELS)


def _plain(value: Any, levels_left: int) -> Any:
    if type(value) in _SIMPLE:
        return value
    if levels_left == 0:
        raise ValueError(f"it is nested more than {MAX_LEVELS} levels deep")
    if isinstance(value, list | tuple):
        return [_plain(one, levels_left - 1) for one in value]
    if isinstance(value, Mapping):
        return {_name(name): _plain(one, levels_left - 1) for name, one in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((one.name, getattr(value, one.name)) for one in dataclasses.fields(value))
        return {name: _plain(one, levels_left - 1) for name, one in fields}
    return orjson.loads(orjson.dumps(value))


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a member name is a {type(name).__name__}, not a string")
    return name


def note(reason: str) -> dict[str, str]:
    """The note that replaces a result that cannot be stored."""
    return {NO_RESULT: reason}


def refuse_unprintable(kind: str, function: Callable[..., Any]) -> None:
    """Refuse a function whose return annotation is not JSON, before it has any effect."""
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        returned = get_type_hints(target).get("return")
    except Exception:  # noqa: BLE001 - an annotation that cannot be resolved is ignored
        return
    if isinstance(returned, type) and issubclass(returned, _UNPRINTABLE):
        raise ConfigurationError(
            f"The function for jobs of the kind {kind} returns {returned.__name__}: return a JSON type instead."
        )


def refuse_generator(kind: str, function: Callable[..., Any]) -> None:
    """Refuse a generator function: a call of it runs nothing."""
    called = (function, type(function).__call__)
    if any(inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one) for one in called):
        raise ConfigurationError(
            f"The function for jobs of the kind {kind} is a generator function: return a list, as a job has one result."
        )


def finished_result(value: Any) -> Any:
    """What a run returned. Something that has still to run fails the job for good: a retry would return it again."""
    is_generator = inspect.isgenerator(value) or inspect.isasyncgen(value)
    if not is_generator and not inspect.isawaitable(value) and not isinstance(value, Future):
        return value
    if inspect.iscoroutine(value):
        value.close()  # it is never awaited, and need not warn of that
    raise Permanent(
        f"The function, or a middleware around it, returned a {type(value).__name__}, which has still to run: await it "
        "in an async def function, and return a value.",
        code="unfinished",
    )


MAX_CODE_CHARACTERS = 128
MAX_MESSAGE_CHARACTERS = 1_024
MAX_DETAILS_BYTES = 8_192
MAX_REASON_CHARACTERS = 256
MOST_SECONDS = 86_400.0
"""Maximum delay of a job, in seconds."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class DoneReport(NamedTuple):
    """The run succeeded."""

    result: Any


class FailedReport(NamedTuple):
    """The run failed."""

    error: Mapping[str, Any]
    retryable: bool = True
    retry_after: float | None = None


class DeferredReport(NamedTuple):
    """The job is given back, without counting the attempt."""

    delay: float
    reason: str
    wait_children: bool = False


Report = DoneReport | FailedReport | DeferredReport


class ReportedError(Exception):
    """An exception of a function in another process: its report, and its traceback as text."""

    def __init__(self, report: FailedReport | DeferredReport, trace: str) -> None:
        super().__init__(trace)
        self.report = report


def report_of(error: BaseException) -> FailedReport | DeferredReport:
    """The report for an exception of a job's function."""
    if isinstance(error, ReportedError):
        return error.report
    if isinstance(error, WaitForChildren):
        return DeferredReport(0.0, "waits for its children", wait_children=True)
    if isinstance(error, Defer):
        return DeferredReport(bounded_seconds(error.delay), _line(error.reason, MAX_REASON_CHARACTERS))
    if isinstance(error, Cancelled):
        return FailedReport(_error(error, "cancelled", None), retryable=False)
    if isinstance(error, Permanent):
        return FailedReport(_error(error, error.code, error.details), retryable=False)
    if isinstance(error, RetryLater):
        return FailedReport(_error(error, error.code, error.details), retry_after=bounded_seconds(error.after))
    return FailedReport(_error(error, None, None))


def short(text: str) -> str:
    """A text cut to the limit of a message."""
    return _text(text, MAX_MESSAGE_CHARACTERS)


def _error(error: BaseException, code: str | None, details: Mapping[str, Any] | None) -> dict[str, Any]:
    made: dict[str, Any] = {
        "code": _line(code or type(error).__name__, MAX_CODE_CHARACTERS),
        "message": _text(_said(error), MAX_MESSAGE_CHARACTERS),
    }
    if details is not None and _fits(dict(details)):
        made["details"] = dict(details)
    return made


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a faulty __str__ must not hide that the job failed
        return ""


def _fits(details: dict[str, Any]) -> bool:
    try:
        return len(canonical_bytes(details)) <= MAX_DETAILS_BYTES
    except (TypeError, ValueError):
        return False


def _text(text: str, most: int) -> str:
    """The first `most` characters, without those that UTF-8 cannot encode."""
    return text[:most].encode("utf-8", "replace").decode()


def _line(text: str, most: int) -> str:
    """As `_text`, without control characters."""
    return _CONTROL.sub("?", _text(text, most))


def bounded_seconds(seconds: float) -> float:
    """A pause within the limits of the server."""
    return min(max(seconds, 0.0), MOST_SECONDS)
