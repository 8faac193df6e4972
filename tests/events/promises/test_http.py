"""Plain HTTP on the same path: the same rules, the same log, and errors as problem documents."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.events.wire import PATH, Events, Message, fresh, item, serving
from tests.harness.together import at_once
from tests.harness.tokens import Issuer

JSON = {"Content-Type": "application/json"}
MOST_TRIES = 50
"""Of one client, until the engine is full."""


def ids_of(events: list[Message]) -> list[str]:
    return [event["id"] for event in events]


def post(events: Events, batch: list[Any], **fields: Any) -> list[Message]:
    answer = events.http.post(PATH, json={"events": batch} | fields)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"].split(";")[0] == "application/json"
    payload = answer.json()
    assert set(payload) == {"results"}
    results: list[Message] = payload["results"]
    return results


def get(events: Events, *partitions: str, **query: int | str) -> Message:
    answer = events.http.get(PATH, params=[*(("partition", name) for name in partitions), *query.items()])
    assert answer.status_code == 200, answer.text
    page: Message = answer.json()
    assert "effective_subscriptions" not in page
    return page


def refused(answer: httpx.Response, status: int, code: str | None = None) -> Message:
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    document: Message = answer.json()
    assert document["status"] == status
    if code is not None:
        assert document["code"] == code, document
    return document


# -- POST -------------------------------------------------------------------------------------------------------------


def test_post_commits_and_answers_as_submit_does(events: Events) -> None:
    room = fresh("room")
    reader = events.peer()
    reader.subscribe(room)
    drafts = [item([room]), item([room], {"type": ""}), item([room])]
    results = post(events, drafts, client_id="curl")
    assert [result["status"] for result in results] == ["committed", "rejected", "committed"]
    assert (results[1]["reason"], results[1]["errors"][0]["field"]) == ("validation_failed", "event.type")
    stored = reader.broadcasts(2)
    assert [event["committed_id"] for event in stored] == [results[0]["committed_id"], results[2]["committed_id"]]
    assert {event["client_id"] for event in stored} == {"curl"}
    retried = post(events, drafts)
    assert [retried[0], retried[2]] == [results[0], results[2]]
    assert reader.commit(drafts[0]) == [results[0]["committed_id"]]
    assert get(events, room)["events"] == stored


def test_post_names_the_client_in_body_or_query_or_not_at_all(events: Events) -> None:
    room = fresh("room")
    post(events, [item([room])], client_id="in-body")
    answer = events.http.post(PATH, params={"client_id": "in-query"}, json={"events": [item([room])]})
    assert answer.status_code == 200
    post(events, [item([room])])
    assert [event["client_id"] for event in get(events, room)["events"]] == ["in-body", "in-query", "default"]


def test_post_replaces_no_connection(events: Events) -> None:
    peer = events.peer(port=events.ports[0])
    for _ in range(3):
        post(events, [item([fresh("room")])], client_id=peer.client_id)
    peer.heartbeat()


WRONG_BODIES = {
    "empty": "",
    "not JSON": "what?",
    "array": "[]",
    "number": "1",
    "no events": "{}",
    "events null": '{"events":null}',
    "no item": '{"events":[]}',
    "item a number": '{"events":[1]}',
    "no id": '{"events":[{"partitions":["a"],"event":{"type":"t"}}]}',
    "no partitions": '{"events":[{"id":"x","event":{"type":"t"}}]}',
    "retired key": '{"events":[{"id":"x","partition":"a","partitions":["a"],"event":{"type":"t"}}]}',
    "no event": '{"events":[{"id":"x","partitions":["a"]}]}',
    "key twice": '{"events":[{"id":"x","partitions":["a"],"event":{"type":"t","a":1,"a":1}}]}',
    "NaN": '{"events":[{"id":"x","partitions":["a"],"event":{"type":"t","a":NaN}}]}',
    "id twice": json.dumps({"events": [{"id": "x", "partitions": ["a"], "event": {"type": "t"}}] * 2}),
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("body", WRONG_BODIES.values(), ids=WRONG_BODIES.keys())
def test_a_wrong_body_is_a_400(events: Events, body: str) -> None:
    document = refused(events.http.post(PATH, content=body, headers=JSON), 400, "bad_request")
    assert document["detail"]


def test_a_batch_has_a_largest_size(events: Events) -> None:
    batch = [item(["a"]) for _ in range(101)]
    document = refused(events.http.post(PATH, json={"events": batch}), 400, "bad_request")
    assert document["details"]["max_batch_size"] == 100


def test_a_client_s_name_has_a_bound(events: Events) -> None:
    """It is stored with every item, so one large name would be a hundred."""
    body = {"client_id": "n" * 1_025, "events": [item(["a"])]}
    refused(events.http.post(PATH, json=body), 400, "bad_request")


def test_bytes_that_are_no_utf8_are_a_400(events: Events) -> None:
    refused(events.http.post(PATH, content=b'{"events":"\xff"}', headers=JSON), 400, "bad_request")


def test_larger_bodies_are_a_413(events: Events) -> None:
    body = json.dumps({"events": [item(["a"], {"type": "t", "payload": "x" * 1_048_576})]})
    refused(events.http.post(PATH, content=body, headers=JSON), 413)

    def pieces() -> Iterator[bytes]:
        for place in range(0, len(body), 65_536):
            yield body[place : place + 65_536].encode()

    refused(events.http.post(PATH, content=pieces(), headers=JSON), 413)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
def test_other_methods_are_a_405(events: Events, method: str) -> None:
    answer = events.http.request(method, PATH)
    refused(answer, 405)
    assert {"GET", "POST"} <= set(answer.headers["Allow"].replace(" ", "").split(","))


@pytest.mark.each_store
def test_the_same_new_id_at_once_is_one_commit(events: Events) -> None:
    room = fresh("room")
    draft = item([room])
    answers = at_once([partial(post, events, [draft]) for _ in range(8)])
    assert all(answer == answers[0] for answer in answers)
    assert len(get(events, room)["events"]) == 1


# -- GET --------------------------------------------------------------------------------------------------------------


def test_get_pages_a_cycle_with_to(events: Events) -> None:
    room = fresh("room")
    drafts = [item([room]) for _ in range(5)]
    post(events, drafts)
    pages = [get(events, room, limit=2)]
    post(events, [item([room])])
    for _ in range(2):
        since, to = pages[-1]["next_since_committed_id"], pages[-1]["sync_to_committed_id"]
        pages.append(get(events, room, limit=2, since=since, to=to))
    assert [len(page["events"]) for page in pages] == [2, 2, 1]
    assert [page["has_more"] for page in pages] == [True, True, False]
    assert len({page["sync_to_committed_id"] for page in pages}) == 1
    assert [event["id"] for page in pages for event in page["events"]] == ids_of(drafts)
    anew = get(events, room, since=pages[-1]["next_since_committed_id"])
    assert anew["sync_to_committed_id"] > pages[0]["sync_to_committed_id"]
    assert len(anew["events"]) == 1


def test_get_answers_as_sync_does(events: Events) -> None:
    first, second, peer = fresh("a"), fresh("b"), events.peer()
    drafts = [item([first]), item([second]), item([first, second])]
    peer.commit(*drafts)
    for names in ([first], [second, first, second], [fresh("nothing")]):
        page = peer.sync(names)
        del page["effective_subscriptions"]
        assert get(events, *names) == page
    assert get(events, first, since=2**53 - 1)["events"] == []
    assert get(events, "cafe\u0301")["partitions"] == ["caf\u00e9"]
    assert len(get(events, first, second, limit=0)["events"]) == 1
    assert get(events, first, since=0, to=0)["events"] == []


def test_get_to_beyond_the_log_shows_no_future(events: Events) -> None:
    room = fresh("room")
    [result] = post(events, [item([room])])
    page = get(events, room, to=2**53 - 1)
    assert page["sync_to_committed_id"] == result["committed_id"]


Query = list[tuple[str, str | int | float | bool | None]]
WRONG_QUERIES: dict[str, Query] = {
    "no partition": [],
    "empty partition": [("partition", "")],
    "long partition": [("partition", "a" * 129)],
    "65 partitions": [("partition", f"n{number}") for number in range(65)],
    "negative since": [("partition", "a"), ("since", "-1")],
    "fractional since": [("partition", "a"), ("since", "1.5")],
    "since of letters": [("partition", "a"), ("since", "x")],
    "since twice": [("partition", "a"), ("since", "1"), ("since", "2")],
    "limit of letters": [("partition", "a"), ("limit", "x")],
    "negative to": [("partition", "a"), ("to", "-1")],
    "to of letters": [("partition", "a"), ("to", "x")],
}


@pytest.mark.parametrize("query", WRONG_QUERIES.values(), ids=WRONG_QUERIES.keys())
def test_a_wrong_query_is_a_400(events: Events, query: Query) -> None:
    refused(events.http.get(PATH, params=httpx.QueryParams(query)), 400, "bad_request")
    stream = {"Accept": "text/event-stream"}
    if not {"limit", "to"} & {name for name, _ in query}:
        refused(events.http.get(PATH, params=httpx.QueryParams(query), headers=stream), 400, "bad_request")


# -- SSE --------------------------------------------------------------------------------------------------------------


class Tail:
    """An open event stream, frame by frame; comments are passed over."""

    def __init__(self, response: httpx.Response) -> None:
        self._pieces = response.iter_raw()
        self._rest = b""

    def next(self) -> Message:
        """The payload of the next frame, held against its `id` and `event` fields."""
        fields: dict[str, str] = {}
        while (line := self._line()) or not fields:
            if line and not line.startswith(":"):
                name, _, value = line.partition(":")
                assert name not in fields, "one line each"
                fields[name] = value.removeprefix(" ")
        payload: Message = json.loads(fields["data"])
        assert fields["event"] == "event"
        assert fields["id"] == str(payload["committed_id"])
        return payload

    def _line(self) -> str:
        while b"\n" not in self._rest:
            self._rest += next(self._pieces)
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode().removesuffix("\r")

    def take(self, count: int) -> list[Message]:
        return [self.next() for _ in range(count)]


@contextmanager
def tailing(events: Events, *partitions: str, headers: Mapping[str, str] | None = None, **query: int) -> Iterator[Tail]:
    params: Query = [("partition", name) for name in partitions]
    params += query.items()
    given = {"Accept": "text/event-stream"} | dict(headers or {})
    with events.http.stream("GET", PATH, params=httpx.QueryParams(params), headers=given) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["Content-Type"].split(";")[0] == "text/event-stream"
        yield Tail(response)


def test_a_tail_is_history_and_then_live_in_one_order(events: Events) -> None:
    room, other = fresh("room"), fresh("other")
    writer = events.peer()
    old = [item([room]) for _ in range(3)]
    writer.commit(*old)
    with tailing(events, room, other) as tail:
        received = tail.take(3)
        live = [item([other]), item([fresh("unheard")]), item([room, other]), item([room])]
        writer.commit(*live)
        received += tail.take(3)
    assert received == writer.history([room, other])


@pytest.mark.each_store
def test_a_tail_follows_writers_without_a_gap(events: Events) -> None:
    room = fresh("room")
    writers = [events.peer() for _ in range(3)]

    def write(number: int) -> list[Message]:
        for _ in range(25):
            writers[number].commit(item([room]))
        return []

    def follow() -> list[Message]:
        with tailing(events, room) as tail:
            return tail.take(75)

    calls: list[Callable[[], list[Message]]] = [partial(write, number) for number in range(3)]
    received = at_once([*calls, follow, follow])[3:]
    history = writers[0].history([room])
    assert received == [history, history]


def test_a_tail_resumes_where_it_was(events: Events) -> None:
    room = fresh("room")
    committed = events.peer().commit(*(item([room]) for _ in range(5)))
    with tailing(events, room, since=committed[1]) as tail:
        assert [event["committed_id"] for event in tail.take(3)] == committed[2:]
    with tailing(events, room, headers={"Last-Event-ID": str(committed[2])}, since=committed[0]) as tail:
        assert [event["committed_id"] for event in tail.take(2)] == committed[3:], "the header wins"


def test_a_tail_gets_what_its_own_client_submits(events: Events) -> None:
    room = fresh("room")
    with tailing(events, room) as tail:
        draft = item([room], {"type": "t", "payload": "two\nlines \u2028"})
        post(events, [draft])
        assert tail.next()["event"] == draft["event"]
        post(events, [draft])
        marker = item([room])
        post(events, [marker])
        assert tail.next()["id"] == marker["id"]


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "1e3"])
def test_a_last_event_id_that_is_no_place_is_a_400(events: Events, last: str) -> None:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": last}
    refused(events.http.get(PATH, params={"partition": "a"}, headers=headers), 400, "bad_request")


# -- Credentials and overload: one store will do ----------------------------------------------------------------------


def test_who_may_do_what(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)
    with serving(tmp_path / "data", store="sqlite", JWT_KEYS=str(issuer.keys)) as events:
        bearer = {"Authorization": f"Bearer {issuer.token('alice', 'open')}"}
        allowed, closed = item(["open"]), item(["closed"])
        for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": "Basic YTpi"}):
            answer = events.http.post(PATH, json={"events": [allowed]}, headers=headers)
            refused(answer, 401, "auth_failed")
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")
            refused(events.http.get(PATH, params={"partition": "open"}, headers=headers), 401, "auth_failed")
        answer = events.http.post(PATH, json={"events": [allowed, closed]}, headers=bearer)
        assert [result.get("reason") for result in answer.json()["results"]] == [None, "forbidden"]
        for body in ({"events": [allowed], "client_id": "bob"}, {"events": [allowed | {"client_id": "bob"}]}):
            refused(events.http.post(PATH, json=body, headers=bearer), 403, "auth_failed")
        own = {"events": [allowed], "client_id": "alice"}
        assert events.http.post(PATH, json=own, headers=bearer).status_code == 200
        page = events.http.get(PATH, params={"partition": "open"}, headers=bearer).json()
        assert [(event["id"], event["client_id"]) for event in page["events"]] == [(allowed["id"], "alice")]
        foreign = {"partition": "open", "client_id": "bob"}
        refused(events.http.get(PATH, params=foreign, headers=bearer), 403, "auth_failed")
        for accept in ("application/json", "text/event-stream"):
            headers = bearer | {"Accept": accept}
            params = httpx.QueryParams([("partition", "open"), ("partition", "closed")])
            refused(events.http.get(PATH, params=params, headers=headers), 403, "forbidden")


def test_a_full_engine_refuses_and_commits_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serving(data, store="sqlite", QUEUE_WRITES="2", BATCH_WRITES="1", COMMIT_DELAY_MS="50") as events:
        is_full = threading.Event()

        def send(draft: Message) -> httpx.Response:
            return events.http.post(PATH, json={"events": [draft]})

        def send_until_full() -> list[tuple[Message, httpx.Response]]:
            """One after the other, because a slow machine may not have enough of them under way at once."""
            sent: list[tuple[Message, httpx.Response]] = []
            while not is_full.is_set() and len(sent) < MOST_TRIES:
                draft = item(["room"])
                sent.append((draft, send(draft)))
                if sent[-1][1].status_code == 503:
                    is_full.set()
            return sent

        answers = [one for sent in at_once([send_until_full] * 16) for one in sent]
        assert {answer.status_code for _, answer in answers} == {200, 503}
        for _, answer in answers:
            if answer.status_code == 503:
                refused(answer, 503)
                assert int(answer.headers["Retry-After"]) >= 1
        stored = {event["id"] for event in get(events, "room", limit=1000)["events"]}
        assert stored == {draft["id"] for draft, answer in answers if answer.status_code == 200}
        for draft, _ in answers:
            assert send(draft).json()["results"][0]["status"] == "committed"
        assert len(get(events, "room", limit=1000)["events"]) == len(answers)
