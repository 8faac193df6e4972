"""Every call under every fault: nothing is done twice, a retry gets the first answer, the unknown is called unknown."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from semel.client import AsyncClient, ConflictError, OutcomeUnknown, Patience, SemelError
from semel.client.ledger.operations import SetKey
from tests.client.both import BOTH, EACH_LOOP, client_of
from tests.client.call_rows import Call
from tests.client.calls import CALLS
from tests.client.fault_runner import Runner, ending, play_all, side_by_side
from tests.client.faults import FAULTS, OF_ANSWERS, OF_THE_LINE, SILENT, Faulty, answer, instead, lost, page, refusal
from tests.client.line import CUT_ANSWER, Fault, Line
from tests.client.names import fresh
from tests.harness.server import RunningServer
from tests.harness.share import due

SOME = (
    *("submit", "submit_many", "submit_texts_without_keys", "complete", "append", "append_by_number", "submit_event"),
    *("write_by_sequence", "write_many", "acknowledge", "read_stream", "look_at_stream"),
)
"""Calls of each form. All clients run the same coroutines, over connections of their own: for two, these are enough."""
SOME_ANSWERS = ("429 and a pause", "500", "moved", "too large", "a page", "no HTTP")


def calls_of(kind: str) -> dict[str, Call]:
    """The calls that a client of this kind plays."""
    return CALLS if kind == "async" else {name: CALLS[name] for name in SOME}


@EACH_LOOP
@pytest.mark.parametrize("fault", [*OF_THE_LINE, *SILENT])
async def test_every_call_on_a_bad_line(server: RunningServer, kind: str, fault: str) -> None:
    calls = {name: CALLS[name] for name in SOME} if fault in SILENT else calls_of(kind)
    await play_all(server, kind, (OF_THE_LINE | SILENT)[fault], calls)


ANSWERS = [("async", fault) for fault in OF_ANSWERS] + [("blocking", fault) for fault in SOME_ANSWERS]


@pytest.mark.parametrize(("kind", "fault"), ANSWERS)
async def test_every_call_with_a_strange_answer(server: RunningServer, kind: str, fault: str) -> None:
    await play_all(server, kind, OF_ANSWERS[fault], calls_of(kind))


# -- At every byte -----------------------------------------------------------------------------------------------------

CUT = (
    *("submit", "submit_many", "claim", "complete", "fail", "defer", "store_step", "submit_child", "requeue"),
    *("submit_group", "submit_group_of_members"),
    *("submit_event", "submit_events", "append", "append_by_number", "write_by_sequence", "write_by_key"),
)
STRIDE = 61


def places(size: int, kind: str) -> Sequence[int]:
    """Bytes at which a line is cut: some of them here, every one at night. The two clients share them."""
    return due(range(size), STRIDE)[kind == "blocking" :: 2]


async def sizes(server: RunningServer, semel: AsyncClient, call: Call) -> tuple[int, int]:
    """How many bytes a request and its answer have."""
    play = await call.prepare(semel)
    async with Line(server.port) as line, client_of("async", line.url) as client:
        line.play(on=call.on)
        before = line.received
        await play.act(client)
        return len(line.asked[0]), line.received - before


@BOTH
@pytest.mark.parametrize("name", CUT)
async def test_a_call_takes_effect_once_wherever_its_line_is_cut(server: RunningServer, kind: str, name: str) -> None:
    async with AsyncClient(server.url) as semel:
        asked, told = await sizes(server, semel, CALLS[name])
        faults = [lost(Fault(request=(at + 0.5) / asked), is_done=False) for at in places(asked, kind)]
        faults += [lost(Fault(answer=(at + 0.5) / told), is_done=True) for at in places(told, kind)]
        assert len(faults) > 4
        await side_by_side({str(one.fault): Runner(server, semel, kind, CALLS[name], one).insist() for one in faults})


Read = Callable[[Any], Awaitable[list[Any]]]


async def taken(items: Any, count: int) -> list[Any]:
    """The first of what comes."""
    found = [await anext(items) for _ in range(count)]
    await items.aclose()
    return found


async def a_tail(semel: AsyncClient) -> tuple[Read, list[Any]]:
    """The bytes of a stream."""
    name = fresh("s")
    await semel.streams.create(name, data=b"the content of a stream", closed=True)

    async def read(client: Any) -> list[Any]:
        return list(b"".join([one.data async for one in client.streams.tail(name)]))

    return read, list(b"the content of a stream")


async def a_follower(semel: AsyncClient) -> tuple[Read, list[Any]]:
    """The events of a partition."""
    room = fresh("room")
    made = [(await semel.events.submit("n", n, partitions=room)).id for n in range(2)]

    async def read(client: Any) -> list[Any]:
        return [one.id for one in await taken(client.events.follow(room), 2)]

    return read, made


async def a_watch(semel: AsyncClient) -> tuple[Read, list[Any]]:
    """The blocks of a place."""
    org = (await semel.ledger.create_organization(fresh("org"))).place.org
    for number in range(2):
        await semel.ledger.place(org).write([SetKey("k", str(number))], client="c")

    async def read(client: Any) -> list[Any]:
        return [one.height for one in await taken(client.ledger.place(org).notices(1), 2)]

    return read, [1, 2]


@BOTH
@pytest.mark.parametrize("prepare", [a_tail, a_follower, a_watch], ids=lambda one: one.__name__)
async def test_a_reader_is_given_each_item_once_wherever_its_line_is_cut(
    server: RunningServer, kind: str, prepare: Callable[[AsyncClient], Awaitable[tuple[Read, list[Any]]]]
) -> None:
    async with AsyncClient(server.url) as semel:
        read, expected = await prepare(semel)

        async def cut(at: int | None) -> int:
            async with Line(server.port) as line, client_of(kind, line.url) as client:
                line.left = at
                assert await read(client) == expected, at
                assert at is None or line.left is None, "it was not cut"
                return line.received

        size = await cut(None)
        await side_by_side({str(at): cut(at) for at in places(size - 200, kind)})


# -- One fault behind another ------------------------------------------------------------------------------------------

CLOSED = instead(refusal(409, "STREAM_CLOSED", "never"), is_asked=False)
SILENT_ABOUT_IT = {name: one.fault for name, one in FAULTS.items() if one.write is not None and name != "refused"} | {
    "401": instead(refusal(401, "UNAUTHORIZED", "never"), is_asked=False),
    "403 of a proxy": instead(page(403), is_asked=False),
    "404 of a proxy": instead(page(404), is_asked=False),
    "409 of a proxy": instead(answer(409, b"{}"), is_asked=False),
}
"""What says nothing about an attempt before it."""


@EACH_LOOP
async def test_after_a_lost_answer_only_a_verdict_on_the_identity_tells_the_outcome(
    server: RunningServer, kind: str
) -> None:
    async def after(semel: AsyncClient, second: Fault, patience: Patience) -> Any:
        play = await CALLS["append"].prepare(semel)
        async with Line(server.port) as line, client_of(kind, line.url, patience=patience) as client:
            line.play(CUT_ANSWER, second, on="POST")
            return await ending(play.act(client))

    async def is_unknown(semel: AsyncClient, second: Fault) -> None:
        found = await after(semel, second, Patience(tries=2))
        assert type(found) is OutcomeUnknown, repr(found)
        assert found.__cause__ is not None

    async with AsyncClient(server.url) as semel:
        await side_by_side({name: is_unknown(semel, second) for name, second in SILENT_ABOUT_IT.items()})
        assert type(await after(semel, CLOSED, Patience(tries=2))) is ConflictError


@EACH_LOOP
async def test_a_refusal_is_raised_at_once_and_shows_no_token(server: RunningServer, kind: str) -> None:
    token = "a-token-that-no-message-shows"
    async with AsyncClient(server.url) as semel:
        for name, faulty in {
            **FAULTS,
            "closed": Faulty(CLOSED, ConflictError, ConflictError, is_done=False),
        }.items():
            play = await CALLS["append"].prepare(semel)
            options: dict[str, Any] = {"token": token, "patience": Patience(tries=1)}
            async with (
                Line(server.port, is_kept=faulty.fault.is_refused) as line,
                client_of(kind, line.url, **options) as client,
            ):
                line.play(faulty.fault, on="POST")
                found = await ending(play.act(client))
                line.mend()
                assert faulty.write is None or isinstance(found, SemelError), name
                assert token not in "".join(traceback.format_exception(found)) + repr(found) if faulty.write else True
                assert all(f"Authorization: Bearer {token}".encode() in one for one in line.asked)
                assert name != "closed" or (type(found) is ConflictError and not found.is_unsettled)
