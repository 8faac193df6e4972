"""Events from JSON text: what is sent as it is, and what is refused before anything is sent."""

from __future__ import annotations

import pytest

from semel.client import Client, CommittedEvent
from semel.client.events.errors import EventRejectedError
from semel.client.events.item_texts import EventTextError, event_item, line_item
from tests.client.names import fresh
from tests.harness.server import RunningServer


def test_an_event_keeps_its_text() -> None:
    item = event_item(b'{"n": 1.50,\n"big": 1e400}', "é", ["a", "b"])
    assert item.id == "é"
    assert item.text == b'{"id":"\\u00e9","partitions":["a", "b"],"event":{"n": 1.50,\n"big": 1e400}}'
    assert event_item(b"{}", "i", ["a"], 7).text.endswith(b',"event":{},"if_watermark":7}')


def test_a_line_is_an_event_or_an_item() -> None:
    own = b'{"id": "own", "partitions": ["p" ], "event": {"n": 1.0}, "committed_id": 7}'
    assert line_item(own, "made", []) == ("own", b'{"id":"own","partitions":["p" ],"event":{"n": 1.0}}')
    assert line_item(b'{"event": {}}', "made", ["q"]) == ("made", b'{"id":"made","partitions":["q"],"event":{}}')
    event = b'{"type": "t", "event": 1, "id": 2}'
    assert line_item(event, "made", ["q"]).text == b'{"id":"made","partitions":["q"],"event":%s}' % event


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"7",
        b"\xff",
        b'{"a":1,"a":2}',
        b'{"event": 1}',
        b'{"event": {}, "id": ""}',
        b'{"event": {}, "partition": 1}',
        b'{"event": {}, "partitions": [1]}',
        b'{"a":' * 80 + b"1" + b"}" * 80,
    ],
)
def test_what_would_spoil_a_request_is_refused(line: bytes) -> None:
    with pytest.raises(EventTextError):
        line_item(line, "made", ["p"])


@pytest.mark.parametrize("line", [b'{"type": "t"}', b'{"event": {}}'])
def test_a_line_without_partitions_is_refused(line: bytes) -> None:
    with pytest.raises(EventTextError, match="no partitions"):
        line_item(line, "made", [])


def test_items_have_verdicts_in_order_and_a_client(server: RunningServer) -> None:
    room = fresh("room")
    items = [event_item(text, f"{room}-{number}", [room]) for number, text in enumerate((b'{"type": "t"}', b"{}"))]
    with Client(server.url) as client:
        good, bad = client.events.submit_items(items)
        assert isinstance(good, CommittedEvent)
        assert isinstance(bad, EventRejectedError)
        [found] = client.events.follow(room, cursor=0, live=False)
        assert (found.facts["id"], found.facts["committed_id"]) == (good.id, good.committed_id)
        assert list(client.events.follow(room, cursor=good.committed_id, live=False)) == []
