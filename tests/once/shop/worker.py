"""The shop's worker: `python -m tests.once.shop.worker` ships each order once, in a transaction with the job's key."""

from __future__ import annotations

import os

import psycopg

from semel import once
from semel.client import Worker
from semel.client.worker.job import Job

worker = Worker(concurrency=4, lease=5, poll=2.0)


@worker.job(attempts=50)
def ship(job: Job, order: str) -> str:
    """A job may run again; its shipment is stored once."""
    with psycopg.connect(os.environ["SHOP_DATABASE"]) as connection:
        with once.transaction(connection, job.id, order, scope="shipments") as attempt:
            if attempt.fresh:
                connection.execute("INSERT INTO shipments (name) VALUES (%s)", [order])
                attempt.result = f"shipped {order}"
        connection.commit()
    shipped: str = attempt.result
    return shipped


if __name__ == "__main__":
    from tests.once.shop.worker import worker as served  # job functions are those of the module, and not of __main__

    served.run()
