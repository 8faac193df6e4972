"""`client.ledger`, sync and async, against a real server: what each call promises."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from semel.client import OutcomeUnknown
from semel.client.errors import (
    AccessError,
    ConflictError,
    FencedSequenceError,
    InvalidArgumentError,
    InvalidRequestError,
    KeyCollisionError,
    NotFoundError,
    SequenceGapError,
    WriteConditionError,
)
from semel.client.identity import LedgerWrite
from semel.client.ledger import bulk
from semel.client.ledger.operations import (
    BulkTransaction,
    DeleteKey,
    ExpireKey,
    IfAbsent,
    IfExists,
    IfValue,
    IfVersion,
    JsonOperation,
    Relate,
    SetKey,
    Unrelate,
)
from semel.client.ledger.values import CommittedWrite, RelationshipName
from tests.client.both import BOTH, client_of, network_of
from tests.client.cut_network import CutNetwork
from tests.client.ledger_place import new_place
from tests.client.names import fresh
from tests.harness.server import RunningServer

KEY = "8f14e45f-ceea-4672-a3b1-0c2d9c1b7a55"
OTHER = uuid.UUID("9f14e45f-ceea-4672-a3b1-0c2d9c1b7a55")


@BOTH
async def test_a_write_is_executed_once_and_its_replay_is_told(server: RunningServer, kind: str) -> None:
    room = new_place(server.url)
    async with client_of(kind, server.url) as client:
        place = client.ledger.place(room.org, room.vault)
        operations = [SetKey("ada", "100", IfAbsent()), Relate("doc:1", "viewer", "user:ada")]
        first = await place.write(operations, client="till", sequence=1)
        again = await place.write(operations, client="till", sequence=1)
        assert (first.height, first.sequence, first.replayed, first.note) == (1, 1, False, None)
        assert (again.height, again.tx_id, again.sequence, again.replayed) == (1, first.tx_id, 1, True)
        keyed = await place.write([SetKey("bob", b"\x00\xff")], client="till", key=KEY)
        assert (keyed.sequence, keyed.key) == (2, KEY)
        replayed = await place.write([SetKey("bob", b"\x00\xff")], client="till", key=uuid.UUID(KEY).bytes)
        assert (replayed.replayed, replayed.tx_id) == (True, keyed.tx_id)
        moved = await place.write([SetKey("bob", b"\x00\xff")], client="till", sequence=3, key=KEY)
        assert (moved.sequence, moved.replayed, "was not used" in str(moved.note)) == (2, True, True)
        own = await place.write([DeleteKey("bob")], client="till")
        assert (own.sequence, own.replayed, uuid.UUID(own.key).version) == (3, False, 7)
        for name, fact in (((1, None), "last_sequence"), ((None, KEY), "sequence")):
            known = await client.resolve(LedgerWrite(room.org, room.vault, "till", *name))
            assert (known.is_committed, known.facts[fact]) == (True, 3 if fact == "last_sequence" else 2)
        assert [one[:2] for one in room.transactions()] == [("till", 1), ("till", 2), ("till", 3)]


@BOTH
async def test_each_refusal_of_a_write_has_its_own_error(server: RunningServer, kind: str) -> None:
    room = new_place(server.url)
    async with client_of(kind, server.url) as client:
        place = client.ledger.place(room.org, room.vault)
        await place.write([SetKey("ada", "100")], client="till", sequence=1)
        with pytest.raises(WriteConditionError) as failed:
            await place.write([SetKey("ada", "1", IfVersion(7))], client="till", sequence=2)
        assert (failed.value.entity_key, failed.value.current_version) == ("ada", 1)
        assert failed.value.current_value == b"100"
        for condition in (IfAbsent(), IfValue("99")):
            with pytest.raises(WriteConditionError):
                await place.write([SetKey("ada", "1", condition)], client="till", sequence=2)
        with pytest.raises(WriteConditionError) as absent:
            await place.write([SetKey("eve", "1", IfExists())], client="till", sequence=2)
        assert (absent.value.current_version, absent.value.current_value) == (None, None)
        with pytest.raises(SequenceGapError) as gap:
            await place.write([SetKey("ada", "1")], client="till", sequence=9)
        assert gap.value.last_sequence == 1
        with pytest.raises(KeyCollisionError):
            await place.write([SetKey("ada", "1")], client="till", sequence=1)
        with pytest.raises(NotFoundError):
            await client.ledger.place(5, 5).write([SetKey("ada", "1")], client="till")
        with pytest.raises(InvalidRequestError):
            await place.write([SetKey("ada", "1")], client="")
        held = await place.write([SetKey("ada", "2", IfValue("100"), 9_999_999_999)], client="till", sequence=2)
        assert held.height == 2
        assert (await place.read("ada")).expires_at == 9_999_999_999


@BOTH
async def test_a_sequence_that_the_server_has_forgotten_is_fenced(server: RunningServer, kind: str) -> None:
    policy = {"mode": "BLOCK_RETENTION_MODE_COMPACTED", "retentionBlocks": "1"}
    room = new_place(server.url, retentionPolicy=policy)
    async with client_of(kind, server.url) as client:
        changed = await client.ledger.change_organization(room.org, ttl_seconds=1, eviction_interval=1, fence=True)
        assert (changed.ttl_seconds, changed.eviction_interval, changed.fence) == (1, 1, True)
        place = client.ledger.place(room.org, room.vault)
        await place.write([SetKey("a", "1")], client="till", sequence=1)
        await place.write([SetKey("a", "2")], client="till", sequence=2)
        for number in range(100):  # until a commit is more than a second younger
            await asyncio.sleep(0.05)
            await place.write([SetKey("b", str(number))], client="other")
            try:
                await place.write([SetKey("a", "1")], client="till", sequence=1)
            except FencedSequenceError:
                break
        else:
            raise AssertionError("nothing was forgotten")


@BOTH
async def test_reads_show_what_was_written_now_and_at_a_height(server: RunningServer, kind: str) -> None:
    room = new_place(server.url)
    async with client_of(kind, server.url, tenant=room.org) as client:
        place = client.ledger.place(vault=room.vault)
        assert ((await place.tip()).height, await place.read("a/b ü")) == (0, None)
        for number in range(5):
            operations = [SetKey("a/b ü", str(number)), Relate(f"doc:{number}", "viewer", "user:ada")]
            await place.write(operations, client="till", sequence=number + 1)
        await place.write([Unrelate("doc:0", "viewer", "user:ada"), SetKey("a/c", "x")], client="till")
        value = await place.read("a/b ü")
        assert (value.value, value.version, value.height, value.text()) == (b"4", 5, 6, "4")
        assert (await place.read("a/b ü", at_height=2)).value == b"1"
        assert list(await place.read_many(["a/c", "none", "a/b ü"])) == ["a/c", "a/b ü"]
        assert await place.read_many([]) == {}
        page = await place.list_entities("a/", limit=1)
        rest = await place.list_entities("a/", limit=1, token=page.next_token)
        assert [one.key for one in (*page.items, *rest.items)] == ["a/b ü", "a/c"]
        assert [one.key async for one in place.entities("a/", at_height=3)] == ["a/b ü"]
        found = [one async for one in place.relationships(subject="user:ada")]
        assert found == [RelationshipName(f"doc:{number}", "viewer", "user:ada") for number in range(1, 5)]
        assert (await place.list_resources("doc")).items == [f"doc:{number}" for number in range(1, 5)]
        assert await place.has_relationship("doc:1", "viewer", "user:ada")
        assert not await place.has_relationship("doc:0", "viewer", "user:ada")
        assert await place.has_relationship("doc:0", "viewer", "user:ada", at_height=5)
        state = await place.state("till")
        assert (state.last_sequence, state.last_height) == (6, 6)
        assert (await place.state("no/body")).last_sequence == 0
        tip, block = await place.tip(), await place.block(6)
        assert (tip.height, tip.block_hash, tip.state_root) == (6, block.block_hash, block.state_root)
        assert [one.height async for one in place.blocks(2, 4)] == [2, 3, 4]
        assert (await place.transaction(state.last_tx_id)).sequence == 6
        with pytest.raises(NotFoundError):
            await place.block(7)
        with pytest.raises(NotFoundError):
            await client.ledger.place(5).read("a")
        proof = await place.proof_of_key("a/c", trusted_height=2)
        assert [one["height"] for one in proof["chainProof"]["headers"]] == ["3", "4", "5", "6"]


@BOTH
async def test_organizations_and_vaults_are_created_once_changed_and_ended(server: RunningServer, kind: str) -> None:
    name, key = fresh("org"), fresh("key")
    async with client_of(kind, server.url) as client:
        ledger = client.ledger
        made = await ledger.create_organization(name, quota={"max_vaults": 2}, key=key)
        again = await ledger.create_organization(name, quota={"max_vaults": 2}, key=key)
        assert (made.replayed, again.replayed, again.place) == (False, True, made.place)
        org = made.place.org
        first = await ledger.create_vault(org)
        second = await ledger.create_vault(org, retained_blocks=5)
        vaults = [one async for one in ledger.vaults(org)]
        assert sorted(one.place for one in vaults) == sorted((first.place, second.place))
        assert {one.place: one.retained_blocks for one in vaults} == {first.place: None, second.place: 5}
        assert org in [one.org async for one in ledger.organizations()]
        assert (await ledger.list_organizations(limit=1)).next_token != ""
        frozen = await ledger.change_vault(org, first.place.vault, status="read-only")
        assert frozen.status == "read-only"
        with pytest.raises(AccessError):
            await ledger.place(*first.place).write([SetKey("a", "1")], client="c")
        assert (await ledger.change_vault(org, first.place.vault, status="active")).status == "active"
        assert (await ledger.change_organization(org, status="suspended")).status == "suspended"
        with pytest.raises(ConflictError):
            await ledger.place(org).write([SetKey("a", "1")], client="c")
        await ledger.change_organization(org, status="active")
        await ledger.delete_vault(org, second.place.vault)
        assert (await ledger.vault(org, second.place.vault)).status == "deleted"
        await ledger.delete_organization(org)
        assert (await ledger.organization(org)).status == "deleted"


@BOTH
async def test_many_transactions_have_a_verdict_each_within_the_limits(
    server: RunningServer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "MOST_TRANSACTIONS", 4)
    room = new_place(server.url)
    async with client_of(kind, server.url) as client:
        place = client.ledger.place(room.org, room.vault)
        some = [BulkTransaction((SetKey("k", str(number)),), "bulk", number + 1) for number in range(9)]
        results = [one async for one in place.write_many(some)]
        assert [(one.sequence, one.replayed) for one in results] == [(number + 1, False) for number in range(9)]
        some[2] = BulkTransaction((SetKey("k", "other"),), "bulk", 3)
        some += [
            BulkTransaction((SetKey("k", "9", IfAbsent()),), "bulk", 10),
            BulkTransaction((SetKey("k", "9"),), "bulk", 11),
            BulkTransaction((SetKey("k", "9"),), "", 1),
            BulkTransaction((SetKey("k", "9"),), "keyed"),
        ]
        results = [one async for one in place.write_many(some)]
        kinds = [type(one) for one in results]
        refused = [KeyCollisionError, WriteConditionError, SequenceGapError, InvalidRequestError]
        assert [kinds[2], *kinds[9:12]] == refused
        assert all(one.replayed for number, one in enumerate(results[:9]) if number != 2)
        assert isinstance(results[12], CommittedWrite)
        assert len(room.transactions()) == 10
        assert [one async for one in place.write_many([])] == []


@BOTH
async def test_a_transaction_of_many_that_waits_for_its_rate_is_sent_again(server: RunningServer, kind: str) -> None:
    async with client_of(kind, server.url) as client:
        made = await client.ledger.create_organization(fresh("org"), quota={"max_write_ops_per_sec": 4})
        place = client.ledger.place(made.place.org)
        some = [BulkTransaction((SetKey("k", str(number)),), "bulk", number + 1) for number in range(6)]
        results = [one async for one in place.write_many(some)]
        assert [one.sequence for one in results] == [1, 2, 3, 4, 5, 6]
        assert (await place.tip()).height == 6


def test_requests_of_many_are_split_by_transactions_operations_and_bytes() -> None:
    name = LedgerWrite("1", None, "c", 1, None)

    def item(size: int, count: int) -> bulk.BulkItem:
        return bulk.BulkItem(name, b"x" * size, b"", count)

    def sizes(*items: bulk.BulkItem) -> list[int]:
        return [len(one) for one in bulk.chunks(items)]

    assert sizes() == []
    assert sizes(*[item(1, 1)] * 2_500) == [1_000, 1_000, 500]
    assert sizes(*[item(1, 1_000)] * 21) == [10, 10, 1]
    assert sizes(*[item(bulk.MOST_REQUEST_BYTES + 1, 1)] * 2) == [1, 1]


@BOTH
async def test_blocks_are_watched_once_and_in_order(server: RunningServer, kind: str) -> None:
    room = new_place(server.url)
    async with client_of(kind, server.url) as client:
        place = client.ledger.place(room.org, room.vault)
        for number in range(3):
            await place.write([SetKey("k", str(number))], client="c")
        watching, notices = place.watch(2), place.notices(1)
        seen = [await watching.__anext__() for _ in range(2)]
        for number in range(3, 6):
            await place.write([SetKey("k", str(number))], client="c")
            seen.append(await watching.__anext__())
        told = [await notices.__anext__() for _ in range(6)]
        await watching.aclose()
        await notices.aclose()
        assert [one.height for one in seen] == [2, 3, 4, 5, 6]
        assert [one.transactions[0].sequence for one in seen] == [2, 3, 4, 5, 6]
        assert [(one.height, one.block_hash) for one in told[1:]] == [(one.height, one.block_hash) for one in seen]
        with pytest.raises(StopAsyncIteration):
            await watching.__anext__()
        with pytest.raises(NotFoundError):
            await client.ledger.place(5).watch().__anext__()


@BOTH
async def test_a_refusal_of_the_place_after_a_lost_answer_leaves_the_outcome_open(
    server: RunningServer, kind: str
) -> None:
    room, network = new_place(server.url), CutNetwork(network_of(kind))

    def freeze(error: Exception) -> None:
        room.set_status("READ_ONLY")

    def suspend(error: Exception) -> None:
        room.suspend()

    for on_retry in (freeze, suspend):
        async with client_of(kind, server.url, network=network, on_retry=on_retry) as client:
            network.answer_left = 10
            with pytest.raises(OutcomeUnknown) as unknown:
                await client.ledger.place(room.org, room.vault).write([SetKey("k", "v")], client="c", key=OTHER)
            assert unknown.value.identity == LedgerWrite(room.org, room.vault, "c", None, str(OTHER))
            if on_retry is freeze:
                room.set_status("ACTIVE")
    assert len(room.transactions()) == 1


BAD: list[tuple[list[Any], dict[str, Any]]] = [
    ([], {"sequence": 1}),
    ([SetKey("a\ud800", "1")], {"sequence": 1}),
    ([SetKey("a", "\ud800")], {"sequence": 1}),
    ([SetKey("a", 5)], {"sequence": 1}),  # type: ignore[arg-type]
    ([SetKey("a", "1", IfVersion(-1))], {"sequence": 1}),
    ([SetKey("a", "1", "absent")], {"sequence": 1}),  # type: ignore[arg-type]
    ([SetKey("a", "1", None, -1)], {"sequence": 1}),
    ([{"deleteEntity": {"key": "a"}}], {"sequence": 1}),
    ([JsonOperation(b'{"deleteEntity":{"key":"a"}},{"deleteEntity":{"key":"b"}}')], {"sequence": 1}),
    ([JsonOperation(b"[]")], {"sequence": 1}),
    ([DeleteKey("a")], {"sequence": 0}),
    ([DeleteKey("a")], {"sequence": 2**64}),
    ([DeleteKey("a")], {"key": "short"}),
    ([DeleteKey("a")], {"key": bytes(16)}),
    ([DeleteKey("a")], {"key": b"x" * 15}),
]


@BOTH
async def test_what_cannot_be_sent_is_refused_before_anything_is(server: RunningServer, kind: str) -> None:
    room = new_place(server.url)
    async with client_of(kind, server.url) as client:
        place = client.ledger.place(room.org, room.vault)
        for operations, name in BAD:
            with pytest.raises(InvalidArgumentError):
                await place.write(operations, client="c", **name)
        for arguments in ((), ("shop",), ("1/2",), (1, "../x"), (-1,)):
            with pytest.raises(InvalidArgumentError):
                client.ledger.place(*arguments)
        with pytest.raises(InvalidArgumentError):
            await place.read("\ud800")
        with pytest.raises(InvalidArgumentError):
            await place.read_many(["k"] * 1_001)
        with pytest.raises(InvalidArgumentError):
            place.watch(0)
        with pytest.raises(InvalidArgumentError):
            await client.ledger.change_organization(room.org)
        with pytest.raises(AccessError):
            await place.write([ExpireKey("a", 1)], client="c")
        text = JsonOperation(b'{ "setEntity": {"key": "raw", "value": "MQ=="} }')
        assert (await place.write([text], client="c")).sequence == 1
        assert (await place.read("raw")).value == b"1"
        assert len(room.transactions()) == 1
