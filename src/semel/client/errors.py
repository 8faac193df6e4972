"""Errors of calls to a server. No message carries a token, a key or a payload.

After a `RefusedError` nothing was changed, and the same call would be refused again; only `BusyError` means that the
server had no room after all retries. After `OutcomeUnknown` the write may have taken effect: `client.resolve(identity)`
asks for it, and the same call with the same identity repeats it without a second effect.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semel.client.access import Address
    from semel.client.identity import WriteIdentity

_PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""Status codes that are retried."""

_UNSETTLED = frozenset({500, 502, 504})
_UNSETTLED_CODES = frozenset({"not_durable", "shutting_down", "OUTCOME_UNKNOWN"})
_SHOWN_CHARACTERS = 500
_MOST_ASKED_MS = 3_600_000


class SemelError(Exception):
    """Any failure of a call. It can be pickled, whatever its constructor takes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[SemelError], args: tuple[Any, ...], members: dict[str, Any]) -> SemelError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(members)
    return error


class ConfigurationError(SemelError):
    """The URL, the token or a setting is not valid."""


class InvalidArgumentError(SemelError, ValueError):
    """An argument cannot be sent; nothing was sent."""


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
    reason = ""
    """The kind of failure, such as `ConnectionRefusedError`."""
    refused_address: Address | None = None
    """The address, if no process listens there."""

    def __init__(self, message: str, *, is_unsettled: bool) -> None:
        super().__init__(message)
        self.is_unsettled = is_unsettled


class OutcomeUnknown(NoAnswerError):  # noqa: N818 - the name says what the caller knows
    """A write got no usable answer in time: it may have taken effect, or may still do so.

    `identity` names it: pass it to `client.resolve`, or repeat the call with it. The last error is the cause.
    """

    protected_until: datetime | None = None
    """Until when a repeated call with the identity has no second effect, if the client has made up the key of a job for
    this one call. None if the server keeps the identity as long as others.
    """

    def __init__(self, message: str, identity: WriteIdentity) -> None:
        super().__init__(message, is_unsettled=True)
        self.identity = identity


class BadAnswerError(SemelError):
    """The server does not use this protocol, or its answer is larger than allowed.

    It is raised for reads. A write with such an answer may have taken effect: it is retried, then `OutcomeUnknown`.
    """

    may_pass = True
    """Whether a retry may get another answer."""


class AnswerTooLargeError(BadAnswerError):
    """An answer exceeds the client's limit in bytes."""

    may_pass = False


class IntegrityError(SemelError):
    """The checksum or the signature of a result does not match."""


class NotFinishedError(SemelError):
    """The result was requested before the job has ended."""


class JobFailedError(SemelError):
    """The job of a handle failed, or was cancelled. `error` is what its worker reported."""

    def __init__(self, job_id: str, error: Mapping[str, Any]) -> None:
        super().__init__(
            f"The job {job_id} failed: {error.get('message', '')} [{error.get('code', '')}]"[:_SHOWN_CHARACTERS]
        )
        self.job_id = job_id
        self.error = error

    @property
    def code(self) -> str:
        """The code of the error."""
        return str(self.error.get("code", ""))


class UnexpectedResultError(SemelError):
    """A job has completed, but its result does not have the return type of its function. `value` is the result."""

    def __init__(self, job_id: str, why: str, value: Any) -> None:
        super().__init__(f"The result of the job {job_id} does not fit the return type of its function: {why}.")
        self.job_id = job_id
        self.value = value


class StepError(SemelError):
    """A step was started twice at the same time in one run of a job."""


class LocalFileError(SemelError):
    """A file of the client cannot be opened, read or written."""


class FileInUseError(LocalFileError):
    """Another client has this file open."""


class TransactionError(SemelError):
    """A push or a pull was started inside a transaction of the local file."""


class RowExistsError(SemelError):
    """An insert failed because a row with this id exists."""


class RowMissingError(SemelError):
    """An update failed because no row with this id exists."""


class RefusedError(CallError):
    """The server refused the call. `code` is its error code, `facts` its whole answer."""

    headers: Mapping[str, str] = MappingProxyType({})
    """The headers of the answer, with names in lower case."""

    def __init__(self, status: int, code: str, message: str, facts: Mapping[str, Any], retry_after: float) -> None:
        super().__init__(message[:_SHOWN_CHARACTERS])
        self.status = status
        self.code = code
        self.facts = facts
        self.retry_after = retry_after
        # Semel's answers say whether to retry; for the answer of a proxy its status decides.
        retry = facts.get("retry")
        if isinstance(retry, str):
            self.may_pass, self.is_unsettled = retry in ("same_key", "later"), retry == "same_key"
        else:
            # A 5xx without a code of Semel's is a proxy's: the request may have reached the server before it.
            is_proxys = not code and status >= 500
            self.may_pass = is_proxys or (status in _PASSING and code != "result_integrity_fail")
            self.is_unsettled = is_proxys or (self.may_pass and (status in _UNSETTLED or code in _UNSETTLED_CODES))


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
    """It does not exist, or the caller may not see it."""


