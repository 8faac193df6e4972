"""Webhooks over a real server, to a receiver that accepts, fails, hangs, redirects, answers late and dies."""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import quote

import pytest

from tests.harness.server import RunningServer
from tests.streams.subscriptions.receiver import (
    ACCEPTED,
    DONE,
    Control,
    Delivery,
    Receiver,
    Reply,
    code_of,
    is_signed,
    until,
)

START = "0000000000000000_0000000000000000"


def test_a_wake_is_signed_and_says_what_is_pending(control: Control, receiver: Receiver, server: RunningServer) -> None:
    made = control.webhook("signed", receiver.url, pattern="signed/*", description="d")
    assert made["status"] == "active"
    assert (made["pattern"], made["streams"], made["lease_ttl_ms"]) == ("signed/*", [], 30_000)
    control.create("signed/a", 1, 2)
    [delivery] = receiver.wait(1)
    jwks = control.http.get("__ds/jwks.json")
    assert jwks.headers["content-type"] == "application/jwk-set+json"
    assert jwks.headers["cache-control"] == "public, max-age=300"
    assert is_signed(delivery, jwks.json())
    assert not is_signed(delivery._replace(raw=delivery.raw + b" "), jwks.json())
    assert (delivery.method, delivery.path) == ("POST", "/hook")
    assert delivery.headers["content-type"] == "application/json"
    assert delivery.body["subscription_id"] == "signed"
    assert delivery.body["generation"] == 1
    assert delivery.body["callback_url"] == f"{server.url}/v1/stream/__ds/subscriptions/signed/callback"
    stream = delivery.stream("signed/a")
    assert (stream["link_type"], stream["acked_offset"], stream["has_pending"]) == ("glob", START, True)
    until(lambda: control.acked("signed", "signed/a") == stream["tail_offset"])


def test_existing_streams_are_linked_at_their_tail_and_later_ones_at_their_beginning(
    control: Control, receiver: Receiver
) -> None:
    control.create("old/a", "before")
    control.webhook("old", receiver.url, pattern="old/*")
    assert control.acked("old", "old/a") != START
    tail = control.append("old/a", "after")
    control.create("old/b", "first")
    until(lambda: control.acked("old", "old/a") == tail and control.acked("old", "old/b") not in (None, START))
    read = [control.read("old/a", delivery.stream("old/a")["acked_offset"]) for delivery in receiver.got[:1]]
    assert read == [["after"]]


def test_an_append_during_a_wake_is_delivered_after_it(control: Control) -> None:
    release: list[float] = [0.3]
    with Receiver(lambda delivery: Reply(seconds=release.pop() if release else 0)) as receiver:
        control.webhook("busy", receiver.url, pattern="busy/*")
        control.create("busy/a", 1)
        first = receiver.wait(1)[0]
        tail = control.append("busy/a", 2)
        second = receiver.wait(2)[1]
        assert (first.body["generation"], second.body["generation"]) == (1, 2)
        assert first.body["wake_id"] != second.body["wake_id"]
        assert second.stream("busy/a")["acked_offset"] == first.stream("busy/a")["tail_offset"]
        assert second.stream("busy/a")["tail_offset"] == tail
        until(lambda: control.acked("busy", "busy/a") == tail)


@pytest.mark.parametrize(
    ("name", "reply"),
    [
        ("fails", Reply(500, b"")),
        ("refuses", Reply(404, b"{}")),
        ("redirects", Reply(302, b"")),
        ("redirects-for-good", Reply(308, b'{"done":true}')),
        ("hangs", Reply(hangs=True)),
        ("late", Reply(seconds=0.8)),
        ("large", Reply(body=b" " * 70_000)),
        ("not-whole", Reply(headers=(("Content-Length", "999"),))),
    ],
)
def test_an_attempt_without_a_good_answer_is_repeated_and_nothing_else_is_called(
    control: Control, name: str, reply: Reply
) -> None:
    """The first answer is bad, the second good; the target of a redirect hears nothing."""
    with Receiver() as elsewhere:
        replies = [reply._replace(headers=(("Location", elsewhere.url), *reply.headers))]

        def answer(_: Delivery) -> Reply:
            return replies.pop() if replies else DONE

        with Receiver(answer) as receiver:
            control.webhook(name, receiver.url, pattern=f"{name}/*")
            control.create(f"{name}/a", 1)
            receiver.wait(1)
            until(lambda: control.get(name)["status"] == "failed")
            first, second = receiver.wait(2)[:2]
            assert second.body["wake_id"] == first.body["wake_id"]
            assert second.body["generation"] == first.body["generation"]
            assert second.body["streams"] == first.body["streams"]
            until(lambda: control.acked(name, f"{name}/a") == first.stream(f"{name}/a")["tail_offset"])
            assert control.get(name)["status"] == "active"
            time.sleep(0.3)
            assert len(receiver.got) == 2
        assert not elsewhere.got


