"""A follower with one cursor misses no event, wherever its connection breaks: in every dialect."""

from __future__ import annotations

import pytest

from tests.events.naive import HastyFollower, NaiveFollower
from tests.events.wire import BROADCAST, Camel, Events, Message, Peer, fresh, item

HISTORY, LIMIT = 7, 2
MESSAGES = 8
"""Of one connection: four pages, and an event behind each."""
KINDS = ("seed", "1.3", "2.x")


def peer_of(events: Events, kind: str, room: str) -> Peer:
    if kind == "seed":
        return events.peer()
    return events.camel_1() if kind == "1.3" else events.camel_2(room)


def ask(peer: Peer, room: str, since: int) -> None:
    """Ask for a page, and for live events."""
    if not isinstance(peer, Camel):
        more = {"subscription_partitions": [room]}
        peer.send("sync", {"partitions": [room], "since_committed_id": since, "limit": LIMIT} | more)
    else:
        place = {"projectId": peer.project} if peer.project else {"partitions": [room]}
        peer.send("sync", place | {"sinceCommittedId": since, "limit": LIMIT})


def take(follower: NaiveFollower, kind: str, message: Message) -> bool:
    """Give a message to a follower; whether a further page has to be asked for."""
    payload, is_seed = message["payload"], kind == "seed"
    number = "committed_id" if is_seed else "committedId"
    if message["type"] == BROADCAST:
        follower.live(payload[number])
        return False
    assert message["type"] == "sync_response", message
    has_more = payload["has_more" if is_seed else "hasMore"]
    following = payload["next_since_committed_id" if is_seed else "nextSinceCommittedId"]
    follower.page([one[number] for one in payload["events"]], following, has_more=has_more)
    return has_more is True


def follow(events: Events, kind: str, room: str, follower: NaiveFollower, writer: Peer, messages: int) -> None:
    """One connection, which breaks after so many messages. Behind each page somebody commits another event.

    In the seed's dialect it comes between the pages, and the next page is asked for behind it; the others hold it back.
    """
    peer, has_more = peer_of(events, kind, room), True
    follower.connected()
    ask(peer, room, follower.cursor)
    for _ in range(messages):
        message = peer.receive()
        if message["type"] == BROADCAST:
            take(follower, kind, message)
        else:
            has_more = take(follower, kind, message)
            writer.commit(item([room]))
        if has_more and (message["type"] == BROADCAST) == (kind == "seed"):
            ask(peer, room, follower.cursor)
    peer.close()


def catch_up(events: Events, kind: str, room: str, follower: NaiveFollower) -> None:
    """The next connection, until the history has ended."""
    peer, has_more = peer_of(events, kind, room), True
    follower.connected()
    while has_more:
        ask(peer, room, follower.cursor)
        has_more = take(follower, kind, peer.receive())
    peer.close()


def lost(events: Events, kind: str, follower: NaiveFollower, messages: int) -> set[int]:
    """The events that a follower lacks after a connection that broke, and another one."""
    room = fresh("room")
    writer = events.peer()
    writer.commit(*(item([room]) for _ in range(HISTORY)))
    follow(events, kind, room, follower, writer, messages)
    catch_up(events, kind, room, follower)
    committed = {event["committed_id"] for event in writer.history([room])}
    assert set(follower.seen) <= committed
    assert len(follower.seen) == len(set(follower.seen))
    writer.close()
    return committed - set(follower.seen)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cursor_that_pages_move_until_the_history_has_ended_misses_nothing(events: Events, kind: str) -> None:
    for messages in range(1, MESSAGES + 1):
        assert lost(events, kind, NaiveFollower(), messages) == set(), f"after {messages} messages"


def test_a_cursor_that_live_events_move_between_pages_loses_events(events: Events) -> None:
    """Else the test above shows nothing."""
    assert any(lost(events, "seed", HastyFollower(), messages) for messages in range(1, MESSAGES + 1))
