"""Exceptions that a job's function raises to retry, defer or fail its run.

Any other exception fails the run, and the job runs again while it has attempts left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
