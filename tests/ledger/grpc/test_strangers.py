"""What somebody without a credential, or with one that reads, can make the server keep or do: little."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path
from typing import Any

import pytest

from semel.server.grpc import health
from semel.server.grpc import server as limits
from semel.server.grpc.health import HealthPoll
from semel.server.grpc.messages import OPEN_BYTES, frame
from semel.surfaces.ledger.grpc.answers import place_pb
from semel.surfaces.ledger.grpc.requests import BATCH_READ_BYTES, READ_BYTES
from semel.surfaces.ledger.proto import ledger_pb2 as pb
from tests.ledger.grpc.rig import HEALTH_REQUEST, Rig, served, write_request
from tests.server.grpc.peers import INVALID_ARGUMENT, UNAVAILABLE, Line

RESOURCE_EXHAUSTED = 8
CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
WRITE = "/ledger.v1.WriteService/Write"
LARGEST = {
    CHECK: OPEN_BYTES,
    WATCH: OPEN_BYTES,
    "/ledger.v1.HealthService/Check": OPEN_BYTES,
    "/ledger.v1.ReadService/GetTip": READ_BYTES,
    "/ledger.v1.ReadService/ListEntities": READ_BYTES,
    "/ledger.v1.ReadService/WatchBlocks": READ_BYTES,
    "/ledger.v1.AdminService/CreateOrganization": READ_BYTES,
    "/ledger.v1.ReadService/BatchRead": BATCH_READ_BYTES,
}


def padded(size: int) -> bytes:
    """A field that nobody knows, of so many bytes together."""
    room = size - 6
    return (
        b"\xfa\x07" + bytes(0x80 | (room >> shift & 0x7F) for shift in (0, 7, 14)) + bytes((room >> 21,)) + bytes(room)
    )


async def heard(line: Line, *streams: int) -> list[int | None]:
    """How calls ended, as soon as all of them have."""
    while any(line.status(stream) is None for stream in streams):
        await line.deliver()
    return [line.status(stream) for stream in streams]


@pytest.mark.parametrize("path", LARGEST)
def test_messages_are_as_large_as_their_methods_need(tmp_path: Path, path: str) -> None:
    size = LARGEST[path]

    async def scenario(rig: Rig) -> None:
        line = Line(rig.host)
        plain = line.open(path=path)
        line.send(plain, b"\0" + (size + 1).to_bytes(4, "big"), end=False)
        packed = line.open(("grpc-encoding", "gzip"), path=path)
        content = gzip.compress(padded(size + 1))
        line.send(packed, b"\x01" + len(content).to_bytes(4, "big") + content)
        assert await heard(line, plain, packed) == [INVALID_ARGUMENT] * 2
        assert all("at most" in message for message in line.messages(plain, packed))
        line.server.connection_lost(None)

    served(tmp_path, scenario)


@pytest.mark.parametrize("path", ["/ledger.v1.HealthService/Check", CHECK])
def test_a_message_of_the_largest_size_is_taken(tmp_path: Path, path: str) -> None:
    async def scenario(rig: Rig) -> None:
        line = Line(rig.host)
        stream = line.open(path=path)
        line.send(stream, frame(padded(OPEN_BYTES)))
        assert await heard(line, stream) == [0]
        line.server.connection_lost(None)

    served(tmp_path, scenario)


def test_a_thousand_long_keys_fit(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        place = await rig.office.org()
        request = pb.BatchReadRequest(**place_pb(place), keys=[f"{turn:01024}" for turn in range(1_000)])
        told = pb.BatchReadResponse.FromString(await rig.ask("/ledger.v1.ReadService/BatchRead", request))
        assert [result.key for result in told.results] == list(request.keys)

    served(tmp_path, scenario)


# ---- Calls ----


def test_strangers_take_no_calls_from_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest of theirs ends when a new one comes, so that health is told under a flood too."""
    monkeypatch.setattr(limits, "MAX_OPEN_CALLS", 3)
    monkeypatch.setattr(limits, "MAX_CALLS", 1)

    async def scenario(rig: Rig) -> None:
        place = await rig.office.org()
        line = Line(rig.host)
        watches = [line.open(path=WATCH) for _ in range(2)]
        for stream in watches:
            line.send(stream, frame(b""))
        silent = line.open(path=CHECK)
        await line.deliver()
        assert [line.status(stream) for stream in (*watches, silent)] == [None] * 3
        await rig.write(place, 1)
        await rig.ask(CHECK, HEALTH_REQUEST())
        assert await heard(line, watches[0]) == [UNAVAILABLE]
        await line.deliver()
        assert [line.status(stream) for stream in (watches[1], silent)] == [None] * 2
        line.server.connection_lost(None)

    served(tmp_path, scenario)


