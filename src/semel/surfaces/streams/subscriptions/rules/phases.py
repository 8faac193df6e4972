"""The phases of a subscription, as functions of its row: each returns the row after one step.

| phase | step | next phase | changes |
|---|---|---|---|
| idle | work is found | waking | next generation, new wake id, owner is the node that sends |
| waking | the attempt fails, or is lost with its node | waking | one more attempt, later: backoff |
| waking | no worker claims a pull-wake | waking | its event is repeated, later: doubled up to one hour |
| waking | accepted, callback, claim | leased | until the lease ends |
| waking, leased | done, release | idle | wake id and holder are cleared |
| leased | ack | leased | the lease is extended |
| leased | the lease ends | waking | as from idle: next generation, so that the old token is fenced |

Times are lease times (`Now.steady_ms`). A stored time that is further ahead than any step sets it was written under
another clock, and counts as past.
"""

from __future__ import annotations

from semel.kernel.clock import Now
from semel.kernel.verdict import NEVER
from semel.surfaces.streams.subscriptions.tables import IDLE, LEASED, WAKING, SubscriptionRow

FIRST_BACKOFF_MS = 1_000
MAX_BACKOFF_MS = 60_000
ATTEMPT_MARGIN_MS = 5_000
"""Time after the end of an attempt in which its node writes the outcome; then another node may repeat it."""
MAX_LEASE_MS = 600_000
MAX_REPEAT_MS = 3_600_000
"""Longest time after which the event of a pull-wake that no worker has claimed is appended again."""
HORIZON_MS = 2 * MAX_REPEAT_MS
"""No step sets a time that is further ahead."""


def is_due(row: SubscriptionRow, now: Now) -> bool:
    """Whether the time of the next action has come."""
    ahead = row.due_at - now.steady_ms
    return ahead <= 0 or (row.due_at != NEVER and ahead > HORIZON_MS)


def wait_ms(row: SubscriptionRow, now: Now) -> int | None:
    """Milliseconds until the next action, 0 if it is due; None if there is none."""
    return None if row.due_at == NEVER else 0 if is_due(row, now) else row.due_at - now.steady_ms


def backoff_ms(attempts: int, chance: int) -> int:
    """The pause after that number of failed attempts: 1 s, doubled up to 60 s, plus or minus 20 %."""
    pause = min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS << min(max(attempts - 1, 0), 16))
    return pause * (80 + chance % 41) // 100


def repeat_ms(row: SubscriptionRow) -> int:
    """The time after which an event that no worker has claimed is repeated: the lease time, doubled up to one hour."""
    return min(MAX_REPEAT_MS, row.lease_ttl_ms << min(row.attempts, 16))


def sent(row: SubscriptionRow, wake_id: bytes, owner: bytes, due_at: int) -> SubscriptionRow:
    """A new wake is sent."""
    return row._replace(
        generation=row.generation + 1, wake_id=wake_id, phase=WAKING, holder=b"", attempts=0, owner=owner, due_at=due_at
    )


def tried_again(row: SubscriptionRow, owner: bytes, due_at: int) -> SubscriptionRow:
    """The wake is sent again: after a failed attempt, or after its node has not reported an outcome in time."""
    lost = 1 if row.owner else 0
    return row._replace(owner=owner, attempts=row.attempts + lost, due_at=due_at)


def attempt_failed(row: SubscriptionRow, now: Now, chance: int) -> SubscriptionRow:
    """The attempt has failed: try again after a pause."""
    attempts = row.attempts + 1
    return row._replace(owner=b"", attempts=attempts, failed=1, due_at=now.steady_ms + backoff_ms(attempts, chance))


def leased(row: SubscriptionRow, now: Now, holder: bytes = b"") -> SubscriptionRow:
    """A receiver or worker has the wake, for the time of a lease from now."""
    return row._replace(
        phase=LEASED,
        holder=holder or row.holder,
        owner=b"",
        attempts=0,
        failed=0,
        due_at=now.steady_ms + row.lease_ttl_ms,
    )


def ended(row: SubscriptionRow, due_at: int) -> SubscriptionRow:
    """The wake is over; the next one starts at `due_at`, or not before there is work if that is NEVER."""
    return row._replace(phase=IDLE, wake_id=b"", holder=b"", owner=b"", attempts=0, failed=0, due_at=due_at)


def is_held(row: SubscriptionRow, now: Now) -> bool:
    """Whether a lease is running."""
    return row.phase == LEASED and not is_due(row, now)
