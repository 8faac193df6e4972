"""The application's validator: when it is asked, what it is shown, and what becomes of what it says.

It is Python in a folder of its own that the server finds on its path. No store can matter to it: SQLite.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.events.wire import Events, Message, fresh, item, serving
from tests.harness.server import path_with
from tests.harness.together import eventually, log_of
from tests.harness.tokens import Issuer

VALIDATOR = '''
"""Rules of a house: a door must be opened before anything goes through it, in the same request."""


def validate(candidate, earlier):
    kind = candidate.event["type"]
    if kind == "explode":
        raise RuntimeError("the validator is broken")
    if kind == "pass" and not any(one.event["type"] == "open" for one in earlier):
        return [("event.payload", "the door is closed")]
    if kind == "strict":
        return [("event.payload.a", "first"), ("event.payload.b", "second")]
    if kind == "show":
        shown = (candidate.id, sorted(candidate.partitions), candidate.client_id, len(list(earlier)))
        return [("event", repr(shown))]
    return None if kind == "open" else []
'''


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, issuer: Issuer) -> Iterator[Events]:
    folder: Path = tmp_path_factory.mktemp("validator")
    (folder / "rules_of_a_house.py").write_text(VALIDATOR)
    env = path_with(folder)
    settings = {"EVENTS_VALIDATOR": "rules_of_a_house:validate", "JWT_KEYS": str(issuer.keys)}
    with serving(folder / "data", store="sqlite", env=env, clean=False, **settings) as events:
        yield events


@pytest.fixture
def events(served: Events) -> Iterator[Events]:
    yield served
    served.close_peers()


def of(kind: str, room: str) -> Message:
    return item([room], {"type": kind, "payload": {"a": 1}})


def joined(issuer: Issuer, *rooms: str) -> tuple[str, str]:
    """A client id and its token for these rooms."""
    client = fresh("client")
    return client, issuer.token(client, *rooms)


def test_what_the_validator_says_rejects_the_item(events: Events, issuer: Issuer) -> None:
    room = fresh("room")
    client, token = joined(issuer, room)
    peer = events.peer(client, token=token)
    results = peer.submit([of("plain", room), of("strict", room), of("plain", room)])
    assert [result["status"] for result in results] == ["committed", "rejected", "committed"]
    assert results[1]["reason"] == "validation_failed"
    assert results[1]["errors"] == [
        {"field": "event.payload.a", "message": "first"},
        {"field": "event.payload.b", "message": "second"},
    ]


def test_it_sees_the_candidate_and_those_accepted_before_it(events: Events, issuer: Issuer) -> None:
    room, other = fresh("room"), fresh("other")
    client, token = joined(issuer, room, other)
    peer = events.peer(client, token=token)
    show = item([room, other, room], {"type": "show"})
    results = peer.submit([of("open", room), of("strict", room), of("plain", room), show])
    assert results[3]["errors"][0]["message"] == repr((show["id"], sorted([room, other]), client, 2))


def test_it_sees_the_effects_of_earlier_items_of_the_batch(events: Events, issuer: Issuer) -> None:
    room = fresh("room")
    client, token = joined(issuer, room)
    peer = events.peer(client, token=token)
    batch = [of("pass", room), of("open", room), of("pass", room)]
    assert [result["status"] for result in peer.submit(batch)] == ["rejected", "committed", "committed"]


def test_d7_a_retry_gets_its_answer_before_the_validator_is_asked(events: Events, issuer: Issuer) -> None:
    room = fresh("room")
    client, token = joined(issuer, room)
    peer = events.peer(client, token=token)
    through = of("pass", room)
    [_, recorded] = peer.submit([of("open", room), through])
    assert peer.submit([through]) == [recorded], "alone the validator would say no"
    [conflict] = peer.submit([through | {"event": {"type": "pass", "payload": 2}}])
    assert [error["field"] for error in conflict["errors"]] == ["event"], "the conflict comes first too"


def test_d7_an_outsider_learns_nothing_about_an_id(events: Events, issuer: Issuer) -> None:
    room, own = fresh("room"), fresh("own")
    client, token = joined(issuer, room)
    insider = events.peer(client, token=token)
    draft = of("plain", room)
    insider.commit(draft)
    client, token = joined(issuer, own)
    outsider = events.peer(client, token=token)
    tries = [draft, draft | {"event": {"type": "other"}}, of("plain", room), of("strict", room), of("explode", room)]
    for one in tries:
        [result] = outsider.submit([one])
        assert (result["status"], result["reason"]) == ("rejected", "forbidden")
        assert set(result) <= {"id", "status", "reason", "errors", "status_updated_at"}
    [result] = outsider.submit([item([room], {"type": ""})])
    assert result["reason"] == "validation_failed", "the form is judged first"
    [result] = outsider.submit([item([own, room])])
    assert result["reason"] == "forbidden", "every partition must be allowed"
    [result] = outsider.submit([draft | {"partitions": [own]}])
    assert (result["status"], result["reason"]) == ("rejected", "validation_failed"), "ids are global"


def test_d8_what_was_rejected_may_succeed_later(events: Events, issuer: Issuer) -> None:
    room = fresh("room")
    client, token = joined(issuer, room)
    peer = events.peer(client, token=token)
    through = of("pass", room)
    before = peer.sync([room])["sync_to_committed_id"]
    assert peer.submit([through])[0]["status"] == "rejected"
    assert peer.sync([room])["sync_to_committed_id"] == before
    assert [result["status"] for result in peer.submit([of("open", room), through])] == ["committed", "committed"]


def test_a_validator_that_fails_is_the_servers_fault_and_no_rejection(events: Events, issuer: Issuer) -> None:
    room = fresh("room")
    client, token = joined(issuer, room)
    peer = events.peer(client, token=token)
    bad = of("explode", room)
    peer.send("submit_events", {"events": [bad]})
    ending = peer.ending()
    assert (ending.error, ending.code, len(ending.messages)) == ("server_error", 1011, 1)
    eventually(lambda: "the validator is broken" in log_of(events.server), "the log tells why")
    peer = events.peer(client, token=token)
    assert peer.history([room]) == []
    peer.commit(of("plain", room))


def test_over_http_a_validator_that_fails_is_a_500(events: Events, issuer: Issuer) -> None:
    room = fresh("room")
    _, token = joined(issuer, room)
    headers = {"Authorization": f"Bearer {token}"}
    answer = events.http.post("/v1/events", headers=headers, json={"events": [of("explode", room)]})
    assert answer.status_code in (500, 503)
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["code"] == "server_error"
    answer = events.http.post("/v1/events", headers=headers, json={"events": [of("strict", room)]})
    assert answer.json()["results"][0]["reason"] == "validation_failed"


def test_2_x_stops_at_what_the_validator_rejects(events: Events, issuer: Issuer) -> None:
    project = fresh("project")
    client, token = joined(issuer, project)
    peer = events.camel_2(project, client, token=token)
    drafts = [peer.draft(type=kind) for kind in ("plain", "strict", "plain")]
    results = peer.submit(drafts)
    assert [result["status"] for result in results] == ["committed", "rejected", "not_processed"]
    assert results[1]["reason"] == "validation_failed"
    assert results[2]["blockedById"] == drafts[1]["id"]
