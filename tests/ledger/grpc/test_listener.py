"""The server as a whole, called by a client that knows nothing of it: what both do, and how it stops."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
from grpc import aio

from semel.server.grpc import server as limits
from semel.server.grpc.flow_control import SPARE_FRAMES
from semel.server.grpc.messages import PREFIX_BYTES, frame
from semel.surfaces.ledger.grpc.answers import place_pb
from semel.surfaces.ledger.grpc.listener import LedgerGrpc
from semel.surfaces.ledger.proto import ledger_pb2 as pb
from tests.harness.server import HOST
from tests.ledger.grpc.rig import (
    GRACE_SECONDS,
    HEALTH_REQUEST,
    HEALTH_RESPONSE,
    PATIENCE_SECONDS,
    Rig,
    served,
    write_request,
)
from tests.server.grpc.peers import Line


def test_every_method_that_is_described_is_there(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        for service in pb.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                path = f"/{service.full_name}/{method.name}"
                call = rig.channel.unary_stream(path)(b"")
                with suppress(aio.AioRpcError):
                    await call.read()
                assert await call.code() in (grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT), path

    served(tmp_path, scenario)


@pytest.mark.parametrize(
    "path",
    ["/ledger.v1.AdminService/CreateSnapshot", "/ledger.v1.WriteService/", "/x", "/ledger.v1.Raft/Append", "//"],
)
def test_other_methods_are_not_implemented(tmp_path: Path, path: str) -> None:
    async def scenario(rig: Rig) -> None:
        error = await rig.refused(path)
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED
        assert rig.counted("-", 12) == 1

    served(tmp_path, scenario)


def test_calls_are_counted_by_method_and_status(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        place = await rig.office.org()
        assert (await rig.write(place, 1)).success.block_height == 1
        assert (await rig.write(place, 9)).error.code == pb.WRITE_ERROR_CODE_SEQUENCE_GAP
        await rig.refused("/ledger.v1.WriteService/Write")
        assert (rig.counted("Write", 0), rig.counted("Write", 3)) == (2, 1)

    served(tmp_path, scenario)


def test_a_large_write_does_not_let_smaller_ones_past(tmp_path: Path) -> None:
    """All of them arrive in one piece, so the order of the messages is known."""
    sizes = (900_000, 1, 1, 200_000, 1, 1)

    async def scenario(rig: Rig) -> None:
        place = await rig.office.org()
        line = Line(rig.host)
        await line.deliver()
        streams = []
        for turn, size in enumerate(sizes):
            streams.append(line.open(path="/ledger.v1.WriteService/Write"))
            line.send(streams[-1], frame(write_request(place, 1 + turn, bytes(size)).SerializeToString()))
        while any(line.status(stream) is None for stream in streams):
            await line.deliver()
        answers = [pb.WriteResponse.FromString(line.answer(stream)[PREFIX_BYTES:]) for stream in streams]
        assert [answer.success.assigned_sequence for answer in answers] == [1, 2, 3, 4, 5, 6]
        line.server.connection_lost(None)

    served(tmp_path, scenario)


def test_compressed_both_ways(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        place = await rig.office.org()
        value = bytes(300_000)
        await rig.write(place, 1, value, compression=grpc.Compression.Gzip)
        request = pb.ReadRequest(**place_pb(place), key="k")
        for compression in (grpc.Compression.Gzip, grpc.Compression.NoCompression):
            answer = await rig.ask("/ledger.v1.ReadService/Read", request, compression=compression)
            assert pb.ReadResponse.FromString(answer).value == value
        error = await rig.refused("/ledger.v1.ReadService/Read", request, compression=grpc.Compression.Deflate)
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED

    served(tmp_path, scenario)


def test_a_message_at_the_limit_and_one_above(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        place = await rig.office.org()
        empty = write_request(place, 1, bytes(90_000))
        room = 100_000 - empty.ByteSize()
        padding = b"\xfa\x07" + bytes((0x80 | (room - 5 & 0x7F), 0x80 | (room - 5 >> 7 & 0x7F), room - 5 >> 14))
        at_limit = empty.SerializeToString() + padding + bytes(room - 5)
        call = rig.channel.unary_unary("/ledger.v1.WriteService/Write")
        assert len(at_limit) == 100_000
        assert pb.WriteResponse.FromString(await call(at_limit)).success.block_height == 1
        with pytest.raises(aio.AioRpcError) as caught:
            await call(bytes(100_001))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    served(tmp_path, scenario, max_body_bytes=100_000)


# ---- Health ----


def test_health(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        for service in ("", "ledger.v1.WriteService", "grpc.health.v1.Health"):
            answer = await rig.ask("/grpc.health.v1.Health/Check", HEALTH_REQUEST(service=service))
            assert HEALTH_RESPONSE.FromString(answer).status == 1
        error = await rig.refused("/grpc.health.v1.Health/Check", HEALTH_REQUEST(service="other"))
        assert error.code() is grpc.StatusCode.NOT_FOUND
        answer = await rig.ask("/ledger.v1.HealthService/Check")
        assert pb.HealthCheckResponse.FromString(answer).status == pb.HEALTH_STATUS_HEALTHY

    served(tmp_path, scenario)


def test_health_of_a_place(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        place = await rig.office.org()
        await rig.write(place, 1)
        request = pb.HealthCheckRequest(**place_pb(place))
        told = pb.HealthCheckResponse.FromString(await rig.ask("/ledger.v1.HealthService/Check", request))
        assert (told.status, told.details["height"]) == (pb.HEALTH_STATUS_HEALTHY, "1")
        nowhere = pb.HealthCheckRequest(organization=pb.OrganizationSlug(slug=1))
        error = await rig.refused("/ledger.v1.HealthService/Check", nowhere)
        assert error.code() is grpc.StatusCode.NOT_FOUND

    served(tmp_path, scenario)


@pytest.mark.parametrize(("service", "statuses"), [("", [1, 2]), ("other", [3])], ids=["all", "unknown"])
def test_followed_health_hears_of_the_end(tmp_path: Path, service: str, statuses: list[int]) -> None:
    async def scenario(rig: Rig) -> None:
        request = HEALTH_REQUEST(service=service).SerializeToString()
        call = rig.channel.unary_stream("/grpc.health.v1.Health/Watch")(request)
        heard = [await call.read()]
        rig.office.context.is_stopping = True
        while heard[-1] is not aio.EOF:
            heard.append(await call.read())
        assert [HEALTH_RESPONSE.FromString(content).status for content in heard[:-1]] == statuses
        assert await call.code() is grpc.StatusCode.OK

    served(tmp_path, scenario)


# ---- Limits and ends ----


def test_too_many_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_CALLS", 1)

    async def scenario(rig: Rig) -> None:
        place = await rig.office.org()
        watch = rig.channel.unary_stream("/ledger.v1.ReadService/WatchBlocks")(
            pb.WatchBlocksRequest(**place_pb(place), start_height=1).SerializeToString()
        )
        await watch.initial_metadata()
        error = await rig.refused("/ledger.v1.ReadService/GetTip", pb.GetTipRequest(**place_pb(place)))
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        await rig.ask("/ledger.v1.HealthService/Check")
        watch.cancel()

    served(tmp_path, scenario)


def test_too_many_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_CONNECTIONS", 1)

    async def scenario(rig: Rig) -> None:
        await rig.ask("/ledger.v1.HealthService/Check")
        reader, writer = await asyncio.open_connection(HOST, rig.host.port)
        try:
            assert await asyncio.wait_for(reader.read(), PATIENCE_SECONDS) == b""
        except ConnectionResetError:
            pass  # which says the same
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        await rig.ask("/ledger.v1.HealthService/Check")

    served(tmp_path, scenario)


def test_a_stop_lets_what_is_under_way_end(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        place = await rig.office.org()
        watch = rig.channel.unary_stream("/ledger.v1.ReadService/WatchBlocks")(
            pb.WatchBlocksRequest(**place_pb(place), start_height=1).SerializeToString()
        )
        await watch.initial_metadata()
        await rig.write(place, 1)
        assert pb.BlockAnnouncement.FromString(await watch.read()).height == 1
        stream = rig.channel.stream_stream("/ledger.v1.WriteService/StreamWrites")()
        await stream.initial_metadata()
        rig.office.context.is_stopping = True
        rig.office.context.engine.signals.send_all()
        await rig.host.stop(GRACE_SECONDS)
        assert await watch.code() is grpc.StatusCode.UNAVAILABLE
        assert "height 2" in (await watch.details() or "")
        assert await stream.code() is grpc.StatusCode.OK
        error = await rig.refused("/ledger.v1.HealthService/Check")
        assert error.code() is grpc.StatusCode.UNAVAILABLE

    served(tmp_path, scenario)


def test_a_stop_cuts_off_what_does_not_end(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        watch = rig.channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
        await watch.read()
        await rig.host.stop(0.01)
        assert await watch.code() is not grpc.StatusCode.OK

    served(tmp_path, scenario)


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        with pytest.raises(OSError, match=r".+"):
            await LedgerGrpc(rig.office.context, rig.office.desk).start(HOST, rig.host.port)

    served(tmp_path, scenario)


def test_a_channel_that_is_used_a_lot_is_no_flood(tmp_path: Path) -> None:
    """Large answers at once, and more small ones than there are frames to spare: the client acknowledges them all."""

    async def scenario(rig: Rig) -> None:
        place = await rig.office.org()
        await rig.write(place, 1, bytes(1_000_000))
        request = pb.ReadRequest(**place_pb(place), key="k")
        answers = await asyncio.gather(*[rig.ask("/ledger.v1.ReadService/Read", request) for _ in range(40)])
        assert {len(pb.ReadResponse.FromString(answer).value) for answer in answers} == {1_000_000}
        blocks = SPARE_FRAMES + 200
        await rig.office.fill(place, blocks)
        watch = rig.channel.unary_stream("/ledger.v1.ReadService/WatchBlocks")(
            pb.WatchBlocksRequest(**place_pb(place), start_height=1).SerializeToString()
        )
        heights = [pb.BlockAnnouncement.FromString(await watch.read()).height for _ in range(blocks)]
        assert heights == list(range(1, blocks + 1))
        watch.cancel()

    served(tmp_path, scenario)
