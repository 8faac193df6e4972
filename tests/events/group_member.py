"""A consumer group as its members see it: plain HTTP requests, and what their answers say."""

from __future__ import annotations

from typing import Any, NamedTuple

import httpx

from tests.events.wire import Events, Message, fresh, item

GROUPS = "/v1/events/groups"
SNAPSHOTS = "/v1/events/snapshots"
LONG_MS = 600_000
"""A lease that does not end during a test."""


def ok(answer: httpx.Response, *statuses: int) -> Message:
    """The body of an answer that must have one of these statuses; 200 without any."""
    assert answer.status_code in (statuses or (200,)), answer.text
    body: Message = answer.json()
    return body


def refused(answer: httpx.Response, status: int, code: str) -> Message:
    """The problem document of a refusal."""
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    document: Message = answer.json()
    assert (document["status"], document["code"]) == (status, code), document
    return document


class Delivery(NamedTuple):
    """What a fetch was answered."""

    lease: str | None
    ids: list[int]
    deliveries: list[int]
    body: Message


class Group:
    """One group; its calls are sent to the nodes in turn."""

    def __init__(self, events: Events, *partitions: str, name: str = "", **definition: Any) -> None:
        self.events = events
        self.name = name or fresh("group")
        self.url = f"{GROUPS}/{self.name}"
        self.definition: Message = {"partitions": list(partitions), "lease_ms": LONG_MS} | definition
        if partitions:
            ok(events.http.put(self.url, json=self.definition), 200, 201)

    def post(self, call: str, **body: Any) -> httpx.Response:
        """Any call."""
        return self.events.http.post(f"{self.url}/{call}", json=body)

    def fetch(self, member: str = "m", fetch_id: str = "", **more: Any) -> Delivery:
        """Fetch, with a new fetch id unless one is given."""
        body = ok(self.post("fetch", member=member, fetch_id=fetch_id or fresh("f"), **more))
        events = body["events"]
        ids = [one["committed_id"] for one in events]
        assert ids == sorted(ids)
        return Delivery(body["lease"], ids, [one["deliveries"] for one in events], body)

    def ack(self, lease: str | None, *ids: int, up_to: int | None = None) -> Message:
        """Acknowledge events, which must be accepted."""
        return ok(self.post("ack", lease=lease, **_which(ids, up_to)))

    def nack(self, lease: str | None, *ids: int, up_to: int | None = None, **more: Any) -> Message:
        """Give events back, which must be accepted."""
        return ok(self.post("nack", lease=lease, **_which(ids, up_to), **more))

    def shown(self) -> Message:
        """The state of the group."""
        return ok(self.events.http.get(self.url))

    def parked(self) -> list[Message]:
        """The first page of parked events."""
        parked: list[Message] = ok(self.events.http.get(f"{self.url}/parked"))["parked"]
        return parked


def _which(ids: tuple[int, ...], up_to: int | None) -> Message:
    return {"committed_ids": list(ids)} if up_to is None else {"up_to_committed_id": up_to}


def submit(events: Events, *partitions: str, count: int = 1) -> list[int]:
    """Commit events in these partitions, and return their ids."""
    body = ok(events.http.post("/v1/events", json={"events": [item(partitions) for _ in range(count)]}))
    return [result["committed_id"] for result in body["results"]]
