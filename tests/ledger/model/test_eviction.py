"""What is forgotten, and when: by the logged time of the entry that triggers it, to the second, and by nothing else."""

from __future__ import annotations

import pytest

from semel.kernel.errors import Refusal
from semel.store.protocol import Changes
from semel.surfaces.ledger.commands import (
    ChangeOrg,
    CreateOrg,
    OrgSettings,
    WriteCommitted,
    WriteDeclined,
    WriteErrorCode,
    WriteReplayed,
)
from semel.surfaces.ledger.limits import MAX_SEQUENCE, LedgerPolicy
from semel.surfaces.ledger.model import LedgerPlace, SetEntity
from semel.surfaces.ledger.tables import LEDGER_BLOCK, LEDGER_STREAM
from tests.ledger.model.rig import ORG, Rig, play

KEY = b"k" * 16
TTLS = (1, 60, 86_400)
OTHER = (SetEntity(b"k", b"other"),)


@pytest.mark.parametrize("sweeps", [False, True], ids=["unswept", "swept"])
@pytest.mark.parametrize("ttl", TTLS)
def test_exactly_the_time_to_live_stays_and_a_second_more_goes(ttl: int, sweeps: bool) -> None:
    async def scene(rig: Rig) -> None:
        rig.at(0.999)
        await rig.write(b"ann", 1, KEY)
        rig.at(ttl + 0.999)
        await rig.fill_to_trigger()
        assert await rig.last(b"ann") == 1
        assert isinstance(await rig.write(b"ann", None, KEY), WriteReplayed)
        rig.at(ttl + 1)
        await rig.fill_to_trigger()
        if sweeps:
            await rig.sweep()
        assert await rig.last(b"ann") == 0

    play(LedgerPolicy(eviction_interval=5, ttl_seconds=ttl), scene)


def test_a_commit_of_a_living_client_is_forgotten_by_the_same_second() -> None:
    async def scene(rig: Rig) -> None:
        await rig.write(b"ann", 1, KEY)
        rig.at(30)
        await rig.write(b"ann", 2)
        rig.at(60)
        await rig.fill_to_trigger()
        assert isinstance(await rig.write(b"ann", None, KEY), WriteReplayed)
        rig.at(61)
        await rig.fill_to_trigger()
        assert await rig.last(b"ann") == 2
        again = await rig.write(b"ann", None, KEY)
        assert isinstance(again, WriteCommitted)
        assert again.committed.transaction.sequence == 3

    play(LedgerPolicy(eviction_interval=5, ttl_seconds=60), scene)


def test_without_a_trigger_nothing_is_forgotten_however_old() -> None:
    async def scene(rig: Rig) -> None:
        await rig.write(b"ann", 1, KEY)
        rig.at(10**6)
        for _ in range(97):
            await rig.fill()
        assert (await rig.fill()).entries == 99
        await rig.sweep()
        assert await rig.last(b"ann") == 1
        assert isinstance(await rig.write(b"ann", 1, KEY), WriteReplayed)
        await rig.fill()
        assert await rig.last(b"ann") == 0

    play(LedgerPolicy(eviction_interval=100, ttl_seconds=1), scene)


def test_a_clock_that_steps_back_evicts_nothing_and_time_stands_still() -> None:
    async def scene(rig: Rig) -> None:
        rig.at(1_000)
        first = await rig.write(b"ann", 1)
        await rig.stop()
        rig.at(-5_000)
        await rig.start()
        second = await rig.write(b"bob", 1)
        await rig.fill_to_trigger()
        assert second.committed.header.at == first.committed.header.at
        assert (await rig.last(b"ann"), await rig.last(b"bob")) == (1, 1)
        rig.at(1_060)
        await rig.fill_to_trigger()
        assert (await rig.last(b"ann"), await rig.last(b"bob")) == (1, 1)
        rig.at(1_061)
        await rig.fill_to_trigger()
        assert (await rig.last(b"ann"), await rig.last(b"bob")) == (0, 0)

    play(LedgerPolicy(eviction_interval=5, ttl_seconds=60), scene)


def test_the_settings_of_the_entry_itself_count_and_nothing_that_was_forgotten_returns() -> None:
    async def scene(rig: Rig) -> None:
        await rig.write(b"ann", 1)
        rig.at(10)
        await rig.write(b"bob", 1)
        await rig.send(ChangeOrg(ORG, OrgSettings(eviction_interval=3, ttl_seconds=9)))
        assert (await rig.last(b"ann"), await rig.last(b"bob")) == (0, 1)
        await rig.send(ChangeOrg(ORG, OrgSettings(eviction_interval=1, ttl_seconds=10**6)))
        assert (await rig.last(b"ann"), await rig.last(b"bob")) == (0, 1)

    play(LedgerPolicy(eviction_interval=1_000, ttl_seconds=60), scene)


