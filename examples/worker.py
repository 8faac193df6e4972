"""A worker that bills orders, and a command that submits an order. From this folder, each in its own terminal:

semel serve
semel worker worker:worker
python worker.py 4711        # and again: the same job, the same payment
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from semel.client import AsyncJob, Job, JobsClient, Permanent, Worker

worker = Worker(concurrency=8)


def charge(order: str, key: str) -> dict[str, Any]:
    """A stand-in for a payment service that accepts an idempotency key."""
    return {"payment": f"pay-{order}", "key": key}


@worker.job("order.bill")
def bill(job: Job) -> dict[str, Any]:
    """Runs in a thread. Both steps happen once, even if this function runs again because a worker crashed."""
    order = job.params["order"]
    if not order.isdecimal():
        raise Permanent(f"{order} is not the number of an order", code="no_such_order")
    paid = job.once("charge", charge, order, job.step_key("charge"))
    mailed = job.once("mail", lambda: f"mailed to the buyer of {order}")
    return {"payment": paid["payment"], "mail": mailed}


@worker.job("order.remind")
async def remind(job: AsyncJob) -> str:
    """Runs on the event loop."""
    await asyncio.sleep(0.1)
    return f"reminded the buyer of {job.params['order']}"


async def main(order: str) -> None:
    """Submit a job with an idempotency key, wait for its end, and print the result."""
    async with JobsClient() as jobs:
        job = await jobs.submit("order.bill", {"order": order}, key=f"bill-{order}")
        outcome = await jobs.result(job.job_id, wait=30)
        print("known" if job.dedup else "new", outcome.result if outcome.ok else outcome.error)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
