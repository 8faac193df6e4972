"""Roles and partitions for groups and snapshots. Credentials are judged the same on every store: SQLite will do."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from semel.surfaces.events.group_calls import MAX_WAITING_EACH
from tests.events.group_member import GROUPS, SNAPSHOTS, ok, refused
from tests.events.wire import Events, Message, fresh, item, serving
from tests.harness.together import eventually
from tests.harness.tokens import token_file

OWNER, MEMBER, READER, WRITER, OTHER = "an owner", "a member", "a reader", "a writer", "another"
OPERATOR = "an operator"
TOKENS = {
    "owner": (OWNER, ["read", "write", "work"], ["events:shop-*"]),
    "member": (MEMBER, ["read", "work"], ["events:shop-*"]),
    "reader": (READER, ["read"], ["events:shop-*"]),
    "writer": (WRITER, ["write"], ["events:shop-*"]),
    "other": (OTHER, ["read", "write", "work"], ["events:tea"]),
    "operator": (OPERATOR, ["admin"], []),
}


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Events]:
    folder = tmp_path_factory.mktemp("access")
    with serving(folder / "data", store="sqlite", TOKENS=str(token_file(folder, TOKENS))) as served:
        yield served


def call(events: Events, token: str, method: str, path: str, body: object = None) -> httpx.Response:
    return events.http.request(method, path, json=body, headers={"Authorization": f"Bearer {token}"})


@pytest.fixture
def group(events: Events) -> str:
    url = f"{GROUPS}/{fresh('g')}"
    ok(call(events, OWNER, "PUT", url, {"partitions": ["shop-1"]}), 201)
    ok(call(events, OWNER, "POST", "/v1/events", {"events": [item(["shop-1"])]}))
    return url


LEASE = "A" * 27
CALLS: dict[str, tuple[str, str, Message | None, set[str]]] = {
    "create": ("PUT", "", {"partitions": ["shop-1"]}, {OWNER}),
    "delete": ("DELETE", "", None, {OWNER}),
    "reset": ("POST", "/reset", {"start": "now"}, {OWNER}),
    "replay": ("POST", "/parked/replay", {}, {OWNER}),
    "drop": ("POST", "/parked/drop", {}, {OWNER}),
    "fetch": ("POST", "/fetch", {"member": "m", "fetch_id": "f"}, {OWNER, MEMBER}),
    "ack": ("POST", "/ack", {"lease": LEASE, "committed_ids": [1]}, {OWNER, MEMBER}),
    "nack": ("POST", "/nack", {"lease": LEASE, "committed_ids": [1]}, {OWNER, MEMBER}),
    "extend": ("POST", "/extend", {"lease": LEASE}, {OWNER, MEMBER}),
    "show": ("GET", "", None, {OWNER, MEMBER, READER}),
    "list parked": ("GET", "/parked", None, {OWNER, MEMBER, READER}),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("token", [OWNER, MEMBER, READER, WRITER, OTHER])
def test_a_call_needs_its_roles_on_every_partition(events: Events, group: str, name: str, token: str) -> None:
    method, path, body, allowed = CALLS[name]
    answer = call(events, token, method, group + path, body)
    if token in allowed:
        # The lease is made up: whoever may acknowledge is told that it has ended.
        assert answer.status_code in (200, 409), answer.text
    else:
        refused(answer, 403, "forbidden")


def test_a_group_needs_the_right_to_each_partition(events: Events) -> None:
    url = f"{GROUPS}/{fresh('g')}"
    document = refused(call(events, OWNER, "PUT", url, {"partitions": ["shop-1", "tea"]}), 403, "forbidden")
    assert document["details"]["partition"] == "tea"
    assert events.http.get(url).status_code == 401


def test_a_list_leaves_out_the_groups_of_others(events: Events, group: str) -> None:
    name = group.rpartition("/")[2]
    for token, is_seen in ((READER, True), (OTHER, False)):
        page = ok(call(events, token, "GET", f"{GROUPS}?limit=100"))
        assert (name in [one["group"] for one in page["groups"]]) is is_seen


def test_snapshots_need_the_right_to_their_partition(events: Events, group: str) -> None:
    path = f"{SNAPSHOTS}/shop-1"
    for token in (READER, MEMBER, OTHER):
        refused(call(events, token, "PUT", f"{path}/1", {}), 403, "forbidden")
        refused(call(events, token, "DELETE", f"{path}/1"), 403, "forbidden")
    assert call(events, WRITER, "PUT", f"{path}/1", {}).status_code in (200, 201)
    for token in (WRITER, OTHER):
        refused(call(events, token, "GET", path), 403, "forbidden")
        refused(call(events, token, "GET", f"{path}/list"), 403, "forbidden")
    assert call(events, READER, "GET", path).status_code == 200
    assert len(ok(call(events, READER, "GET", f"{path}/list"))["snapshots"]) == 1


def test_one_principal_cannot_take_every_place_of_waiting_fetches(events: Events) -> None:
    def waiting() -> int:
        found: int = call(events, OPERATOR, "GET", "/metrics").json()["semel_events_waiting_fetches"]
        return found

    url = f"{GROUPS}/{fresh('g')}"
    ok(call(events, OWNER, "PUT", url, {"partitions": ["shop-quiet"]}), 201)
    with ExitStack() as stack:
        for number in range(MAX_WAITING_EACH):
            fetch_in_vain(events, MEMBER, url, number, stack)
        eventually(lambda: waiting() == MAX_WAITING_EACH, "they wait")
        began = time.monotonic()
        body = {"member": "m", "fetch_id": "one more", "wait_ms": 20_000}
        assert ok(call(events, MEMBER, "POST", f"{url}/fetch", body))["events"] == []
        assert time.monotonic() - began < 15
        fetch_in_vain(events, OWNER, url, 0, stack)
        eventually(lambda: waiting() == MAX_WAITING_EACH + 1, "another principal waits")
    eventually(lambda: waiting() == 0, "they have left")


def fetch_in_vain(events: Events, token: str, url: str, number: int, stack: ExitStack) -> None:
    """Send a fetch that waits, and do not read its answer."""
    address = events.http.base_url
    line = stack.enter_context(socket.create_connection((address.host, address.port or 80), 30))
    body = json.dumps({"member": "m", "fetch_id": f"{token} {number}", "wait_ms": 30_000})
    head = f"POST {url}/fetch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: {len(body)}"
    line.sendall(f"{head}\r\n\r\n{body}".encode())
