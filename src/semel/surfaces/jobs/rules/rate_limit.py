"""Rate limit of a queue: a token bucket in one number of the queue's row.

A bucket holds at most `count` tokens, each lease takes one, and one comes back every `per_ms / count` milliseconds. So
in any time of t milliseconds a queue has at most `count + count * t / per_ms` starts, on all nodes together, because
every claim is decided under one lock and takes its tokens in its own commit. A lease that is given back or lapses
returns no token: a start is a lease that was given.

The stored number is the instant at which the bucket is full again, in units of 1/count ms, so that all arithmetic is
exact. It is compared with lease time, which a step of the wall clock does not change. After a restart lease time may be
lower than before. The bucket then seems to owe more than it can hold: it counts as empty from then on, which gives no
extra start and blocks the queue for at most `per_ms`.

A crash before the commit of a claim takes no token; a crash after it has taken the tokens of the leases it gave.
"""

from __future__ import annotations

from semel.surfaces.jobs.tables import JobQueueRow

UNBOUNDED = 2**31
"""The number of starts without a limit."""


def tokens(row: JobQueueRow, steady_ms: int) -> int:
    """The number of leases that the rate limit of a queue allows now."""
    if not row.rate_count:
        return UNBOUNDED
    return max(0, (_capacity(row) - _owed(row, steady_ms)) // row.rate_ms)


def token_wait_ms(row: JobQueueRow, steady_ms: int) -> int:
    """The time until the queue has a token, in milliseconds; 0 if it has one."""
    excess = _owed(row, steady_ms) - (_capacity(row) - row.rate_ms)
    return min(row.rate_ms, -(-excess // row.rate_count)) if row.rate_count and excess > 0 else 0


def take_tokens(row: JobQueueRow, number: int, steady_ms: int) -> JobQueueRow:
    """The row after leases were given; a queue without a rate limit does not change."""
    if not row.rate_count:
        return row
    return row._replace(rate_full_at=steady_ms * row.rate_count + _owed(row, steady_ms) + number * row.rate_ms)


def settled(row: JobQueueRow, steady_ms: int) -> JobQueueRow:
    """The row after lease time fell back: a bucket that seems to owe more than it holds is empty from now on."""
    if not row.rate_count or _owed(row, steady_ms) <= _capacity(row):
        return row
    return row._replace(rate_full_at=steady_ms * row.rate_count + _capacity(row))


def with_rate(row: JobQueueRow, count: int, per_ms: int, steady_ms: int) -> JobQueueRow:
    """The row with another rate limit, 0 for none: tokens that were taken stay taken."""
    if (count, per_ms) == (row.rate_count, row.rate_ms):
        return row
    if not count:
        return row._replace(rate_count=0, rate_ms=0, rate_full_at=0)
    taken = 0
    if row.rate_count:
        taken = min(count, -(-_owed(settled(row, steady_ms), steady_ms) // row.rate_ms))
    return row._replace(rate_count=count, rate_ms=per_ms, rate_full_at=steady_ms * count + taken * per_ms)


def _capacity(row: JobQueueRow) -> int:
    return row.rate_count * row.rate_ms


def _owed(row: JobQueueRow, steady_ms: int) -> int:
    """What is missing from a full bucket, in units of 1/count ms: a token is `rate_ms` of them."""
    return max(0, row.rate_full_at - steady_ms * row.rate_count)
