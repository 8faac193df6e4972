"""`client.streams.subscriptions` and `fork` on the wire: what is sent, and what a lost answer means for each call."""

from __future__ import annotations

import json
import socket
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from semel.client import (
    AccessError,
    ConflictError,
    InvalidArgumentError,
    OutcomeUnknown,
    Patience,
    SubscriptionClaim,
    WebhookSignatureError,
    verify_webhook,
)
from tests.client.both import BOTH, client_of
from tests.client.raw_server import raw_server, request_of

LINK = {"path": "events/a", "link_type": "glob", "acked_offset": "0", "tail_offset": "7", "has_pending": True}
RECORD = {
    "id": "s",
    "subscription_id": "s",
    "type": "pull-wake",
    "pattern": "events/*",
    "streams": [{"path": "events/a", "link_type": "glob", "acked_offset": "0"}],
    "wake_stream": "wakes",
    "lease_ttl_ms": 1_500,
    "created_at": "2026-01-01T00:00:00.000Z",
    "status": "active",
}
CLAIM = {"wake_id": "w", "generation": 3, "token": "lease-token", "streams": [LINK], "lease_ttl_ms": 30_000}
HELD = SubscriptionClaim("s", "w", 3, (), 30_000, "lease-token")
LOST = None
"""The connection ends without an answer."""


def answer(status: int, facts: Any = None, **headers: str) -> bytes:
    body = b"" if facts is None else json.dumps(facts).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Content-Type: application/json"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def refusal(status: int, code: str, **facts: Any) -> bytes:
    return answer(status, {"error": {"code": code, "message": "No.", **facts}})


class Script:
    """A server that gives these answers in turn; `asked` are the requests."""

    def __init__(self, *answers: bytes | None) -> None:
        self._answers = list(answers)
        self.asked: list[bytes] = []

    def __call__(self, connection: socket.socket, number: int) -> None:
        while request := request_of(connection):
            self.asked.append(request)
            text = self._answers.pop(0)
            if text is LOST:
                return
            connection.sendall(text)

    def head(self, number: int = -1) -> list[str]:
        return self.asked[number].partition(b"\r\n\r\n")[0].decode().split("\r\n")

    def body(self, number: int = -1) -> Any:
        return json.loads(self.asked[number].partition(b"\r\n\r\n")[2])


@BOTH
async def test_a_subscription_is_created_read_linked_and_deleted(kind: str) -> None:
    script = Script(answer(201, RECORD), LOST, answer(200, RECORD), answer(200, RECORD), *[answer(204)] * 3)
    with raw_server(script) as url:
        async with client_of(kind, url, token="own") as client:
            calls = client.streams.subscriptions
            made = await calls.create("a/ü", pattern="events/*", wake_stream="wakes", lease=1.5)
            assert (made.is_created, made.type, made.lease_ms, made.wake_stream) == (
                True,
                "pull-wake",
                1_500,
                "wakes",
            )
            assert made.streams[0].path == "events/a"
            assert script.head()[0] == "PUT /v1/stream/__ds/subscriptions/a%2F%C3%BC HTTP/1.1"
            assert "Authorization: Bearer own" in script.head()
            expected = {"type": "pull-wake", "pattern": "events/*", "wake_stream": "wakes", "lease_ttl_ms": 1_500}
            assert script.body() == expected
            hook = await calls.create("s", streams=["a", "b"], webhook="https://x.example/", description="d")
            assert not hook.is_created
            assert script.asked[1] == script.asked[2]
            assert script.body() == {
                "type": "webhook",
                "streams": ["a", "b"],
                "webhook": {"url": "https://x.example/"},
                "lease_ttl_ms": 30_000,
                "description": "d",
            }
            assert (await calls.get("s")).status == "active"
            await calls.add_streams("s", ["c"])
            assert script.body() == {"streams": ["c"]}
            await calls.remove_stream("s", "events/a b")
            assert script.head()[0] == "DELETE /v1/stream/__ds/subscriptions/s/streams/events%2Fa%20b HTTP/1.1"
            await calls.delete("s")
            assert script.head()[0] == "DELETE /v1/stream/__ds/subscriptions/s HTTP/1.1"
            for wrong in ({}, {"webhook": "https://x.example/", "wake_stream": "w"}):
                with pytest.raises(InvalidArgumentError):
                    await calls.create("s", pattern="**", **wrong)
            with pytest.raises(InvalidArgumentError):
                await calls.get("")


@BOTH
async def test_a_claim_is_acknowledged_with_its_own_token_and_released(kind: str) -> None:
    script = Script(answer(200, CLAIM), answer(200, {"ok": True, "next_wake": True}), answer(204))
    with raw_server(script) as url:
        async with client_of(kind, url, token="own") as client:
            calls = client.streams.subscriptions
            held = await calls.claim("s", "worker-1")
            assert script.body() == {"worker": "worker-1"}
            assert (held.generation, held.streams[0].tail_offset, held.streams[0].has_pending) == (3, "7", True)
            assert "lease-token" not in repr(held)
            assert await calls.ack(held, {"events/a": "7"}, done=True)
            acks = [{"stream": "events/a", "offset": "7"}]
            assert script.body() == {"wake_id": "w", "generation": 3, "acks": acks, "done": True}
            assert [line for line in script.head() if line.startswith("Auth")] == ["Authorization: Bearer lease-token"]
            await calls.release(held)
            assert script.body() == {"wake_id": "w", "generation": 3}


