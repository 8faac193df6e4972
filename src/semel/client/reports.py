"""Reports of runs: an exception becomes a report within the limits of the wire."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from semel.client.integrity import canonical_bytes
from semel.client.orders import Cancelled, Defer, Permanent, RetryLater

MAX_CODE_CHARACTERS = 128
MAX_MESSAGE_CHARACTERS = 1_024
MAX_DETAILS_BYTES = 8_192
MAX_REASON_CHARACTERS = 256
MOST_SECONDS = 86_400.0
"""The longest that a job can be put off."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Done(NamedTuple):
    """It went well."""

    result: Any


class Failed(NamedTuple):
    """It went wrong."""

    error: Mapping[str, Any]
    retryable: bool = True
    retry_after: float | None = None


class Deferred(NamedTuple):
    """It is given back, uncharged."""

    delay: float
    reason: str


Report = Done | Failed | Deferred


def report_of(error: BaseException) -> Failed | Deferred:
    """The report for an exception of a job's function."""
    if isinstance(error, Defer):
        return Deferred(_seconds(error.delay), _line(error.reason, MAX_REASON_CHARACTERS))
    if isinstance(error, Cancelled):
        return Failed(_error(error, "cancelled", None), retryable=False)
    if isinstance(error, Permanent):
        return Failed(_error(error, error.code, error.details), retryable=False)
    if isinstance(error, RetryLater):
        return Failed(_error(error, error.code, error.details), retry_after=_seconds(error.after))
    return Failed(_error(error, None, None))


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
