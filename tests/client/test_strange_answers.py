"""Answers of broken servers and proxies: none is given to another request, and no unknown outcome is told as known."""

from __future__ import annotations

import asyncio
import os

import pytest

from semel.client import OutcomeUnknown, Patience
from semel.client.errors import (
    BusyError,
    ConflictError,
    InvalidArgumentError,
    NoAnswerError,
)
from semel.client.identity import ProducerAppend
from tests.client.both import EACH_LOOP, client_of, network_of, run
from tests.client.cut_network import CutNetwork
from tests.client.line import CUT_ANSWER, Fault, Line
from tests.client.names import fresh
from tests.client.raw_server import answers, in_turn, raw_server
from tests.harness.server import RunningServer

LOST = answers()
PAGE = b"HTTP/1.1 200 OK\r\nStream-Next-Offset: %d\r\nContent-Type: a/b\r\nContent-Length: 3\r\n\r\n%s"
STORED = b"HTTP/1.1 204 No Content\r\nStream-Next-Offset: 7\r\n\r\n"
HTML = b"HTTP/1.1 %d Odd\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>"
TWICE = Patience(tries=2)


@EACH_LOOP
async def test_bytes_behind_an_answer_reach_no_other_request(kind: str) -> None:
    two = answers(PAGE % (1, b"one") + PAGE % (2, b"two"), PAGE % (3, b"bad"))
    with raw_server(in_turn(two, answers(PAGE % (9, b"new")))) as url:
        async with client_of(kind, url) as client:
            first = await client.streams.read("s")
            assert (first.data, first.next_offset) == (b"one", "1")
            assert (await client.streams.read("s")).data == b"new"


@EACH_LOOP
async def test_a_body_behind_head_reaches_no_other_request(kind: str) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nStream-Next-Offset: 5\r\nContent-Length: 4\r\n\r\n"
    with raw_server(in_turn(answers(head + b"EVIL", PAGE % (1, b"bad")), answers(PAGE % (9, b"new")))) as url:
        async with client_of(kind, url) as client:
            assert (await client.streams.info("s")).tail == "5"
            assert (await client.streams.read("s")).data == b"new"


@EACH_LOOP
@pytest.mark.parametrize("spelling", [b"chunked", b"Chunked"])
async def test_a_truncated_answer_is_not_a_short_one(kind: str, spelling: bytes) -> None:
    cut = b"HTTP/1.1 200 OK\r\nStream-Next-Offset: 99\r\nTransfer-Encoding: %s\r\n\r\n5\r\nhello\r\n" % spelling
    with raw_server(answers(cut)) as url:
        async with client_of(kind, url, patience=Patience(tries=1)) as client:
            with pytest.raises(NoAnswerError):
                await client.streams.read("s")


@EACH_LOOP
async def test_a_full_pool_ends_with_the_deadline(server: RunningServer, kind: str) -> None:
    name = fresh("p")
    async with client_of(kind, server.url, connections=1, patience=Patience(tries=1, seconds=1.0)) as client:
        await client.events.submit("set", {"n": 1}, partitions=[name])
        follower = client.events.follow(name)
        await anext(follower)
        await client.streams.list()
        with pytest.raises(NoAnswerError, match="raise `connections`") as busy:
            await client.jobs.claim("w", kinds=[name], wait=1.0)
        assert not busy.value.is_unsettled
        await follower.aclose()
        await client.jobs.claim("w", kinds=[name], wait=0.1)


@EACH_LOOP
async def test_a_producer_sends_no_other_content_under_a_number_without_an_answer(
    server: RunningServer, kind: str
) -> None:
    name, network = fresh("s"), CutNetwork(network_of(kind))
    once = {"network": network, "patience": Patience(tries=1)}
    async with client_of(kind, server.url, **once) as client, client_of("async", server.url) as direct:
        await direct.streams.create(name)
        producer = client.streams.producer(name, "w", epoch=0)
        network.answer_left = 3
        with pytest.raises(OutcomeUnknown):
            await producer.append(b"PAY-A")
        for other, close in ((b"PAY-B", False), (b"PAY-A", True)):
            with pytest.raises(ConflictError, match="append the same content first"):
                await producer.append(other, close=close)
        assert (await producer.append(b"PAY-A")).replayed
        await producer.append(b"PAY-B")
        assert (await direct.streams.read(name)).data == b"PAY-APAY-B"
        with pytest.raises(InvalidArgumentError):
            await producer.append({"n": float("nan")})
        await producer.append(b"PAY-C")