def test_a_connection_has_few_calls_without_a_credential(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        place = await rig.office.org()
        line = Line(rig.host)
        watches = [line.open(path=WATCH) for _ in range(limits.MAX_OPEN_CALLS_EACH)]
        for stream in watches:
            line.send(stream, frame(b""))
        more, health = line.open(path=CHECK), line.open(path="/ledger.v1.HealthService/Check")
        write = line.open(path=WRITE)
        line.send(write, frame(write_request(place, 1, b"v").SerializeToString()))
        assert await heard(line, more, health, write) == [RESOURCE_EXHAUSTED, RESOURCE_EXHAUSTED, 0]
        line.client.reset_stream(watches[0])
        again = line.open(path=CHECK)
        line.send(again, frame(b""))
        assert await heard(line, again) == [0]
        line.server.connection_lost(None)

    served(tmp_path, scenario)


def test_one_timer_serves_all_who_follow_health(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "LOOK_SECONDS", 0.001)

    async def scenario() -> None:
        looks, fact = 0, "fine"

        def look() -> Any:
            nonlocal looks
            looks += 1
            return fact

        async def follow() -> None:
            with pulse.listen():
                await pulse.change.wait()

        pulse = HealthPoll(look)
        tasks = [asyncio.create_task(follow()) for _ in range(100)]
        await asyncio.sleep(0)
        assert looks == 1
        tasks[0].cancel()
        fact = "changed"
        await asyncio.wait_for(asyncio.gather(*tasks[1:]), 60)
        seen = looks
        assert seen == 2, "one look for all of them"
        await asyncio.sleep(0.02)
        assert looks == seen, "nobody listens any more"

    asyncio.run(scenario())


# ---- Bytes ----


def test_what_is_unpacked_is_counted(tmp_path: Path) -> None:
    """A few bytes that become many are refused where the many would be."""

    async def scenario(rig: Rig) -> None:
        place = await rig.office.org()
        answers = []
        for sequence, size in ((1, 150_000), (2, 400_000), (2, 150_000)):
            line = Line(rig.host)
            stream = line.open(("grpc-encoding", "gzip"), path=WRITE)
            content = gzip.compress(write_request(place, sequence, bytes(size)).SerializeToString())
            line.send(stream, b"\x01" + len(content).to_bytes(4, "big") + content)
            answers += await heard(line, stream)
            line.server.connection_lost(None)
        assert answers == [0, UNAVAILABLE, 0]

    served(tmp_path, scenario, max_uploads_bytes=300_000)


def test_a_size_that_is_told_wrong_is_refused(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        line = Line(rig.host)
        content = gzip.compress(bytes(1_000_000))[:-4] + (10).to_bytes(4, "little")
        stream = line.open(("grpc-encoding", "gzip"), path=WRITE)
        line.send(stream, b"\x01" + len(content).to_bytes(4, "big") + content)
        assert await heard(line, stream) == [INVALID_ARGUMENT]
        line.server.connection_lost(None)

    served(tmp_path, scenario)


def test_unread_answers_leave_room_for_requests(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        place = await rig.office.org()
        await rig.write(place, 1, bytes(60_000))
        request = frame(pb.ReadRequest(**place_pb(place), key="k").SerializeToString())
        line = Line(rig.host)
        line.client.update_settings({4: 0})
        await line.deliver()
        streams = [line.open(path="/ledger.v1.ReadService/Read") for _ in range(8)]
        for stream in streams:
            line.send(stream, request)
        while sum(line.status(stream) == UNAVAILABLE for stream in streams) < 6:
            await line.deliver()
        await rig.write(place, 2, bytes(100_000))
        line.server.connection_lost(None)

    served(tmp_path, scenario, max_uploads_bytes=300_000)
