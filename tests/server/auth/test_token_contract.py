"""The rules of stored tokens: repeated commands, ends, the limit, and the sweep; on a store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from hashlib import sha256
from typing import Any

import pytest

from semel.engine.contract import Write
from semel.engine.engine import Engine
from semel.engine.sweep import Sweeper
from semel.kernel.errors import Refusal
from semel.server.auth.stored_tokens import TokenState, read_state
from semel.server.auth.token_contract import (
    CreateToken,
    RevokeToken,
    RotateToken,
    TokenChanged,
    TokenCommand,
    TokenContract,
    TokenLimits,
)
from semel.server.auth.token_table import HEAD_KEY, NEVER, TABLES, TOKEN_HEAD, TokenHeadRow
from semel.store.memory import MemoryStore
from tests.engine.toy import ToyWorld

START = 1_700_000_000_000
DAY = 86_400_000


class Shelf:
    """The stored tokens of one engine."""

    def __init__(self, limits: TokenLimits) -> None:
        self.clock = ToyWorld(START)
        self.engine = Engine(MemoryStore(TABLES, self.clock.wall_ms), self.clock)
        self.contract = TokenContract(limits)

    async def do(self, command: TokenCommand) -> TokenChanged:
        changed = await self.engine.submit(Write(self.contract, command))
        assert isinstance(changed, TokenChanged), changed
        return changed

    async def refused(self, command: TokenCommand) -> str:
        refusal = await self.engine.submit(Write(self.contract, command))
        assert isinstance(refusal, Refusal), refusal
        return refusal.code

    async def sweep(self) -> None:
        await Sweeper(self.engine, [self.contract], 1).sweep(self.contract)

    async def state(self) -> TokenState:
        found = await self.engine.read(read_state)
        assert found is not None
        return found

    async def head(self) -> TokenHeadRow:
        head = await self.engine.read(lambda reading: reading.get(TOKEN_HEAD, HEAD_KEY))
        assert head is not None
        return head


def on_shelf(work: Callable[[Shelf], Coroutine[Any, Any, None]], **limits: int) -> None:
    async def run() -> None:
        shelf = Shelf(TokenLimits(**limits))
        try:
            await work(shelf)
        finally:
            await shelf.engine.stop()

    asyncio.run(run())


def digest(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


def creation(number: int, expires_at: int | None = None) -> CreateToken:
    return CreateToken(b"%016x" % number, digest(f"secret {number}"), b"ada", b"read", None, expires_at)


def rotation(number: int, successor: int, overlap_ms: int = DAY) -> RotateToken:
    return RotateToken(b"%016x" % number, b"%016x" % successor, digest(f"secret {successor}"), overlap_ms, None)


def revocation(number: int) -> RevokeToken:
    return RevokeToken(b"%016x" % number)


def test_a_repeated_creation_is_the_same_token_whatever_id_the_retry_has() -> None:
    async def work(shelf: Shelf) -> None:
        first = await shelf.do(creation(1))
        again = await shelf.do(creation(1)._replace(id=b"f" * 16))
        assert (first.is_change, again.is_change) == (True, False)
        assert again.rows == first.rows
        assert await shelf.refused(creation(1)._replace(name=b"eve")) == "TOKEN_EXISTS"
        assert (await shelf.head())[1:4] == (1, 1, 1)

    on_shelf(work)


def test_a_revoked_hash_is_never_created_again() -> None:
    async def work(shelf: Shelf) -> None:
        await shelf.do(creation(1))
        ended = await shelf.do(revocation(1))
        assert ended.rows[0].revoked_at == ended.rows[0].ends_at == START
        assert await shelf.refused(creation(1)) == "TOKEN_EXISTS"
        again = await shelf.do(revocation(1))
        assert (again.is_change, again.rows, again.version) == (False, ended.rows, ended.version)

    on_shelf(work)


def test_a_rotation_keeps_the_old_token_for_its_overlap_and_is_repeatable() -> None:
    async def work(shelf: Shelf) -> None:
        await shelf.do(creation(1))
        first = await shelf.do(rotation(1, 2))
        new, old = first.rows
        assert (old.ends_at, old.successor, new.ends_at) == (START + DAY, new.id, NEVER)
        assert (new.name, new.roles, new.scopes) == (old.name, old.roles, old.scopes)
        shelf.clock.pass_ms(5)
        again = await shelf.do(rotation(1, 2)._replace(successor=b"e" * 16))
        assert (again.is_change, again.rows) == (False, first.rows)
        assert await shelf.refused(rotation(1, 3)) == "TOKEN_ROTATED"
        shelf.clock.pass_ms(DAY)
        assert await shelf.refused(rotation(1, 3)) == "TOKEN_ENDED"
        await shelf.do(rotation(2, 3))

    on_shelf(work)


def test_the_successor_of_a_token_that_expires_lives_as_long() -> None:
    async def work(shelf: Shelf) -> None:
        await shelf.do(creation(1, expires_at=START + 3 * DAY))
        shelf.clock.pass_ms(2 * DAY)
        new, old = (await shelf.do(rotation(1, 2, overlap_ms=9 * DAY))).rows
        assert old.ends_at == START + 3 * DAY  # an overlap lengthens no life
        assert new.expires_at == new.ends_at == START + 5 * DAY

    on_shelf(work)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (revocation(9), "TOKEN_NOT_FOUND"),
        (rotation(9, 2), "TOKEN_NOT_FOUND"),
        (rotation(1, 1), "TOKEN_EXISTS"),
        (creation(2, expires_at=START), "INVALID_REQUEST"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(command: TokenCommand, code: str) -> None:
    async def work(shelf: Shelf) -> None:
        await shelf.do(creation(1))
        before = await shelf.state()
        assert await shelf.refused(command) == code
        assert await shelf.state() == before

    on_shelf(work)


def test_the_number_of_tokens_is_bounded_and_one_that_has_ended_makes_room() -> None:
    async def work(shelf: Shelf) -> None:
        for number in (1, 2, 3):
            await shelf.do(creation(number))
        assert await shelf.refused(creation(4)) == "TOKEN_LIMIT"
        assert await shelf.refused(rotation(1, 4)) == "TOKEN_LIMIT"
        shelf.clock.pass_ms(1)
        await shelf.do(revocation(2))
        shelf.clock.pass_ms(1)
        await shelf.do(rotation(1, 4))
        assert set((await shelf.state()).rows) == {b"%016x" % number for number in (1, 3, 4)}
        assert await shelf.refused(creation(5)) == "TOKEN_LIMIT"
        assert (await shelf.head())[2:4] == (4, 3)

    on_shelf(work, stored=3)


def test_tokens_that_ended_long_ago_are_deleted_and_the_store_remembers_that_it_had_some() -> None:
    async def work(shelf: Shelf) -> None:
        await shelf.do(creation(1))
        await shelf.do(creation(2, expires_at=START + DAY))
        await shelf.do(creation(3))
        await shelf.do(revocation(1))
        await shelf.sweep()
        assert len((await shelf.state()).rows) == 3
        for _ in range(16):  # a clock that jumps is not believed at once
            shelf.clock.pass_ms(DAY)
            await shelf.sweep()
        assert set((await shelf.state()).rows) == {b"%016x" % 3}
        await shelf.do(revocation(3))
        for _ in range(16):
            shelf.clock.pass_ms(DAY)
            await shelf.sweep()
        left = await shelf.state()
        assert (left.has_any, dict(left.rows)) == (True, {})
        assert (await shelf.head())[2:4] == (3, 0)

    on_shelf(work, retention_ms=2 * DAY)
