"""Frames that cost a client nothing: how many of them are read, what they wake, and when it is enough."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from h2.errors import ErrorCodes
from h2.events import PingAckReceived
from h2.settings import SettingCodes
from hyperframe.frame import DataFrame, Frame, PingFrame, PriorityFrame, SettingsFrame, WindowUpdateFrame

from semel.server.grpc import flow_control
from semel.server.grpc.call import GrpcCall
from semel.server.grpc.connection import STALL_SECONDS
from semel.server.grpc.flow_control import AbuseLimit
from semel.server.grpc.messages import frame
from tests.server.grpc.peers import Line, never, on_a_loop

UNKNOWN_FRAME = b"\0\0\0\x63\0\0\0\0\0"
STREAM = 1
FLOODS = {
    "settings": SettingsFrame(0, {SettingCodes.INITIAL_WINDOW_SIZE: 70_000}).serialize(),
    "settings-acknowledged": SettingsFrame(0, flags=["ACK"]).serialize(),
    "ping": PingFrame(0, b"12345678").serialize(),
    "window-of-the-connection": WindowUpdateFrame(0, 1).serialize(),
    "window-of-a-stream": WindowUpdateFrame(STREAM, 1).serialize(),
    "priority": PriorityFrame(STREAM, depends_on=0, stream_weight=1).serialize(),
    "unknown": UNKNOWN_FRAME,
    "empty-data": DataFrame(STREAM, b"").serialize(),
}
MANY = 20_000


@pytest.fixture
def frames_read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many frames of each kind h2 was given."""
    count: Counter[str] = Counter()
    taken = flow_control.Frames._update_header_buffer

    def update(self: flow_control.Frames, f: Frame | None) -> Frame | None:
        count[type(f).__name__] += 1
        return taken(self, f)

    monkeypatch.setattr(flow_control.Frames, "_update_header_buffer", update)
    return count


async def waiting_line() -> Line:
    """A connection with a call whose message has not come."""
    line = Line()
    line.reception.takes_many = True
    line.reception.answer = never
    assert line.open() == STREAM
    await line.deliver()
    return line


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_frames_that_carry_nothing_come_to_an_end(flood: bytes, frames_read: Counter[str]) -> None:
    async def scenario() -> None:
        line = await waiting_line()
        frames_read.clear()
        line.server.data_received(flood * MANY)
        assert frames_read.total() <= flow_control.FRAMES_A_TURN, "others have a turn before the rest is read"
        assert not line.pipe.is_reading
        while not line.pipe.is_closed:
            before = frames_read.total()
            await asyncio.sleep(0)
            assert frames_read.total() - before <= flow_control.FRAMES_A_TURN
        assert frames_read.total() <= 2 * flow_control.SPARE_FRAMES
        assert bytes(line.pipe.written).endswith(ErrorCodes.ENHANCE_YOUR_CALM.to_bytes(4, "big"))
        assert line.reception.calls[0].is_over

    on_a_loop(scenario)()


@on_a_loop
async def test_calls_that_come_at_once_are_begun_in_turns_and_in_order() -> None:
    line = Line()
    await line.deliver()
    streams = [line.call(b"%d" % number) for number in range(flow_control.MAX_STREAMS)]
    data = line.client.data_to_send()
    line.server.data_received(data[:-700])
    most = flow_control.FRAMES_A_TURN // flow_control.HEAD_FRAMES
    assert 0 < len(line.reception.calls) <= most
    line.server.data_received(data[-700:])  # a transport may have had it ready
    assert len(line.reception.calls) <= 2 * most
    assert not line.pipe.is_reading
    while line.status(streams[-1]) is None:
        await line.deliver()
    assert [line.answer(stream) for stream in streams] == [frame(b"%d" % turn) for turn in range(len(streams))]
    assert [call.stream_id for call in line.reception.calls] == streams
    assert line.pipe.is_reading


@on_a_loop
async def test_what_waits_to_be_read_waits_for_a_client_that_does_not_read() -> None:
    line = Line()
    await line.deliver()
    for number in range(flow_control.MAX_STREAMS):
        line.call(b"%d" % number)
    line.server.data_received(line.client.data_to_send())
    line.server.pause_writing()
    begun = len(line.reception.calls)
    for _ in range(20):
        await asyncio.sleep(0)
    assert (len(line.reception.calls), line.pipe.is_reading) == (begun, False)
    line.server.resume_writing()
    while len(line.reception.calls) < flow_control.MAX_STREAMS:
        await line.deliver()
    assert line.pipe.is_reading


@on_a_loop
async def test_what_is_left_of_a_closed_connection_is_not_read() -> None:
    line = Line()
    await line.deliver()
    for number in range(flow_control.MAX_STREAMS):
        line.call(b"%d" % number)
    line.server.data_received(line.client.data_to_send())
    begun = len(line.reception.calls)
    line.server.connection_lost(None)
    await line.deliver()
    assert len(line.reception.calls) == begun


