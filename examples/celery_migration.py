"""From Celery to Semel, one task at a time and without losing a message. From this folder, each in its own terminal:

semel serve
celery --app celery_migration worker
semel worker celery_migration:worker
python celery_migration.py

1. The body of a Celery task becomes a job: same name, same arguments.
2. The Celery task stays while its queue has messages: it passes each one on, with the message's id as the key, so a
   message that Celery delivers twice is one job.
3. Callers write `bill.submit(...)` instead of `bill.delay(...)`. When the queue is empty, the Celery task goes.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery

from semel.client import NoAnswerError, Worker

app = Celery("shop", broker=os.environ.get("BROKER_URL", "redis://127.0.0.1:6379/0"))
app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True)
worker = Worker()


@worker.job("shop.bill", attempts=5, backoff=[1, 10, 60])
def bill(order: str, cents: int) -> str:
    """The body of the old task."""
    return f"billed {order}: {cents} cents"


@app.task(name="shop.bill", bind=True, autoretry_for=(NoAnswerError,), retry_backoff=True, max_retries=None)
def old_bill(self: Any, order: str, cents: int) -> None:
    """What is left of the old task: it submits the job."""
    bill.with_options(key=f"celery-{self.request.id}").submit(order, cents)


def main() -> None:
    """A caller of the old kind, whose message is delivered twice, and one of the new kind."""
    message = old_bill.delay("4711", 500)
    old_bill.apply_async(("4711", 500), task_id=message.id)
    print(bill.submit("4712", 700).result(timeout=60))
    print(bill.with_options(key=f"celery-{message.id}").submit("4711", 500).result(timeout=60))
    worker.close()


if __name__ == "__main__":
    main()
