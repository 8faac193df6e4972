"""The rules of links and sessions: used once, over at their time, bounded, and swept; on a store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from hashlib import sha256
from typing import Any

from semel.engine.contract import Write
from semel.engine.engine import Engine
from semel.engine.sweep import Sweeper
from semel.kernel.errors import Refusal
from semel.server.console.session_contract import (
    CreateLink,
    EndSession,
    OpenSession,
    SessionChanged,
    SessionCommand,
    SessionContract,
    SessionLimits,
)
from semel.server.console.session_table import (
    CONSOLE_HEAD,
    CONSOLE_SESSION,
    FIRST_HEAD,
    HEAD_KEY,
    TABLES,
    ConsoleHeadRow,
    ConsoleSessionRow,
)
from semel.store.memory import MemoryStore
from semel.store.protocol import Range
from tests.engine.toy import ToyWorld

START = 1_700_000_000_000
LIMITS = SessionLimits(stored=6, of_principal=3)


class Desk:
    """The links and sessions of one engine."""

    def __init__(self) -> None:
        self.clock = ToyWorld(START)
        self.engine = Engine(MemoryStore(TABLES, self.clock.wall_ms), self.clock)
        self.contract = SessionContract(LIMITS)

    async def do(self, command: SessionCommand) -> ConsoleSessionRow | None:
        changed = await self.engine.submit(Write(self.contract, command))
        assert isinstance(changed, SessionChanged), changed
        return changed.row

    async def rows(self) -> list[bytes]:
        found = await self.engine.read(lambda reading: reading.range(Range(CONSOLE_SESSION, "", (), 100)))
        assert (await self.head()).stored == len(found)
        return [row[0] for row in found]

    async def head(self) -> ConsoleHeadRow:
        return await self.engine.read(lambda reading: reading.get(CONSOLE_HEAD, HEAD_KEY)) or FIRST_HEAD


def at_desk(work: Callable[[Desk], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        desk = Desk()
        try:
            await work(desk)
        finally:
            await desk.engine.stop()

    asyncio.run(run())


def digest(text: str) -> bytes:
    return sha256(text.encode()).digest()


def link(number: int, actor: str = "client:ada", expires_at: int | None = None) -> CreateLink:
    code = digest(f"code-{number}")
    return CreateLink(b"%016x" % number, code, actor.encode(), digest(actor), digest("r"), None, None, expires_at)


def opening(number: int, token: str = "token") -> OpenSession:
    return OpenSession(digest(f"code-{number}"), digest(f"{token}-{number}"))


def test_a_code_is_exchanged_once_and_the_session_lives_for_its_time() -> None:
    async def work(desk: Desk) -> None:
        made = await desk.do(link(1))
        assert made is not None
        assert (made.ends_at, made.opened_at) == (START + 60_000, None)
        desk.clock.pass_ms(10_000)
        opened = await desk.do(opening(1))
        assert opened is not None
        assert (opened.opened_at, opened.ends_at) == (START + 10_000, START + 10_000 + 8 * 3_600_000)
        assert opened.digest == digest("token-1")
        assert await desk.do(opening(1, "other")) is None
        assert await desk.do(OpenSession(digest("token-1"), digest("next"))) is None  # a session is no link

    at_desk(work)


def test_exchanges_of_one_batch_open_one_session() -> None:
    async def work(desk: Desk) -> None:
        await desk.do(link(1))
        racers = [desk.do(opening(1, f"token-{number}")) for number in range(64)]
        found = [row for row in await asyncio.gather(*racers) if row is not None]
        assert len(found) == 1

    at_desk(work)


def test_a_code_is_over_after_a_minute() -> None:
    async def work(desk: Desk) -> None:
        await desk.do(link(1))
        await desk.do(link(2))
        desk.clock.pass_ms(59_999)
        assert await desk.do(opening(1)) is not None
        desk.clock.pass_ms(1)
        assert await desk.do(opening(2)) is None

    at_desk(work)


def test_neither_a_link_nor_a_session_outlives_its_credential() -> None:
    async def work(desk: Desk) -> None:
        short = await desk.do(link(1, expires_at=START + 5_000))
        await desk.do(link(2, expires_at=START + 100_000))
        opened = await desk.do(opening(2))
        assert short is not None
        assert opened is not None
        assert (short.ends_at, opened.ends_at) == (START + 5_000, START + 100_000)
        desk.clock.pass_ms(5_000)
        assert await desk.do(opening(1)) is None

    at_desk(work)


def test_a_session_ends_once() -> None:
    async def work(desk: Desk) -> None:
        await desk.do(link(1))
        await desk.do(opening(1))
        before = (await desk.head()).version
        assert await desk.do(EndSession(b"%016x" % 1)) is not None
        assert await desk.do(EndSession(b"%016x" % 1)) is None
        assert (await desk.head()).version == before + 1
        assert await desk.rows() == []

    at_desk(work)


def test_the_oldest_of_a_principal_makes_room_and_that_of_another_does_not() -> None:
    async def work(desk: Desk) -> None:
        await desk.do(link(9, "client:bob"))
        for number in range(1, 5):
            desk.clock.pass_ms(1)
            await desk.do(link(number))
        assert await desk.rows() == [b"%016x" % number for number in (2, 3, 4, 9)]

    at_desk(work)


def test_a_link_makes_room_before_any_session_and_what_has_ended_before_both() -> None:
    async def work(desk: Desk) -> None:
        for number in (1, 2):
            desk.clock.pass_ms(1)
            await desk.do(link(number))
            await desk.do(opening(number))
        for number in range(3, 9):  # a script that makes links ends the sessions of nobody
            desk.clock.pass_ms(1)
            await desk.do(link(number))
        assert await desk.rows() == [b"%016x" % number for number in (1, 2, 8)]
        await desk.do(opening(8))
        await desk.do(link(9))
        assert await desk.rows() == [b"%016x" % number for number in (2, 8, 9)]
        desk.clock.pass_ms(LIMITS.session_ms - 5)  # the session 2 has ended, and the link 9 too
        await desk.do(link(10))
        await desk.do(link(11))
        assert await desk.rows() == [b"%016x" % number for number in (8, 10, 11)]

    at_desk(work)


def test_a_full_server_refuses_and_lets_in_again_when_one_has_ended() -> None:
    async def work(desk: Desk) -> None:
        for number in range(6):
            await desk.do(link(number, f"client:{number}"))
        refused = await desk.engine.submit(Write(desk.contract, link(6, "client:6")))
        assert isinstance(refused, Refusal)
        assert refused.code == "CONSOLE_LIMIT"
        desk.clock.pass_ms(60_001)
        assert await desk.do(link(6, "client:6")) is not None
        assert len(await desk.rows()) == 6

    at_desk(work)


def test_the_sweep_deletes_what_has_ended_and_nothing_else() -> None:
    async def work(desk: Desk) -> None:
        for number in (1, 2, 3):
            await desk.do(link(number))
        await desk.do(opening(2))
        desk.clock.pass_ms(60_001)
        await Sweeper(desk.engine, [desk.contract], 1).sweep(desk.contract)
        assert await desk.rows() == [b"%016x" % 2]
        desk.clock.pass_ms(8 * 3_600_000)
        await Sweeper(desk.engine, [desk.contract], 1).sweep(desk.contract)
        assert await desk.rows() == []

    at_desk(work)