@pytest.mark.parametrize("kind", ["async", "uvloop"])
async def test_a_cancelled_append_of_a_producer_keeps_its_number_for_its_content(
    server: RunningServer, kind: str
) -> None:
    name = fresh("s")
    async with Line(server.port) as line, client_of("async", line.url) as client:
        await client.streams.create(name)
        producer = client.streams.producer(name, "w", epoch=0)
        line.play(Fault(answer=0.0, is_silent=True))
        task = asyncio.create_task(producer.append(b"PAY-A"))
        await line.fell_silent.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        with pytest.raises(ConflictError):
            await producer.append(b"PAY-B")
        assert (await producer.append(b"PAY-A")).replayed
        await producer.append(b"PAY-B")
        assert (await client.streams.read(name)).data == b"PAY-APAY-B"
        await asyncio.gather(*(producer.append(text) for text in (b"1", b"2", b"3")))
        assert sorted((await client.streams.read(name)).data[-3:].decode()) == ["1", "2", "3"]


class StoppedNetwork(CutNetwork):
    """Its process stands still for an hour in each pause, as a suspended machine does."""

    _stood_still = 0.0

    async def sleep(self, seconds: float) -> None:
        self._stood_still += 3_600.0

    def now(self) -> float:
        return super().now() + self._stood_still


@EACH_LOOP
async def test_nothing_is_sent_again_long_after_the_deadline(server: RunningServer, kind: str) -> None:
    options = {"network": StoppedNetwork(network_of(kind)), "patience": Patience(8, 60.0)}
    async with Line(server.port) as line, client_of(kind, line.url, **options) as client:
        line.play(*[CUT_ANSWER] * 8)
        with pytest.raises(OutcomeUnknown):
            await client.jobs.submit(fresh("kind"))
        assert len(line.asked) == 1


@EACH_LOOP
async def test_the_outcome_of_an_older_epoch_is_not_told_as_absent(server: RunningServer, kind: str) -> None:
    name = fresh("s")
    async with client_of(kind, server.url) as client:
        await client.streams.create(name)
        await client.streams.producer(name, "w", epoch=0).append(b"PAY")
        await client.streams.producer(name, "w", epoch=1).append(b"next")
        with pytest.raises(OutcomeUnknown, match="newer epoch"):
            await client.resolve(ProducerAppend(name, "w", 0, 0))


@EACH_LOOP
def test_a_tail_from_now_loses_nothing_if_its_first_poll_is_cut(server: RunningServer, kind: str) -> None:
    async def main() -> None:
        name, network = fresh("s"), CutNetwork(network_of(kind))
        async with client_of(kind, server.url, network=network) as client, client_of("async", server.url) as direct:
            await direct.streams.create(name)
            tail = client.streams.tail(name, "now")
            before = network.received
            await direct.streams.append(name, b"old")

            async def write() -> None:
                while network.received == before:
                    await sleep_briefly()
                network.answer_left = 0
                await direct.streams.append(name, b"SEEN")

            writing = create_task(write())
            assert (await tail.__anext__()).data == b"SEEN"
            await writing
            assert network.cuts == 1

    from asyncio import create_task, sleep  # noqa: PLC0415

    async def sleep_briefly() -> None:
        await sleep(0.005)

    run(main)


@EACH_LOOP
@pytest.mark.parametrize("key", ["k ", " k", "k\t", "a\x00b", "a\nb"])
async def test_a_key_that_the_wire_would_change_is_refused(server: RunningServer, kind: str, key: str) -> None:
    async with client_of(kind, server.url) as client:
        with pytest.raises(InvalidArgumentError):
            await client.streams.append("s", b"x", key=key)


def test_processes_of_a_fork_do_not_share_connections(server: RunningServer) -> None:
    from semel import Client  # noqa: PLC0415

    with Client(server.url) as client:
        for name in ("parent", "child"):
            client.streams.create(f"fork-{name}")
            client.streams.append(f"fork-{name}", name.encode())
        child = os.fork()
        own = b"parent" if child else b"child"
        wrong = 0
        for _ in range(100):
            wrong += client.streams.read(f"fork-{own.decode()}").data != own
        if not child:
            os._exit(1 if wrong else 0)
        assert (os.waitpid(child, 0)[1], wrong) == (0, 0)


@EACH_LOOP
async def test_a_wait_that_no_clock_has_is_bounded(kind: str) -> None:
    body = b'{"code":"OVERLOADED","detail":"Full.","retry_after_ms":1%s}' % (b"0" * 400)
    full = b"HTTP/1.1 503 Busy\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with raw_server(answers(full)) as url:
        async with client_of(kind, url, patience=Patience(tries=1)) as client:
            with pytest.raises(BusyError):
                await client.streams.append("s", b"x")
