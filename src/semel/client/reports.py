"""The report of a run: its result as JSON, its error or its deferral; and the exceptions that ask for one.

Any other exception fails the run, and the job runs again while it has attempts left. An exception becomes a report
within the limits of the wire.

A function has had its effects when it returns, so a result that cannot be stored must not fail the job: the job would
run again. It is stored as done, with a note in place of the result.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple, get_type_hints

import orjson

from semel.client.errors import ConfigurationError
from semel.client.integrity import canonical_bytes


class Permanent(Exception):  # noqa: N818 - an order to the worker, not a fault of its own
    """This job cannot succeed: fail it for good. `code` is the name of the class unless given."""

    def __init__(self, message: str = "", *, code: str | None = None, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.details = details


class RetryLater(Exception):  # noqa: N818 - as above
    """This run failed: run the job again after a delay in seconds, if it has attempts left."""

    def __init__(
        self, after: float, message: str = "", *, code: str | None = None, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.after = after
        self.code = code
        self.details = details


class Cancelled(Exception):  # noqa: N818 - as above
    """The run ends because the job's owner wants it cancelled (`is_cancelled`): the job is over, and runs no more."""


class Defer(Exception):  # noqa: N818 - as above
    """Not now: run the job again after a delay in seconds, as if it had not run."""

    def __init__(self, delay: float = 0.0, reason: str = "") -> None:
        super().__init__(reason)
        self.delay = delay
        self.reason = reason


NO_RESULT = "no_result"
"""The one member of the note that replaces a result that could not be stored."""
MAX_LEVELS = 64
_SIMPLE = (str, int, float, bool, type(None))
_UNPRINTABLE = (bytes, bytearray, memoryview, set, frozenset, complex, Decimal)


def plain(value: Any) -> Any:
    """The value in plain JSON types: tuples, dataclasses, dates, times, UUIDs and enums become what orjson prints.

    TypeError for what it does not print, ValueError for what is nested too deeply.
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
        raise TypeError(f"a member is named by a {type(name).__name__}, and not by a string")
    return name


def note(reason: str) -> dict[str, str]:
    """The note that is stored instead of a result that could not be."""
    return {NO_RESULT: reason}


def refuse_unprintable(kind: str, function: Callable[..., Any]) -> None:
    """Refuse a function whose own annotation says that its result cannot be stored: before it has had any effect."""
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        returned = get_type_hints(target).get("return")
    except Exception:  # noqa: BLE001 - an annotation that cannot be looked up here says nothing
        return
    if isinstance(returned, type) and issubclass(returned, _UNPRINTABLE):
        raise ConfigurationError(
            f"The function for jobs of the kind {kind} returns {returned.__name__}, which is not JSON: return what is."
        )


MAX_CODE_CHARACTERS = 128
MAX_MESSAGE_CHARACTERS = 1_024
MAX_DETAILS_BYTES = 8_192
MAX_REASON_CHARACTERS = 256
MOST_SECONDS = 86_400.0
"""The longest that a job can be put off."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class DoneReport(NamedTuple):
    """It went well."""

    result: Any


class FailedReport(NamedTuple):
    """It went wrong."""

    error: Mapping[str, Any]
    retryable: bool = True
    retry_after: float | None = None


class DeferredReport(NamedTuple):
    """It is given back, uncharged."""

    delay: float
    reason: str


Report = DoneReport | FailedReport | DeferredReport


def report_of(error: BaseException) -> FailedReport | DeferredReport:
    """The report for an exception of a job's function."""
    if isinstance(error, Defer):
        return DeferredReport(_seconds(error.delay), _line(error.reason, MAX_REASON_CHARACTERS))
    if isinstance(error, Cancelled):
        return FailedReport(_error(error, "cancelled", None), retryable=False)
    if isinstance(error, Permanent):
        return FailedReport(_error(error, error.code, error.details), retryable=False)
    if isinstance(error, RetryLater):
        return FailedReport(_error(error, error.code, error.details), retry_after=_seconds(error.after))
    return FailedReport(_error(error, None, None))


def short(text: str) -> str:
    """A text within the bounds of a message."""
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
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide that the job failed
        return ""


def _fits(details: dict[str, Any]) -> bool:
    try:
        return len(canonical_bytes(details)) <= MAX_DETAILS_BYTES
    except (TypeError, ValueError):
        return False


def _text(text: str, most: int) -> str:
    """The first `most` characters, without any that UTF-8 cannot carry."""
    return text[:most].encode("utf-8", "replace").decode()


def _line(text: str, most: int) -> str:
    """The same, without control characters."""
    return _CONTROL.sub("?", _text(text, most))


def _seconds(seconds: float) -> float:
    return min(max(seconds, 0.0), MOST_SECONDS)
