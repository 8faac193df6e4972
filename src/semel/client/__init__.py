"""The Python SDK: `JobsClient` submits and reads jobs, `Worker` runs them; `DeltasClient` keeps rows in sync."""

from typing import TYPE_CHECKING, Any

from semel.client.deltas.values import Change, DeadLetter, PendingDelta, Pulled, Pushed, Synced
from semel.client.errors import (
    AccessError,
    AnswerTooLargeError,
    BadAnswerError,
    BusyError,
    CallError,
    ClockSkewError,
    ConfigurationError,
    CursorExpiredError,
    FileInUseError,
    IntegrityError,
    InvalidRequestError,
    KeyCollisionError,
    LeaseLostError,
    LocalFileError,
    NoAnswerError,
    NotFinishedError,
    NotFoundError,
    ProofRefusedError,
    RefusedError,
    ResultConflictError,
    RowExistsError,
    RowMissingError,
    SemelError,
    StepError,
    TooLargeError,
    TransactionError,
)
from semel.client.job import AsyncJob, Job
from semel.client.jobs import JobsClient
from semel.client.reports import Cancelled, Defer, Permanent, RetryLater
from semel.client.retry import Patience
from semel.client.values import (
    Beat,
    Cancellation,
    Claimed,
    JobInfo,
    JobRequest,
    Lease,
    Outcome,
    QueueInfo,
    Reported,
    Step,
    Submitted,
)
from semel.client.worker import Worker

if TYPE_CHECKING:
    from semel.client.deltas.client import DeltasClient

__all__ = [
    "AccessError",
    "AnswerTooLargeError",
    "AsyncJob",
    "BadAnswerError",
    "Beat",
    "BusyError",
    "CallError",
    "Cancellation",
    "Cancelled",
    "Change",
    "Claimed",
    "ClockSkewError",
    "ConfigurationError",
    "CursorExpiredError",
    "DeadLetter",
    "Defer",
    "DeltasClient",
    "FileInUseError",
    "IntegrityError",
    "InvalidRequestError",
    "Job",
    "JobInfo",
    "JobRequest",
    "JobsClient",
    "KeyCollisionError",
    "Lease",
    "LeaseLostError",
    "LocalFileError",
    "NoAnswerError",
    "NotFinishedError",
    "NotFoundError",
    "Outcome",
    "Patience",
    "PendingDelta",
    "Permanent",
    "ProofRefusedError",
    "Pulled",
    "Pushed",
    "QueueInfo",
    "RefusedError",
    "Reported",
    "ResultConflictError",
    "RetryLater",
    "RowExistsError",
    "RowMissingError",
    "SemelError",
    "Step",
    "StepError",
    "Submitted",
    "Synced",
    "TooLargeError",
    "TransactionError",
    "Worker",
]


def __getattr__(name: str) -> Any:
    """Import `DeltasClient` on first use: it needs SQLite (apsw), which other users of the SDK do not."""
    if name != "DeltasClient":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from semel.client.deltas.client import DeltasClient  # noqa: PLC0415 - see above

    return DeltasClient
