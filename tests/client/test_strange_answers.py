"""Answers of broken servers and proxies: none is given to another request, and no unknown outcome is told as known."""

from __future__ import annotations

import os
import threading
import time

import pytest

from semel.client import OutcomeUnknown, Patience
from semel.client.access import checked_url
from semel.client.errors import (
    BadAnswerError,
    BusyError,
    ConfigurationError,
    ConflictError,
    InvalidArgumentError,
    NoAnswerError,
    RefusedError,
)
from semel.client.identity import ProducerAppend, StreamAppend
from tests.client.both import EACH_LOOP, client_of, network_of, run
from tests.client.cut_network import CutNetwork
from tests.client.names import fresh
from tests.client.raw_server import answers, in_turn, raw_server, request_of
from tests.harness.server import RunningServer

LOST = answers()
PAGE = b"HTTP/1.1 200 OK\r\nStream-Next-Offset: %d\r\nContent-Type: a/b\r\nContent-Length: 3\r\n\r\n%s"
STORED = b"HTTP/1.1 204 No Content\r\nStream-Next-Offset: 7\r\n\r\n"
HTML = b"HTTP/1.1 %d Odd\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>"
TWICE = Patience(tries=2)


@EACH_LOOP
def test_bytes_behind_an_answer_reach_no_other_request(kind: str) -> None:
    async def main() -> None:
        two = answers(PAGE % (1, b"one") + PAGE % (2, b"two"), PAGE % (3, b"bad"))
        with raw_server(in_turn(two, answers(PAGE % (9, b"new")))) as url:
            async with client_of(kind, url) as client:
                first = await client.streams.read("s")
                assert (first.data, first.next_offset) == (b"one", "1")
                assert (await client.streams.read("s")).data == b"new"

    run(main)


@EACH_LOOP
def test_a_body_behind_head_reaches_no_other_request(kind: str) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nStream-Next-Offset: 5\r\nContent-Length: 4\r\n\r\n"

    async def main() -> None:
        with raw_server(in_turn(answers(head + b"EVIL", PAGE % (1, b"bad")), answers(PAGE % (9, b"new")))) as url:
            async with client_of(kind, url) as client:
                assert (await client.streams.info("s")).tail == "5"
                assert (await client.streams.read("s")).data == b"new"

    run(main)


@EACH_LOOP
@pytest.mark.parametrize("spelling", [b"chunked", b"Chunked"])
def test_a_truncated_answer_is_not_a_short_one(kind: str, spelling: bytes) -> None:
    cut = b"HTTP/1.1 200 OK\r\nStream-Next-Offset: 99\r\nTransfer-Encoding: %s\r\n\r\n5\r\nhello\r\n" % spelling

    async def main() -> None:
        with raw_server(answers(cut)) as url:
            async with client_of(kind, url, patience=Patience(tries=1)) as client:
                with pytest.raises(NoAnswerError):
                    await client.streams.read("s")

    run(main)


@EACH_LOOP
@pytest.mark.parametrize(
    "second",
    [
        pytest.param(HTML % 302, id="302"),
        pytest.param(HTML % 404, id="404 of a proxy"),
        pytest.param(HTML % 405, id="405 of a proxy"),
        pytest.param(HTML % 524, id="524"),
        pytest.param(HTML % 200, id="200 of a page"),
        pytest.param(b"garbage\r\n\r\n", id="garbage"),
    ],
)
def test_after_a_lost_answer_a_strange_one_does_not_tell_the_outcome(kind: str, second: bytes) -> None:
    async def main() -> None:
        network = CutNetwork(network_of(kind))
        with raw_server(in_turn(LOST, answers(second))) as url:
            async with client_of(kind, url, patience=TWICE, network=network) as client:
                with pytest.raises(OutcomeUnknown) as unknown:
                    await client.streams.append("s", b"x", key="k")
                assert unknown.value.identity == StreamAppend("s", "k")
                assert unknown.value.__cause__ is not None

    run(main)


@EACH_LOOP
@pytest.mark.parametrize("status", [503, 520, 524])
def test_a_5xx_of_a_proxy_is_repeated_and_then_unknown(kind: str, status: int) -> None:
    async def main() -> None:
        network = CutNetwork(network_of(kind))
        with raw_server(in_turn(answers(HTML % status), answers(STORED))) as url:
            # The server closes the first connection behind its answer, perhaps after the client has taken it again.
            async with client_of(kind, url, patience=Patience(tries=4), network=network) as client:
                assert (await client.streams.append("s", b"x")).offset == "7"
        with raw_server(answers(HTML % status)) as url:
            async with client_of(kind, url, patience=TWICE, network=network) as client:
                with pytest.raises(OutcomeUnknown):
                    await client.streams.append("s", b"x")

    run(main)


