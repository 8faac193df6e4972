"""Errors of calls to a server. No message carries a token, a key or a payload.

A `RefusedError` is a verdict: the same call would get it again, and nothing was changed. The exception is `BusyError`,
raised when the server still had no room after all tries. `NoAnswerError` is doubt: what was asked may have happened,
and only the same call with the same key tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses that the same call may not meet again."""

_UNSETTLED = frozenset({500, 502, 504})
_UNSETTLED_CODES = frozenset({"not_durable", "shutting_down", "OUTCOME_UNKNOWN"})
_SHOWN_CHARACTERS = 500


class SemelError(Exception):
    """Any failure of a call."""


class ConfigurationError(SemelError):
    """The address, the token or a setting cannot be used."""


class CallError(SemelError):
    """A call without a usable answer."""

    may_pass = False
    """Whether the same call may end otherwise."""
    is_unsettled = False
    """Whether the call may have taken effect all the same: repeat it with the same key to find out."""
    retry_after = 0.0
    """Seconds that the server asks to wait."""
    key: str | None = None
    """The idempotency key, if this was a submission."""


class NoAnswerError(CallError):
    """No answer was received, in spite of all retries."""

    may_pass = True

    def __init__(self, message: str, *, is_unsettled: bool) -> None:
        super().__init__(message)
        self.is_unsettled = is_unsettled


class BadAnswerError(SemelError):
    """The server does not use this protocol, or its answer is larger than allowed."""


class AnswerTooLargeError(BadAnswerError):
    """An answer exceeds the client's limit in bytes."""


class IntegrityError(SemelError):
    """A result does not have the checksum or the signature that it should have."""


class NotFinishedError(SemelError):
    """The result was requested, and the job has not ended yet."""


class StepError(SemelError):
    """A step was begun twice at once within one run of a job."""


class LocalFileError(SemelError):
    """The file of a replica cannot be opened, read or written."""


class FileInUseError(LocalFileError):
    """Another client has the file of this replica open."""


class TransactionError(SemelError):
    """A push or a pull was begun within a transaction of the local file."""


class RowExistsError(SemelError):
    """A row was to be inserted, and there is one with this id."""


class RowMissingError(SemelError):
    """A row was to be updated, and there is none with this id."""


class RefusedError(CallError):
    """The server said no. `code` is its word for the reason, `facts` all that it said."""

    def __init__(self, status: int, code: str, message: str, facts: Mapping[str, Any], retry_after: float) -> None:
        super().__init__(message[:_SHOWN_CHARACTERS])
        self.status = status
        self.code = code
        self.facts = facts
        self.retry_after = retry_after
        self.may_pass = status in _PASSING and code != "result_integrity_fail"
        self.is_unsettled = self.may_pass and (status in _UNSETTLED or code in _UNSETTLED_CODES)


class InvalidRequestError(RefusedError):
    """A value breaks a rule; `field` names it."""

    @property
    def field(self) -> str | None:
        """The field at fault, if the server named one."""
        field = self.facts.get("field")
        return field if isinstance(field, str) else None


class AccessError(RefusedError):
    """The token is missing, wrong, or not allowed to do this."""


class NotFoundError(RefusedError):
    """There is no such job, or it belongs to another caller."""


class KeyCollisionError(RefusedError):
    """The key was used for another job already: same key, other kind or params."""


class LeaseLostError(RefusedError):
    """The job is not in this worker's hands any more."""


class ResultConflictError(RefusedError):
    """The job has ended already, with another result of the same run."""


class TooLargeError(RefusedError):
    """More than the server takes."""


class ProofRefusedError(RefusedError):
    """The server wants a report signed, or signed otherwise."""


class ClockSkewError(RefusedError):
    """Changes are dated further in the future than the server takes: this machine's clock is wrong, or the server's."""

    skew_ms: int | None = None
    """How far this machine's clock is ahead of the server's; below zero when it is behind."""


class CursorExpiredError(RefusedError):
    """The log behind this replica's cursor is no longer kept."""


class BusyError(RefusedError):
    """The server had no room, or could not store anything, in spite of all tries."""


_BY_CODE: Mapping[str, type[RefusedError]] = {
    "IDEMPOTENCY_KEY_COLLISION": KeyCollisionError,
    "lease_lost": LeaseLostError,
    "lease_required": LeaseLostError,
    "result_conflict": ResultConflictError,
    "result_integrity_fail": ProofRefusedError,
    "integrity_missing": ProofRefusedError,
}
_BY_STATUS: Mapping[int, type[RefusedError]] = {
    400: InvalidRequestError,
    401: AccessError,
    403: AccessError,
    404: NotFoundError,
    413: TooLargeError,
    429: BusyError,
    503: BusyError,
}


def refusal(status: int, facts: Mapping[str, Any], retry_after: float = 0.0) -> RefusedError:
    """The error behind an answer that is not a success; one that is not understood is named by its status."""
    code, message = facts.get("error"), facts.get("message")
    if not isinstance(code, str) or not isinstance(message, str):
        code, message = "", f"The server answered with status {status}."
    asked_ms = facts.get("retry_after_ms")
    if isinstance(asked_ms, int):
        retry_after = asked_ms / 1_000
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status, RefusedError)
    return kind(status, code, f"{message} [{code}]" if code else message, facts, retry_after)
