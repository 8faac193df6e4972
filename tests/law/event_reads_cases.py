"""Events: the reads beside plain pages at their limits: backwards, by type, by id, and the list of partitions."""

from __future__ import annotations

import json

import httpx

from tests.law.case import PATIENCE_SECONDS, Case, Make, Request
from tests.law.events_cases import (
    HTTP,
    ITEMS,
    LIVE,
    MANY,
    MESSAGE,
    NAME,
    PAGE,
    SHAPES,
    SMALL,
    WS,
    by_post,
    items,
    live,
    page,
    stored,
)
from tests.law.rig import WatchedServer

OTHER = {"type": "other", "limit": 1_000}
WANTED = {"subscription_types": ["event"]}
FILTER = "filter by type"


def by_id(events: bytes) -> Make:
    """One event by its id."""

    def make(server: WatchedServer) -> Request:
        stored(server, events)

        def request() -> int:
            answer = httpx.get(f"{server.url}/v1/events/id/0-0", timeout=PATIENCE_SECONDS)
            assert answer.json()["id"] == "0-0", answer.text
            return len(answer.content)

        return request

    return make


def partition_list() -> Make:
    """A page of the list of partitions, whose names are as long as they may be in print."""

    def make(server: WatchedServer) -> Request:
        for start in range(0, 1_000, 50):
            names = [f"{number:04}" + "\x01" * 124 for number in range(start, start + 50)]
            each = [{"id": name[:4], "partitions": [name], "event": {"type": "event"}} for name in names]
            stored(server, json.dumps(each).encode())

        def request() -> int:
            answer = httpx.get(f"{server.url}/v1/events/partitions", params={"limit": 1_000}, timeout=PATIENCE_SECONDS)
            assert len(answer.json()["partitions"]) > 900, answer.text
            return len(answer.content)

        return request

    return make


def late(payload: bytes, count: int = 1) -> bytes:
    """Items whose events have their type as the last member, so that it has to be parsed."""
    each = b'{"id":"%d","partitions":["%s"],"event":{"payload":%s,"type":"event"}}'
    return b"[" + b",".join(each % (number, NAME.encode(), payload) for number in range(count)) + b"]"


def expecting(events: bytes) -> bytes:
    """Items that expect partitions without events: the first is committed, the others are rejected."""
    return events.replace(b'"partitions":', b'"if_watermark":0,"partitions":')


ZEROS = b"[" + b"0," * 300 + b"0]"

CASES = [
    Case(HTTP, PAGE, "1,000 events backwards", page(SMALL, 10, {"order": "desc", "limit": 1_000}), is_quick=True),
    Case(HTTP, PAGE, "the last 1,000 events", page(SMALL, 10, {"last": 1_000})),
    Case(HTTP, PAGE, "ten events of lists backwards", page(items(SHAPES["lists"]), 10, {"order": "desc"})),
    Case(HTTP, FILTER, "1,000 events", page(late(ZEROS, ITEMS), 10, OTHER, is_empty=True), is_quick=True),
    *(
        Case(HTTP, FILTER, f"ten events of {shape}", page(late(SHAPES[shape]), 10, OTHER, is_empty=True))
        for shape in ("lists", "deep lists", "members", "short strings", "one wide letter")
    ),
    Case(WS, LIVE, "by type: one event of lists", live(late(SHAPES["lists"]), types=WANTED)),
    Case(WS, LIVE, "by type: one event of members", live(late(SHAPES["members"]), types=WANTED)),
    Case(WS, LIVE, "by type: 100 items of zeros", live(late(ZEROS, ITEMS), types=WANTED)),
    Case(HTTP, "event by id", "one event of lists", by_id(items(SHAPES["lists"])), is_quick=True),
    Case(HTTP, "list of partitions", "1,000 long names", partition_list(), is_quick=True),
    Case(HTTP, MESSAGE, "64 expected watermarks an item", by_post(expecting(MANY["64 partitions an item"]))),
]
