"""Errors of calls to a server. No message carries a token, a key or a payload.

After a `RefusedError` nothing was changed, and the same call would be refused again; only `BusyError` means that the
server had no room after all retries. After a `NoAnswerError` the call may have taken effect: repeat it with the same
key to find out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""Status codes that are retried."""

_UNSETTLED = frozenset({500, 502, 504})
_UNSETTLED_CODES = frozenset({"not_durable", "shutting_down", "OUTCOME_UNKNOWN"})
_SHOWN_CHARACTERS = 500


class SemelError(Exception):
    """Any failure of a call."""


class ConfigurationError(SemelError):
    """The URL, the token or a setting is not valid."""


class CallError(SemelError):
    """A call without a usable answer."""

    may_pass = False
    """Whether a retry may succeed."""
    is_unsettled = False
    """Whether the call may have taken effect: repeat it with the same key to find out."""
    retry_after = 0.0
    """Seconds to wait before a retry, if the server gave them."""
    key: str | None = None
    """The idempotency key, if this was a submission."""


class NoAnswerError(CallError):
    """No answer was received after all retries."""

    may_pass = True

    def __init__(self, message: str, *, is_unsettled: bool) -> None:
        super().__init__(message)
        self.is_unsettled = is_unsettled


class BadAnswerError(SemelError):
    """The server does not use this protocol, or its answer is larger than allowed."""


class AnswerTooLargeError(BadAnswerError):
    """An answer exceeds the client's limit in bytes."""


class IntegrityError(SemelError):
    """The checksum or the signature of a result does not match."""


class NotFinishedError(SemelError):
    """The result was requested before the job has ended."""


class StepError(SemelError):
    """A step was started twice at the same time in one run of a job."""


class LocalFileError(SemelError):
    """The file of a replica cannot be opened, read or written."""


class FileInUseError(LocalFileError):
    """Another client has the file of this replica open."""


class TransactionError(SemelError):
    """A push or a pull was started inside a transaction of the local file."""


class RowExistsError(SemelError):
    """An insert failed because a row with this id exists."""


class RowMissingError(SemelError):
    """An update failed because no row with this id exists."""


class RefusedError(CallError):
    """The server refused the call. `code` is its error code, `facts` its whole answer."""

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
        """The invalid field, if the server named one."""
        field = self.facts.get("field")
        return field if isinstance(field, str) else None


class AccessError(RefusedError):
    """The token is missing, wrong, or not allowed to do this."""


class NotFoundError(RefusedError):
    """There is no such job, or it belongs to another caller."""


class KeyCollisionError(RefusedError):
    """The key was used for another job: same key, other kind or params."""


class LeaseLostError(RefusedError):
    """This worker no longer holds the lease of the job."""


class ResultConflictError(RefusedError):
    """The job has already ended with another result of the same run."""


class TooLargeError(RefusedError):
    """The request exceeds a size limit of the server."""


class ProofRefusedError(RefusedError):
    """The server requires a valid signature of the report."""


class ClockSkewError(RefusedError):
    """Timestamps of changes are too far in the future: this machine's clock is wrong, or the server's."""

    skew_ms: int | None = None
    """Milliseconds by which this machine's clock is ahead of the server's; negative if it is behind."""


class CursorExpiredError(RefusedError):
    """The server no longer keeps the log at this replica's cursor."""


class BusyError(RefusedError):
    """The server had no room, or could not store anything, after all retries."""


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
    """The error of an unsuccessful answer; an unknown one is named by its status."""
    code, message = facts.get("error"), facts.get("message")
    if not isinstance(code, str) or not isinstance(message, str):
        code, message = "", f"The server answered with status {status}."
    asked_ms = facts.get("retry_after_ms")
    if isinstance(asked_ms, int):
        retry_after = asked_ms / 1_000
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status, RefusedError)
    return kind(status, code, f"{message} [{code}]" if code else message, facts, retry_after)
