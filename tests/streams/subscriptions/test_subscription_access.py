"""Who may use a subscription, how many there may be, and which addresses a webhook may reach."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel.surfaces.streams.subscriptions.http import MAX_ACKS, MAX_STREAMS
from semel.surfaces.streams.subscriptions.rules.webhook_url import AddressPolicy, parse_target
from semel.surfaces.streams.subscriptions.webhook_client import WebhookClient, WebhookError
from tests.harness.server import RunningServer
from tests.harness.tokens import token_file
from tests.streams.subscriptions.receiver import ACCEPTED, Control, Receiver, code_of, until

TOKENS = {
    "all": ("all-token", ["admin"], []),
    "tenant": ("tenant-token", ["read", "write"], ["streams:tenant/*"]),
    "reader": ("reader-token", ["read"], ["streams:tenant/*"]),
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("guarded")
    env = {
        "SEMEL_TOKENS": str(token_file(folder, TOKENS)),
        "SEMEL_STREAMS_WEBHOOK_PRIVATE": "1",
        "SEMEL_STREAMS_SUBSCRIPTIONS": "3",
    }
    with RunningServer(folder / "data", env=env) as running:
        yield running


@pytest.fixture
def tenant(guarded: RunningServer) -> Iterator[Control]:
    with Control(guarded.url, "tenant-token") as calls:
        yield calls


@pytest.fixture
def admin(guarded: RunningServer) -> Iterator[Control]:
    with Control(guarded.url, "all-token") as calls:
        yield calls


@pytest.mark.parametrize(
    ("members", "is_allowed"),
    [
        ({"pattern": "tenant/*"}, True),
        ({"pattern": "tenant/a/**"}, True),
        ({"streams": ["tenant/a"]}, True),
        ({"pattern": "tenant/a"}, True),
        ({"pattern": "*/a"}, False),
        ({"pattern": "**"}, False),
        ({"pattern": "tenant/**"}, False),
        ({"pattern": "other/*"}, False),
        ({"streams": ["other/a"]}, False),
        ({"pattern": "tenant/*", "streams": ["other/a"]}, False),
    ],
)
def test_a_credential_must_reach_what_is_followed(tenant: Control, members: dict[str, Any], is_allowed: bool) -> None:
    answer = tenant.put("scoped", type="webhook", webhook={"url": "http://127.0.0.1:9/"}, **members)
    if is_allowed:
        assert answer.status_code == 201, answer.text
        assert tenant.http.delete("__ds/subscriptions/scoped").status_code == 204
    else:
        assert code_of(answer) == (403, "FORBIDDEN")


def test_a_wake_stream_is_written_and_must_be_reached(tenant: Control) -> None:
    answer = tenant.put("wakes", type="pull-wake", pattern="tenant/*", wake_stream="other/w")
    assert code_of(answer) == (403, "FORBIDDEN")


def test_a_subscription_of_another_scope_cannot_be_seen_changed_or_claimed(tenant: Control, admin: Control) -> None:
    assert admin.put("theirs", type="pull-wake", streams=["other/a"], wake_stream="other/w").status_code == 201
    for name in ("theirs", "nobodys"):
        for answer in (
            tenant.http.get(f"__ds/subscriptions/{name}"),
            tenant.http.post(f"__ds/subscriptions/{name}/streams", json={"streams": ["tenant/a"]}),
            tenant.http.delete(f"__ds/subscriptions/{name}/streams/tenant%2Fa"),
            tenant.call(name, "claim", "tenant-token", worker="w"),
        ):
            assert code_of(answer) == (404, "SUBSCRIPTION_NOT_FOUND")
        assert tenant.http.delete(f"__ds/subscriptions/{name}").status_code == 204
    taken = tenant.put("theirs", type="pull-wake", streams=["tenant/a"], wake_stream="tenant/w")
    assert code_of(taken) == (409, "SUBSCRIPTION_ALREADY_EXISTS")
    assert admin.http.get("__ds/subscriptions/theirs").status_code == 200
    assert admin.http.delete("__ds/subscriptions/theirs").status_code == 204


def test_a_reader_sees_and_changes_nothing(guarded: RunningServer, tenant: Control) -> None:
    tenant.webhook("seen", "http://127.0.0.1:9/", pattern="tenant/*")
    with Control(guarded.url, "reader-token") as reader:
        assert reader.get("seen")["id"] == "seen"
        assert code_of(reader.http.delete("__ds/subscriptions/seen")) == (403, "FORBIDDEN")
        answer = reader.put("mine", type="webhook", webhook={"url": "http://127.0.0.1:9/"}, pattern="tenant/*")
        assert code_of(answer) == (403, "FORBIDDEN")
    tenant.http.delete("__ds/subscriptions/seen")


def test_calls_without_a_credential_are_refused_but_keys_are_open(guarded: RunningServer) -> None:
    root = f"{guarded.url}/v1/stream/__ds"
    assert code_of(httpx.get(f"{root}/subscriptions/x")) == (401, "UNAUTHORIZED")
    assert code_of(httpx.post(f"{root}/subscriptions/x/claim", json={"worker": "w"})) == (401, "UNAUTHORIZED")
    assert code_of(httpx.post(f"{root}/subscriptions/x/callback", json={})) == (401, "TOKEN_INVALID")
    keys = httpx.get(f"{root}/jwks.json").json()["keys"]
    assert [sorted(key) for key in keys] == [["alg", "crv", "kid", "kty", "use", "x"]]
    assert keys[0]["kid"].startswith("ds_")


def test_a_callback_is_admitted_by_its_token_alone(guarded: RunningServer, tenant: Control) -> None:
    with Receiver(lambda delivery: ACCEPTED) as receiver:
        tenant.webhook("open", receiver.url, pattern="tenant/open/*")
        tenant.create("tenant/open/a", 1)
        delivery = receiver.wait(1)[0]
        body = {"wake_id": delivery.body["wake_id"], "generation": 1, "done": True}
        for token in ("tenant-token", "all-token"):
            answer = httpx.post(delivery.body["callback_url"], json=body, headers={"Authorization": f"Bearer {token}"})
            assert code_of(answer) == (401, "TOKEN_INVALID")
        token = delivery.body["callback_token"]
        ack = {"stream": "tenant/open/a", "offset": delivery.body["streams"][0]["tail_offset"]}
        headers = {"Authorization": f"Bearer {token}"}

        def call(acks: int) -> httpx.Response:
            return httpx.post(delivery.body["callback_url"], json=body | {"acks": [ack] * acks}, headers=headers)

        assert code_of(call(MAX_ACKS + 1)) == (400, "INVALID_REQUEST")
        assert call(MAX_ACKS).status_code == 200
        assert httpx.get(f"{guarded.url}/v1/stream/tenant/open/a", headers=headers).status_code == 401
    tenant.http.delete("__ds/subscriptions/open")


def test_the_number_of_subscriptions_and_of_their_streams_is_limited(tenant: Control) -> None:
    hook = {"type": "webhook", "webhook": {"url": "http://127.0.0.1:9/"}}
    for number in range(3):
        assert tenant.put(f"n{number}", **hook, streams=["tenant/1"]).status_code == 201
    refused = tenant.put("n3", **hook, streams=["tenant/1"])
    assert code_of(refused) == (429, "SUBSCRIPTION_LIMIT")
    assert tenant.put("n0", **hook, streams=["tenant/1"]).status_code == 200
    most = [f"tenant/{number}" for number in range(1, MAX_STREAMS + 1)]
    for names, status in ((most, 204), (["tenant/0"], 400), (most[:2], 204)):
        answer = tenant.http.post("__ds/subscriptions/n0/streams", json={"streams": names})
        assert answer.status_code == status
    assert tenant.http.delete("__ds/subscriptions/n0").status_code == 204
    assert tenant.put("n3", **hook, streams=["tenant/1"]).status_code == 201
    for number in range(1, 4):
        assert tenant.http.delete(f"__ds/subscriptions/n{number}").status_code == 204


def test_without_the_setting_a_server_with_credentials_calls_no_private_address(tmp_path: Path) -> None:
    with (
        RunningServer(tmp_path / "data", env={"SEMEL_TOKEN_ACTIVE": "one-token"}) as server,
        Control(server.url, "one-token") as control,
        Receiver() as receiver,
    ):
        for url in (receiver.url, "https://127.0.0.1/x", "https://192.168.0.1/x", "http://169.254.169.254/"):
            answer = control.put("x", type="webhook", webhook={"url": url}, pattern="a/*")
            assert code_of(answer) == (400, "WEBHOOK_URL_REJECTED")
        # A name is checked when the connection is made.
        control.webhook("names", f"https://localtest.invalid:{receiver.port}/", pattern="a/*")
        control.create("a/1", 1)
        until(lambda: control.get("names")["status"] == "failed")
        assert not receiver.got


def post(client: WebhookClient, url: str) -> int:
    return asyncio.run(client.post(parse_target(url), b"{}", ())).status


def resolving(name: str, *addresses: str) -> Any:
    """A resolver that gives these addresses for a name, one list after the other, and for others what is so."""
    answers = [[(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0))] for address in addresses]
    genuine = socket.getaddrinfo

    def answer(host: Any, *arguments: Any, **options: Any) -> Any:
        return answers.pop(0) if host == name else genuine(host, *arguments, **options)

    return answer


def test_a_name_is_resolved_once_and_its_checked_address_is_used(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second answer of the name server is not even asked for."""
    monkeypatch.setattr(socket, "getaddrinfo", resolving("rebinding.example", "127.0.0.1", "10.0.0.1"))
    client = WebhookClient(AddressPolicy(loopback=True, private=False), 5, 1_024)
    assert post(client, f"http://rebinding.example:{receiver.port}/") == 200
    assert receiver.got[0].headers["host"] == f"rebinding.example:{receiver.port}"
    with pytest.raises(WebhookError, match="not allowed"):
        post(client, f"http://rebinding.example:{receiver.port}/")
    assert len(receiver.got) == 1


@pytest.mark.parametrize(
    "address", ["10.0.0.1", "169.254.169.254", "::ffff:169.254.169.254", "0.0.0.0", "93.184.216.34"]
)
def test_an_address_that_is_not_allowed_is_never_connected_to(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", resolving("name.example", address))

    async def connect(*arguments: Any, **options: Any) -> Any:
        pytest.fail("a connection was made")

    monkeypatch.setattr(asyncio, "open_connection", connect)
    with pytest.raises(WebhookError, match="not allowed"):
        post(WebhookClient(AddressPolicy(loopback=True, private=False), 5, 1_024), "http://name.example/")


def test_proxies_of_the_environment_are_not_used(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert post(WebhookClient(AddressPolicy(loopback=True, private=False), 5, 1_024), receiver.url) == 200
        assert not proxy.got
