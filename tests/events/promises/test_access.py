"""Who may connect, as whom, and to what: JWTs, a token file, and one connection a client.

Credentials are judged before any store is asked, so one store will do: SQLite. Without credentials, in development
mode, everybody may do everything; the other modules test in that mode.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.events.wire import ABSENT, Ending, Events, Message, fresh, item, serving
from tests.harness.together import in_time, unless_late
from tests.harness.tokens import Issuer, token_file, unsigned

SCOPED = "a token with scopes"
READER = "a token that may read"
WRITER = "a token that may write"
LIFE_SECONDS = 1.0
"""What a token that expires under a connection has at least, for all that must begin before."""


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, issuer: Issuer) -> Iterator[Events]:
    folder = tmp_path_factory.mktemp("access")
    tokens = token_file(
        folder,
        {
            "scoped": (SCOPED, ["read", "write"], ["events:tea", "events:shop-*", "streams:coffee"]),
            "reader": (READER, ["read"], []),
            "writer": (WRITER, ["write"], []),
        },
    )
    with serving(folder / "data", store="sqlite", JWT_KEYS=str(issuer.keys), TOKENS=str(tokens)) as events:
        yield events


@pytest.fixture
def events(served: Events) -> Iterator[Events]:
    yield served
    served.close_peers()


def turned_away(events: Events, client_id: Any, token: Any) -> Ending:
    peer = events.raw()
    payload = {"client_id": client_id, "token": token}
    peer.send("connect", {name: value for name, value in payload.items() if value is not ABSENT})
    ending = peer.ending()
    assert (ending.error, ending.code, len(ending.messages)) == ("auth_failed", 1008, 1), ending
    return ending


# -- A1, A2: tokens and identities ------------------------------------------------------------------------------------


def test_a1_a_good_token_connects(events: Events, issuer: Issuer) -> None:
    room = fresh("room")
    peer = events.raw("alice")
    assert peer.connect(token=issuer.token("alice", room))["client_id"] == "alice"
    peer.commit(item([room]))
    assert peer.history([room])[0]["client_id"] == "alice"


def test_a1_the_claim_client_id_wins_over_sub(events: Events, issuer: Issuer) -> None:
    token = issuer.token("user-1", "room", client_id="tablet-1")
    assert events.raw().connect("tablet-1", token)["client_id"] == "tablet-1"
    turned_away(events, "user-1", token)


def test_a1_bad_tokens_are_turned_away(events: Events, issuer: Issuer) -> None:
    good = issuer.token("bob", "room")
    head, body, signature = good.split(".")
    hour_ago = int(time.time()) - 3600
    bad = {
        "no token at all": "any",
        "cut off": good[:-10],
        "other body": f"{head}.{body[:-4]}AAAA.{signature}",
        "without its signature": f"{head}.{body}.",
        "says it needs no signature": unsigned("bob"),
        "other key": issuer.signed({"sub": "bob", "exp": time.time() + 60}, key=b"k" * 32),
        "expired": issuer.token("bob", "room", exp=hour_ago),
        "without an end": issuer.token("bob", "room", exp=None),
        "end is no number": issuer.token("bob", "room", exp="tomorrow"),
        "not yet": issuer.token("bob", "room", nbf=int(time.time()) + 3600),
        "nobody": issuer.token("bob", "room", sub=None),
    }
    for what, token in bad.items():
        try:
            turned_away(events, "bob", token)
        except AssertionError as error:
            raise AssertionError(what) from error
    events.peer("bob", token=good).heartbeat()


def test_a1_issuer_audience_and_algorithm_can_be_demanded(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)
    demands = {"iss": "https://login.test", "aud": "semel"}
    with serving(
        tmp_path / "data",
        store="memory",
        JWT_KEYS=str(issuer.keys),
        JWT_ALGORITHMS="HS256",
        JWT_ISSUER=demands["iss"],
        JWT_AUDIENCE=demands["aud"],
    ) as events:
        events.peer("bob", token=issuer.token("bob", "room", **demands)).heartbeat()
        claims = {"sub": "bob", "exp": int(time.time()) + 60} | demands
        tokens = [
            issuer.token("bob", "room"),
            issuer.token("bob", "room", **demands | {"iss": "https://other.test"}),
            issuer.token("bob", "room", **demands | {"aud": "other"}),
            issuer.signed(claims, algorithm="HS512"),
        ]
        for token in tokens:
            turned_away(events, "bob", token)


def test_a1_the_secret_is_in_no_answer(events: Events, issuer: Issuer) -> None:
    token = issuer.token("bob", "room")
    assert token not in str(turned_away(events, "carol", token))
    assert token.split(".")[2] not in str(turned_away(events, "bob", token + "x"))


def test_a1_the_identity_must_be_the_tokens(events: Events, issuer: Issuer) -> None:
    for client_id in ("alicia", "Alice", "alice ", "al\u0131ce"):
        turned_away(events, client_id, issuer.token("alice", "room"))


def test_a2_a_message_cannot_speak_for_another(events: Events, issuer: Issuer) -> None:
    room = fresh("room")
    peer = events.peer("alice", token=issuer.token("alice", room))
    peer.send("submit_events", {"events": [item([room], client_id="bob")]})
    ending = peer.ending()
    assert (ending.error, ending.code) == ("auth_failed", 1008)
    assert events.peer("alice", token=issuer.token("alice", room)).history([room]) == []


def test_case_18_an_expired_token_ends_a_live_connection(events: Events, issuer: Issuer) -> None:
    """By a timer: nobody says anything. HTTP and SSE end with the same token."""
    in_time(lambda seconds: outlive_a_token(events, issuer, seconds), LIFE_SECONDS)


def outlive_a_token(events: Events, issuer: Issuer, seconds: float) -> None:
    room, client, began = fresh("room"), fresh("client"), time.monotonic()
    token = issuer.token(client, room, exp=int(time.time() + seconds) + 1)
    headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
    with ExitStack() as stack:
        with unless_late(lambda: began, seconds):
            peer, steady = events.peer(client, token=token), events.peer("steady", token=issuer.token("steady", room))
            camel = events.camel_2(room, client, token=token)
            asked = events.http.stream("GET", "/v1/events", params={"partition": room}, headers=headers)
            tail = stack.enter_context(asked)
            assert tail.status_code == 200
        for ending in (peer.ending(), camel.ending()):
            assert (ending.error, ending.code) == ("auth_failed", 1008)
        assert [line for line in tail.iter_lines() if line.startswith("data:")] == []
    steady.heartbeat()
    turned_away(events, client, token)
    assert events.http.get("/v1/events", params={"partition": room}, headers=headers).status_code == 401


# -- A3, A4, S8: what is allowed --------------------------------------------------------------------------------------


def test_a3_submit_needs_every_partition(events: Events, issuer: Issuer) -> None:
    room, other, closed = fresh("room"), fresh("other"), fresh("closed")
    peer = events.peer("alice", token=issuer.token("alice", room, other))
    batch = [item([room]), item([closed]), item([room, closed]), item([other, room])]
    results = peer.submit(batch)
    assert [result["status"] for result in results] == ["committed", "rejected", "rejected", "committed"]
    assert [results[number]["reason"] for number in (1, 2)] == ["forbidden", "forbidden"]
    assert [event["id"] for event in peer.history([room])] == [batch[0]["id"], batch[3]["id"]]


def test_s8_an_unauthorized_name_refuses_the_sync_and_changes_nothing(events: Events, issuer: Issuer) -> None:
    room, closed = fresh("room"), fresh("closed")
    owner = events.peer("owner", token=issuer.token("owner", room, closed))
    owner.commit(item([room]), item([closed]))
    peer = events.peer("alice", token=issuer.token("alice", room))
    peer.sync([room], subscription=[room])
    asked: list[Message] = [
        {"partitions": [closed]},
        {"partitions": [room, closed]},
        {"partitions": [room], "subscription_partitions": [closed]},
        {"partitions": [room], "subscription_partitions": [room, closed]},
        {"partitions": [closed], "subscription_partitions": []},
    ]
    for payload in asked:
        assert peer.error("sync", payload | {"since_committed_id": 0})["code"] == "forbidden"
    assert peer.sync([room])["effective_subscriptions"] == [room]
    secret, open_one = item([closed]), item([room, closed])
    owner.commit(secret, open_one)
    [pushed] = peer.broadcasts(1)
    assert (pushed["id"], pushed["partitions"]) == (open_one["id"], sorted([room, closed]))


def test_a3_a_subscription_grants_nothing(events: Events, issuer: Issuer) -> None:
    room = fresh("room")
    peer = events.peer("alice", token=issuer.token("alice", room))
    peer.sync([room], subscription=[room])
    [result] = peer.submit([item([f"{room}-x"])])
    assert (result["status"], result["reason"]) == ("rejected", "forbidden")


ALLOWED = [
    (["tea"], [], "tea", True),
    (["tea"], [], "tea2", False),
    (["tea"], [], "Tea", False),
    (["tea"], [], "te", False),
    ([], ["shop-"], "shop-4", True),
    ([], ["shop-"], "shop-", True),
    ([], ["shop-"], "shop", False),
    ([], ["shop-"], "Shop-4", False),
    (["tea"], ["shop-"], "shop-4", True),
    (["caf\u00e9"], [], "cafe\u0301", True),
    (["cafe\u0301"], [], "caf\u00e9", True),
    ([], ["cafe\u0301-"], "caf\u00e9-1", True),
    (["*"], [], "tea", False),
    ([], ["shop-*"], "shop-4", False),
    (["\ufb33"], [], "\u05d3\u05bc", True),
]


@pytest.mark.parametrize(("names", "prefixes", "name", "allowed"), ALLOWED)
def test_a4_names_and_prefixes(
    events: Events, issuer: Issuer, names: list[str], prefixes: list[str], name: str, allowed: bool
) -> None:
    token = issuer.token("alice", *names, prefixes=prefixes)
    peer = events.peer("alice", token=token)
    [result] = peer.submit([item([name])])
    assert result["status"] == ("committed" if allowed else "rejected")
    assert result.get("reason") == (None if allowed else "forbidden")
    answer = peer.ask("sync", {"partitions": [name], "since_committed_id": 0})
    assert answer["type"] == ("sync_response" if allowed else "error")
    headers = {"Authorization": f"Bearer {token}"}
    answered = events.http.get("/v1/events", params={"partition": name}, headers=headers)
    assert answered.status_code == (200 if allowed else 403)


# -- The token file ---------------------------------------------------------------------------------------------------


def test_a_token_of_the_file_is_a_client(events: Events) -> None:
    peer = events.raw()
    assert peer.connect("scoped", SCOPED)["client_id"] == "scoped"
    results = peer.submit([item([name]) for name in ("tea", "shop-4", "coffee", "teapot")])
    assert [result["status"] for result in results] == ["committed", "committed", "rejected", "rejected"]
    assert {result["reason"] for result in results[2:]} == {"forbidden"}
    assert peer.error("sync", {"partitions": ["coffee"], "since_committed_id": 0})["code"] == "forbidden"
    turned_away(events, "reader", SCOPED)
    turned_away(events, "scoped", SCOPED + "x")


def test_roles_of_the_file_bound_what_a_client_does(events: Events) -> None:
    room = fresh("room")
    writer, reader = events.peer("writer", token=WRITER), events.peer("reader", token=READER)
    writer.commit(item([room]))
    [result] = reader.submit([item([room])])
    assert (result["status"], result["reason"]) == ("rejected", "forbidden")
    assert len(reader.history([room])) == 1
    assert writer.error("sync", {"partitions": [room], "since_committed_id": 0})["code"] == "forbidden"


# -- 2.x and 1.3 ------------------------------------------------------------------------------------------------------


def test_2_x_a_project_must_be_allowed(events: Events, issuer: Issuer) -> None:
    own, closed = fresh("own"), fresh("closed")
    peer = events.camel(closed, "alice")
    peer.send("connect", {"token": issuer.token("alice", own), "clientId": "alice", "projectId": closed})
    ending = peer.ending()
    assert (ending.error, ending.code) == ("forbidden", 1008)
    peer = events.camel_2(own, "alice", token=issuer.token("alice", own))
    assert peer.error("sync", {"projectId": closed, "sinceCommittedId": 0})["code"] == "forbidden"
    [result, blocked] = peer.submit([peer.draft(projectId=closed), peer.draft()])
    assert (result["status"], result["reason"]) == ("rejected", "forbidden")
    assert blocked["status"] == "not_processed"
    peer.commit(peer.draft())


def test_2_x_a_foreign_user_is_forbidden(events: Events, issuer: Issuer) -> None:
    own = fresh("own")
    peer = events.camel_2(own, "web-2", token=issuer.token("user-1", own, client_id="web-2"))
    [result] = peer.submit([peer.draft(userId="user-2")])
    assert (result["status"], result["reason"]) == ("rejected", "forbidden")
    peer.commit(peer.draft(userId="user-1"))
    assert [event["userId"] for event in peer.sync()["events"]] == ["user-1"]


@pytest.mark.parametrize("project", ["", "project"])
def test_camel_bad_tokens_are_turned_away(events: Events, issuer: Issuer, project: str) -> None:
    for token in ("any", issuer.token("bob", "project"), issuer.token("alice", "project", exp=1)):
        peer = events.camel(project, "alice")
        peer.send("connect", {"token": token, "clientId": "alice"} | ({"projectId": project} if project else {}))
        ending = peer.ending()
        assert (ending.error, ending.code) == ("auth_failed", 1008)


def test_1_3_a_partition_must_be_allowed(events: Events, issuer: Issuer) -> None:
    own, closed = fresh("own"), fresh("closed")
    peer = events.camel_1("alice", token=issuer.token("alice", own))
    peer.commit(peer.draft([own]))
    [result] = peer.submit([peer.draft([own, closed])])
    assert (result["status"], result["reason"]) == ("rejected", "forbidden")
    assert peer.error("sync", {"partitions": [closed], "sinceCommittedId": 0})["code"] == "forbidden"


# -- A5: one connection a client --------------------------------------------------------------------------------------


def test_c4_two_processes_with_one_token_are_told_apart_by_their_instance(events: Events, issuer: Issuer) -> None:
    token = issuer.token("alice", fresh("room"))
    one = events.peer("alice", token=token, instance="a")
    other = events.peer("alice", token=token, instance="b")
    one.heartbeat()
    events.peer("alice", token=token, instance="b").heartbeat()
    assert other.ending().code == 4001
    one.heartbeat()


def test_a5_a_newer_connection_replaces_the_older(events: Events, issuer: Issuer) -> None:
    room = fresh("room")
    token = issuer.token("alice", room)
    older = events.peer("alice", token=token)
    older.sync([room], subscription=[room])
    turned_away(events, "alice", "bad")
    older.heartbeat()
    newer = events.peer("alice", token=token)
    ending = older.ending()
    assert (ending.messages, ending.code) == ([], 4001)
    newer.sync([room], subscription=[room])
    other = events.peer("bob", token=issuer.token("bob", room))
    draft = item([room])
    other.commit(draft)
    assert newer.broadcasts(1)[0]["id"] == draft["id"]
    other.heartbeat()
