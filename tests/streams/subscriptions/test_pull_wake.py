"""Pull-wakes over a real server: events in the wake stream, claims, acks, releases, leases and fencing."""

from __future__ import annotations

import time
from typing import Any

import httpx

from tests.streams.subscriptions.receiver import Control, code_of, until

START = "0000000000000000_0000000000000000"


def pull(control: Control, name: str, **members: Any) -> None:
    """Make a pull-wake subscription with its wake stream."""
    control.create(f"wake/{name}")
    answer = control.put(name, type="pull-wake", wake_stream=f"wake/{name}", **members)
    assert answer.status_code == 201, answer.text
    assert answer.json()["wake_stream"] == f"wake/{name}"


def claim(control: Control, name: str, worker: str = "w") -> dict[str, Any]:
    answer = control.call(name, "claim", worker=worker)
    assert answer.status_code == 200, answer.text
    claimed: dict[str, Any] = answer.json()
    return claimed


def settle(control: Control, name: str, what: str, claimed: dict[str, Any], **members: Any) -> httpx.Response:
    return control.call(
        name, what, claimed["token"], wake_id=claimed["wake_id"], generation=claimed["generation"], **members
    )


def acks_of(claimed: dict[str, Any]) -> list[dict[str, str]]:
    return [{"stream": one["path"], "offset": one["tail_offset"]} for one in claimed["streams"]]


def test_a_wake_is_one_event_until_it_is_claimed_and_ended(control: Control) -> None:
    pull(control, "one", pattern="one/*", lease_ttl_ms=60_000)
    control.create("one/a", 1)
    until(lambda: control.read("wake/one"))
    control.append("one/a", 2)
    control.create("one/b", 1)
    time.sleep(0.3)
    [event] = control.read("wake/one")
    assert event["ts"].endswith("Z")
    assert {name: event[name] for name in ("type", "subscription_id", "stream", "generation")} == {
        "type": "wake",
        "subscription_id": "one",
        "stream": "one/a",
        "generation": 1,
    }
    claimed = claim(control, "one")
    assert (claimed["generation"], claimed["lease_ttl_ms"]) == (1, 60_000)
    assert sorted(one["path"] for one in claimed["streams"]) == ["one/a", "one/b"]
    assert settle(control, "one", "ack", claimed, acks=acks_of(claimed)).json() == {"ok": True, "next_wake": False}
    control.append("one/b", 2)
    assert settle(control, "one", "ack", claimed, done=True).json() == {"ok": True, "next_wake": True}
    until(lambda: len(control.read("wake/one")) == 2)
    assert control.read("wake/one")[1]["generation"] == 2


def test_a_claim_right_after_an_append_finds_it(control: Control) -> None:
    pull(control, "quick", pattern="quick/*")
    assert code_of(control.call("quick", "claim", worker="w")) == (409, "NO_PENDING_WORK")
    control.create("quick/a")
    for number in range(5):
        tail = control.append("quick/a", number)
        claimed = claim(control, "quick")
        assert [one["tail_offset"] for one in claimed["streams"]] == [tail]
        assert settle(control, "quick", "ack", claimed, acks=acks_of(claimed), done=True).status_code == 200
        assert code_of(control.call("quick", "claim", worker="w")) == (409, "NO_PENDING_WORK")


def test_a_held_lease_refuses_others_and_ends_with_its_time(control: Control) -> None:
    pull(control, "held", pattern="held/*", lease_ttl_ms=1_000)
    control.create("held/a", 1)
    first = claim(control, "held", "worker-1")
    answer = control.call("held", "claim", worker="worker-2")
    assert code_of(answer) == (409, "ALREADY_CLAIMED")
    assert answer.json()["error"]["current_holder"] == "worker-1"
    assert answer.json()["error"]["generation"] == first["generation"]
    until(lambda: control.call("held", "claim", worker="worker-2").status_code == 200, 5)
    assert code_of(settle(control, "held", "ack", first, acks=acks_of(first), done=True)) == (409, "FENCED")
    assert code_of(settle(control, "held", "release", first)) == (409, "FENCED")
    assert control.acked("held", "held/a") == START


def test_a_lease_that_is_extended_does_not_end(control: Control) -> None:
    pull(control, "kept", pattern="kept/*", lease_ttl_ms=1_000)
    control.create("kept/a", 1)
    claimed = claim(control, "kept")
    for _ in range(4):
        time.sleep(0.4)
        assert settle(control, "kept", "ack", claimed).status_code == 200
    assert settle(control, "kept", "ack", claimed, acks=acks_of(claimed), done=True).status_code == 200


