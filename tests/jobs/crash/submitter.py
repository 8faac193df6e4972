"""Clients that never give up: a job is submitted with the same key until it is answered, and each answer is kept."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.harness.caller import Body, Line, Told
from tests.jobs.crash.journal import LONG

PAUSE_SECONDS = (0.0, 0.15)
LONG_LEASE_SEC = 3
RECENT = 100
"""So many orders are made in much less than ten minutes."""


@dataclass(slots=True)
class Order:
    """One job that somebody wants, and what was said about it, in this client's order."""

    key: str
    fields: Body
    answers: list[Body] = field(default_factory=list)
    cancels: list[Told] = field(default_factory=list)

    @property
    def is_generated(self) -> bool:
        """Whether the server keeps its key for ten minutes only."""
        return "generated_key" in self.fields

    @property
    def body(self) -> Body:
        """The submission."""
        return {"idempotency_key": self.key} | self.fields


class Submitter:
    """One thread; `orders` grows while it works."""

    def __init__(self, name: str, ports: Sequence[int], seed: int) -> None:
        self._name = name
        self._chance = random.Random(f"{seed} {name}")
        self._line = Line(ports, self._chance)
        self.orders: list[Order] = []
        self._generates = True
        """Whether some orders have generated keys."""
        self.faults: list[str] = []

    @property
    def lost(self) -> int:
        """How many requests went without an answer."""
        return self._line.lost

    def work(self, stop: threading.Event) -> None:
        """Submit until told to stop; sometimes repeat, reuse a key, or cancel."""
        while not stop.is_set():
            draw = self._chance.random()
            if draw < 0.15:
                self._submit_many([self._new() for _ in range(self._chance.randrange(2, 6))])
            else:
                self._submit(self._new())
            if draw > 0.7:
                self._submit(self._earlier())
            elif draw > 0.65:
                self._collide(self._earlier())
            elif draw > 0.61 and self.orders[-1].answers:
                self._cancel(self.orders[-1])
            time.sleep(self._chance.uniform(*PAUSE_SECONDS))
        self._line.close()

    def _earlier(self) -> Order:
        """An order that was made before; one with a generated key only while the server keeps that."""
        order = self._chance.choice(self.orders)
        return self._chance.choice(self.orders[-RECENT:]) if order.is_generated else order

    def _new(self) -> Order:
        number, chance = len(self.orders), self._chance
        key = f"{self._name}-{number}"
        fields: Body = {"kind": chance.choice(("a", "b")), "params": {"order": key, "n": number}, "lease_sec": 1}
        fields |= {"priority": chance.randrange(10), "queue": chance.choice(("q1", "q2", "q3"))}
        fields |= chance.choice(({}, {"delay_ms": chance.randrange(300)}, {"max_attempts": chance.randrange(1, 4)}))
        if chance.random() < 0.04:
            fields |= {"kind": LONG, "lease_sec": LONG_LEASE_SEC}
        if self._generates and chance.random() < 0.5:
            fields |= {"generated_key": True}
        order = Order(key, fields)
        self.orders.append(order)
        return order

    def _submit(self, order: Order) -> None:
        if self._chance.random() < 0.5:
            told = self._line.insist("POST", "/v1/jobs", order.body)
        else:
            told = self._line.insist("POST", "/mesh/submit_request", order.fields, {"Idempotency-Key": order.key})
        self._hear(order, told.status, told.body)

    def _submit_many(self, orders: Sequence[Order]) -> None:
        """Each item is judged alone: those refused for lack of room go again, alone."""
        told = self._line.insist("POST", "/v1/jobs/batch", {"jobs": [order.body for order in orders]})
        if told.status != 200:
            return self.faults.append(f"a batch was answered {told.status} {told.body}")
        for order, answer in zip(orders, told.body["jobs"], strict=True):
            if answer["http"] in (429, 503):
                self._submit(order)
            else:
                self._hear(order, answer["http"], answer)
        return None

    def _hear(self, order: Order, status: int, body: Body) -> None:
        if status == 200:
            order.answers.append(body)
        else:
            self.faults.append(f"{order.key} was answered {status} {body}")

    def _collide(self, order: Order) -> None:
        """Another payload under a key that is taken."""
        other: dict[str, Any] = order.body | {"params": {"order": order.key, "n": -1}}
        told = self._line.insist("POST", "/v1/jobs", other)
        if (told.status, told.body.get("error")) != (409, "IDEMPOTENCY_KEY_COLLISION"):
            self.faults.append(f"another payload for {order.key} was answered {told.status} {told.body}")

    def _cancel(self, order: Order) -> None:
        path = f"/v1/jobs/{order.answers[-1]['job_id']}/cancel"
        order.cancels.append(self._line.insist("POST", path, {"force": self._chance.random() < 0.5}))
