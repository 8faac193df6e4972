"""How connections end: in order, or because somebody does not get on; and what may be kept for their clients."""

from __future__ import annotations

import asyncio

from h2.settings import SettingCodes

from semel.server.grpc import connection as limits
from semel.server.grpc.call import GrpcCall
from semel.server.grpc.messages import frame
from tests.server.grpc.peers import DEADLINE_EXCEEDED, MAX_WAITING, UNAVAILABLE, Line, never, on_a_loop

RESOURCE_EXHAUSTED = 8
ANSWER = b"x" * 1_000


@on_a_loop
async def test_a_retired_connection_answers_what_is_open_and_closes() -> None:
    line = Line()
    may_end = asyncio.Event()

    async def answer(call: GrpcCall, content: bytes) -> bytes:
        await may_end.wait()
        return content

    line.reception.answer = answer
    stream = line.call(b"x")
    await line.deliver()
    line.server.retire()
    was_closed = line.pipe.is_closed
    answered = bytes(line.pipe.written)
    line.pipe.written.clear()
    may_end.set()
    for _ in range(20):
        await asyncio.sleep(0)
    assert (was_closed, line.pipe.is_closed) == (False, True)
    # A GOAWAY ends the connection in the eyes of h2, so what came behind it is read by another one.
    assert answered[3] == 7, "a GOAWAY"
    assert int.from_bytes(answered[9:13], "big") == stream, "the last stream that will be answered"
    line.events += line.client.receive_data(bytes(line.pipe.written))
    assert (line.answer(stream), line.status(stream)) == (frame(b"x"), 0)


@on_a_loop
async def test_a_call_behind_the_goodbye_is_refused_untouched() -> None:
    line = Line()
    line.reception.answer = never
    line.call(b"x")
    await line.deliver()
    line.server.retire()
    line.pipe.written.clear()
    late = line.call(b"y")
    await line.deliver()
    assert line.is_reset(late)
    assert len(line.reception.calls) == 1


@on_a_loop
async def test_an_idle_connection_retires_at_once() -> None:
    line = Line()
    await line.deliver()
    line.server.retire()
    assert line.pipe.is_closed


# ---- Time ----


async def later(line: Line, seconds: float) -> None:
    """So many seconds have passed, and the server looks."""
    line.server.check(line.loop.time() + seconds)
    await line.deliver()


@on_a_loop
async def test_who_never_speaks_is_cut_off() -> None:
    line = Line()
    opened_at = line.server.now
    line.server.check(opened_at + limits.PREFACE_SECONDS - 1)
    assert not line.pipe.is_closed
    line.server.check(opened_at + limits.PREFACE_SECONDS)
    assert line.pipe.is_aborted


@on_a_loop
async def test_who_is_silent_is_asked_and_then_cut_off() -> None:
    line = Line()
    line.reception.answer = never
    line.call(b"x")
    await line.deliver()
    await later(line, limits.PING_SECONDS)
    assert line.pings == 1
    await later(line, limits.PING_SECONDS)
    assert line.pings == 2, "it had answered"
    line.server.check(line.loop.time() + limits.PING_SECONDS)
    line.server.check(line.loop.time() + limits.SILENCE_SECONDS)
    assert line.pipe.is_aborted


@on_a_loop
async def test_who_does_not_read_is_cut_off() -> None:
    line = Line()
    await line.deliver()
    before = line.loop.time()
    line.server.pause_writing()
    line.server.check(before + limits.STALL_SECONDS - 1)
    assert not line.pipe.is_closed
    line.server.check(line.loop.time() + limits.STALL_SECONDS)
    assert line.pipe.is_aborted


@on_a_loop
async def test_a_call_whose_answer_is_not_taken_ends_alone() -> None:
    line = Line()
    await line.deliver()
    large = line.call(b"x" * 200_000)
    await line.deliver()
    await later(line, limits.STALL_SECONDS + 1)
    assert line.is_reset(large)
    assert not line.pipe.is_closed
    assert line.reception.calls[0].is_over


@on_a_loop
async def test_a_request_that_does_not_arrive_is_given_up() -> None:
    line = Line()
    stream = line.open()
    line.send(stream, b"\0\0\0\0\x09abc", end=False)
    await line.deliver()
    await later(line, limits.UPLOAD_SILENCE_SECONDS + 1)
    assert (line.status(stream), line.is_reset(stream)) == (DEADLINE_EXCEEDED, True)


@on_a_loop
async def test_a_connection_without_calls_is_let_go() -> None:
    line = Line()
    await line.deliver()
    line.server.check(line.loop.time() + 1)
    assert not line.pipe.is_closed
    line.server.check(line.loop.time() + limits.IDLE_SECONDS)
    assert line.pipe.is_closed


# ---- Streams of messages ----


async def answer_each(call: GrpcCall, content: bytes) -> None:
    """Every message with itself."""
    while (message := await call.next_message()) is not None:
        await call.send(bytes(message.content))


async def streaming_line() -> tuple[Line, int]:
    """A connection with one call that brings many messages."""
    line = Line()
    line.reception.takes_many = True
    line.reception.answer = answer_each
    stream = line.open()
    await line.deliver()
    return line, stream


@on_a_loop
async def test_a_stream_whose_messages_do_not_come_ends() -> None:
    line, stream = await streaming_line()
    sent_at = line.reception.calls[0].data_at
    line.server.check(sent_at + limits.STREAM_SILENCE_SECONDS - 1)
    await line.deliver()
    assert line.status(stream) is None
    line.server.check(sent_at + limits.STREAM_SILENCE_SECONDS)
    await line.deliver()
    assert (line.status(stream), line.reception.held) == (0, 0)


@on_a_loop
async def test_a_stream_that_never_ends_is_ended() -> None:
    line, stream = await streaming_line()
    call = line.reception.calls[0]
    call.data_at = call.began_at + limits.STREAM_SECONDS
    line.server.check(call.began_at + limits.STREAM_SECONDS)
    call.take(frame(b"one more"), len(frame(b"one more")))
    await line.deliver()
    assert (line.status(stream), line.answer(stream)) == (0, b"")


# ---- Bytes that a client makes the server keep ----


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
async def test_answers_that_are_not_taken_share_a_budget_and_leave_it_with_their_client() -> None:
    line = Line()
    line.reception.max_unsent = 3 * len(frame(ANSWER))
    line.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    await line.deliver()
    streams = [line.call(ANSWER) for _ in range(10)]
    for _ in range(5):
        await line.deliver()
    assert [line.status(stream) for stream in streams] == [None] * 3 + [UNAVAILABLE] * 7
    line.client.increment_flow_control_window(2_000, streams[0])
    line.client.reset_stream(streams[1])
    await line.deliver()
    assert (line.answer(streams[0]), line.reception.unsent) == (frame(ANSWER), len(frame(ANSWER)))
    line.server.connection_lost(None)
    await line.deliver()
    assert line.reception.unsent == 0


@on_a_loop
async def test_messages_that_wait_are_held_and_few() -> None:
    line = Line()
    line.reception.takes_many = True
    line.reception.answer = never
    stream = line.open()
    line.send(stream, frame(b"x") * MAX_WAITING, end=False)
    await line.deliver()
    assert (line.status(stream), line.reception.held) == (None, MAX_WAITING * len(frame(b"x")))
    line.send(stream, frame(b"x"), end=False)
    await line.deliver()
    assert (line.status(stream), line.reception.held) == (RESOURCE_EXHAUSTED, 0)
