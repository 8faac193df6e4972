"""A server's clock that was ahead and is put right: what is held against it goes by what it says now."""

from __future__ import annotations

import pytest

from semel.kernel.errors import Refused
from semel.kernel.hashes import json_text
from semel.kernel.hlc import MAX_DRIFT_MS, join, wall_of
from semel.surfaces.deltas.model import DeltaOp, DeltaReplica
from tests.deltas.rules.rig import ANYBODY, GATEWAY, Rig, change, scene

HOUR_MS = 3_600_000
X = DeltaReplica(GATEWAY, json_text("x"), ANYBODY)


@scene
async def test_a_clock_that_is_set_back_is_believed_about_who_is_too_far_ahead(rig: Rig) -> None:
    await rig.push(X, change(DeltaOp.INSERT, "before", "x", rig.stamp()))
    rig.world.wall -= HOUR_MS
    now = rig.world.wall
    told = await rig.push(X, change(DeltaOp.INSERT, "just so", "x", join(now + MAX_DRIFT_MS, 0)))
    with pytest.raises(Refused, match=f"{MAX_DRIFT_MS + 1} ms ahead") as caught:
        await rig.push(X, change(DeltaOp.INSERT, "ahead", "x", join(now + MAX_DRIFT_MS + 1, 0)))
    assert caught.value.refusal.facts["server_hlc"] == told.server_hlc + 1, (
        "the numbers of this gateway go on where they were"
    )


@scene
async def test_a_gateway_that_was_not_there_meanwhile_tells_the_right_time(rig: Rig) -> None:
    await rig.push(X, change(DeltaOp.INSERT, "before", "x", rig.stamp()))
    rig.world.wall -= HOUR_MS
    new = X._replace(gateway="new")
    ahead = change(DeltaOp.INSERT, "ahead", "x", join(rig.world.wall + HOUR_MS, 0))
    with pytest.raises(Refused) as caught:
        await rig.push(new, ahead)
    assert caught.value.refusal.facts["server_hlc"] == join(rig.world.wall, 0)
    told = await rig.push(new, change(DeltaOp.INSERT, "right", "x", rig.stamp()))
    assert wall_of(told.server_hlc) == rig.world.wall
