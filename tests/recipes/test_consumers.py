"""The recipe for consumers: a real Redis with a group, and the other loops over a queue that delivers again."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from tests.harness.together import eventually
from tests.recipes.place import SECONDS, Place, redis_in

DYING = """
import death, runpy, redis
real = redis.Redis.xack
redis.Redis.xack = lambda *words: death.die_once() or real(*words)  # behind the commit
runpy.run_path("redis_consumer.py", run_name="__main__")
"""
ORDERS = [{"id": "order-7", "amount": 5}, {"id": "order-8", "amount": 6}, {"id": "order-9", "amount": 7}]
CHARGED = [("order-7", 5), ("order-8", 6), ("order-9", 7)]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """The programs of the page."""
    return Place(tmp_path)


def test_an_entry_of_a_stream_is_handled_once_although_its_consumer_was_killed(place: Place) -> None:
    place.write("dying.py", DYING)
    with redis_in(place.folder) as (redis, url):
        place.env |= {"REDIS_URL": url, "IDLE_MS": "100"}
        redis.xgroup_create("orders", "billing", mkstream=True)
        for order in ORDERS:
            redis.xadd("orders", {"order": json.dumps(order)})
        for left in (3, 3):  # the second takes over what the first has left, and dies as well
            place.dies("dying.py")
            assert redis.xpending("orders", "billing")["pending"] == left
        assert place.charges() == CHARGED[:1]
        with place.running("redis_consumer.py"):
            eventually(lambda: redis.xpending("orders", "billing")["pending"] == 0, "all is acknowledged", SECONDS)
    assert place.charges() == CHARGED


class LostError(Exception):
    """The consumer dies between its commit and its acknowledgement."""


class DrainedError(Exception):
    """The queue is empty."""


class Queue:
    """Delivers what was not acknowledged again, each time it is opened."""

    def __init__(self) -> None:
        self.messages = {number: json.dumps(order).encode() for number, order in enumerate(ORDERS)}
        self.losses = 2

    def opened(self) -> Iterator[tuple[int, bytes]]:
        """What is left, in order."""
        yield from list(self.messages.items())
        raise DrainedError

    def acknowledge(self, number: int) -> None:
        """It is lost, or known."""
        if self.losses:
            self.losses -= 1
            raise LostError
        del self.messages[number]


def kafka(queue: Queue, connection: Any) -> None:
    """The surface of confluent-kafka's `Consumer` that the loop uses."""
    waiting = queue.opened()

    def poll(timeout: float) -> Any:
        number, body = next(waiting)
        facts = {"error": None, "topic": "orders", "partition": timeout * 0, "offset": number, "value": body}
        return SimpleNamespace(**{name: (lambda value=value: value) for name, value in facts.items()})

    def commit(*, message: Any, asynchronous: bool) -> None:
        assert not asynchronous
        queue.acknowledge(message.offset())

    consumer = SimpleNamespace(poll=poll, commit=commit)
    sys.modules["other_consumers"].consume_kafka(consumer, connection)


def sqs(queue: Queue, connection: Any) -> None:
    """That of boto3's client."""
    waiting = queue.opened()

    def receive_message(*, QueueUrl: str, WaitTimeSeconds: int) -> Any:  # noqa: N803 - the names of boto3
        assert (QueueUrl, WaitTimeSeconds) == ("url", 20)
        number, body = next(waiting)
        return {"Messages": [{"MessageId": f"m-{number}", "Body": body.decode(), "ReceiptHandle": number}]}

    def delete_message(*, QueueUrl: str, ReceiptHandle: int) -> None:  # noqa: N803 - the names of boto3
        queue.acknowledge(ReceiptHandle)

    client = SimpleNamespace(receive_message=receive_message, delete_message=delete_message)
    sys.modules["other_consumers"].consume_sqs(client, "url", connection)


def rabbitmq(queue: Queue, connection: Any) -> None:
    """That of pika's channel."""

    def consume(name: str) -> Iterator[Any]:
        assert name == "orders"
        for number, body in queue.opened():
            yield SimpleNamespace(delivery_tag=number), SimpleNamespace(message_id=f"m-{number}"), body

    channel = SimpleNamespace(consume=consume, basic_ack=queue.acknowledge)
    sys.modules["other_consumers"].consume_rabbitmq(channel, "orders", connection)


@pytest.mark.parametrize("loop", [kafka, sqs, rabbitmq])
def test_a_message_that_is_delivered_again_is_handled_once(
    place: Place, monkeypatch: pytest.MonkeyPatch, loop: Callable[[Queue, Any], None]
) -> None:
    monkeypatch.syspath_prepend(str(place.folder))
    importlib.import_module("other_consumers")
    queue = Queue()
    try:
        for end in (LostError, LostError, DrainedError):
            with psycopg.connect(place.database) as connection, pytest.raises(end):
                loop(queue, connection)
            assert place.charges() == (CHARGED if end is DrainedError else CHARGED[:1])
    finally:
        for name in ("other_consumers", "handling"):
            del sys.modules[name]
    assert not queue.messages
