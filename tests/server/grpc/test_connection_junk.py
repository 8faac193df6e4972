"""What is no HTTP/2, or almost: whoever sends it is sent away, and nobody else notices."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.server.grpc.peers import Line, on_a_loop

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\x04\0\0\0\0\0"


@pytest.mark.parametrize(
    "junk",
    [
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        PREFACE + b"\x00\x00\x05\x01\x05\x00\x00\x00\x01\xff\xff\xff\xff\xff",
        PREFACE + SETTINGS + b"\x00\x00\x01\x00\x01\x00\x00\x00\x01x",
        PREFACE + SETTINGS + b"\x00\x00\x04\x03\x00\x00\x00\x00\x05\x00\x00\x00\x00",
        PREFACE + SETTINGS + b"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00",
        PREFACE + SETTINGS + b"\xff\xff\xff",
        PREFACE + SETTINGS + b"\0\0\0\x01\0\0\0\0\x01" + 6 * b"\0\0\0\x09\0\0\0\0\x01",
    ],
    ids=[
        "http1",
        "tls",
        "bad-head",
        "data-before-head",
        "reset-of-nothing",
        "no-increment",
        "huge-frame",
        "many-pieces",
    ],
)
def test_who_breaks_the_protocol_is_sent_away(junk: bytes) -> None:
    async def scenario() -> None:
        line = Line()
        line.server.data_received(junk)
        assert line.pipe.is_closed
        has_goodbye = b"\x07\x00\x00\x00\x00\x00" in line.pipe.written
        assert has_goodbye is junk.startswith(PREFACE), "what speaks another protocol would not understand it"

    on_a_loop(scenario)()


def conversation() -> bytes:
    """What a client says that calls, sends, and takes back."""

    async def say() -> bytes:
        line = Line()
        sent = [line.client.data_to_send()]
        for size in (0, 10, 40_000):
            stream = line.call(b"x" * size)
            sent.append(line.client.data_to_send())
            if size == 10:
                line.client.reset_stream(stream)
        line.client.ping(b"12345678")
        sent.append(line.client.data_to_send())
        return b"".join(sent)

    return asyncio.run(say())


def mutated(said: bytes, chance: random.Random) -> bytes:
    """The same with a few bytes changed, left out, doubled or cut; mostly in the part that has meaning."""
    data = bytearray(said)
    for _ in range(chance.randint(1, 6)):
        place = chance.randrange(24, min(len(data), chance.choice((300, 50_000))))
        match chance.randrange(4):
            case 0:
                data[place] = chance.randrange(256)
            case 1:
                del data[place : place + chance.randint(1, 9)]
            case 2:
                data[place:place] = data[place : place + chance.randint(1, 40)]
            case _:
                data[place:place] = chance.randbytes(chance.randint(1, 20))
    return bytes(data)


@pytest.mark.parametrize("seed", range(4))
def test_nothing_that_is_sent_raises(seed: int) -> None:
    async def scenario() -> None:
        chance = random.Random(seed)
        for _ in range(250):
            line = Line()
            data = mutated(said, chance)
            step = chance.choice((1_000_000, 1_000, 61))
            for start in range(0, len(data), step):
                if line.pipe.is_closed:
                    break
                line.server.data_received(data[start : start + step])
                await asyncio.sleep(0)
            line.server.connection_lost(None)
            await asyncio.sleep(0)
            assert (line.server.calls, line.reception.held) == ({}, 0)
            assert len(line.reception.ends) == len(line.reception.calls)

    said = conversation()
    loop_errors: list[dict[str, Any]] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: loop_errors.append(context))
        await scenario()

    on_a_loop(watched)()
    assert not loop_errors
