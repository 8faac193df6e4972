"""`client.streams.subscriptions`, sync and async, against a real server."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from semel.client import ConflictError, NotFoundError, WebhookSignatureError, verify_webhook
from tests.client.both import BOTH, client_of
from tests.client.names import fresh
from tests.harness.server import RunningServer
from tests.harness.tokens import token_file
from tests.streams.subscriptions.receiver import Receiver

SECONDS = 30
TOKEN = "token-of-the-worker"


async def pending(client: Any, subscription_id: str, worker: str = "w") -> Any:
    """The claim, as soon as there is work."""
    for _ in range(SECONDS * 20):
        held = await client.streams.subscriptions.claim(subscription_id, worker)
        if held is not None:
            return held
        await asyncio.sleep(0.05)
    raise AssertionError("no work is pending")


async def first_wake(client: Any, wakes: str) -> Any:
    """The first message of a wake stream, as soon as it is there."""
    for _ in range(SECONDS * 20):
        found = (await client.streams.read(wakes)).messages()
        if found:
            return found[0]
        await asyncio.sleep(0.05)
    raise AssertionError("no wake was sent")


@BOTH
async def test_a_worker_claims_reads_acknowledges_and_releases(server: RunningServer, kind: str) -> None:
    place, name = fresh("events"), fresh("sub")
    async with client_of(kind, server.url) as client:
        streams, calls = client.streams, client.streams.subscriptions
        wakes = f"{place}-wakes"
        await streams.create(wakes, content_type="application/json")
        made = await calls.create(name, pattern=f"{place}/*", wake_stream=wakes, lease=5.0)
        assert (made.is_created, made.type, made.lease_ms, made.streams) == (True, "pull-wake", 5_000, ())
        assert not (await calls.create(name, pattern=f"{place}/*", wake_stream=wakes, lease=5.0)).is_created
        with pytest.raises(ConflictError):
            await calls.create(name, pattern=f"{place}/*", wake_stream=wakes, lease=6.0)
        assert await calls.claim(name, "w") is None
        await streams.create(f"{place}/a", content_type="application/json")
        first = await streams.append(f"{place}/a", 1)
        second = await streams.append(f"{place}/a", 2)
        wake = await first_wake(client, wakes)  # a claim that comes before it needs none
        assert wake["subscription_id"] == name
        held = await pending(client, name)
        [work] = held.streams
        assert (work.path, work.link_type, work.has_pending) == (f"{place}/a", "glob", True)
        with pytest.raises(ConflictError) as caught:
            await calls.claim(name, "another")
        assert caught.value.code == "ALREADY_CLAIMED"
        assert not await calls.ack(held, {work.path: first.offset})
        assert not await calls.ack(held, {work.path: first.offset})  # a repeated ack is no step back
        with pytest.raises(ConflictError) as caught:
            await calls.ack(held, {work.path: "0000000000000000_0000000000000000"})
        assert caught.value.code == "INVALID_OFFSET"
        assert await calls.ack(held, {}, done=True)  # the second append is still pending
        held = await pending(client, name)
        await calls.release(held)
        with pytest.raises(ConflictError) as caught:
            await calls.release(held)
        assert caught.value.code == "FENCED"
        held = await pending(client, name)
        assert not await calls.ack(held, {work.path: second.offset}, done=True)
        assert await calls.claim(name, "w") is None
        assert [one.acked_offset for one in (await calls.get(name)).streams] == [second.offset]
        await calls.delete(name)
        await calls.delete(name)
        with pytest.raises(NotFoundError):
            await calls.get(name)


@BOTH
async def test_streams_are_linked_and_unlinked_by_name(server: RunningServer, kind: str) -> None:
    name, one, two = fresh("sub"), fresh("a"), fresh("b/ü")
    async with client_of(kind, server.url) as client:
        calls = client.streams.subscriptions
        await client.streams.create("wakes", content_type="application/json")
        await calls.create(name, streams=[one], wake_stream="wakes", description="by name")
        for _ in range(2):
            await calls.add_streams(name, [two])
        known = await calls.get(name)
        assert {(link.path, link.link_type) for link in known.streams} == {(one, "explicit"), (two, "explicit")}
        assert known.description == "by name"
        for _ in range(2):
            await calls.remove_stream(name, two)
        assert [link.path for link in (await calls.get(name)).streams] == [one]


@BOTH
async def test_a_webhook_is_verified_with_the_keys_of_the_server(server: RunningServer, kind: str) -> None:
    stream, name = fresh("s"), fresh("sub")
    with Receiver() as receiver:
        async with client_of(kind, server.url) as client:
            calls = client.streams.subscriptions
            made = await calls.create(name, streams=[stream], webhook=receiver.url)
            assert (made.type, made.webhook_url) == ("webhook", receiver.url)
            assert made.jwks_url is not None
            assert made.jwks_url.endswith("/v1/stream/__ds/jwks.json")
            await client.streams.create(stream, content_type="application/json", data=b"[1]")
            [sent] = await asyncio.to_thread(receiver.wait, 1)
            jwks = await calls.jwks()
            wake = verify_webhook(sent.raw, sent.signature, jwks)
            assert (wake.subscription_id, wake.streams[0].path) == (name, stream)
            with pytest.raises(WebhookSignatureError):
                verify_webhook(sent.raw + b" ", sent.signature, jwks)
            with pytest.raises(WebhookSignatureError):
                verify_webhook(sent.raw, sent.signature, jwks, now=time.time() + 301)
            for _ in range(SECONDS * 20):
                [link] = (await calls.get(name)).streams
                if link.acked_offset == wake.streams[0].tail_offset:
                    return
                await asyncio.sleep(0.05)
            raise AssertionError("the answer of the receiver acknowledged nothing")


@BOTH
async def test_with_credentials_a_lease_has_its_own_token(tmp_path: Path, kind: str) -> None:
    tokens = token_file(tmp_path, {"worker": (TOKEN, ("read", "write"), ())})
    with RunningServer(tmp_path / "data", env={"SEMEL_TOKENS": str(tokens)}) as server:
        async with client_of(kind, server.url, token=TOKEN) as client:
            calls = client.streams.subscriptions
            await client.streams.create("wakes", content_type="application/json")
            await client.streams.create("s", content_type="application/json")
            await calls.create("sub", streams=["s"], wake_stream="wakes")
            stored = await client.streams.append("s", 1)
            held = await pending(client, "sub")
            assert not await calls.ack(held, {"s": stored.offset}, done=True)
            assert [one.acked_offset for one in (await calls.get("sub")).streams] == [stored.offset]
