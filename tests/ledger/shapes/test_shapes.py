"""Transactions whose heads are known by their bytes have the same answers as on the full path."""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from semel.engine.contract import NotStoredError
from semel.server.auth.principals import Principal, Role
from semel.surfaces.ledger import shaped_write
from semel.surfaces.ledger.shaped_write import ShapedWrite
from tests.harness.tokens import token_file
from tests.ledger.shapes.differential import Side, compare, counts_of, post
from tests.streams.shapes.differential import Server

CASES = 800


@pytest.mark.parametrize(("seed", "has_tokens"), [(1, False), (2, True)])
def test_transactions_by_shape_and_by_the_full_path_have_the_same_answers_and_counts(
    seed: int, has_tokens: bool
) -> None:
    taken = asyncio.run(compare(seed, CASES, has_tokens=has_tokens))
    assert taken > CASES / (10 if has_tokens else 3), taken


@pytest.mark.parametrize(
    ("name", "planted", "has_tokens"),
    [
        ("_ACTED_ON", (), False),
        ("_HEADERS", b"", False),
        ("COUNTED", ("ledger", "POST", 201), False),
        ("check_client_id", lambda *given: None, True),
        ("check_role", lambda *given: None, True),
    ],
)
def test_a_planted_difference_of_shapes_is_found(name: str, planted: object, has_tokens: bool) -> None:
    with patch.object(shaped_write, name, planted), pytest.raises(AssertionError):
        asyncio.run(compare(1, CASES, has_tokens=has_tokens))


def transaction(sequence: int) -> bytes:
    operation = {"setEntity": {"key": "a", "value": "eA=="}}
    return json.dumps({"clientId": "c", "sequence": str(sequence), "operations": [operation]}).encode()


class Scene:
    """One server whose shape of writes is known on connection 0."""

    def __init__(self, folder: Path, line: bytes = b"", **more: Any) -> None:
        """`line` is in the head of every request, `more` are settings."""
        self.side = Side(Server(folder, is_blind=False, **more))
        self.sequence = 0
        self._line = line

    async def learn(self) -> None:
        await self.side.prepare(self._line)
        for _ in range(3):
            assert b" 200 " in await self.side.send(0, [self.next()])

    def next(self) -> bytes:
        """The next transaction of the client."""
        self.sequence += 1
        return post(self.side.places["vault"] + "/writes", transaction(self.sequence), self._line)

    async def idle(self) -> None:
        for _ in range(50):
            await asyncio.sleep(0)


def played(folder: Path, scene: Any, line: bytes = b"", **more: Any) -> None:
    async def run() -> None:
        on = Scene(folder, line, **more)
        await on.learn()
        try:
            await scene(on)
        finally:
            await on.side.server.stop()

    asyncio.run(run())


def test_a_client_that_leaves_before_the_verdict_leaves_its_transaction_committed_and_counted(tmp_path: Path) -> None:
    async def scene(on: Scene) -> None:
        before = counts_of(on.side)[2]["committed"]
        protocol, pipe = on.side.server.connection(0)
        pipe.written.clear()
        protocol.data_received(on.next())
        assert isinstance(protocol.running, ShapedWrite)
        on.side.server.close(0)
        await on.idle()
        assert not pipe.written
        assert counts_of(on.side)[2]["committed"] == before + 1
        on.sequence += 1
        assert b" 200 " in await on.side.send(1, [post(on.side.places["vault"] + "/writes", transaction(5))])

    played(tmp_path, scene)


def test_a_failed_commit_is_answered_by_the_full_path(tmp_path: Path) -> None:
    async def scene(on: Scene) -> None:
        protocol, pipe = on.side.server.connection(0)
        pipe.written.clear()
        protocol.data_received(on.next())
        write = protocol.running
        assert isinstance(write, ShapedWrite)
        write.fail(0, NotStoredError("The store cannot be reached; nothing was stored."))
        for _ in range(200):
            await asyncio.sleep(0.005)
            if pipe.written:
                break
        assert pipe.statuses == [503]

    played(tmp_path, scene)


def test_an_answer_to_a_client_that_does_not_read_waits_until_it_reads(tmp_path: Path) -> None:
    async def scene(on: Scene) -> None:
        protocol, pipe = on.side.server.connection(0)
        pipe.written.clear()
        protocol.data_received(on.next())
        protocol.flow.pause_writing()
        await on.idle()
        assert not pipe.written
        protocol.flow.resume_writing()
        await on.idle()
        assert pipe.statuses == [200]

    played(tmp_path, scene)


def test_the_last_answer_before_a_stop_closes_the_connection(tmp_path: Path) -> None:
    async def scene(on: Scene) -> None:
        protocol, pipe = on.side.server.connection(0)
        pipe.written.clear()
        protocol.data_received(on.next())
        protocol.shutdown()
        await on.idle()
        assert pipe.statuses == [200]
        assert b"connection: close" in b"".join(pipe.written)
        assert pipe.is_closed

    played(tmp_path, scene)


def test_a_credential_that_is_no_longer_valid_is_refused_though_its_head_is_known(tmp_path: Path) -> None:
    async def scene(on: Scene) -> None:
        other = Principal("other", "client", frozenset({Role.WRITE}))
        on.side.server.context.principals.replace_tokens({sha256(b"other").digest(): other})
        assert b" 401 " in await on.side.send(0, [on.next()])

    tokens = token_file(tmp_path, {"admin": ("secret", ["admin", "read", "write"], [])})
    played(tmp_path, scene, b"Authorization: Bearer secret", tokens=str(tokens))
