"""Several processes with one credential: each names its instance, and only the same one is replaced."""

from __future__ import annotations

from typing import Any

import pytest

from tests.events.wire import Events, fresh, item


def test_c4_two_instances_of_one_client_are_connected_side_by_side(events: Events) -> None:
    client, room = fresh("service"), fresh("room")
    first, second = events.peer(client, instance="replica-1"), events.peer(client, instance="replica-2")
    plain = events.peer(client)
    for peer in (first, second, plain):
        peer.subscribe(room)
    [from_first] = first.commit(item([room]))
    [from_second] = second.commit(item([room]))
    seen = {
        name: [event["committed_id"] for event in peer.broadcasts(count)]
        for name, peer, count in (("first", first, 1), ("second", second, 1), ("plain", plain, 2))
    }
    assert seen == {"first": [from_second], "second": [from_first], "plain": [from_first, from_second]}
    assert {event["client_id"] for event in plain.history([room])} == {client}


def test_c4_a_newer_connection_of_the_same_instance_replaces_the_older_one(events: Events) -> None:
    client, port = fresh("service"), events.server.port
    other = events.peer(client, port=port, instance="replica-2")
    for instance in ({"instance": "replica-1"}, {}, {"instance": ""}):
        older = events.peer(client, port=port, **instance)
        newer = events.peer(client, port=port, **instance)
        ending = older.ending()
        assert (ending.messages, ending.code) == ([], 4001), instance
        newer.heartbeat()
    other.heartbeat()


def test_c4_no_instance_and_an_empty_one_are_the_same(events: Events) -> None:
    client, port = fresh("service"), events.server.port
    older = events.peer(client, port=port)
    events.peer(client, port=port, instance="").heartbeat()
    assert older.ending().code == 4001


def test_c4_the_same_instance_of_another_client_is_another(events: Events) -> None:
    port = events.server.port
    one = events.peer(fresh("service"), port=port, instance="replica-1")
    events.peer(fresh("service"), port=port, instance="replica-1").heartbeat()
    one.heartbeat()


def test_c4_an_instance_that_has_left_is_free_again(events: Events) -> None:
    client, port = fresh("service"), events.server.port
    for _ in range(3):
        peer = events.peer(client, port=port, instance="replica-1")
        peer.heartbeat()
        peer.close()


@pytest.mark.parametrize("wrong", [1, None, True, ["a"], {}, "x" * 129, "é" * 65, "\ud800"], ids=repr)
def test_c4_an_instance_that_is_no_short_string_is_a_bad_request(events: Events, wrong: Any) -> None:
    peer = events.raw()
    asked = {"token": "any", "client_id": peer.client_id, "instance": wrong}
    refusal = peer.error("connect", asked)
    assert refusal["code"] == "bad_request"
    peer.connect(instance="é" * 64)
    peer.heartbeat()
