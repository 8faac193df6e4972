"""A connection under limits: what is sent, what waits, and what is refused."""

from __future__ import annotations

import asyncio

import pytest
from h2.errors import ErrorCodes
from h2.settings import SettingCodes

from semel.server.grpc import connection as limits
from semel.server.grpc import flow_control
from semel.server.grpc.call import GrpcCall
from semel.server.grpc.messages import frame
from semel.server.grpc.metadata import CANCELLED
from tests.server.grpc.peers import (
    DEADLINE_EXCEEDED,
    INVALID_ARGUMENT,
    MAX_MESSAGE_BYTES,
    UNAVAILABLE,
    EchoReception,
    Line,
    never,
    on_a_loop,
)


@on_a_loop
async def test_a_call_is_answered() -> None:
    line = Line()
    stream = line.call(b"hello")
    await line.deliver()
    assert line.answer(stream) == frame(b"hello")
    assert (line.status(stream), line.is_ended(stream), line.is_reset(stream)) == (0, True, False)
    assert (line.reception.ends, line.reception.held) == ([0], 0)


@on_a_loop
async def test_it_says_what_it_takes() -> None:
    line = Line()
    await line.deliver()
    told = line.client.remote_settings
    assert told.max_concurrent_streams == flow_control.MAX_STREAMS
    assert told.max_header_list_size == flow_control.MAX_HEAD_BYTES
    assert told.initial_window_size == flow_control.STREAM_WINDOW
    assert line.client.outbound_flow_control_window == 65_535 + flow_control.CONNECTION_WINDOW


@on_a_loop
async def test_many_calls_at_once_on_one_connection() -> None:
    line = Line()
    await line.deliver()
    streams = {line.call(b"%d" % number): number for number in range(flow_control.MAX_STREAMS)}
    await line.deliver()
    assert {line.answer(stream) for stream in streams} == {frame(b"%d" % number) for number in streams.values()}


@on_a_loop
async def test_one_stream_too_many_ends_the_connection() -> None:
    line = Line()
    line.reception.answer = never
    await line.deliver()
    line.client.remote_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = 1_000
    line.client.remote_settings.acknowledge()
    for _ in range(flow_control.MAX_STREAMS + 1):
        line.call(b"x")
    await line.deliver()
    assert line.goodbye is not None
    assert line.pipe.is_closed
    assert all(call.is_over for call in line.reception.calls)


@pytest.mark.parametrize("size", [MAX_MESSAGE_BYTES + 1, 2**32 - 1])
def test_too_large_a_message_is_refused_at_its_first_bytes(size: int) -> None:
    async def scenario() -> None:
        line = Line()
        stream = line.open()
        line.send(stream, b"\0" + size.to_bytes(4, "big"), end=False)
        await line.deliver()
        assert (line.status(stream), line.is_reset(stream)) == (INVALID_ARGUMENT, True)
        following = line.call(b"x")
        await line.deliver()
        assert line.status(following) == 0

    on_a_loop(scenario)()


