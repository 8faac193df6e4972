"""Subscriptions over restarts and over two nodes: cursors, generations, keys and schedules stay."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from semel.store.postgres.address import parse
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer
from tests.streams.subscriptions.receiver import ACCEPTED, Control, Receiver, Reply, until


def test_a_restart_keeps_subscriptions_cursors_generations_keys_and_tokens(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as server, Receiver(lambda delivery: ACCEPTED) as receiver:
        with Control(server.url) as control:
            made = control.webhook("kept", receiver.url, pattern="a/*", lease_ttl_ms=60_000, description="x")
            control.create("a/1", 1)
            delivery = receiver.wait(1)[0]
            keys = control.http.get("__ds/jwks.json").json()
            until(lambda: control.callback(delivery).status_code == 200)
        server.kill()
        server.start()
        with Control(server.url) as control:
            assert control.http.get("__ds/jwks.json").json() == keys
            shown = control.get("kept")
            kept = made.keys() - {"streams", "wake"}  # these two go on
            assert {name: shown[name] for name in kept} == {name: made[name] for name in kept}
            assert shown["wake"]["generation"] == 1
            tail = delivery.stream("a/1")["tail_offset"]
            answer = control.callback(delivery, acks=[{"stream": "a/1", "offset": tail}], done=True)
            assert answer.status_code == 200, answer.text
            control.append("a/1", 2)
            second = receiver.wait(2)[1]
            assert second.body["generation"] == 2
            assert second.stream("a/1")["acked_offset"] == tail


def test_an_attempt_in_which_the_server_dies_is_made_again_after_the_start(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as server:
        replies = [Reply(hangs=True)]
        with (
            Receiver(lambda delivery: replies.pop() if replies else Reply()) as receiver,
            Control(server.url) as control,
        ):
            control.webhook("dies", receiver.url, pattern="a/*")
            control.create("a/1", 1)
            first = receiver.wait(1)[0]
            server.kill()
            server.start()
            second = receiver.wait(2, seconds=10)[1]  # far sooner than the attempt would have ended
            assert second.body["wake_id"] == first.body["wake_id"]
            assert second.body["streams"] == first.body["streams"]
            until(lambda: control.acked("dies", "a/1") == first.stream("a/1")["tail_offset"])


def test_a_retry_waits_for_its_time_over_a_restart(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as server, Receiver(lambda delivery: Reply(500)) as receiver:
        with Control(server.url) as control:
            control.webhook("waits", receiver.url, pattern="a/*")
            control.create("a/1", 1)
            receiver.wait(3)  # the next pause is about four seconds
            until(lambda: control.get("waits")["status"] == "failed")
        began = time.monotonic()
        server.restart()
        receiver.wait(4)
        assert time.monotonic() - began > 2.0


class TwoNodes(NamedTuple):
    """Two nodes over one database."""

    url: str
    each: tuple[RunningServer, RunningServer]

    def owner(self, name: str) -> RunningServer | None:
        """The node that the row of a subscription names as its owner."""
        address = parse(self.url)
        with psycopg.connect(address.conninfo) as connection:
            query = SQL("SELECT owner FROM {}.subscription WHERE id = %s").format(Identifier(address.schema))
            row = connection.execute(query, (name.encode(),)).fetchone()
        owner = row[0].decode().split(":") if row is not None else [""]
        return next((node for node in self.each if owner[1:2] == [str(node.pid)]), None)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNodes]:
    folder = tmp_path_factory.mktemp("nodes")
    url = fresh_url()
    env = {"SEMEL_STORE": url, "SEMEL_STREAMS_WEBHOOK_MS": "1000"}
    with RunningServer(folder / "a", env=env) as first, RunningServer(folder / "b", env=env) as second:
        yield TwoNodes(url, (first, second))


def test_two_nodes_share_subscriptions_keys_tokens_and_leases(nodes: TwoNodes) -> None:
    with Control(nodes.each[0].url) as one, Control(nodes.each[1].url) as other:
        assert one.http.get("__ds/jwks.json").json() == other.http.get("__ds/jwks.json").json()
        one.create("wake/s")
        assert one.put("s", type="pull-wake", pattern="s/*", wake_stream="wake/s").status_code == 201
        other.create("s/a", 1)
        until(lambda: one.read("wake/s"))
        claimed = one.call("s", "claim", worker="w").json()
        assert other.call("s", "claim", worker="v").status_code == 409
        acks = [{"stream": "s/a", "offset": claimed["streams"][0]["tail_offset"]}]
        answer = other.call(
            "s", "ack", claimed["token"], wake_id=claimed["wake_id"], generation=1, acks=acks, done=True
        )
        assert answer.json() == {"ok": True, "next_wake": False}
        one.append("s/a", 2)
        assert other.call("s", "claim", worker="v").status_code == 200


def test_each_wake_is_sent_by_one_node_of_two(nodes: TwoNodes) -> None:
    with Receiver() as receiver, Control(nodes.each[0].url) as one, Control(nodes.each[1].url) as other:
        one.webhook("single", receiver.url, pattern="single/*")
        tail = ""
        one.create("single/a")
        for number in range(20):
            tail = (one, other)[number % 2].append("single/a", number)
            until(lambda: one.acked("single", "single/a") == tail)  # noqa: B023 - it is called in this turn
        generations = [delivery.body["generation"] for delivery in receiver.got]
        assert generations == sorted(set(generations)), "a wake was sent twice although no node had died"


def test_the_other_node_repeats_the_attempt_of_a_dead_owner(nodes: TwoNodes) -> None:
    owners: list[RunningServer] = []

    def answer(_: object) -> Reply:
        return Reply(seconds=0.5) if owners else Reply(hangs=True)

    with Receiver(answer) as receiver:
        with Control(nodes.each[0].url) as control:
            control.webhook("moves", receiver.url, pattern="moves/*")
            control.create("moves/a", 1)
        first = receiver.wait(1)[0]
        dead = nodes.owner("moves")
        assert dead is not None, "the row names no owner during an attempt"
        [alive] = [node for node in nodes.each if node is not dead]
        owners.append(dead)
        dead.kill()
        try:
            second = receiver.wait(2)[1]
            with Control(alive.url) as control:
                until(lambda: control.acked("moves", "moves/a") == first.stream("moves/a")["tail_offset"])
            assert second.body["wake_id"] == first.body["wake_id"]
            assert second.body["streams"] == first.body["streams"]
            assert len(receiver.got) == 2
        finally:
            dead.start()
        assert nodes.owner("moves") is None, "the row names an owner after the attempt"
