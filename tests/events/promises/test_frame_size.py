"""`max_message_bytes` bounds what the server sends as well as what it takes: broadcasts, pages, answers, every dialect.

Every WebSocket here is one that ends by itself at a frame above the advertised limit, as the clients of users are.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.kernel.errors import Refused
from semel.surfaces.events.commands import (
    EventCommitted,
    EventItem,
    EventNotProcessed,
    EventRejection,
    EventSubmit,
    EventSubmitted,
)
from semel.surfaces.events.limits import MAX_COMMITTED_ID, EventLimits
from semel.surfaces.events.rules.partitions import NO_PARTITIONS
from semel.surfaces.events.wire.camel_case_versions import CamelCaseV2
from semel.surfaces.events.wire.dialect import EventPolicy
from semel.surfaces.events.wire.items import item_of
from semel.surfaces.events.wire.message_size import answer_within, refuse_long_answer, shown_at_most, shown_bytes
from semel.surfaces.events.wire.messages import EventIdentity
from semel.surfaces.events.wire.session import EventSession
from semel.surfaces.events.wire.snake_case import SnakeCaseDialect
from tests.events.wire import VERSION, Camel, Events, Message, Peer, fresh, item, serving
from tests.harness.server import path_with

LIMIT = 1_048_576
SMALL = 16_384
TOO_LARGE = ("rejected", "payload_too_large")


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Events]:
    """A server with a small limit."""
    with serving(tmp_path_factory.mktemp("narrow") / "data", store="sqlite", EVENTS_MESSAGE_BYTES=str(SMALL)) as events:
        yield events


@pytest.fixture
def small(narrow: Events) -> Iterator[Events]:
    yield narrow
    narrow.close_peers()


def strict(events: Events, client_id: str = "", limit: int = LIMIT) -> Peer:
    """A connected client that takes no frame above the limit."""
    peer = events.raw(client_id, max_size=limit)
    assert peer.connect()["limits"]["max_message_bytes"] == limit
    return peer


def strict_camel(events: Events, project: str = "", limit: int = LIMIT) -> Camel:
    """The same in 2.x, or in 1.3 if there is no project."""
    peer = events.camel(project, max_size=limit)
    peer.connect()
    return peer


def filling(room: str, length: int) -> tuple[str, Message]:
    """A whole `submit_events` of so many bytes, and its one item."""
    draft = item([room], {"type": "t", "payload": ""})
    payload = {"events": [draft]}
    envelope = {"type": "submit_events", "msg_id": "m", "timestamp": 1, "protocol_version": VERSION, "payload": payload}
    draft["event"]["payload"] = "x" * (length - len(json.dumps(envelope)))
    return json.dumps(envelope), draft


def submit_filling(peer: Peer, room: str, length: int) -> tuple[Message, Message]:
    """Submit it; the item and its result."""
    text, draft = filling(room, length)
    assert len(text) == length
    peer.sent.add("m")
    peer.send_raw(text)
    [result] = peer.receive_until("submit_events_result")["payload"]["results"]
    return draft, result


def test_c2_an_event_that_fills_the_frame_is_refused_and_can_be_synced_past(events: Events) -> None:
    room = fresh("room")
    follower = strict(events)
    follower.subscribe(room)
    writer = strict(events)
    draft, result = submit_filling(writer, room, LIMIT)
    assert (result["status"], result.get("reason")) == TOO_LARGE, result["status"]
    assert result["errors"][0]["field"] == "event"
    [last] = writer.commit(item([room]))
    assert [event["committed_id"] for event in follower.broadcasts(1)] == [last]
    assert [event["committed_id"] for event in strict(events).history([room])] == [last]
    assert draft["id"] not in {event["id"] for event in writer.history([room])}


def test_c2_the_largest_event_that_is_admitted_reaches_every_dialect(events: Events) -> None:
    room, others = fresh("room"), [f"{fresh('o')}-{'é' * 56}" for _ in range(63)]
    low, high = LIMIT // 2, LIMIT
    writer = strict(events)
    while high - low > 4_096:
        middle = (low + high) // 2
        _, result = submit_filling(writer, room, middle)
        low, high = (middle, high) if result["status"] == "committed" else (low, middle)
    assert low > LIMIT * 9 // 10, "most of the frame is the event's"
    seed, first, second = strict(events), strict_camel(events), strict_camel(events, room)
    seed.sync([room, *others], since=2**53 - 1, subscription=[room, *others])
    first.sync([room], since=2**53 - 1)
    second.sync(since=2**53 - 1)
    draft, result = submit_filling(writer, room, low)
    assert result["status"] == "committed"
    for peer in (seed, first, second):
        assert [event["id"] for event in peer.broadcasts(1)] == [draft["id"]]
    assert draft["id"] in {event["id"] for event in seed.history([room, *others])}
    for camel in (first, second):
        assert draft["id"] in camel_ids(camel, [room])


def camel_ids(camel: Camel, names: list[str]) -> list[str]:
    """The ids of a whole cycle in 1.3 or 2.x."""
    page = camel.sync(names)
    found = [event["id"] for event in page["events"]]
    while page["hasMore"]:
        assert page["events"]
        page = camel.sync(names, page["nextSinceCommittedId"])
        found += [event["id"] for event in page["events"]]
    return found


# -- Random events and limits -----------------------------------------------------------------------------------------

LETTERS = ("x", "\u00e9", "\U0001f600", "\\", '"', "\u0001", "\u2028")


def some_text(chance: random.Random, most: int) -> str:
    return chance.choice(LETTERS) * chance.randrange(1, max(2, most))


def some_name(chance: random.Random, limit: int) -> str:
    """A partition of up to 128 bytes, now and then one that grows when it is printed; short where little fits."""
    letter = chance.choice(LETTERS)
    return fresh("p") + letter * chance.randrange(min(100, limit // 80) // len(json.dumps(letter)) + 1)


def some_event(chance: random.Random, limit: int) -> Message:
    """About as large as the limit, or far below it; sometimes with a number that slow printing alone can carry."""
    most = chance.choice((10, limit // 8, limit - limit // 4, limit))
    event: Message = {"type": "t", "payload": some_text(chance, most)}
    extras: Message = {
        "meta": {"clientTs": 1, "note": some_text(chance, 50)},
        "partition": some_text(chance, 50),
        "userId": "default",
        "schemaVersion": 3,
        "large": 100_000_000_000_000_000_000,
    }
    return event | {name: value for name, value in extras.items() if chance.random() < 0.3}


@pytest.mark.parametrize("seed", range(4))
def test_c2_no_frame_is_above_the_limit_and_every_admitted_event_can_be_synced_past(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    limit = chance.choice((4_096, 5_000, 16_384, 70_000))
    with serving(tmp_path / "data", store="sqlite", EVENTS_MESSAGE_BYTES=str(limit)) as events:
        told = Told(events, chance, limit)
        for _ in range(60):
            told.one_more()
        told.check_all()
        assert told.refused, "nothing came near the limit"
        assert len(told.admitted) > 10, "nearly everything was refused"


class Told:
    """Clients of every kind, and what is admitted while they follow."""

    def __init__(self, events: Events, chance: random.Random, limit: int) -> None:
        self._events = events
        self._chance = chance
        self._limit = limit
        self._names = [some_name(chance, limit) for _ in range(4)]
        self._writer = strict(events, some_text(chance, 40) + "w", limit)
        self._followers: list[tuple[Peer, str | None]] = [(strict(events, limit=limit), None)]
        self._followers[0][0].subscribe(*self._names)
        self._followers.append((strict_camel(events, limit=limit), None))
        self._followers[1][0].sync(self._names, since=2**53 - 1)
        for name in self._names:
            camel = strict_camel(events, name, limit)
            camel.sync(since=2**53 - 1)
            self._followers.append((camel, name))
        self.admitted: dict[str, Message] = {}
        self.refused = 0

    def one_more(self) -> None:
        """Submit one; who follows it is sent it."""
        chance = self._chance
        names = chance.sample(self._names, chance.randrange(1, len(self._names) + 1))
        draft = item(names, some_event(chance, self._limit), id=fresh("e") + some_text(chance, 20))
        text = json.dumps(draft, ensure_ascii=False)
        if len(text.encode()) > self._limit - 200:
            return
        result = self._submit(draft, text)
        if result["status"] == "rejected":
            assert result["reason"] == "payload_too_large", result
            self.refused += 1
            return
        self.admitted[draft["id"]] = draft
        for peer, project in self._followers:
            if project is None or project in names:
                assert [event["id"] for event in peer.broadcasts(1)] == [draft["id"]]

    def _submit(self, draft: Message, text: str) -> Message:
        if self._chance.random() < 0.5:
            answer = self._events.http.post("/v1/events", content=f'{{"events":[{text}]}}'.encode())
            assert len(answer.content) <= self._limit
            [result] = answer.json()["results"]
        else:
            self._writer.send_text("submit_events", f'{{"events":[{text}]}}')
            [result] = self._writer.receive_until("submit_events_result")["payload"]["results"]
        assert result["id"] == draft["id"]
        assert isinstance(result, dict)
        return result

    def check_all(self) -> None:
        """Whoever reads from 0, in whatever way, gets past all of them."""
        wanted = list(self.admitted)
        for limit in (1, 7, 1000):
            peer = strict(self._events, limit=self._limit)
            assert [event["id"] for event in peer.history(self._names, limit=limit)] == wanted
            followed = self._followers[0][0]  # whose pages also name what it follows
            assert [event["id"] for event in followed.history(self._names, limit=limit)] == wanted
        for camel, project in self._followers[1:]:
            assert isinstance(camel, Camel)
            expected = [key for key in wanted if project is None or project in self.admitted[key]["partitions"]]
            assert camel_ids(camel, self._names) == expected
        assert self._http_ids() == wanted
        assert self._streamed(len(wanted)) == wanted

    def _http_ids(self) -> list[str]:
        found: list[str] = []
        query: Message = {"partition": self._names, "since": 0}
        for _ in range(len(self.admitted) + 1):
            answer = self._events.http.get("/v1/events", params=query)
            assert len(answer.content) <= self._limit
            page = answer.json()
            found += [event["id"] for event in page["events"]]
            if not page["has_more"]:
                return found
            query |= {"since": page["next_since_committed_id"], "to": page["sync_to_committed_id"]}
        raise AssertionError("the cycle does not end")

    def _streamed(self, count: int) -> list[str]:
        found: list[str] = []
        query: Message = {"partition": self._names, "since": 0}
        with self._events.http.stream(
            "GET", "/v1/events", params=query, headers={"Accept": "text/event-stream"}
        ) as stream:
            frame = b""
            for line in _lines(stream.iter_raw()):
                frame += line
                if line == b"\n":
                    assert len(frame) <= self._limit
                    frame = b""
                elif line.startswith(b"data: "):
                    found.append(json.loads(line[6:])["id"])
                    if len(found) == count:
                        break
        return found


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    begun = b""
    for chunk in chunks:
        *lines, begun = (begun + chunk).split(b"\n")
        yield from (line + b"\n" for line in lines)


# -- Everything else that is sent -------------------------------------------------------------------------------------


def test_c2_an_answer_that_would_not_fit_is_not_begun(small: Events) -> None:
    peer = strict(small, limit=SMALL)
    room = fresh("room")
    refusal = peer.error("submit_events", {"events": [item([room], {"type": "t"}) for _ in range(100)]})
    assert (refusal["code"], refusal["details"]) == ("bad_request", {"max_message_bytes": SMALL})
    assert peer.history([room]) == []
    peer.commit(*(item([room]) for _ in range(30)))
    [result] = peer.submit([item([room], id="\ud800" + "i" * 6_000)])
    assert result["status"] == "rejected"
    refusal = peer.error("submit_events", {"events": [item([room], id="é" * 6_000)]})
    assert refusal["code"] == "bad_request"


def test_c2_the_name_of_a_long_request_is_not_sent_back(small: Events) -> None:
    peer = strict(small, limit=SMALL)
    long = "n" * (SMALL - 400)
    answer = peer.ask("heartbeat", {}, msg_id=long)
    assert (answer["type"], "reply_to" in answer) == ("heartbeat_ack", False)
    peer.send("nothing", {}, msg_id=long)
    assert "reply_to" not in peer.answer()
    camel = strict_camel(small, "project", SMALL)
    refusal = camel.error("sync", {"projectId": "project", "sinceCommittedId": 0}, msgId=long)
    assert refusal["code"] == "bad_request"
    camel.sync()


def test_c2_names_that_leave_no_room_for_an_event_are_refused(small: Events) -> None:
    peer = strict(small, limit=SMALL)
    few, many = [fresh("few")], [f"{fresh('m')}{'x' * 110}" for _ in range(60)]
    peer.sync(few, subscription=few)
    refusal = peer.error("sync", {"partitions": many, "since_committed_id": 0, "subscription_partitions": many})
    assert (refusal["code"], refusal["details"]) == ("bad_request", {"max_message_bytes": SMALL})
    assert peer.sync(few)["effective_subscriptions"] == few, "nothing has changed"
    answer = small.http.get("/v1/events", params={"partition": many})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


def test_c2_a_client_with_a_name_too_long_to_be_told_is_refused(small: Events) -> None:
    peer = small.raw("\u0001" * 1_000, max_size=SMALL)
    assert peer.error("connect", {"token": "any", "client_id": peer.client_id})["code"] == "bad_request"


@pytest.mark.parametrize("dialect", ["seed", "2.x", "http"])
def test_c2_long_complaints_of_a_validator_are_cut_short(tmp_path: Path, dialect: str) -> None:
    (tmp_path / "wordy.py").write_text('def validate(candidate, earlier):\n    return [("event", "no " * 9_000)] * 3\n')
    env = path_with(tmp_path)
    with serving(
        tmp_path / "data", store="sqlite", env=env, EVENTS_MESSAGE_BYTES=str(SMALL), EVENTS_VALIDATOR="wordy:validate"
    ) as events:
        results: list[Any]
        if dialect == "http":
            answer = events.http.post("/v1/events", json={"events": [item(["room"]), item(["room"])]})
            assert len(answer.content) <= SMALL
            results = answer.json()["results"]
        elif dialect == "seed":
            results = strict(events, limit=SMALL).submit([item(["room"]), item(["room"])])
        else:
            camel = strict_camel(events, "room", SMALL)
            results = camel.submit([camel.draft(), camel.draft()])[:1]
        for result in results:
            assert (result["status"], result["reason"]) == ("rejected", "validation_failed")
            assert result["errors"][0]["message"]


def test_c2_a_committed_event_keeps_its_answer_when_the_limit_falls(tmp_path: Path) -> None:
    data = tmp_path / "data"
    draft = item(["room"], {"type": "t", "payload": "x" * 9_000})
    with serving(data, store="sqlite", EVENTS_MESSAGE_BYTES="65536") as events:
        [first] = events.peer().submit([draft])
    with serving(data, store="sqlite", EVENTS_MESSAGE_BYTES="10000") as events:
        peer = events.peer()
        assert peer.submit([draft]) == [first]
        [other] = peer.submit([draft | {"id": fresh("e")}])
        assert (other["status"], other["reason"]) == TOO_LARGE
        assert len(peer.history(["room"])) == 1, "and it is still given"


# -- The bounds themselves --------------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
VALUES = st.one_of(TEXTS, st.just(10**20), st.integers(-9, 9), st.none(), st.dictionaries(TEXTS, TEXTS, max_size=2))
MEMBERS = st.sampled_from(["payload", "meta", "partition", "schemaVersion", "userId", "projectId", "other"])
ANYONE = EventIdentity("", lambda name: True, lambda name: True)


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=5), st.dictionaries(MEMBERS, VALUES), TEXTS)
def test_c2_the_quick_measure_of_an_event_is_never_below_what_a_dialect_prints(
    event_id: str, names: list[str], event: Message, client_id: str
) -> None:
    measured = item_of(event_id, names, {"type": "t"} | event, ANYONE, False)
    assert shown_bytes(measured, client_id) <= shown_at_most(measured, client_id)


IDS = st.text(min_size=1, max_size=200)
"""Halves of surrogate pairs too, which make the whole answer print as ASCII."""
RESULTS = st.sampled_from([EventCommitted(MAX_COMMITTED_ID, MAX_COMMITTED_ID, True), "taken", "wordy", "blocked"])


@given(st.lists(st.tuples(IDS, RESULTS), min_size=1, max_size=5, unique_by=lambda pair: pair[0]), st.booleans())
def test_c2_an_answer_that_was_begun_fits_whatever_the_results_are(pairs: list[tuple[str, Any]], is_2x: bool) -> None:
    items = tuple(EventItem(one, b"", b"", b"", NO_PARTITIONS, None, b"") for one, _ in pairs)
    command = EventSubmit(items, "", b"", is_2x)
    limits = EventLimits(message_bytes=4_096)
    try:
        refuse_long_answer(command, limits)
    except Refused:
        return
    results = []
    for one, said in pairs:
        taken = EventRejection(
            "validation_failed", (("event", f"id {one[:128]} is already committed with other content"),)
        )
        wordy = EventRejection("validation_failed", (("event", one * 50),) * 3)
        named: dict[Any, Any] = {"taken": taken, "wordy": wordy, "blocked": EventNotProcessed(pairs[0][0][:128])}
        results.append(named.get(said, said) if is_2x or said != "blocked" else wordy)
    session = EventSession(EventPolicy(limits), b"")
    session.dialect = CamelCaseV2("p") if is_2x else SnakeCaseDialect()
    show = partial(session.dialect.submitted, command)
    payload = answer_within(show, EventSubmitted(tuple(results), MAX_COMMITTED_ID), limits)
    name = "n" * (limits.reply_bytes - 2)
    assert len(session.message("submit_events_result", payload, name, MAX_COMMITTED_ID)) <= limits.message_bytes