@EACH_LOOP
def test_a_definite_refusal_of_semel_stays_one(kind: str) -> None:
    body = b'{"code":"STREAM_CLOSED","detail":"It is closed."}'
    closed = b"HTTP/1.1 409 Conflict\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

    async def main() -> None:
        with raw_server(answers(closed)) as url:
            async with client_of(kind, url, patience=TWICE) as client:
                with pytest.raises(ConflictError) as refused:
                    await client.streams.append("s", b"x")
                assert isinstance(refused.value, RefusedError)
                assert not refused.value.is_unsettled
        with raw_server(answers(HTML % 200)) as url:
            async with client_of(kind, url) as client:
                with pytest.raises(BadAnswerError):
                    await client.streams.list()

    run(main)


@EACH_LOOP
def test_a_body_that_stalls_ends_with_the_deadline(kind: str) -> None:
    release = threading.Event()

    def stall(connection: object, number: int) -> None:
        request_of(connection)  # type: ignore[arg-type]
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")  # type: ignore[attr-defined]
        release.wait(60)

    async def main() -> None:
        with raw_server(stall) as url:
            async with client_of(kind, url, patience=Patience(tries=1, seconds=1.0)) as client:
                began = time.monotonic()
                with pytest.raises(NoAnswerError):
                    await client.streams.list()
                assert time.monotonic() - began < 25, "it waited for the timeout of an answer without a deadline"
        release.set()

    run(main)


@EACH_LOOP
def test_a_full_pool_ends_with_the_deadline(server: RunningServer, kind: str) -> None:
    async def main() -> None:
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

    run(main)


@EACH_LOOP
def test_a_producer_sends_no_other_content_under_a_number_without_an_answer(server: RunningServer, kind: str) -> None:
    async def main() -> None:
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

    run(main)


def test_a_cancelled_append_of_a_producer_keeps_its_number_for_its_content(server: RunningServer) -> None:
    import asyncio  # noqa: PLC0415

    async def main() -> None:
        name = fresh("s")
        async with client_of("async", server.url) as client:
            await client.streams.create(name)
            producer = client.streams.producer(name, "w", epoch=0)
            task = asyncio.create_task(producer.append(b"PAY-A"))
            await asyncio.sleep(0)
            await asyncio.sleep(0.0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if producer._unsettled is not None:
                with pytest.raises(ConflictError):
                    await producer.append(b"PAY-B")
            await producer.append(b"PAY-A")
            await producer.append(b"PAY-B")
            assert (await client.streams.read(name)).data == b"PAY-APAY-B"
            await asyncio.gather(*(producer.append(text) for text in (b"1", b"2", b"3")))
            assert sorted((await client.streams.read(name)).data[-3:].decode()) == ["1", "2", "3"]

    run(main)


@EACH_LOOP
def test_the_outcome_of_an_older_epoch_is_not_told_as_absent(server: RunningServer, kind: str) -> None:
    async def main() -> None:
        name = fresh("s")
        async with client_of(kind, server.url) as client:
            await client.streams.create(name)
            await client.streams.producer(name, "w", epoch=0).append(b"PAY")
            await client.streams.producer(name, "w", epoch=1).append(b"next")
            with pytest.raises(OutcomeUnknown, match="newer epoch"):
                await client.resolve(ProducerAppend(name, "w", 0, 0))

    run(main)


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
def test_a_key_that_the_wire_would_change_is_refused(server: RunningServer, kind: str, key: str) -> None:
    async def main() -> None:
        async with client_of(kind, server.url) as client:
            with pytest.raises(InvalidArgumentError):
                await client.streams.append("s", b"x", key=key)

    run(main)


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


@pytest.mark.parametrize("url", ["http://[::1", "http://h/?", "http://h/#", "http://h:x"])
def test_a_url_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        checked_url(url)


@EACH_LOOP
def test_a_wait_that_no_clock_has_is_bounded(kind: str) -> None:
    body = b'{"code":"OVERLOADED","detail":"Full.","retry_after_ms":1%s}' % (b"0" * 400)
    full = b"HTTP/1.1 503 Busy\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

    async def main() -> None:
        with raw_server(answers(full)) as url:
            async with client_of(kind, url, patience=Patience(tries=1)) as client:
                with pytest.raises(BusyError):
                    await client.streams.append("s", b"x")

    run(main)