@pytest.mark.parametrize("host", ["a..b.example", "a" * 64 + ".example", "xn--" + "a" * 70])
def test_a_name_that_cannot_be_looked_up_is_a_failed_attempt(control: Control, host: str) -> None:
    name = f"nameless-{len(host)}"
    control.webhook(name, f"https://{host}/", pattern=f"{name}/*")
    control.create(f"{name}/a", 1)
    until(lambda: control.get(name)["status"] == "failed", 4)


def test_a_receiver_that_is_dead_is_called_when_it_lives_again(control: Control, receiver: Receiver) -> None:
    receiver.kill()
    control.webhook("dead", receiver.url, pattern="dead/*")
    tail = ""
    control.create("dead/a")
    for number in range(5):
        tail = control.append("dead/a", number)
    until(lambda: control.get("dead")["status"] == "failed")
    receiver.revive()
    until(lambda: control.acked("dead", "dead/a") == tail)
    assert control.read("dead/a", receiver.got[0].stream("dead/a")["acked_offset"]) == [0, 1, 2, 3, 4]


def accepting() -> Receiver:
    return Receiver(lambda delivery: ACCEPTED)


def test_a_callback_acks_extends_and_ends(control: Control) -> None:
    with accepting() as receiver:
        control.webhook("calls", receiver.url, pattern="calls/*", lease_ttl_ms=60_000)
        control.create("calls/a", 1)
        middle = control.append("calls/a", 2)
        until(lambda: receiver.got)
        delivery = receiver.wait(1)[0]
        answer = control.callback(
            delivery, acks=[{"stream": "calls/a", "offset": delivery.stream("calls/a")["tail_offset"]}]
        )
        assert (answer.status_code, answer.json()) == (200, {"ok": True, "next_wake": False})
        answer = control.callback(delivery, acks=[{"stream": "calls/a", "offset": middle}])
        assert answer.status_code == 200
        control.append("calls/a", 3)
        answer = control.callback(delivery, done=True)
        assert answer.json() == {"ok": True, "next_wake": True}
        assert receiver.wait(2)[1].body["generation"] == 2


def test_a_callback_of_an_ended_wake_is_fenced(control: Control) -> None:
    with accepting() as receiver:
        control.webhook("fences", receiver.url, pattern="fences/*", lease_ttl_ms=1_000)
        control.create("fences/a", 1)
        first, second = receiver.wait(2)[:2]  # the lease of the first has ended
        acks = [{"stream": "fences/a", "offset": first.stream("fences/a")["tail_offset"]}]
        assert code_of(control.callback(first, acks=acks, done=True)) == (409, "FENCED")
        assert control.acked("fences", "fences/a") == START
        assert code_of(control.callback(second, generation=1, acks=acks)) == (401, "TOKEN_INVALID")
        assert code_of(control.callback(second, wake_id="other", acks=acks)) == (409, "FENCED")
        assert control.callback(second, acks=acks, done=True).status_code == 200
        assert code_of(control.callback(second, acks=acks, done=True)) == (409, "FENCED")


def test_a_bad_ack_applies_none_of_a_call(control: Control) -> None:
    with accepting() as receiver:
        control.webhook("bad", receiver.url, pattern="bad/*", lease_ttl_ms=60_000)
        control.create("bad/a", 1)
        delivery = receiver.wait(1)[0]
        tail = delivery.stream("bad/a")["tail_offset"]
        good = {"stream": "bad/a", "offset": tail}
        for wrong in (
            {"stream": "bad/none", "offset": tail},
            {"stream": "bad/a", "offset": "-1"},
            {"stream": "bad/a", "offset": "now"},
            {"stream": "bad/a", "offset": "garbage"},
            {"stream": "bad/a", "offset": START},
            {"stream": "bad/a", "offset": "0000000000000000_0000000000009999"},
            {"stream": "bad/a", "offset": "0000000000000007_0000000000000001"},
        ):
            answer = control.callback(delivery, acks=[good, wrong])
            assert code_of(answer) == (409, "INVALID_OFFSET"), wrong
            assert control.acked("bad", "bad/a") == START
        malformed: object
        for malformed in ([{}], [{"stream": "bad/a"}], "x", [1], [{"stream": "bad/a", "offset": 7}]):
            assert code_of(control.callback(delivery, acks=malformed)) == (400, "INVALID_REQUEST")
        assert control.callback(delivery, acks=[good]).status_code == 200


