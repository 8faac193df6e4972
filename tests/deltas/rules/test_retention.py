"""What is let go: clients that were not heard of for long, and the log behind the checkpoint."""

from __future__ import annotations

import pytest

from semel.engine.reading import Reading
from semel.kernel.errors import Refused
from semel.surfaces.deltas import reading
from semel.surfaces.deltas.checkpoint import checkpoint
from semel.surfaces.deltas.commands import ClientsForgotten, ForgetClients
from semel.surfaces.deltas.limits import DeltaPolicy
from semel.surfaces.deltas.model import DeltaOp
from semel.surfaces.deltas.rules import retention
from semel.surfaces.deltas.rules.replicas import HOUR_MS, progress_key
from semel.surfaces.deltas.tables import DELTA_REPLICA
from tests.deltas.rules.rig import GATEWAY, NOBODY, Plain, Rig, change, scene, told

INSERT, UPDATE, DELETE = DeltaOp.INSERT, DeltaOp.UPDATE, DeltaOp.DELETE
TTL_MS = 10 * HOUR_MS
KEEP_MS = 60_000
FORGETS = DeltaPolicy(client_ttl_ms=TTL_MS)
CUTS = DeltaPolicy(keep_log_ms=KEEP_MS)


def pass_hours(rig: Rig, hours: int) -> None:
    """In steps that no clock takes for a jump."""
    rig.world.pass_ms(hours * HOUR_MS)


async def is_known(rig: Rig, client: Plain) -> bool:
    return await rig.look(lambda look: look.get(DELTA_REPLICA, progress_key(client.replica))) is not None


# -- Clients -----------------------------------------------------------------------------------------------------------


@scene
async def test_g3_clients_that_were_not_heard_of_are_forgotten_and_others_stay(rig: Rig) -> None:
    rig.rule(FORGETS)
    silent, pulls, pushes = (Plain(rig, name) for name in ("silent", "pulls", "pushes"))
    for client in (silent, pulls, pushes):
        await client.say(INSERT, client.plain_name)
    pass_hours(rig, 8)
    await pulls.pull()
    await pushes.say(INSERT, "more")
    pass_hours(rig, 4)
    assert await rig.sweep() == 1
    assert [await is_known(rig, client) for client in (silent, pulls, pushes)] == [False, True, True]
    gateway = await rig.gateway()
    assert (gateway.replicas, gateway.forgotten_at) == (2, gateway.high_water)
    assert await rig.sweep() == 0


@scene
async def test_g3_nobody_is_forgotten_without_a_limit_of_time(rig: Rig) -> None:
    await Plain(rig, "x").say(INSERT, "r")
    pass_hours(rig, 10_000)
    assert await rig.sweep() == 0
    assert (await rig.gateway()).replicas == 1


@pytest.mark.parametrize("pulls_first", [False, True], ids=["pushes first", "pulls first"])
@pytest.mark.parametrize("has_lost", [False, True], ids=["with its database", "with an empty database"])
@scene
async def test_g3_whoever_was_forgotten_and_comes_back_ends_as_all_others(
    rig: Rig, pulls_first: bool, has_lost: bool
) -> None:
    rig.rule(FORGETS)
    x, y = Plain(rig, "x"), Plain(rig, "y")
    await x.say(INSERT, "mine", a=1)
    await y.say(INSERT, "theirs", a=1)
    await x.pull()
    pass_hours(rig, 12)
    await y.say(UPDATE, "mine", b=2)
    await y.say(DELETE, "theirs")
    assert await rig.sweep() == 1
    back = Plain(rig, "x") if has_lost else x
    if pulls_first:
        await back.pull(limit=1)
    await back.say(INSERT, "new", a=1)
    while await back.pull():
        pass
    assert back.held() == await rig.rows()


@scene
async def test_g3_a_client_of_an_earlier_version_is_dated_before_it_is_forgotten(rig: Rig) -> None:
    x = Plain(rig, "x")
    await x.say(INSERT, "r")
    key = progress_key(x.replica)[1:]
    row = await rig.look(lambda look: look.get(DELTA_REPLICA, progress_key(x.replica)))
    assert row is not None
    rig.write(DELTA_REPLICA, row._replace(used_at=0))
    rig.rule(FORGETS)
    assert await rig.sweep() == 1
    assert await is_known(rig, x)
    assert await rig.send(ForgetClients(GATEWAY, (key,), rig.world.wall - TTL_MS)) == ClientsForgotten(0)
    pass_hours(rig, 12)
    assert await rig.sweep() == 1
    assert not await is_known(rig, x)


# -- The log -----------------------------------------------------------------------------------------------------------


async def cut(rig: Rig) -> None:
    """Everything that is there is old enough now, and goes."""
    rig.rule(CUTS)
    rig.world.pass_ms(2 * KEEP_MS)
    assert await rig.sweep() > 0


@scene
async def test_g4_the_log_is_kept_for_ever_unless_it_is_said_otherwise(rig: Rig) -> None:
    await Plain(rig, "x").say(INSERT, "r")
    pass_hours(rig, 10_000)
    assert await rig.sweep() == 0
    assert len(await rig.log()) == 1