def test_a_client_that_was_evicted_begins_anew() -> None:
    async def scene(rig: Rig) -> None:
        first = [await rig.write(b"ann", number, bytes([number]) * 16) for number in (1, 2, 3)]
        rig.at(3)
        await rig.fill_to_trigger()
        gap = await rig.write(b"ann", 4)
        assert (gap.code, gap.last) == (WriteErrorCode.SEQUENCE_GAP, 0)
        again = await rig.write(b"ann", 1, bytes([3]) * 16)
        assert isinstance(again, WriteCommitted)
        assert again.committed.transaction.id != first[0].committed.transaction.id
        assert (await rig.write(b"ann", 1, bytes([3]) * 16)).committed == again.committed
        assert isinstance(await rig.write(b"ann", None, bytes([2]) * 16), WriteCommitted)
        assert await rig.last(b"ann") == 2

    play(LedgerPolicy(eviction_interval=4, ttl_seconds=2), scene)


def test_with_the_fence_a_sequence_never_runs_again() -> None:
    async def scene(rig: Rig) -> None:
        full, short = await rig.make_vault(1, 0), await rig.make_vault(2, 1)
        for place in (full, short):
            for number in (1, 2):
                await rig.write(b"ann", number, bytes([number]) * 16, place=place)
            await rig.write(b"bob", 1, place=place)
        rig.at(100)
        await rig.fill_to_trigger()
        await rig.sweep()
        assert (await rig.last(b"ann", full), await rig.last(b"ann", short)) == (2, 2)
        # The bodies of the one are kept: the request is compared with them. Those of the other are not.
        assert isinstance(await rig.write(b"ann", 1, bytes([9]) * 16, place=full), WriteReplayed)
        other = await rig.write(b"ann", 1, place=full, operations=OTHER)
        assert (other.code, other.row) == (WriteErrorCode.IDEMPOTENCY_KEY_REUSED, "R10")
        gone = await rig.write(b"ann", 1, place=short, operations=OTHER)
        assert gone == WriteDeclined(
            WriteErrorCode.ALREADY_COMMITTED, gone.message, "R11", sequence=1, details={"verified": "false"}
        )
        assert isinstance(await rig.write(b"ann", 3, place=short), WriteCommitted)

    play(LedgerPolicy(eviction_interval=3, ttl_seconds=10, fence=True), scene)


def test_one_log_does_not_evict_for_another() -> None:
    async def scene(rig: Rig) -> None:
        await rig.send(CreateOrg(b"other", (ORG + 1,), b"", b""))
        await rig.write(b"ann", 1, place=LedgerPlace(ORG + 1))
        rig.at(1_000)
        await rig.fill_to_trigger()
        assert await rig.last(b"ann", LedgerPlace(ORG + 1)) == 1

    play(LedgerPolicy(eviction_interval=5, ttl_seconds=1), scene)


def test_the_last_sequence_of_all_can_be_used_and_then_only_repeated() -> None:
    """Nobody can commit so many: the rows are moved there by hand."""

    async def scene(rig: Rig) -> None:
        await rig.write(b"ann", 1, KEY)
        _move(rig, MAX_SEQUENCE - 1)
        assert isinstance(await rig.write(b"ann", None, b"l" * 16), WriteCommitted)
        assert await rig.last(b"ann") == MAX_SEQUENCE
        assert isinstance(await rig.write(b"ann", MAX_SEQUENCE), WriteReplayed)
        refused = await rig.write(b"ann", None, b"m" * 16)
        assert isinstance(refused, Refusal)
        assert refused.code == "ledger:failed_precondition"
        past_all = await rig.write(b"ann", 1, operations=OTHER)
        assert past_all.row == "R11"

    play(LedgerPolicy(), scene)


def _move(rig: Rig, last: int) -> None:
    tx = rig.store.begin(())
    key = (ORG, 0, b"ann")
    with rig.store.read() as snapshot:
        stream = snapshot.get(LEDGER_STREAM, key)
        assert stream is not None
        block = snapshot.get(LEDGER_BLOCK, (ORG, 0, stream.last_height))
        assert block is not None
    moved = block._replace(sequence=last)
    tx.flush(Changes({}, {LEDGER_BLOCK: [moved], LEDGER_STREAM: [stream._replace(last=last)]}, {}))
    tx.commit()
