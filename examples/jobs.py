"""Submit a job once, run it, and read its result. Start a server first: semel serve"""

from __future__ import annotations

from semel.client import Worker

worker = Worker()


@worker.job(attempts=3)
def charge(order: int, cents: int) -> str:
    """Usually in a module that the worker imports: semel worker jobs:worker"""
    return f"charged {cents} cents for order {order}"


if __name__ == "__main__":
    first = charge.with_options(key="order-1001").submit(order=1001, cents=4200)
    again = charge.with_options(key="order-1001").submit(order=1001, cents=4200)
    print("one job:", again.job_id == first.job_id, "replayed:", again.replayed)
    worker.run(until_idle=True)
    print(first.result(timeout=30))
    worker.close()