def test_released_work_wakes_again(control: Control) -> None:
    pull(control, "back", pattern="back/*")
    control.create("back/a", 1)
    first = claim(control, "back", "a")
    assert settle(control, "back", "release", first).status_code == 204
    assert code_of(settle(control, "back", "release", first)) == (409, "FENCED")
    second = claim(control, "back", "b")
    assert second["generation"] > first["generation"]
    assert second["streams"] == first["streams"]


def test_a_claim_is_for_pull_wakes_and_names_its_worker(control: Control) -> None:
    pull(control, "named", pattern="named/*")
    assert code_of(control.call("named", "claim")) == (400, "INVALID_REQUEST")
    assert code_of(control.call("named", "claim", worker="")) == (400, "INVALID_REQUEST")
    assert code_of(control.call("nothing", "claim", worker="w")) == (404, "SUBSCRIPTION_NOT_FOUND")
    control.webhook("named-hook", "http://127.0.0.1:9/", pattern="never/*")
    assert code_of(control.call("named-hook", "claim", worker="w")) == (400, "INVALID_REQUEST")


def test_a_missing_wake_stream_is_tried_again(control: Control) -> None:
    control.put("no-wake-stream", type="pull-wake", pattern="no-wake-stream/*", wake_stream="wake/no-wake-stream")
    control.create("no-wake-stream/a", 1)
    until(lambda: control.get("no-wake-stream")["status"] == "failed")
    assert claim(control, "no-wake-stream")["generation"] == 1, "a claim needs no wake stream"
    control.put("late-2", type="pull-wake", pattern="no-wake-stream/*", wake_stream="wake/no-wake-stream-2")
    control.append("no-wake-stream/a", 2)
    until(lambda: control.get("late-2")["status"] == "failed")
    control.create("wake/no-wake-stream-2")
    until(lambda: [event["generation"] for event in control.read("wake/no-wake-stream-2")] == [1])
    assert control.get("late-2")["status"] == "active"


def test_an_event_that_no_worker_claims_is_repeated(control: Control) -> None:
    pull(control, "repeat", pattern="repeat/*", lease_ttl_ms=1_000)
    control.create("repeat/a", 1)
    until(lambda: control.read("wake/repeat"))
    began = time.monotonic()
    control.http.delete("wake/repeat").raise_for_status()
    control.create("wake/repeat")
    until(lambda: [event["generation"] for event in control.read("wake/repeat")] == [1])
    assert time.monotonic() - began < 10
    claimed = claim(control, "repeat")
    assert claimed["generation"] == 1


def test_wakes_of_wakes_are_delivered(control: Control) -> None:
    """A wake stream may be followed by another subscription."""
    pull(control, "inner", pattern="inner/*")
    pull(control, "outer", streams=["wake/inner"])
    control.create("inner/a", 1)
    until(lambda: control.read("wake/outer"))
    assert claim(control, "outer")["streams"][0]["path"] == "wake/inner"


def test_many_streams_come_in_several_wakes(control: Control) -> None:
    """One wake has at most 1,000 streams."""
    for number in range(1_005):
        control.create(f"crowd/{number}")
    pull(control, "crowd", pattern="crowd/*")
    for number in range(1_005):
        control.append(f"crowd/{number}", number)
    seen: set[str] = set()
    sizes = []
    while len(seen) < 1_005:
        claimed = claim(control, "crowd")
        sizes.append(len(claimed["streams"]))
        seen |= {one["path"] for one in claimed["streams"]}
        acks = acks_of(claimed)
        assert settle(control, "crowd", "ack", claimed, acks=acks, done=True).json()["next_wake"] == (len(seen) < 1_005)
    assert sizes == [1_000, 5]
    assert len(control.get("crowd")["streams"]) == 1_005


def test_a_lease_that_ends_wakes_without_any_call(control: Control) -> None:
    pull(control, "silent", pattern="silent/*", lease_ttl_ms=1_000)
    control.create("silent/a", 1)
    until(lambda: control.read("wake/silent"))
    claim(control, "silent")
    until(lambda: [event["generation"] for event in control.read("wake/silent")][:2] == [1, 2], 10)
