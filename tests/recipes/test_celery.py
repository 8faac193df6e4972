"""The recipe for Celery: a real worker over a real Redis, killed behind its commit, and before its acknowledgement."""

from __future__ import annotations

import importlib
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.together import eventually
from tests.recipes.place import SECONDS, Place, redis_in

WORKER = """
from celery import signals
from death import die_once
from {module} import app
# How soon Redis gives a task to another worker.
app.conf.broker_transport_options = dict(visibility_timeout=1, unacked_restore_interval=1, unacked_restore_throttle=1)
signals.task_{point}.connect(lambda **_: die_once(), weak=False)
"""
BANK = """
from pathlib import Path
def refund(order_id, amount, idempotency_key):
    with Path("bank").open("a") as book:
        book.write(f"{order_id} {amount} {idempotency_key}\\n")
    return amount
"""
RUN = (
    "-m",
    "celery",
    "--app",
    "worker",
    "worker",
    "--pool",
    "solo",
    "--without-mingle",
    "--without-gossip",
    "-l",
    "INFO",
)


class Shop:
    """Tasks in one module of the page, and the broker."""

    def __init__(self, place: Place, redis: Any) -> None:
        self.place, self.redis = place, redis

    def worker(self, module: str, point: str) -> None:
        """What the worker is, and where it may die."""
        self.place.write("worker.py", WORKER.format(module=module, point=point))

    def send(self, task: str, *args: object) -> None:
        """Submit a task, as a program of the shop would."""
        module, _, name = task.partition(".")
        getattr(importlib.import_module(module), name).delay(*args)

    def work_all(self, tasks: int) -> None:
        """A worker that runs until as many tasks have ended and are acknowledged, those of the dead one among them."""
        time.sleep(1.1)
        before = self._ended()
        with self.place.running(*RUN):
            eventually(
                lambda: self._ended() >= before + tasks and not self.redis.hlen("unacked"), "all is done", SECONDS
            )

    def _ended(self) -> int:
        return self.place.log.count(" succeeded in ") + self.place.log.count(" raised unexpected")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """The shop; its modules are this process's own for a while."""
    place = Place(tmp_path)
    place.write("bank.py", BANK)
    with redis_in(tmp_path) as (redis, url):
        place.env["BROKER_URL"] = url
        for name in ("BROKER_URL", "DATABASE_URL"):
            monkeypatch.setenv(name, place.env[name])
        monkeypatch.syspath_prepend(str(tmp_path))
        yield Shop(place, redis)
        for name in ("tasks", "refunds", "bank"):
            module = sys.modules.pop(name, None)
            if module is not None and hasattr(module, "app"):
                module.app.close()


def test_a_task_that_is_delivered_again_after_a_kill_charges_once(shop: Shop) -> None:
    shop.worker("tasks", "postrun")
    shop.send("tasks.charge", "order-7", 5)
    shop.place.dies(*RUN)
    assert shop.place.charges() == [("order-7", 5)]
    shop.send("tasks.charge", "order-7", 5)
    shop.send("tasks.charge", "order-8", 6)
    shop.work_all(3)
    assert shop.place.charges() == [("order-7", 5), ("order-8", 6)]
    deliveries = Counter(re.findall(r"tasks.charge\[(.*?)\] received", shop.place.log))
    assert len(deliveries) == 3
    assert max(deliveries.values()) >= 2  # a machine that stands still for a second sees more of them


def test_a_task_that_calls_outside_is_not_called_again_after_a_kill(shop: Shop) -> None:
    shop.worker("refunds", "postrun")
    text = (shop.place.folder / "refunds.py").read_text()
    shop.place.write("refunds.py", text.replace('lease="60s"', 'lease="1s"'))
    # It dies behind the call, with the receipt not yet written.
    shop.place.write("bank.py", BANK.replace("    return", "    import death; death.die_once()\n    return"))
    shop.send("refunds.refund", "order-7", 5)
    shop.place.dies(*RUN)
    shop.send("refunds.refund", "order-8", 6)
    shop.work_all(2)
    assert (shop.place.folder / "bank").read_text().split() == ["order-7", "5", "order-7", "order-8", "6", "order-8"]
    assert "OutcomeUnknown" in shop.place.log
    refunds = sys.modules["refunds"]
    assert refunds.paid_back.inspect("order-7").state == "unknown"
    refunds.paid_back.resolve("order-7", result=5)
    assert refunds.refund("order-7", 5) == 5
    refunds.store.close()