@BOTH
async def test_a_claim_without_work_is_none_and_one_that_another_holds_is_refused(kind: str) -> None:
    script = Script(refusal(409, "NO_PENDING_WORK"), refusal(409, "ALREADY_CLAIMED", current_holder="w2"))
    with raw_server(script) as url:
        async with client_of(kind, url) as client:
            assert await client.streams.subscriptions.claim("s", "w1") is None
            with pytest.raises(ConflictError) as caught:
                await client.streams.subscriptions.claim("s", "w1")
            assert caught.value.facts["error"]["current_holder"] == "w2"


@BOTH
@pytest.mark.parametrize("refused", [refusal(409, "FENCED"), refusal(401, "TOKEN_EXPIRED")])
async def test_an_ack_that_is_fenced_after_a_lost_answer_has_an_unknown_outcome(kind: str, refused: bytes) -> None:
    script = Script(LOST, refused, refused)
    with raw_server(script) as url:
        async with client_of(kind, url) as client:
            with pytest.raises(OutcomeUnknown):
                await client.streams.subscriptions.ack(HELD, {"a": "1"}, done=True)
            with pytest.raises((ConflictError, AccessError)):
                await client.streams.subscriptions.ack(HELD, {"a": "1"}, done=True)


@BOTH
@pytest.mark.parametrize("refused", [refusal(409, "FENCED"), refusal(401, "TOKEN_INVALID")])
async def test_a_release_after_a_lost_answer_counts_a_lease_that_is_over_as_released(kind: str, refused: bytes) -> None:
    script = Script(LOST, refused, refused, LOST, LOST)
    with raw_server(script) as url:
        async with client_of(kind, url, patience=Patience(tries=2)) as client:
            await client.streams.subscriptions.release(HELD)
            with pytest.raises((ConflictError, AccessError)):
                await client.streams.subscriptions.release(HELD)
            with pytest.raises(OutcomeUnknown):
                await client.streams.subscriptions.release(HELD)


@BOTH
async def test_a_fork_names_its_source_and_is_repeated_after_a_lost_answer(kind: str) -> None:
    made = answer(200, Stream_Next_Offset="0000000000000000_0000000000000007")
    script = Script(LOST, made, made)
    with raw_server(script) as url:
        async with client_of(kind, url) as client:
            fork = await client.streams.fork("a b/ü", "f", offset="0_7", sub_offset=2, retention_age=60)
            assert not fork.is_created
            assert script.asked[0] == script.asked[1]
            sent = {line.lower() for line in script.head()}
            assert {
                "stream-forked-from: /v1/stream/a%20b/%c3%bc",
                "stream-fork-offset: 0_7",
                "stream-fork-sub-offset: 2",
                "stream-retention-age: 60",
            } <= sent
            await client.streams.create("c", retention_age=0, retention_bytes=1_024)
            sent = {line.lower() for line in script.head()}
            assert {"stream-retention-age: 0", "stream-retention-bytes: 1024"} <= sent


# -- webhooks ---------------------------------------------------------------------------------------------------------

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
WAKE = {
    "subscription_id": "s",
    "wake_id": "w",
    "generation": 3,
    "streams": [LINK],
    "callback_url": "https://semel.example/v1/stream/__ds/subscriptions/s/callback",
    "callback_token": "secret-token",
}


def encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


JWKS = {
    "keys": [
        {"kty": "EC", "kid": "other"},
        {
            "kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA", "kid": "ds_1",
            "x": encoded(KEY.public_key().public_bytes_raw()),
        },
    ]
}  # fmt: skip


def signed(body: bytes, at: int = 1_000, kid: str = "ds_1") -> str:
    return f"t={at},kid={kid},ed25519={encoded(KEY.sign(f'{at}.'.encode() + body))}"


def test_a_signed_webhook_is_read() -> None:
    body = json.dumps(WAKE).encode()
    for now in (700.0, 1_000.0, 1_300.0):
        wake = verify_webhook(body, signed(body), JWKS, now=now)
        assert (wake.subscription_id, wake.generation, wake.streams[0].tail_offset) == ("s", 3, "7")
        assert "secret-token" not in repr(wake)


BODY = json.dumps(WAKE).encode()


@pytest.mark.parametrize(
    ("body", "header", "now", "why"),
    [
        (BODY + b" ", signed(BODY), 1_000, "not of this body"),
        (BODY, signed(BODY).replace("t=1000", "t=1001"), 1_000, "not of this body"),
        (BODY, signed(BODY, kid="ds_2"), 1_000, "not in the key set"),
        (BODY, signed(BODY, kid="other"), 1_000, "not in the key set"),
        (BODY, signed(BODY), 1_301, "more than 300 s old"),
        (BODY, signed(BODY), 699, "more than 300 s old"),
        (b"{}", signed(b"{}"), 1_000, "not a wake"),
        (b"[]", signed(b"[]"), 1_000, "not a wake"),
        (BODY, "", 1_000, "missing"),
        (BODY, "t=1000,kid=ds_1", 1_000, "another form"),
        (BODY, "t=1000,kid=ds_1,ed25519=ü", 1_000, "not base64url"),
        (BODY, "t=1000,kid=ds_1,ed25519=AAAA", 1_000, "not of this body"),
        (BODY, "t=-1,kid=ds_1,ed25519=AAAA", 1_000, "another form"),
        (BODY, "t=" + "9" * 400 + ",kid=ds_1,ed25519=AAAA", 1_000, "another form"),
    ],
)
def test_anything_else_is_refused(body: bytes, header: str, now: float, why: str) -> None:
    with pytest.raises(WebhookSignatureError, match=why):
        verify_webhook(body, header, JWKS, now=now)