def test_a_callback_needs_the_token_of_its_wake(control: Control) -> None:
    with accepting() as receiver:
        control.webhook("tokens", receiver.url, pattern="tokens/*", lease_ttl_ms=60_000)
        control.webhook("tokens-2", receiver.url, pattern="tokens/*", lease_ttl_ms=60_000)
        control.create("tokens/a", 1)
        deliveries = {one.body["subscription_id"]: one for one in receiver.wait(2)}
        own, other = deliveries["tokens"], deliveries["tokens-2"]
        body = {"wake_id": own.body["wake_id"], "generation": 1, "done": True}
        for token in (None, "x", other.body["callback_token"], own.body["callback_token"][:-2]):
            assert code_of(control.call("tokens", "callback", token, **body)) == (401, "TOKEN_INVALID")
        assert code_of(control.call("tokens", "ack", own.body["callback_token"], **body)) == (400, "INVALID_REQUEST")


def test_a_deleted_subscription_wakes_no_more_and_refuses_its_calls(control: Control) -> None:
    with accepting() as receiver:
        control.webhook("gone", receiver.url, pattern="gone/*", lease_ttl_ms=1_000)
        control.create("gone/a", 1)
        delivery = receiver.wait(1)[0]
        for _ in range(2):
            assert control.http.delete("__ds/subscriptions/gone").status_code == 204
        assert code_of(control.http.get("__ds/subscriptions/gone")) == (404, "SUBSCRIPTION_NOT_FOUND")
        assert code_of(control.callback(delivery, done=True)) == (404, "SUBSCRIPTION_NOT_FOUND")
        control.append("gone/a", 2)
        control.webhook("gone", receiver.url, streams=["gone/b"])
        assert code_of(control.callback(delivery, done=True)) == (401, "TOKEN_INVALID")
        assert [one["path"] for one in control.get("gone")["streams"]] == ["gone/b"]
        time.sleep(1.3)
        assert len(receiver.got) == 1


def test_a_stream_that_is_created_again_counts_from_its_beginning(control: Control, receiver: Receiver) -> None:
    control.webhook("again", receiver.url, pattern="again/*")
    control.create("again/a", 1, 2, 3)
    until(lambda: control.acked("again", "again/a") not in (None, START))
    control.http.delete("again/a").raise_for_status()
    until(lambda: not control.get("again")["streams"])
    control.create("again/a", 4)
    until(
        lambda: any(
            control.acked("again", "again/a") == one.stream("again/a")["tail_offset"] for one in receiver.got[1:]
        )
    )
    assert receiver.got[1].stream("again/a")["acked_offset"] == START


def test_explicit_streams_are_linked_once_and_removed(control: Control, receiver: Receiver) -> None:
    control.create("explicit/a", 1)
    control.webhook("explicit", receiver.url, streams=["explicit/a", "explicit/later"], pattern="explicit/*")
    at_tail = control.acked("explicit", "explicit/a")
    assert at_tail != START
    for _ in range(2):
        answer = control.http.post("__ds/subscriptions/explicit/streams", json={"streams": ["explicit/a", "other/x"]})
        assert answer.status_code == 204
    assert {one["path"]: one["link_type"] for one in control.get("explicit")["streams"]} == {
        "explicit/a": "explicit",
        "explicit/later": "explicit",
        "other/x": "explicit",
    }
    for path in ("explicit%2Fa", "explicit/a", "other%2Fx", "never"):
        assert control.http.delete(f"__ds/subscriptions/explicit/streams/{path}").status_code == 204
    assert {one["path"]: one["link_type"] for one in control.get("explicit")["streams"]} == {
        "explicit/a": "glob",
        "explicit/later": "explicit",
    }
    control.create("explicit/later", 5)
    until(lambda: receiver.got)
    assert receiver.got[0].stream("explicit/later")["acked_offset"] == START


def test_the_same_configuration_is_confirmed_and_another_refused(control: Control, receiver: Receiver) -> None:
    members = {"type": "webhook", "webhook": {"url": receiver.url}, "streams": ["same/b", "same/a"]}
    assert control.put("same", **members).status_code == 201
    for equal in (members, members | {"streams": ["same/a", "same/b", "same/a"]}, members | {"lease_ttl_ms": 30_000}):
        assert control.put("same", **equal).status_code == 200
    for other in ({"lease_ttl_ms": 2_000}, {"description": "x"}, {"pattern": "same/*"}, {"streams": ["same/a"]}):
        assert code_of(control.put("same", **members | other)) == (409, "SUBSCRIPTION_ALREADY_EXISTS")


