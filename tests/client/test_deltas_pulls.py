"""Pages that are too large, and lines that are slow or broken."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from semel.client import (
    AnswerTooLargeError,
    BusyError,
    NoAnswerError,
    Patience,
    retry,
)
from semel.client.transport import http_transport
from tests.client.deltas_script import CUT, Script, Scripted, entry, log_of, number_in, page, play, refused, taken
from tests.client.replica_kinds import Opened

pytestmark = pytest.mark.usefixtures("each_kind")
MANY_TRIES = Patience(tries=20, seconds=None)


def limits(server: Scripted) -> list[int]:
    """How many entries each pull asked for."""
    return [number_in(request, "limit") for request in server.asked if not request.is_push]


def rows_of(size: int, count: int) -> list[dict[str, Any]]:
    return [entry(str(number), number + 1, text="x" * size) for number in range(count)]


def unsized(script: Script) -> Script:
    """The same without a word on how long the body is: it ends with the connection."""
    return lambda request: script(request)._replace(headers={"Content-Length": ""})


# Pages that are too large


@pytest.mark.parametrize("dress", [lambda script: script, unsized], ids=["sized", "unsized"])
def test_a_page_that_is_too_large_is_asked_for_in_parts(dress: Callable[[Script], Script], tmp_path: Path) -> None:
    async def scene(db: Opened, server: Scripted) -> None:
        pulled = await db.pull()
        assert (pulled.entries, len(db.rows("todos"))) == (100, 100)
        assert limits(server)[:8] == [1_000, 500, 250, 125, 62, 31, 15, 7]

    play(tmp_path, dress(log_of(rows_of(1_000, 100))), scene, max_answer_bytes=10_000)


def test_how_much_is_asked_for_grows_again(tmp_path: Path) -> None:
    async def scene(db: Opened, server: Scripted) -> None:
        server.script = log_of(rows_of(10_000, 20) + rows_of(1, 2_000))
        assert (await db.pull()).entries == 2_020
        asked = limits(server)
        assert asked[7] == 7
        assert max(asked[8:]) > 200
        grown = [(one, other) for one, other in pairwise(asked) if other > one]
        assert all(other == 2 * one for one, other in grown)

    play(tmp_path, log_of([]), scene, max_answer_bytes=100_000)


def test_one_entry_that_is_too_large_is_told(tmp_path: Path) -> None:
    async def scene(db: Opened, server: Scripted) -> None:
        with pytest.raises(AnswerTooLargeError, match=r"larger than 10000 bytes.*max_answer_bytes"):
            await db.pull()
        assert (limits(server)[-1], sorted(db.rows("todos"))) == (1, ["0", "1", "2"])

    entries = [*rows_of(10, 3), entry("3", 4, text="x" * 20_000)]
    play(tmp_path, log_of(entries), scene, max_answer_bytes=10_000)


# Lines that are slow or broken


def test_after_a_lost_answer_less_is_asked_for(tmp_path: Path) -> None:
    async def scene(db: Opened, server: Scripted) -> None:
        whole = server.script
        server.script = lambda request: CUT if number_in(request, "limit") > 250 else whole(request)
        assert (await db.pull()).entries == 300
        assert limits(server) == [1_000, 500, 250, 250]

    play(tmp_path, log_of(rows_of(10, 300)), scene, patience=MANY_TRIES)


def test_the_next_pull_knows_of_it(tmp_path: Path) -> None:
    async def scene(db: Opened, server: Scripted) -> None:
        whole = server.script
        server.script = lambda _: CUT
        for _ in range(12):
            with pytest.raises(NoAnswerError):
                await db.pull()
        server.script = whole
        assert (await db.pull()).entries == 3
        assert limits(server) == [1_000, 500, 250, 125, 62, 31, 15, 7, 3, 1, 1, 1, 1, 1, 1]

    play(tmp_path, log_of(rows_of(10, 3)), scene)


def test_a_server_without_room_or_none_at_all_is_asked_for_the_same(tmp_path: Path) -> None:
    async def scene(db: Opened, server: Scripted) -> None:
        with pytest.raises(BusyError):
            await db.pull()
        server.script = log_of([])
        await db.pull()
        assert limits(server) == [1_000] * 3

    play(tmp_path, lambda _: refused(503, "BACKPRESSURE_ERROR"), scene, patience=Patience(tries=2))

    async def nobody(db: Opened, server: Scripted) -> None:
        with pytest.raises(NoAnswerError):
            await db.pull()
        assert db.calls._exchange.puller.limit == 1_000  # there was nobody to note what was asked

    play(tmp_path, log_of([]), nobody, url="http://127.0.0.1:1", moved=True)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> float:
    """How long a server may be silent: shorter than some answers take."""
    seconds = 1.0
    monkeypatch.setattr(http_transport, "ANSWER_SECONDS", seconds)
    monkeypatch.setattr(retry, "ANSWER_SECONDS", seconds)
    return seconds


def test_an_answer_may_take_long_as_long_as_it_comes(impatient: float, tmp_path: Path) -> None:
    """Each try takes longer than a silence may; should the machine stand still for that long, the next try does it."""

    async def scene(db: Opened, server: Scripted) -> None:
        assert (await db.pull()).entries == 50

    whole = log_of(rows_of(1_000, 50))
    play(tmp_path, lambda request: whole(request)._replace(seconds=impatient * 1.5), scene, patience=MANY_TRIES)


def test_a_request_may_take_long_as_long_as_it_goes_out(impatient: float, tmp_path: Path) -> None:
    async def scene(db: Opened, server: Scripted) -> None:
        server.read_seconds = impatient * 1.5
        db.insert("todos", "1", {"text": "x" * 10_000_000})
        assert (await db.push()).accepted == 1

    play(tmp_path, taken, scene, patience=MANY_TRIES)


def test_silence_in_the_middle_of_an_answer_ends_it(impatient: float, tmp_path: Path) -> None:
    async def scene(db: Opened, server: Scripted) -> None:
        with pytest.raises(NoAnswerError) as lost:
            await db.pull()
        assert lost.value.reason == "TimeoutError"
        assert db.rows("todos") == {}

    whole = log_of(rows_of(1_000, 50))
    play(tmp_path, lambda request: whole(request)._replace(seconds=3_600.0), scene)


# Pages that come late


def test_an_entry_that_comes_again_does_not_bring_a_deleted_row_back(tmp_path: Path) -> None:
    made, gone = ({**entry("1", hlc, op, n=1), "position": str(hlc)} for hlc, op in ((5, "INSERT"), (6, "DELETE")))

    async def scene(db: Opened, server: Scripted) -> None:
        for cursor, told in ((5, made), (6, gone), (7, made)):
            server.script = lambda _, cursor=cursor, told=told: page(cursor, told)  # type: ignore[misc]
            await db.pull()
        assert db.rows("todos") == {}

    play(tmp_path, taken, scene)