@scene
async def test_g4_a_log_is_cut_and_rows_tombstones_ids_and_counts_stay_right(rig: Rig) -> None:
    x, y = Plain(rig, "x"), Plain(rig, "y")
    sent = [x.change(INSERT, f"r{number}", a=number) for number in range(3 * retention.TRIMMED_AT_ONCE)]
    await x.push()
    await x.say(DELETE, "r0")
    rows = await rig.rows()
    await cut(rig)
    assert await rig.log() == []
    await y.say(INSERT, "after", a=1)
    log = await rig.log()
    found = await rig.look(lambda look: reading.gauges(look, GATEWAY))
    assert (found.log_size, found.index_size, found.delta_count) == (len(log), len(sent) + 1, len(sent) + 2)
    assert (await rig.gateway()).cut > 0
    assert (await rig.push(x.replica, *sent)).duplicates == len(sent)
    assert len(rig.ids()) == len(sent) + 2
    late = change(INSERT, "r0", "y", sent[0].hlc + 1, a=9)
    await rig.push(y.replica, late)
    assert await rig.rows() == {**rows, "after": {"a": 1}}, "a late write to a deleted row loses"


@scene
async def test_g4_a_cursor_before_the_cut_has_expired_and_the_checkpoint_goes_on(rig: Rig) -> None:
    x, y = Plain(rig, "x"), Plain(rig, "y")
    await y.say(INSERT, "one", a=1)
    await x.pull()
    told_to = x.cursor
    await y.say(INSERT, "two", a=1)
    await cut(rig)
    end = (await rig.gateway()).cut
    await y.say(UPDATE, "two", a=2)
    for client in (x, Plain(rig, "new")):
        with pytest.raises(Refused) as refused:
            await client.pull()
        assert refused.value.refusal.name == "CURSOR_EXPIRED"
        assert "checkpoint" in refused.value.refusal.message
    assert told_to < end
    x.cursor = end
    assert [entry.row for entry in await x.pull()] == ["two"], "the cut itself is a good cursor"


@scene
async def test_g4_the_number_of_a_push_that_stands_for_what_was_cut_has_expired(rig: Rig) -> None:
    x, y = Plain(rig, "x"), Plain(rig, "y")
    await y.say(INSERT, "one", a=1)
    await cut(rig)
    await x.say(INSERT, "mine")
    with pytest.raises(Refused, match="checkpoint"):
        await x.pull()


@scene
async def test_g4_a_page_that_is_cut_between_two_looks_does_not_leave(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = Plain(rig, "x"), Plain(rig, "y")
    for number in range(4):
        await y.say(INSERT, f"r{number}")
    monkeypatch.setattr(reading, "SCANNED_ROWS", 2)
    begun = await rig.look(lambda look: reading.pull(look, x.replica, NOBODY, 0, 100, 2**20))
    assert isinstance(begun, reading.PartialPage)
    await cut(rig)
    with pytest.raises(Refused, match="checkpoint"):
        await rig.look(lambda look: reading.pull(look, x.replica, NOBODY, 0, 100, 2**20, begun))


@scene
async def test_g4_a_gateway_without_a_checkpoint_is_not_cut(rig: Rig) -> None:
    """A checkpoint cannot carry half of a surrogate pair; pulls over HTTP can."""
    x = Plain(rig, "x")
    await x.say(INSERT, "whole")
    await x.say(INSERT, "half \ud800")
    rig.rule(CUTS)
    rig.world.pass_ms(2 * KEEP_MS)
    assert await rig.sweep() == 0
    assert len(await rig.log()) == 2
    with pytest.raises(Refused, match="surrogate"):
        await x.say(INSERT, "half too \udc00")


def test_g4_a_backslash_in_an_id_is_no_half_of_a_pair() -> None:
    assert retention.is_tellable('"a\\\\ud800"')
    assert retention.is_tellable('"a\\ue000"')
    assert not retention.is_tellable('"a\\ud800"')
    assert not retention.is_tellable('"\\\\\\udc00"')


@scene
async def test_g4_a_repair_that_was_cut_is_not_dropped_a_second_time(rig: Rig) -> None:
    x, y = Plain(rig, "x"), Plain(rig, "y")
    await y.say(INSERT, "r", a=1)
    await x.pull()
    await y.say(UPDATE, "r", a=2)
    await x.say(UPDATE, "r", b=1)
    await cut(rig)
    rig.rule(DeltaPolicy())
    await x.say(UPDATE, "r", b=2)
    assert (await rig.gateway()).entries == sum(row.op > 0 for row in await rig.log())


# -- Checkpoints -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["nobody", "known", "new"])
@scene
async def test_g4_a_checkpoint_for_whoever_may_hold_rows_takes_them_away_first(rig: Rig, who: str) -> None:
    x = Plain(rig, "x")
    await x.say(INSERT, "live", a=1)
    await x.say(INSERT, "gone", a=1)
    await x.say(DELETE, "gone")
    replica = {"nobody": None, "known": x.replica, "new": Plain(rig, "new").replica}[who]

    def look(one: Reading) -> list[tuple[DeltaOp, str]]:
        found = checkpoint(one, GATEWAY, NOBODY, replica)
        assert found is not None
        return [(entry.op, entry.row) for entry in told(list(found.entries))]

    entries = await rig.look(look)
    anew = [(DELETE, "live"), (INSERT, "live"), (DELETE, "gone")]
    assert entries == ([(INSERT, "live")] if who == "new" else anew)