BAD_BODIES: dict[str, Callable[[str], dict[str, object]]] = {
    "no type": lambda url: {"pattern": "a/*", "webhook": {"url": url}},
    "other type": lambda url: {"type": "mail", "pattern": "a/*", "webhook": {"url": url}},
    "nothing to follow": lambda url: {"type": "webhook", "webhook": {"url": url}},
    "no streams": lambda url: {"type": "webhook", "webhook": {"url": url}, "streams": []},
    "no url": lambda url: {"type": "webhook", "pattern": "a/*"},
    "short lease": lambda url: {"type": "webhook", "pattern": "a/*", "webhook": {"url": url}, "lease_ttl_ms": 999},
    "long lease": lambda url: {"type": "webhook", "pattern": "a/*", "webhook": {"url": url}, "lease_ttl_ms": 600_001},
    "half a wildcard": lambda url: {"type": "webhook", "pattern": "a/b*", "webhook": {"url": url}},
    "reserved": lambda url: {"type": "webhook", "streams": ["__ds/x"], "webhook": {"url": url}},
    "dots": lambda url: {"type": "webhook", "streams": ["a/../b"], "webhook": {"url": url}},
    "many streams": lambda url: {
        "type": "webhook",
        "streams": [f"s{n}" for n in range(1_001)],
        "webhook": {"url": url},
    },
    "no wake stream": lambda url: {"type": "pull-wake", "pattern": "a/*"},
    "own wake stream": lambda url: {"type": "pull-wake", "pattern": "a/*", "wake_stream": "a/w"},
    "own wake stream by name": lambda url: {"type": "pull-wake", "streams": ["w"], "wake_stream": "w"},
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_a_body_that_makes_no_sense_is_refused(control: Control, receiver: Receiver, name: str) -> None:
    assert code_of(control.put("refused", **BAD_BODIES[name](receiver.url))) == (400, "INVALID_REQUEST")


def test_refusals_of_control_routes_are_of_their_own_form(control: Control) -> None:
    assert code_of(control.http.get("__ds/none")) == (404, "NOT_FOUND")
    assert code_of(control.http.get("__ds")) == (404, "NOT_FOUND")
    assert code_of(control.http.get("__ds/subscriptions/x/none")) == (404, "NOT_FOUND")
    answer = control.http.patch("__ds/subscriptions/x")
    assert code_of(answer) == (405, "METHOD_NOT_ALLOWED")
    assert answer.headers["allow"] == "PUT, GET, DELETE"
    assert code_of(control.http.put("__ds/subscriptions/x", content=b"{")) == (400, "INVALID_REQUEST")
    assert code_of(control.http.put("__ds/subscriptions/x", content=b" " * 300_000)) == (413, "PAYLOAD_TOO_LARGE")
    assert code_of(control.http.put(f"__ds/subscriptions/{'x' * 257}", json={})) == (400, "INVALID_REQUEST")


def test_a_receiver_that_ends_its_wakes_without_an_ack_is_not_called_in_a_loop(control: Control) -> None:
    with accepting() as receiver:
        control.webhook("loops", receiver.url, pattern="loops/*")
        control.create("loops/a", 1)
        began = time.monotonic()
        for number in range(3):
            assert control.callback(receiver.wait(number + 1)[number], done=True).json()["next_wake"]
        receiver.wait(4)
        assert time.monotonic() - began > 2.5


def test_secrets_are_in_no_log(server: RunningServer, control: Control) -> None:
    with Receiver(lambda delivery: Reply(503)) as receiver:
        control.webhook("quiet", f"{receiver.url}?key=sesame", pattern="quiet/*")
        control.create("quiet/a", 1)
        token = receiver.wait(2)[1].body["callback_token"]
        until(lambda: control.get("quiet")["status"] == "failed")
        control.http.delete("__ds/subscriptions/quiet")
    logged = server.output.read_text()
    assert "a webhook was refused" in logged
    assert token not in logged
    assert "sesame" not in logged


@pytest.mark.parametrize("name", ["/slash/a", "ä/ö", "with space/a", "a//b", "x" * 200 + "/a"])
def test_any_name_of_a_stream_can_be_followed(control: Control, receiver: Receiver, name: str) -> None:
    key = f"named {len(name)} ä/{name[:1]}"
    path = quote(key, safe="")
    pattern = f"{name.rpartition('/')[0]}/*"
    answer = control.put(path, type="webhook", webhook={"url": receiver.url}, pattern=pattern)
    assert answer.status_code == 201, answer.text
    control.create(quote(name, safe=""), 1)
    delivery = receiver.wait(1)[0]
    assert delivery.body["subscription_id"] == key
    until(lambda: control.acked(path, name) == delivery.stream(name)["tail_offset"])
    assert control.callback(delivery, done=True).status_code == 409
