"""Headers of events over HTTP: which items were replayed, and where an event stream begins."""

from __future__ import annotations

import httpx

from tests.events.wire import PATIENCE_SECONDS, Events, fresh, item


def posted(events: Events, *items: object) -> httpx.Response:
    answer = events.http.post("/v1/events", json={"events": list(items)})
    assert answer.status_code == 200, answer.text
    return answer


def test_c_headers_tell_which_items_were_committed_before(events: Events) -> None:
    room = fresh("room")
    first, second, third = (item([room]) for _ in range(3))
    bad = item([room]) | {"event": {"type": "init"}}
    answer = posted(events, first, second)
    assert "events-replayed" not in answer.headers
    again = posted(events, first, second)
    assert (again.headers["events-replayed"], again.content) == ("0, 1", answer.content)
    assert posted(events, bad, third, second).headers["events-replayed"] == "2"
    assert posted(events, second, bad, third).headers["events-replayed"] == "0, 2"


def test_c_headers_tell_the_epoch_and_where_a_stream_begins(events: Events) -> None:
    room = fresh("room")
    sent = item([room])
    last = posted(events, sent).json()["results"][0]["committed_id"]
    assert events.http.get(f"/v1/events/id/{sent['id']}").headers["events-log-epoch"] == "0"
    for since, begins in ((0, 0), (last, last), (last + 1_000_000, None)):
        query = {"partition": room, "since": str(since)}
        with events.http.stream(
            "GET", "/v1/events", params=query, headers={"Accept": "text/event-stream"}, timeout=PATIENCE_SECONDS
        ) as stream:
            assert stream.headers["events-log-epoch"] == "0"
            told = int(stream.headers["events-since"])
            assert told == begins if begins is not None else last <= told < since