@on_a_loop
async def test_what_was_sent_to_refused_calls_is_no_loss_to_the_connection() -> None:
    line = Line()
    await line.deliver()
    for _ in range(2 * flow_control.CONNECTION_WINDOW // 50_000):
        stream = line.open()
        line.send(stream, b"\xff" * 50_000, end=False)
        await line.deliver()
        assert line.status(stream) == INVALID_ARGUMENT
    fine = line.call(b"x" * 50_000)
    await line.deliver()
    assert line.status(fine) == 0


@pytest.mark.parametrize(
    "data", [b"", b"\0\0", frame(b"abc")[:-1], frame(b"a") + frame(b"b"), frame(b"a") + b"\0"], ids=repr
)
def test_a_call_carries_one_whole_message(data: bytes) -> None:
    async def scenario() -> None:
        line = Line()
        stream = line.open()
        line.send(stream, data)
        await line.deliver()
        assert line.status(stream) == INVALID_ARGUMENT

    on_a_loop(scenario)()


@on_a_loop
async def test_uploads_share_a_budget() -> None:
    line = Line()
    line.reception.max_held = 200_000
    await line.deliver()
    waiting = [line.open() for _ in range(4)]
    for stream in waiting:
        line.send(stream, frame(b"x" * 60_000)[:-1], end=False)
    await line.deliver()
    assert [line.status(stream) for stream in waiting] == [None, None, None, UNAVAILABLE]
    line.send(waiting[0], b"x")
    await line.deliver()
    assert line.status(waiting[0]) == 0
    line.server.connection_lost(None)
    assert line.reception.held == 0


@on_a_loop
async def test_a_call_that_is_taken_back() -> None:
    line = Line()
    line.reception.answer = never
    stream = line.call(b"x")
    await line.deliver()
    call = line.reception.calls[0]
    was_gone = call.is_over
    line.client.reset_stream(stream, ErrorCodes.CANCEL)
    await line.deliver()
    assert (was_gone, call.is_over) == (False, True)
    assert call.task is not None
    assert call.task.cancelled()
    assert line.reception.ends == [CANCELLED]


@on_a_loop
async def test_begun_and_taken_back_in_one_breath() -> None:
    line = Line()
    stream = line.open()
    line.send(stream, b"\xff" * 10, end=False)
    line.client.reset_stream(stream, ErrorCodes.CANCEL)
    following = line.call(b"x")
    await line.deliver()
    assert line.status(following) == 0


@on_a_loop
async def test_a_lost_connection() -> None:
    line = Line()
    line.reception.answer = never
    for _ in range(3):
        line.call(b"x")
    await line.deliver()
    line.server.connection_lost(None)
    await line.deliver()
    assert all(call.is_over for call in line.reception.calls)
    assert line.reception.ends == [CANCELLED] * 3
    assert (line.server.calls, line.reception.held) == ({}, 0)


@on_a_loop
async def test_a_deadline_that_passes() -> None:
    line = Line()
    line.reception.answer = never
    stream = line.call(b"x")
    await line.deliver()
    line.reception.calls[0].expire()
    await line.deliver()
    assert line.status(stream) == DEADLINE_EXCEEDED
    assert line.reception.calls[0].is_over


@on_a_loop
async def test_a_large_answer_waits_for_the_client() -> None:
    line = Line()
    await line.deliver()
    content = bytes(range(256)) * 1_000
    stream = line.call(content)
    await line.deliver()
    assert len(line.answer(stream)) == 65_535, "as much as the client said it would take"
    assert line.status(stream) is None
    small = line.call(b"")
    await line.deliver()
    assert line.status(small) is None, "the window of the connection is used up too"
    for _ in range(4):
        line.client.increment_flow_control_window(50_000)
        line.client.increment_flow_control_window(50_000, stream)
        await line.deliver()
    assert line.answer(stream) == frame(content)
    assert (line.status(stream), line.status(small)) == (0, 0)


@on_a_loop
async def test_a_client_that_does_not_read_is_not_listened_to() -> None:
    line = Line()
    await line.deliver()
    listens = []
    for turn in (line.server.pause_writing, line.server.resume_writing):
        turn()
        listens.append(line.pipe.is_reading)
    assert listens == [False, True]
    stream = line.call(b"x")
    await line.deliver()
    assert line.status(stream) == 0


@on_a_loop
async def test_too_many_connections() -> None:
    reception = EchoReception()
    reception.has_room = False
    line = Line(reception)
    assert line.pipe.is_aborted


@on_a_loop
async def test_who_only_takes_calls_back_is_sent_away() -> None:
    line = Line()
    line.reception.answer = never
    await line.deliver()
    taken_back = 0
    while not line.pipe.is_closed and taken_back < 10 * limits.SPARE_RESETS:  # a slow run earns a few more by its time
        line.client.reset_stream(line.call(b"x"), ErrorCodes.CANCEL)
        line.server.data_received(line.client.data_to_send())
        await asyncio.sleep(0)  # in one turn of the loop only some frames are read
        taken_back += 1
    line.client.receive_data(bytes(line.pipe.written))
    assert line.pipe.is_closed
    assert taken_back > limits.SPARE_RESETS
    assert line.pipe.written.endswith(b"\x00\x00\x00\x0b"), "ENHANCE_YOUR_CALM"


@on_a_loop
async def test_messages_one_by_one() -> None:
    line = Line()
    line.reception.takes_many = True

    async def answer(call: GrpcCall, content: bytes) -> None:
        while (message := await call.next_message()) is not None:
            await call.send(bytes(message.content) + b"!")

    line.reception.answer = answer
    stream = line.open()
    for word in (b"a", b"b", b"c" * 200_000):
        line.send(stream, frame(word), end=False)
        await line.deliver()
        line.client.increment_flow_control_window(300_000)
        line.client.increment_flow_control_window(300_000, stream)
        await line.deliver()
    assert line.answer(stream) == frame(b"a!") + frame(b"b!") + frame(b"c" * 200_000 + b"!")
    line.client.end_stream(stream)
    await line.deliver()
    assert line.status(stream) == 0
