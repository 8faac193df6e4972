"""Lists: the forks of a stream, its producers, and subscriptions, in limited pages within the reach of the caller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel.client import Client
from tests.harness.nodes import Nodes
from tests.harness.together import Servers
from tests.harness.tokens import token_file
from tests.streams import wire

KNOWN = {
    "all": ("a" * 32, ["read", "write"], []),
    "few": ("f" * 32, ["read", "write"], ["streams:open/*", "streams:lone"]),
    "blind": ("b" * 32, ["write"], []),
}
JSON = {"Content-Type": "application/json"}
LONG = "a-producer-with-a-rather-long-name-of-its-own"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, store_kind: str) -> Iterator[Servers]:
    folder: Path = tmp_path_factory.mktemp("lists")
    with wire.serving(folder / "data", tokens=str(token_file(folder, KNOWN))) as running:
        yield running.server


def caller(server: Servers, name: str) -> httpx.Client:
    transport = server.transport() if isinstance(server, Nodes) else None
    headers = {"Authorization": f"Bearer {KNOWN[name][0]}"}
    return httpx.Client(base_url=server.url, headers=headers, timeout=30, transport=transport)


def walked(client: httpx.Client, path: str, member: str, **query: Any) -> list[dict[str, Any]]:
    """All items, and at most 50 pages."""
    items: list[dict[str, Any]] = []
    after = ""
    for _ in range(50):
        page = client.get(path, params=query | {"after": after}).raise_for_status().json()
        items += page[member]
        assert len(page[member]) <= query.get("limit", 100)
        if page["after"] is None:
            return items
        assert page["after"] != after
        after = page["after"]
    raise AssertionError("the list does not end")


def test_a_fork_names_its_source_and_a_source_its_forks(guarded: Servers) -> None:
    with caller(guarded, "all") as every, caller(guarded, "few") as few:
        every.put("/v1/stream/closed/source", headers=JSON).raise_for_status()
        middle = every.post("/v1/stream/closed/source", json=[1, 2]).headers["stream-next-offset"]
        every.post("/v1/stream/closed/source", json=[3, 4]).raise_for_status()
        forked = JSON | {"Stream-Forked-From": "/v1/stream/closed/source", "Stream-Fork-Offset": middle}
        for name, more in (("open/one", {}), ("closed/two", {"Stream-Fork-Sub-Offset": "1"})):
            every.put(f"/v1/stream/{name}", headers=forked | more).raise_for_status()
        found = {one["name"]: one for one in walked(every, "/v1/streams", "streams")}
        assert (found["closed/source"]["forks"], found["closed/source"]["forked_from"]) == (2, None)
        origin = {"name": "closed/source", "offset": middle, "sub_offset": 0}
        assert (found["open/one"]["forks"], found["open/one"]["forked_from"]) == (0, origin)
        assert found["closed/two"]["forked_from"] == origin | {"sub_offset": 1}
        forks = walked(every, "/v1/streams", "streams", source="closed/source")
        assert [one["name"] for one in forks] == ["closed/two", "open/one"]
        assert walked(every, "/v1/streams", "streams", source="open/one") == []
        # A caller with scopes learns neither the name of a source beyond its reach, nor of its forks.
        [seen] = few.get("/v1/streams").json()["streams"]
        assert (seen["name"], seen["forked_from"]) == ("open/one", origin | {"name": None})
        assert few.get("/v1/streams", params={"source": "closed/source"}).status_code == 403
        every.put("/v1/stream/lone", headers=JSON).raise_for_status()
        more = JSON | {"Stream-Forked-From": "/v1/stream/lone"}
        for name in ("open/of-lone", "closed/of-lone"):
            every.put(f"/v1/stream/{name}", headers=more).raise_for_status()
        assert [one["name"] for one in walked(few, "/v1/streams", "streams", source="lone")] == ["open/of-lone"]
        assert every.get("/v1/streams", params={"source": "never"}).json()["code"] == "STREAM_NOT_FOUND"


def test_producers_are_listed_by_the_life_of_their_stream(guarded: Servers) -> None:
    with caller(guarded, "all") as every, caller(guarded, "few") as few, caller(guarded, "blind") as blind:
        url, path = "/v1/stream/open/produced", "/v1/streams/producers"
        every.put(url, headers=JSON).raise_for_status()
        for number, name in enumerate(["p-0", "p-1", "p-2", "p-3", LONG]):
            for seq in range(number + 1):
                sent = JSON | {"Producer-Id": name, "Producer-Epoch": "3", "Producer-Seq": str(seq)}
                every.post(url, json=seq, headers=sent).raise_for_status()
        found = walked(every, path, "producers", stream="open/produced", limit=2)
        assert [(one["id"], one["epoch"], one["seq"]) for one in found] == [
            *((f"p-{number}", 3, number) for number in range(4)),
            (None, 3, 4),
        ]
        assert walked(few, path, "producers", stream="open/produced") == found
        every.put("/v1/stream/closed/produced", headers=JSON).raise_for_status()
        assert few.get(path, params={"stream": "closed/produced"}).status_code == 403
        assert few.get(path, params={"stream": "closed/never"}).status_code == 403
        assert blind.get(path, params={"stream": "open/produced"}).status_code == 403
        assert every.get(path, params={"stream": "open/never"}).json()["code"] == "STREAM_NOT_FOUND"
        for wrong in ({}, {"stream": "open/produced", "after": "x"}, {"stream": "open/produced", "limit": "0"}):
            assert every.get(path, params=wrong).status_code == 400
        every.delete(url).raise_for_status()
        every.put(url, headers=JSON).raise_for_status()
        assert walked(every, path, "producers", stream="open/produced") == []


def test_subscriptions_are_listed_within_the_reach_of_the_caller(guarded: Servers) -> None:
    with caller(guarded, "all") as every, caller(guarded, "few") as few, caller(guarded, "blind") as blind:
        path, one = "/v1/streams/subscriptions", "/v1/stream/__ds/subscriptions"
        body = {"type": "pull-wake", "wake_stream": "open/wakes"}
        for number in range(12):
            root = "open" if number % 4 == 0 else "closed"
            wanted = body | {"pattern": f"{root}/in/*"}
            every.put(f"{one}/s-{number:02}", json=wanted).raise_for_status()
        every.post(f"{one}/s-04/streams", json={"streams": ["closed/secret"]}).raise_for_status()
        found = walked(every, path, "subscriptions", limit=5)
        assert [each["id"] for each in found] == [f"s-{number:02}" for number in range(12)]
        idle = {"phase": "idle", "generation": 0, "attempts": 0, "worker": None, "next_action_in_ms": None}
        assert (found[0]["type"], found[0]["status"], found[0]["wake"]) == ("pull-wake", "active", idle)
        told: list[Any] = []
        after: str | None = ""
        while after is not None:
            page = few.get(path, params={"limit": 1, "after": after}).raise_for_status().json()
            told += [each["id"] for each in page["subscriptions"]]
            after = page["after"]
            assert after is None or after == told[-1]
        assert told == ["s-00", "s-08"]
        assert blind.get(path).status_code == 403
        # One subscription tells how far it is behind.
        every.put("/v1/stream/open/in/a", headers=JSON).raise_for_status()
        tail = every.post("/v1/stream/open/in/a", json=[1, 2]).headers["stream-next-offset"]
        [link] = every.get(f"{one}/s-00").json()["streams"]
        assert (link["path"], link["tail_offset"]) == ("open/in/a", tail)
        assert link["acked_offset"] < tail
        claim = every.post(f"{one}/s-00/claim", json={"worker": "w-1"}).raise_for_status().json()
        wake = every.get(f"{one}/s-00").json()["wake"]
        assert (wake["phase"], wake["worker"], wake["generation"]) == ("leased", "w-1", claim["generation"])
        assert 0 < wake["next_action_in_ms"] <= 30_000


def test_the_client_walks_each_list(guarded: Servers) -> None:
    with Client(guarded.url, token=KNOWN["all"][0]) as client:
        client.streams.create("walked/source", content_type="application/json")
        client.streams.fork("walked/source", "walked/fork")
        client.streams.subscriptions.create("walked", streams=["walked/source"], wake_stream="walked/wakes")
        client.streams.producer("walked/source", "till", epoch=0).append({"n": 1})
        assert [one["name"] for one in client.streams.walk(source="walked/source")] == ["walked/fork"]
        assert [(one.id, one.seq) for one in client.streams.producers("walked/source")] == [("till", 0)]
        assert "walked" in [one["id"] for one in client.streams.subscriptions.walk()]
