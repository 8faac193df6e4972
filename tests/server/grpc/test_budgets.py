"""What may be kept for clients: answers that they do not take, requests that they do not end, calls of strangers."""

from __future__ import annotations

import pytest
from h2.settings import SettingCodes

from semel.server.grpc import connection as limits
from semel.server.grpc.call import GrpcCall
from semel.server.grpc.messages import frame
from tests.server.grpc.peers import MAX_WAITING, UNAVAILABLE, Line, never, on_a_loop

RESOURCE_EXHAUSTED = 8
ANSWER = b"x" * 1_000


async def unread(calls: int, max_unsent: int) -> tuple[Line, list[int]]:
    """A client without room for answers has asked for some."""
    line = Line()
    line.reception.max_unsent = max_unsent
    line.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    await line.deliver()
    streams = [line.call(ANSWER) for _ in range(calls)]
    for _ in range(5):
        await line.deliver()
    return line, streams


@on_a_loop
async def test_answers_that_are_not_taken_share_a_budget() -> None:
    line, streams = await unread(10, 3 * len(frame(ANSWER)))
    assert line.reception.unsent == 3 * len(frame(ANSWER))
    assert [line.status(stream) for stream in streams] == [None] * 3 + [UNAVAILABLE] * 7
    for stream in streams[:3]:
        line.client.increment_flow_control_window(2_000, stream)
    await line.deliver()
    assert [line.answer(stream) for stream in streams[:3]] == [frame(ANSWER)] * 3
    assert line.reception.unsent == 0


@on_a_loop
async def test_who_leaves_takes_its_answers_out_of_the_budget() -> None:
    line, streams = await unread(4, 100_000)
    line.client.reset_stream(streams[0])
    await line.deliver()
    assert line.reception.unsent == 3 * len(frame(ANSWER))
    line.server.connection_lost(None)
    await line.deliver()
    assert line.reception.unsent == 0


@on_a_loop
async def test_what_is_sent_at_once_is_not_counted() -> None:
    line = Line()
    line.reception.max_unsent = 0
    stream = line.call(ANSWER)
    await line.deliver()
    assert line.status(stream) == 0


@pytest.mark.parametrize(("is_open", "held"), [(True, 0), (False, 60_000)], ids=["open", "closed"])
def test_what_needs_no_credential_uses_up_nothing_of_those_who_have_one(is_open: bool, held: int) -> None:
    async def scenario() -> None:
        line = Line()
        line.reception.is_open = is_open
        line.send(line.open(), frame(b"x" * 60_000)[:60_000], end=False)
        await line.deliver()
        assert line.reception.held == held

    on_a_loop(scenario)()


# ---- Calls that bring many messages ----


async def answer_each(call: GrpcCall, content: bytes) -> None:
    """Every message with itself."""
    while (message := await call.next_message()) is not None:
        await call.send(bytes(message.content))


async def streaming_line() -> tuple[Line, int]:
    """A connection with one call that brings many."""
    line = Line()
    line.reception.takes_many = True
    line.reception.answer = answer_each
    stream = line.open()
    await line.deliver()
    return line, stream


@on_a_loop
async def test_messages_that_were_answered_are_not_held() -> None:
    line, stream = await streaming_line()
    for _ in range(3):
        line.send(stream, frame(b"x" * 10_000), end=False)
        await line.deliver()
        assert line.reception.held == 0
    assert line.answer(stream) == 3 * frame(b"x" * 10_000)
    line.server.connection_lost(None)
    assert line.reception.held == 0


@on_a_loop
async def test_messages_that_wait_are_held_and_few() -> None:
    line = Line()
    line.reception.takes_many = True
    line.reception.answer = never
    stream = line.open()
    line.send(stream, frame(b"x") * MAX_WAITING, end=False)
    await line.deliver()
    assert line.status(stream) is None
    assert line.reception.held == MAX_WAITING * len(frame(b"x"))
    line.send(stream, frame(b"x"), end=False)
    await line.deliver()
    assert (line.status(stream), line.reception.held) == (RESOURCE_EXHAUSTED, 0)


@on_a_loop
async def test_messages_are_answered_in_turns_with_others() -> None:
    line, stream = await streaming_line()
    turns = 0

    def other() -> None:
        nonlocal turns
        turns += 1
        if line.server.calls:
            line.loop.call_soon(other)

    other()
    line.send(stream, frame(b"x") * MAX_WAITING)
    await line.deliver()
    assert line.answer(stream) == MAX_WAITING * frame(b"x")
    assert turns >= MAX_WAITING


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
