"""The events of the audit log, with the class of each: important, paced or rare.

Some lines can be caused by anyone, as often as they like; those are paced. Some are what an operator will look for
after weeks; those have a file of their own, in which only their own kind can take up room.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from semel.server.line_pace import LineRate

IMPORTANT_LINES = LineRate(burst=1_000, refill_ms=1_000)
PACED_LINES = LineRate(burst=50, refill_ms=10_000)


class LineClass(Enum):
    """The class of an audit log event: how its lines are kept and paced."""

    IMPORTANT = "in a file of their own"
    EACH = "one line each: every one of them is a change that was committed"
    PACED = "one line each for the first ones of a kind, address and reason, the rest counted"
    RARE = "one line in ten seconds for all of a kind, the rest counted"

    @property
    def rate(self) -> LineRate | None:
        """How many lines of one source are written; None is all of them."""
        return _RATES.get(self)


_RATES: Mapping[LineClass, LineRate] = {
    LineClass.IMPORTANT: IMPORTANT_LINES,
    LineClass.PACED: PACED_LINES,
    LineClass.RARE: LineRate(burst=1, refill_ms=10_000),
}

CLASSES: Mapping[str, LineClass] = {
    "IDEMPOTENCY_KEY_COLLISION": LineClass.IMPORTANT,
    "LEDGER_KEY_COLLISION": LineClass.IMPORTANT,
    "LEASE_FENCED": LineClass.IMPORTANT,
    "RESULT_CONFLICT": LineClass.IMPORTANT,
    "RESULT_INTEGRITY_FAIL": LineClass.IMPORTANT,
    "IDEMPOTENCY_KEY_RELEASED": LineClass.IMPORTANT,
    "JOB_REVIVED": LineClass.IMPORTANT,
    "JOB_CANCELLED": LineClass.IMPORTANT,
    "TOKEN_ROTATION_FINALIZED": LineClass.IMPORTANT,
    "LEASE_REAP": LineClass.EACH,
    "OFFER_LAPSED": LineClass.EACH,
    "JOB_TIMEOUT": LineClass.EACH,
    "RETRY_SCHEDULED": LineClass.EACH,
    "RETRY_EXHAUSTED": LineClass.EACH,
    "DLQ_ENQUEUE": LineClass.EACH,
    "DLQ_EVICT": LineClass.EACH,
    "SCHEDULE_SKIPPED": LineClass.EACH,
    "IDEMPOTENCY_EVICT": LineClass.EACH,
    "AUDIT_LINES_LOST": LineClass.EACH,
    "AUTH_FAILURE": LineClass.PACED,
    "IDEMPOTENCY_HIT": LineClass.PACED,
    "ORIGIN_REFUSED": LineClass.PACED,
    "PORT_MISMATCH": LineClass.PACED,
    "BACKPRESSURE_DROP": LineClass.RARE,
    "INFLIGHT_SATURATED": LineClass.RARE,
    "IDEMPOTENCY_STORE_FULL": LineClass.RARE,
    "LEDGER_SEQUENCE_GAP": LineClass.RARE,
    "TOKEN_ACCEPTED_NEXT": LineClass.RARE,
    "TOKEN_RETIRED": LineClass.RARE,
}


def class_of(event: str) -> LineClass:
    """How its lines are kept; one line each, if nothing is said."""
    return CLASSES.get(event, LineClass.EACH)