# ---- What is woken ----


@pytest.fixture
def wakes(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How often each stream was told that there may be room."""
    count: Counter[int] = Counter()
    wake = GrpcCall.wake

    def counted(self: GrpcCall) -> None:
        count[self.stream_id] += 1
        wake(self)

    monkeypatch.setattr(GrpcCall, "wake", counted)
    return count


async def stalled_line(calls: int) -> tuple[Line, list[int]]:
    """A client that takes no answer, and has asked for some."""
    line = Line()
    line.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    await line.deliver()
    streams = [line.call(b"answer") for _ in range(calls)]
    for _ in range(10):
        await line.deliver()
    assert all(call.stalled_at is not None for call in line.reception.calls)
    return line, streams


def test_room_for_one_wakes_one(wakes: Counter[int]) -> None:
    async def scenario() -> None:
        line, streams = await stalled_line(50)
        wakes.clear()
        line.client.increment_flow_control_window(100, streams[7])
        await line.deliver()
        assert wakes == {streams[7]: 1}
        assert [line.status(stream) for stream in streams].count(0) == 1

    on_a_loop(scenario)()


@pytest.mark.parametrize("flood", ["window-of-the-connection", "settings-acknowledged"])
def test_no_room_wakes_nobody(flood: str, wakes: Counter[int]) -> None:
    async def scenario() -> None:
        line, _ = await stalled_line(250)
        wakes.clear()
        line.server.data_received(FLOODS[flood] * 50)
        await line.deliver()
        assert not wakes

    on_a_loop(scenario)()


def test_room_for_all_wakes_each_once_a_turn(wakes: Counter[int]) -> None:
    async def scenario() -> None:
        line, streams = await stalled_line(50)
        wakes.clear()
        line.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1_000})
        line.server.data_received(line.client.data_to_send() + FLOODS["window-of-the-connection"] * 50)
        assert wakes == dict.fromkeys(streams, 1)
        await line.deliver()
        assert {line.status(stream) for stream in streams} == {0}

    on_a_loop(scenario)()


@on_a_loop
async def test_news_of_the_connection_is_no_sign_that_an_answer_is_taken() -> None:
    line, (stream,) = await stalled_line(1)
    since = line.reception.calls[0].stalled_at
    assert since is not None
    line.server.check(since + STALL_SECONDS - 1)
    line.client.increment_flow_control_window(1_000)
    await line.deliver()
    assert line.reception.calls[0].stalled_at == since
    line.server.check(since + STALL_SECONDS)
    await line.deliver()
    assert line.is_reset(stream)


@on_a_loop
async def test_room_in_a_stream_is_none_while_the_connection_has_none() -> None:
    line = Line()
    await line.deliver()
    stream = line.call(b"x" * 200_000)
    await line.deliver()
    call = line.reception.calls[0]
    since = call.stalled_at
    assert since is not None
    line.client.increment_flow_control_window(1_000, stream)
    await line.deliver()
    assert call.stalled_at == since
    line.client.increment_flow_control_window(1_000)
    await line.deliver()
    assert len(line.answer(stream)) == 65_535 + 1_000
    assert call.stalled_at > since


# ---- What is earned ----


@on_a_loop
async def test_who_takes_a_long_answer_in_small_pieces_is_no_flood() -> None:
    """The pieces are acknowledged one by one, and that is more frames than there are to spare."""
    pieces = 2 * flow_control.SPARE_FRAMES

    async def answer(call: GrpcCall, content: bytes) -> None:
        for _ in range(pieces):
            await call.send(b"block")

    line = Line()
    line.reception.answer = answer
    await line.deliver()
    stream = line.call(b"x")
    await line.deliver()
    assert line.status(stream) == 0
    for _ in range(pieces):
        line.client.increment_flow_control_window(10)
    line.client.ping(b"12345678")
    while not any(isinstance(event, PingAckReceived) for event in line.events):
        await line.deliver()
    assert line.goodbye is None


def test_an_allowance() -> None:
    spare = AbuseLimit(start=2, most=5, per_second=0, now=100.0)
    assert [spare.spend(100.0) for _ in range(3)] == [True, True, False]
    spare = AbuseLimit(start=2, most=5, per_second=0, now=100.0)
    spare.earn(100)
    assert [spare.spend(100.0) for _ in range(6)] == [True] * 5 + [False]


def test_time_brings_more() -> None:
    spare = AbuseLimit(start=0, most=5, per_second=2, now=100.0)
    assert [spare.spend(at) for at in (100.5, 101.0, 101.0, 102.0)] == [True, True, False, True]
    assert [spare.spend(1_000.0) for _ in range(6)] == [True] * 5 + [False]
