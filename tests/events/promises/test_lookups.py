"""One event by its id, and the list of partitions: what is found, by whom, and in which pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from tests.events.promises.test_http import refused
from tests.events.wire import PATH, Events, Message, fresh, item, serving
from tests.harness.together import eventually
from tests.harness.tokens import token_file

LIST = f"{PATH}/partitions"


def by_id(events: Events, sent_id: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
    """The answer to a look-up."""
    return events.http.get(f"{PATH}/id/{quote(sent_id, safe='')}", headers=headers)


def listed(events: Events, headers: Mapping[str, str] | None = None, **query: str | int) -> Message:
    """One page of the list."""
    answer = events.http.get(LIST, params=query, headers=headers)
    assert answer.status_code == 200, answer.text
    found: Message = answer.json()
    return found


def walked(events: Events, headers: Mapping[str, str] | None = None, **query: str | int) -> list[Message]:
    """The whole list."""
    found = listed(events, headers, **query)
    entries = list(found["partitions"])
    while found["has_more"]:
        assert found["partitions"]
        assert found["next_after"] == found["partitions"][-1]["partition"]
        found = listed(events, headers, **query | {"after": found["next_after"]})
        entries += found["partitions"]
    return entries


# -- One event --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tail", ["", "/with?slash#and%25", " \u00e9\U0001f600", "..", "+&="], ids=ascii)
def test_an_event_is_found_by_its_id(events: Events, tail: str) -> None:
    peer, room = events.peer(), fresh("room")
    draft = item([room, "more"], id=fresh("id") + tail)
    peer.commit(draft)
    answer = by_id(events, draft["id"])
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json() == peer.history([room])[0]


def test_an_id_that_was_never_committed_is_not_found(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    [rejected] = peer.submit([item([room], if_watermark=7)])
    assert rejected["status"] == "rejected"
    for sent_id in (fresh("id"), rejected["id"]):
        refused(by_id(events, sent_id), 404, "not_found")


@pytest.mark.parametrize("path", ["id/", "id", "id/" + "x" * 129, "id/%ff"])
def test_an_id_that_no_event_can_have_is_refused(events: Events, path: str) -> None:
    refused(events.http.get(f"{PATH}/{path}"), 400, "bad_request")


@pytest.mark.parametrize("path", ["", "x", "ids/a", "partitions/x", "partitions/", "id%2fa"])
def test_there_is_nothing_at_other_paths(events: Events, path: str) -> None:
    answer = events.http.get(f"{PATH}/{path}")
    assert "/v1/events/partitions" in refused(answer, 404, "not_found")["detail"]


@pytest.mark.parametrize("path", ["id/a", "partitions"])
def test_a_look_up_is_a_get(events: Events, path: str) -> None:
    for method in ("POST", "PUT", "DELETE", "HEAD"):
        answer = events.http.request(method, f"{PATH}/{path}")
        assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, OPTIONS")
    assert events.http.options(f"{PATH}/{path}").status_code == 204


def test_a_path_below_is_no_web_socket(events: Events) -> None:
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    headers = upgrade | {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    assert events.http.get(LIST, headers=headers).status_code != 101


# -- The list ---------------------------------------------------------------------------------------------------------


def test_the_list_has_the_end_the_beginning_and_the_number_of_events(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    one, two = f"{room}-1", f"{room}-2"
    first, *_, last = peer.commit(item([one]), item([two]), item([one, two]), item([one]))
    found = listed(events, prefix=room)
    both = peer.history([two])
    assert found["partitions"] == [
        {"partition": one, "watermark": last, "first_committed_id": first, "events": 3},
        {"partition": two, "watermark": both[-1]["committed_id"], "first_committed_id": first + 1, "events": 2},
    ]
    assert not found["has_more"]
    assert found["server_last_committed_id"] >= last
    assert found["log_epoch"] == 0
    peer.commit(item([one]))
    assert (
        peer.submit([item([one], if_watermark=last)])[0]["watermark"]
        == listed(events, prefix=one)["partitions"][0]["watermark"]
    )


@pytest.mark.parametrize("limit", [1, 2, 5, 500])
def test_the_pages_of_the_list_have_every_partition_once_in_the_order_of_their_bytes(
    events: Events, limit: int
) -> None:
    room = fresh("room")
    names = [f"{room}{end}" for end in ("", "-a", "-b", "-\u00e9", "-\U0001f600", "-\ue000", "-a-a", "A")]
    events.peer().commit(*(item([name]) for name in names))
    found = [entry["partition"] for entry in walked(events, prefix=room, limit=limit)]
    assert found == sorted(names, key=str.encode)
    assert [entry["partition"] for entry in walked(events, prefix=room, after=f"{room}-a", limit=limit)] == [
        name for name in found if name.encode() > f"{room}-a".encode()
    ]


def test_a_prefix_is_compared_in_nfc(events: Events) -> None:
    room = fresh("room")
    events.peer().commit(item([f"{room}caf\u00e9"]))
    assert len(walked(events, prefix=f"{room}cafe\u0301")) == 1
    assert walked(events, prefix=f"{room}cafe") == []
    assert walked(events, prefix=f"{room}z") == []


def test_a_name_that_is_too_long_is_refused(events: Events) -> None:
    for query in ({"prefix": "x" * 129}, {"after": "\u00e9" * 65}, {"limit": "x"}, {"prefix": ["a", "b"]}):
        refused(events.http.get(LIST, params=query), 400, "bad_request")


def test_a_page_of_the_list_stays_within_the_size_of_a_message(tmp_path: Path) -> None:
    with serving(tmp_path / "data", store="sqlite", EVENTS_MESSAGE_BYTES="4096") as narrow:
        peer = narrow.peer()
        names = [f"{number:02}" + "\x01" * 126 for number in range(20)]
        for name in names:
            peer.commit(item([name]))
        assert len(narrow.http.get(LIST).content) <= 4_096
        assert [entry["partition"] for entry in walked(narrow)] == names


def test_a_partition_stays_listed_when_its_events_are_pruned(
    tmp_path_factory: pytest.TempPathFactory, store_kind: str
) -> None:
    data = tmp_path_factory.mktemp("pruned") / "data"
    with serving(data, store=store_kind, EVENTS_RETENTION_MS="1000", SWEEP_INTERVAL_MS="50") as forgetful:
        peer, room = forgetful.peer(), fresh("room")
        first, last = peer.commit(item([room], id="first"), item([room]))
        eventually(lambda: peer.history([room]) == [], "the events are pruned")
        [entry] = walked(forgetful, prefix=room)
        assert entry == {"partition": room, "watermark": last, "first_committed_id": None, "events": 0}
        gone = refused(by_id(forgetful, "first"), 410, "pruned")
        assert gone["details"]["committed_id"] == first
        [stale] = peer.submit([item([room], if_watermark=0)])
        assert (stale["reason"], stale["watermark"]) == ("watermark_mismatch", last)
        peer.commit(item([room], if_watermark=last))


# -- Rights: one store will do ----------------------------------------------------------------------------------------

SCOPES = {
    "all": [],
    "shop": ["events:shop-*"],
    "names": ["events:tea", "events:shop-2", "events:none"],
    "both": ["events:shop-*", "events:shop-1", "events:shop-22*", "events:tea"],
    "other": ["streams:tea"],
}
SEEN = {
    "all": ["coffee", "shop-1", "shop-2", "shop-22", "tea"],
    "shop": ["shop-1", "shop-2", "shop-22"],
    "names": ["shop-2", "tea"],
    "both": ["shop-1", "shop-2", "shop-22", "tea"],
    "other": [],
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Events]:
    folder = tmp_path_factory.mktemp("rights")
    entries = {name: (f"token of {name}", ["read", "write"], scopes) for name, scopes in SCOPES.items()}
    tokens = token_file(folder, entries | {"writer": ("token of writer", ["write"], [])})
    with serving(
        folder / "data", store="sqlite", TOKENS=str(tokens), EVENTS_RETENTION_MS="0", SWEEP_INTERVAL_MS="50"
    ) as events:
        peer = events.peer("all", token="token of all")
        peer.commit(*(item([name], id=f"in-{name}") for name in SEEN["all"]), item(["coffee", "tea"], id="in-two"))
        yield events


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer token of {name}"}


@pytest.mark.parametrize("name", SCOPES)
@pytest.mark.parametrize("limit", [1, 2, 100])
def test_the_list_has_only_partitions_that_the_caller_may_read(guarded: Events, name: str, limit: int) -> None:
    found = walked(guarded, bearer(name), limit=limit)
    assert [entry["partition"] for entry in found] == SEEN[name]
    for prefix in ("shop-", "shop-2", "shop-22", "tea", "t", "z"):
        some = walked(guarded, bearer(name), limit=limit, prefix=prefix)
        assert [entry["partition"] for entry in some] == [one for one in SEEN[name] if one.startswith(prefix)]
        behind = walked(guarded, bearer(name), limit=limit, after="shop-2")
        assert [entry["partition"] for entry in behind] == [one for one in SEEN[name] if one > "shop-2"]


@pytest.mark.parametrize("name", SCOPES)
def test_an_event_is_found_by_those_who_may_read_one_of_its_partitions(guarded: Events, name: str) -> None:
    for room in SEEN["all"]:
        answer = by_id(guarded, f"in-{room}", bearer(name))
        assert answer.status_code == (200 if room in SEEN[name] else 404)
        if answer.status_code == 404:
            unknown = by_id(guarded, "never-sent", bearer(name)).json()
            assert refused(answer, 404, "not_found") == unknown, "the answer does not tell that it exists"
    assert by_id(guarded, "in-two", bearer(name)).status_code == (200 if "tea" in SEEN[name] else 404)


def test_a_caller_without_the_right_to_read_finds_nothing(guarded: Events) -> None:
    refused(by_id(guarded, "in-tea", bearer("writer")), 404, "not_found")
    refused(guarded.http.get(LIST, headers=bearer("writer")), 403, "forbidden")
    for path in (LIST, f"{PATH}/id/in-tea"):
        refused(guarded.http.get(path), 401, "auth_failed")
        refused(guarded.http.get(path, params={"client_id": "tea"}, headers=bearer("shop")), 403, "auth_failed")


def test_who_may_not_read_everything_is_not_told_of_a_pruned_event(tmp_path: Path) -> None:
    tokens = token_file(
        tmp_path, {"all": ("token of all", ["read", "write"], []), "tea": ("token of tea", ["read"], ["events:tea"])}
    )
    kept_ms, data = "500", tmp_path / "data"
    with serving(
        data, store="sqlite", TOKENS=str(tokens), EVENTS_RETENTION_MS=kept_ms, SWEEP_INTERVAL_MS="50"
    ) as events:
        events.peer("all", token="token of all").commit(item(["tea"], id="gone"))
        eventually(lambda: by_id(events, "gone", bearer("all")).status_code == 410, "the event is pruned")
        refused(by_id(events, "gone", bearer("tea")), 404, "not_found")
