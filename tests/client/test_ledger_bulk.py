"""Many transactions when the server takes only some of them: each has its own result, and none is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from semel.client import OutcomeUnknown, Patience
from semel.client.errors import BusyError, CallError, NoAnswerError
from semel.client.identity import LedgerWrite
from semel.client.ledger import bulk
from semel.client.ledger.operations import BulkTransaction, SetKey
from semel.client.ledger.trusted_head import TrustedHead
from semel.client.ledger.values import CommittedWrite
from tests.client.both import BOTH, client_of, network_of
from tests.client.cut_network import CutNetwork
from tests.client.forging_proxy import ForgingProxy
from tests.client.ledger_place import new_place
from tests.client.names import fresh
from tests.harness.server import RunningServer

RATE = {"max_write_ops_per_sec": 4}
BUSY = {"status": 503, "problem": {"code": "OVERLOADED", "detail": "Too many writes wait.", "retry": "later"}}


def numbered(count: int, size: int = 1) -> list[BulkTransaction]:
    """Transactions of one client, in order."""
    return [BulkTransaction((SetKey("k", "v" * size),), "bulk", number + 1) for number in range(count)]


def tries(count: int) -> dict[str, Any]:
    """Options of a client with this number of attempts."""
    return {"patience": Patience(tries=count)}


def sequence_of(error: Any) -> int | None:
    """The sequence of a transaction whose outcome is unknown."""
    assert isinstance(error.identity, LedgerWrite)
    return error.identity.sequence


async def limited_place(client: Any) -> Any:
    """An organization that takes few operations a second."""
    made = await client.ledger.create_organization(fresh("org"), quota=RATE)
    return client.ledger.place(made.place.org)


def busy_first(path: str, facts: Any) -> Any:
    """The first transaction of many is answered as if the server had no room for it."""
    if path.endswith("writes:bulk"):
        facts["results"][0] = BUSY
    return facts


@BOTH
async def test_at_the_end_of_the_retries_each_transaction_has_its_own_result(server: RunningServer, kind: str) -> None:
    async with client_of(kind, server.url, **tries(1)) as client:
        place = await limited_place(client)
        results = [one async for one in place.write_many(numbered(50))]
        committed = [one for one in results if isinstance(one, CommittedWrite)]
        assert [one.sequence for one in committed] == list(range(1, (await place.state("bulk")).last_sequence + 1))
        assert 4 <= len(committed) < 50
        assert results[: len(committed)] == committed
        assert {type(one).__name__ for one in results[len(committed) :]} <= {"BusyError", "SequenceGapError"}
        assert isinstance(results[len(committed)], BusyError)


async def test_a_cancelled_request_is_sent_again_and_no_result_is_missing(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "MOST_TRANSACTIONS", 4)
    send, cancelled = bulk.BulkSender.send, list[bool]()

    async def interrupted(sender: bulk.BulkSender, chunk: list[bulk.BulkItem]) -> list[bulk.BulkResult]:
        """The caller gives up when the server has committed the second request."""
        results = await send(sender, chunk)
        if len(cancelled) == 1:
            cancelled.append(True)
            raise asyncio.CancelledError
        cancelled.append(False)
        return results

    monkeypatch.setattr(bulk.BulkSender, "send", interrupted)
    room = new_place(server.url)
    async with client_of("async", server.url) as client:
        writes = client.ledger.place(room.org, room.vault).write_many(numbered(12))
        found: list[Any] = [await anext(writes) for _ in range(4)]
        with pytest.raises(asyncio.CancelledError):
            await anext(writes)
        found += [one async for one in writes]
        assert [(one.sequence, one.replayed) for one in found] == [(at, 5 <= at <= 8) for at in range(1, 13)]
    assert [sequence for _, sequence, _ in room.transactions()] == list(range(1, 13))


@BOTH
async def test_after_a_lost_answer_a_busy_server_leaves_the_outcome_open(server: RunningServer, kind: str) -> None:
    network = CutNetwork(network_of(kind))
    async with client_of(kind, server.url, network=network, **tries(2)) as client:
        place = await limited_place(client)
        network.answer_left = 30
        keyed = [BulkTransaction((SetKey("k", str(number)),), "bulk") for number in range(50)]
        results = [one async for one in place.write_many(keyed)]
        unknown = [one for one in results if isinstance(one, OutcomeUnknown)]
        assert len({one.identity for one in unknown}) == len(unknown) > 1
        assert not any(isinstance(one, BusyError) for one in results)
        network.answer_left = 30
        async with client_of(kind, server.url, network=network, **tries(1)) as once:
            lost = [one async for one in once.ledger.place(place.name.org).write_many(numbered(3))]
        assert [(type(one), sequence_of(one)) for one in lost] == [(OutcomeUnknown, n) for n in (1, 2, 3)]


@BOTH
async def test_only_transactions_without_a_verdict_are_sent_again(server: RunningServer, kind: str) -> None:
    asked: list[int] = []
    with ForgingProxy(server.url) as proxy:

        def forge(path: str, facts: Any) -> Any:
            if path.endswith("writes:bulk"):
                asked.append(len(facts["results"]))
                facts["results"][-1] = BUSY if len(asked) < 3 else facts["results"][-1]
            return facts

        proxy.forge = forge
        room = new_place(server.url)
        async with client_of(kind, proxy.url, network=CutNetwork(network_of(kind))) as client:
            results = [one async for one in client.ledger.place(room.org, room.vault).write_many(numbered(5))]
    assert asked == [5, 1, 1]
    assert [(one.sequence, one.replayed) for one in results] == [(n, n == 5) for n in range(1, 6)]


@BOTH
async def test_transactions_after_one_without_a_verdict_are_not_sent(
    server: RunningServer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "MOST_TRANSACTIONS", 4)
    with ForgingProxy(server.url) as proxy:
        room = new_place(server.url)
        async with client_of(kind, proxy.url, **tries(1)) as client:
            proxy.forge = busy_first
            results = [one async for one in client.ledger.place(room.org, room.vault).write_many(numbered(10))]
    assert [type(one) for one in results] == [BusyError] + [CommittedWrite] * 3 + [NoAnswerError] * 6
    assert {one.is_unsettled for one in results[4:]} == {False}
    assert len(room.transactions()) == 4


@BOTH
async def test_the_halves_of_a_large_request_keep_their_results(kind: str, tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data", env={"SEMEL_MAX_BODY_BYTES": "40000"}) as small:
        async with client_of(kind, small.url, **tries(1)) as client:
            place = await limited_place(client)
            results = [one async for one in place.write_many(numbered(16, 3_000))]
            last = (await place.state("bulk")).last_sequence
    assert 4 <= last < 16
    assert [one.sequence for one in results if isinstance(one, CommittedWrite)] == list(range(1, last + 1))
    assert [type(one) for one in results[last:]].index(BusyError) == 0
    assert (type(results[-1]), results[-1].is_unsettled) == (NoAnswerError, False)


@BOTH
async def test_a_writer_returns_what_was_committed_beside_what_was_not(
    server: RunningServer, kind: str, tmp_path: Path
) -> None:
    async with client_of(kind, server.url, **tries(1)) as client, client_of(kind, server.url) as patient:
        place = await limited_place(client)
        writer = place.writer("w", tmp_path / "w.db")
        results = await writer.write_all([[SetKey("k", str(number))] for number in range(50)])
        last = (await place.state("w")).last_sequence
        assert 4 <= last < 50
        assert [one.sequence for one in results[:last]] == list(range(1, last + 1))
        assert all(isinstance(one, CallError) and not one.is_unsettled for one in results[last:])
        assert (writer.pending, writer.recovered, writer.last_sequence) == (0, [], last)
        await writer.close()
        writer = patient.ledger.place(place.name.org).writer("w", tmp_path / "w.db")
        assert (await writer.write([SetKey("k", "next")])).sequence == last + 1
        await writer.close()


@BOTH
async def test_a_writer_keeps_what_the_server_may_have_processed(
    server: RunningServer, kind: str, tmp_path: Path
) -> None:
    room = new_place(server.url)
    with ForgingProxy(server.url) as proxy:
        async with client_of(kind, proxy.url, **tries(1)) as client:
            writer = client.ledger.place(room.org, room.vault).writer("w", tmp_path / "w.db")
            proxy.forge = busy_first  # both are committed, and only the second one is told
            with pytest.raises(OutcomeUnknown):
                await writer.write_all([[SetKey("a", "1")], [SetKey("b", "1")]], note="first")
            assert writer.pending == 2
            proxy.forge = None
            assert (await writer.write([SetKey("c", "1")])).sequence == 3
            assert [(one.sequence, one.is_committed) for one in writer.recovered] == [(1, True), (2, True)]
            await writer.close()
    assert len(room.transactions()) == 3


@BOTH
async def test_a_commit_whose_proof_cannot_be_read_names_its_identity(
    server: RunningServer, kind: str, tmp_path: Path
) -> None:
    def forge(path: str, facts: Any) -> Any:
        """Only writes are answered: the connection of another request ends."""
        if "/writes" not in path:
            raise ConnectionAbortedError
        return facts

    room = new_place(server.url)
    with ForgingProxy(server.url) as proxy:
        async with client_of(kind, proxy.url, **tries(1)) as client:
            place = client.ledger.place(room.org, room.vault, head=TrustedHead())
            await place.write([SetKey("k", "0")], client="c", sequence=1)
            room.write("other", 1, "o", "MQ==")  # the header of this block is needed for the proof of the next one
            proxy.forge = forge
            with pytest.raises(OutcomeUnknown) as unknown:
                await place.write([SetKey("k", "1")], client="c", sequence=2)
            assert sequence_of(unknown.value) == 2
            many = [BulkTransaction((SetKey("k", "2"),), "c", number) for number in (3, 4)]
            results = [one async for one in place.write_many(many)]
            assert [sequence_of(one) for one in results] == [3, 4]
            proxy.forge = None
            assert (await place.write([SetKey("k", "1")], client="c", sequence=2)).replayed