class KeyCollisionError(RefusedError):
    """The key was used for another write: same key, other content."""


class LeaseLostError(RefusedError):
    """This worker no longer holds the lease of the job."""


class ResultConflictError(RefusedError):
    """The job has already ended with another result of the same run."""


class ConflictError(RefusedError):
    """The write does not fit the current state: a condition failed, a number is out of order, or it is closed."""


class WriteConditionError(ConflictError):
    """A condition of a ledger transaction does not hold: nothing was executed, and no sequence or key was used."""

    @property
    def entity_key(self) -> str:
        """The key of the first condition that failed."""
        return str(_ledger_fact(self.facts, "key") or "")

    @property
    def current_version(self) -> int | None:
        """The version of that key now; None if it has no value."""
        return _number_of(_ledger_fact(self.facts, "currentVersion"))

    @property
    def current_value(self) -> bytes | None:
        """Its value now; None if it has none, or one of more than 4,096 bytes."""
        value = _ledger_fact(self.facts, "currentValue")
        try:
            return b64decode(value, validate=True) if isinstance(value, str) else None
        except ValueError:
            return None


class SequenceGapError(ConflictError):
    """A sequence of the ledger is not the next one of its client: earlier transactions are missing at the server."""

    @property
    def last_sequence(self) -> int | None:
        """The last committed sequence of the client."""
        return _number_of(_ledger_fact(self.facts, "lastCommittedSequence"))


class FencedSequenceError(ConflictError):
    """A sequence of the ledger was committed before, and the server no longer knows with which operations.

    Nothing was executed now.
    """


class GoneError(RefusedError):
    """What was asked for existed and is gone: retention deleted it, or an older backup was restored."""


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
    "CLOCK_DRIFT": ClockSkewError,
    "CURSOR_EXPIRED": CursorExpiredError,
    "IDEMPOTENCY_KEY_COLLISION": KeyCollisionError,
    "IDEMPOTENCY_MISMATCH": KeyCollisionError,
    "lease_lost": LeaseLostError,
    "lease_required": LeaseLostError,
    "result_conflict": ResultConflictError,
    "result_integrity_fail": ProofRefusedError,
    "integrity_missing": ProofRefusedError,
    "SEQUENCE_TAKEN": KeyCollisionError,
    "WRITE_ERROR_CODE_ALREADY_COMMITTED": FencedSequenceError,
    "WRITE_ERROR_CODE_IDEMPOTENCY_KEY_REUSED": KeyCollisionError,
    "WRITE_ERROR_CODE_KEY_EXISTS": WriteConditionError,
    "WRITE_ERROR_CODE_KEY_NOT_FOUND": WriteConditionError,
    "WRITE_ERROR_CODE_SEQUENCE_GAP": SequenceGapError,
    "WRITE_ERROR_CODE_VALUE_MISMATCH": WriteConditionError,
    "WRITE_ERROR_CODE_VERSION_MISMATCH": WriteConditionError,
}
_BY_STATUS: Mapping[int, type[RefusedError]] = {
    400: InvalidRequestError,
    401: AccessError,
    403: AccessError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    412: ConflictError,
    413: TooLargeError,
    422: InvalidRequestError,
    429: BusyError,
    503: BusyError,
}


_BARE: Mapping[int, str] = {
    401: "The token is missing or wrong.",
    403: "This token may not do that.",
    404: "It does not exist, or this token may not see it.",
    410: "It existed and is gone.",
}
"""Sentences for answers without a body, such as those to HEAD."""


def refusal(status: int, facts: Mapping[str, Any], retry_after: float = 0.0) -> RefusedError:
    """The error of an unsuccessful answer, from any surface; an unknown one is named by its status."""
    code, message = _told(facts)
    if not code:
        message = _BARE.get(status) or f"The server answered {status} {_phrase(status)}."
    asked_ms = facts.get("retry_after_ms")
    if isinstance(asked_ms, int):
        retry_after = min(asked_ms, _MOST_ASKED_MS) / 1_000
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status, RefusedError)
    return kind(status, code, f"{message} [{code}]" if code else message, facts, retry_after)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "(unknown status)"


def _told(facts: Mapping[str, Any]) -> tuple[str, str]:
    """Code and sentence of a refusal; empty if it is not from Semel.

    Streams and events send a problem document (`code`, `detail`), jobs `error` and `message`, deltas `code` and
    `error`, the ledger an object `error`.
    """
    code, message = facts.get("code"), facts.get("detail") or facts.get("title")
    error = facts.get("error")
    if isinstance(error, str):
        code, message = (error, facts["message"]) if "message" in facts else (code, error)
    elif isinstance(error, Mapping):
        code, message = error.get("code"), error.get("message")
    return (code, message) if isinstance(code, str) and isinstance(message, str) else ("", "")


def _ledger_fact(facts: Mapping[str, Any], name: str) -> Any:
    """A member of the ledger's error object."""
    error = facts.get("error")
    return error.get(name) if isinstance(error, Mapping) else None


def _number_of(value: Any) -> int | None:
    return int(value) if isinstance(value, str) and value.isdecimal() else None
