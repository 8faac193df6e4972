"""A worker that bills orders, and a command that submits an order. From this folder, each in its own terminal:

semel serve
semel worker worker:worker
python worker.py 4711        # and again: the same job, the same payment
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

from semel.client import Job, JobFailedError, Permanent, Worker

worker = Worker(concurrency=8)


@dataclass
class Bill:
    """What a job returns; it is stored as JSON and rebuilt."""

    payment: str
    mail: str


def charge(order: str, key: str) -> str:
    """A stand-in for a payment service that accepts an idempotency key."""
    return f"pay-{order}" if key else ""


@worker.job("order.bill", queue="billing", attempts=5, timeout=60, backoff=[1, 10, 60])
def bill(job: Job, order: str) -> Bill:
    """Runs in a thread. Both steps happen once, even if this function runs again because a worker crashed."""
    if not order.isdecimal():
        raise Permanent(f"{order} is not the number of an order", code="no_such_order")
    payment = job.once("charge", charge, order, job.step_key("charge"))
    mail = job.once("mail", lambda: f"mailed to the buyer of {order}")
    return Bill(payment, mail)


@worker.cron("0 8 * * *", time_zone="Europe/Berlin", params={"days": 14})
@worker.job("order.remind")
async def remind(days: int) -> str:
    """Runs on the event loop, every morning."""
    await asyncio.sleep(0.1)
    return f"reminded the buyers of {days} days ago"


def main(order: str) -> None:
    """Submit a job with an idempotency key, wait for its end, and print the result."""
    handle = bill.with_options(key=f"bill-{order}").submit(order)
    try:
        print("known" if handle.replayed else "new", handle.result(timeout=30))
    except JobFailedError as error:
        print("failed:", error.code)


if __name__ == "__main__":
    main(sys.argv[1])
