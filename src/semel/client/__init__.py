"""The Python SDK: `JobsClient` submits and reads jobs, `Worker` runs them."""

from semel.client.errors import (
    AccessError,
    BadAnswerError,
    BusyError,
    CallError,
    ConfigurationError,
    IntegrityError,
    InvalidRequestError,
    KeyCollisionError,
    LeaseLostError,
    NoAnswerError,
    NotFinishedError,
    NotFoundError,
    ProofRefusedError,
    RefusedError,
    ResultConflictError,
    SemelError,
    StepError,
    TooLargeError,
)
from semel.client.job import AsyncJob, Job
from semel.client.jobs import JobsClient
from semel.client.orders import Defer, Permanent, RetryLater
from semel.client.patience import Patience
from semel.client.values import Beat, Cancelled, Claimed, JobInfo, JobRequest, Lease, Outcome, Reported, Step, Submitted
from semel.client.worker import Worker

__all__ = [
    "AccessError",
    "AsyncJob",
    "BadAnswerError",
    "Beat",
    "BusyError",
    "CallError",
    "Cancelled",
    "Claimed",
    "ConfigurationError",
    "Defer",
    "IntegrityError",
    "InvalidRequestError",
    "Job",
    "JobInfo",
    "JobRequest",
    "JobsClient",
    "KeyCollisionError",
    "Lease",
    "LeaseLostError",
    "NoAnswerError",
    "NotFinishedError",
    "NotFoundError",
    "Outcome",
    "Patience",
    "Permanent",
    "ProofRefusedError",
    "RefusedError",
    "Reported",
    "ResultConflictError",
    "RetryLater",
    "SemelError",
    "Step",
    "StepError",
    "Submitted",
    "TooLargeError",
    "Worker",
]
