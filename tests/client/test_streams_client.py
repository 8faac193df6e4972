"""`client.streams`, sync and async, against a real server: what each call promises."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from semel.client import identity_of
from semel.client.errors import ConflictError, InvalidArgumentError, KeyCollisionError, NotFoundError
from semel.client.identity import NamedCall, ProducerAppend, StreamAppend
from semel.client.streams.values import NOW, START
from tests.client.both import EACH_LOOP, client_of
from tests.client.names import fresh
from tests.harness.server import RunningServer


@EACH_LOOP
async def test_a_stream_is_created_once_and_then_confirmed(server: RunningServer, kind: str) -> None:
    name = fresh("s")
    async with client_of(kind, server.url) as client:
        made = await client.streams.create(name, content_type="application/json", ttl=60)
        assert (made.is_created, made.is_closed, made.content_type) == (True, False, "application/json")
        assert not (await client.streams.create(name, content_type="application/json", ttl=60)).is_created
        with pytest.raises(ConflictError):
            await client.streams.create(name, content_type="text/plain")
        assert (await client.streams.info(name)).ttl_seconds == 60
        until = datetime.now(UTC) + timedelta(hours=1)
        other = await client.streams.create(fresh("s"), expires_at=until, data=b"all", closed=True)
        assert other.is_closed


@EACH_LOOP
async def test_an_append_is_stored_once_and_its_replay_is_told(server: RunningServer, kind: str) -> None:
    name = fresh("s")
    async with client_of(kind, server.url) as client:
        await client.streams.create(name, content_type="application/json")
        first = await client.streams.append(name, {"n": 1}, key="k")
        again = await client.streams.append(name, {"n": 1}, key="k")
        assert (first.replayed, again.replayed, again.offset) == (False, True, first.offset)
        assert (await client.resolve(StreamAppend(name, "k"))).facts == {"offset": first.offset}
        assert (await client.resolve(StreamAppend(name, "never sent"))).facts == {}
        with pytest.raises(InvalidArgumentError, match="Repeat this call"):
            await client.resolve(NamedCall("PUT", f"/v1/stream/{name}"))
        with pytest.raises(KeyCollisionError):
            await client.streams.append(name, {"n": 2}, key="k")
        await client.streams.append(name, [1, 2])
        await client.streams.append_many(name, [3, "four"])
        page = await client.streams.read(name)
        assert page.messages() == [{"n": 1}, [1, 2], 3, "four"]
        with pytest.raises(ConflictError):
            await client.streams.append(name, {"n": 3}, if_match='"another"')
        assert not (await client.streams.append(name, {"n": 3}, if_match=page.etag)).replayed


@EACH_LOOP
async def test_content_is_bytes_text_or_json(server: RunningServer, kind: str) -> None:
    async with client_of(kind, server.url) as client:
        raw, text = fresh("s"), fresh("s")
        await client.streams.create(raw)
        await client.streams.append(raw, b"\x00\xff")
        assert (await client.streams.read(raw)).data == b"\x00\xff"
        await client.streams.create(text, content_type="text/plain")
        await client.streams.append(text, "höhe\n")
        assert (await client.streams.read(text)).data.decode() == "höhe\n"


@EACH_LOOP
async def test_a_tail_catches_up_and_then_follows_until_the_stream_is_closed(server: RunningServer, kind: str) -> None:
    name = fresh("s")
    async with client_of(kind, server.url) as client:
        await client.streams.create(name)
        await client.streams.append(name, b"old ")

        async def write() -> None:
            for part in (b"new ", b"newer "):
                await asyncio.sleep(0.05)
                await client.streams.append(name, part)
            await client.streams.close(name)

        writing = asyncio.create_task(write())
        read = b"".join([page.data async for page in client.streams.tail(name)])
        await writing
        assert read == b"old new newer "
        stored = [page.data async for page in client.streams.tail(name, START, live=False)]
        assert b"".join(stored) == read
        [last] = [page async for page in client.streams.tail(name, NOW)]
        assert (last.data, last.is_closed) == (b"", True)


@EACH_LOOP
async def test_a_producer_numbers_its_appends_and_a_higher_epoch_fences_it(server: RunningServer, kind: str) -> None:
    name = fresh("s")
    async with client_of(kind, server.url) as client:
        await client.streams.create(name)
        old = client.streams.producer(name, "w", epoch=0)
        assert (await old.append(b"a")).seq == 0
        assert (await old.append(b"b")).seq == 1
        new = client.streams.producer(name, "w", epoch=1)
        await new.append(b"c")
        with pytest.raises(Exception, match="PRODUCER_FENCED"):
            await old.append(b"d")
        assert (await client.streams.read(name)).data == b"abc"
        known = await client.resolve(ProducerAppend(name, "w", 1, 0))
        assert (known.is_committed, known.facts) == (True, {"epoch": 1, "seq": 0})
        assert not (await client.resolve(ProducerAppend(name, "w", 1, 1))).is_committed
        assert not (await client.resolve(ProducerAppend(name, "other", 0, 0))).is_committed
        with pytest.raises(InvalidArgumentError):
            client.streams.producer(name, "w", epoch=-1)


@EACH_LOOP
async def test_streams_are_listed_deleted_and_missed(server: RunningServer, kind: str) -> None:
    prefix = fresh("list")
    async with client_of(kind, server.url) as client:
        for end in ("a", "b/c", "ö ?#%"):
            await client.streams.create(f"{prefix}/{end}")
        page = await client.streams.list(prefix, limit=2)
        rest = await client.streams.list(prefix, after=page.next_after)
        names = [one["name"] for one in (*page.streams, *rest.streams)]
        assert (names, rest.next_after) == ([f"{prefix}/{end}" for end in ("a", "b/c", "ö ?#%")], None)
        assert [one["name"] async for one in client.streams.walk(prefix)] == names
        await client.streams.delete(names[2])
        for call in (client.streams.info, client.streams.delete, client.streams.read):
            with pytest.raises(NotFoundError):
                await call(names[2])


@EACH_LOOP
@pytest.mark.parametrize(("name", "key"), [("a\ud800", "k"), ("s", "a\r\nX-Evil: 1")])
async def test_what_cannot_be_sent_is_refused_before_anything_is(
    server: RunningServer, kind: str, name: str, key: str
) -> None:
    async with client_of(kind, server.url) as client:
        with pytest.raises(InvalidArgumentError):
            await client.streams.append(name, b"x", key=key)


@EACH_LOOP
@pytest.mark.parametrize("data", [float("nan"), {"n": float("inf")}, {"s": {1, 2}}, [object()]])
async def test_a_value_that_json_does_not_have_is_refused(server: RunningServer, kind: str, data: object) -> None:
    async with client_of(kind, server.url) as client:
        with pytest.raises(InvalidArgumentError, match="not JSON"):
            await client.streams.append("s", data)
        with pytest.raises(InvalidArgumentError, match="not JSON"):
            await client.streams.append_many("s", [data])


def test_a_text_that_is_no_identity_is_refused() -> None:
    for text in ("", "{}", '{"write":"stream"}', '{"write":"stream","stream":"s","key":"k","more":1}', "[]"):
        with pytest.raises(InvalidArgumentError):
            identity_of(text)


@EACH_LOOP
async def test_a_fork_has_the_content_of_its_source_and_then_its_own(server: RunningServer, kind: str) -> None:
    source, fork, early, part = (fresh("s") for _ in range(4))
    async with client_of(kind, server.url) as client:
        await client.streams.create(source, content_type="application/json")
        first = await client.streams.append(source, 1)
        await client.streams.append_many(source, [2, 3, 4])
        made = await client.streams.fork(source, fork, data=b"[5]", closed=True)
        assert (made.is_created, made.is_closed, made.content_type) == (True, True, "application/json")
        await client.streams.append(source, 9)
        assert not (await client.streams.fork(source, fork, closed=True)).is_created
        assert (await client.streams.read(fork)).messages() == [1, 2, 3, 4, 5]
        await client.streams.fork(source, early, offset=first.offset, ttl=60)
        assert (await client.streams.info(early)).ttl_seconds == 60
        assert (await client.streams.read(early)).messages() == [1]
        await client.streams.fork(source, part, offset=first.offset, sub_offset=2)
        await client.streams.append(part, 6)
        assert (await client.streams.read(part)).messages() == [1, 2, 3, 6]
        assert (await client.streams.read(source)).messages() == [1, 2, 3, 4, 9]
        with pytest.raises(ConflictError):
            await client.streams.fork(source, fork, offset=first.offset)
        with pytest.raises(NotFoundError):
            await client.streams.fork(fresh("none"), fresh("s"))


@EACH_LOOP
async def test_a_stream_tells_its_retention(server: RunningServer, kind: str) -> None:
    name = fresh("s")
    async with client_of(kind, server.url) as client:
        await client.streams.create(name, retention_age=3_600, retention_bytes=1_000_000)
        known = await client.streams.info(name)
        assert (known.retention_age, known.retention_bytes) == (3_600, 1_000_000)
        assert known.earliest_offset == known.tail
        assert not (await client.streams.create(name, retention_age=3_600, retention_bytes=1_000_000)).is_created
        with pytest.raises(ConflictError):
            await client.streams.create(name, retention_age=60)
        assert (await client.streams.info((await client.streams.create(fresh("s"))).name)).retention_age is None
