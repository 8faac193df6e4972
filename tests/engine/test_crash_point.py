"""The crash hook kills this process, and no other, at the point that was named."""

from __future__ import annotations

import os
import signal

import pytest

from semel.engine.engine import POINTS
from tests.engine.rig import on_loop, running
from tests.engine.toy import Add
from tests.harness.serve_with_faults import crash_at
from tests.harness.together import here_only


@pytest.mark.parametrize("point", POINTS)
def test_it_kills_at_its_point_only(point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", here_only(lambda pid, number: killed.append((pid, number)), os.kill))
    reach = crash_at(point, one_in=1)
    for passed in POINTS:
        if passed != point:
            reach(passed)
    assert killed == []
    reach(point)
    assert killed == [(os.getpid(), signal.SIGKILL)]


def test_a_point_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no crash point 'somewhere'"):
        crash_at("somewhere", one_in=1)


@on_loop
async def test_a_write_passes_every_point_in_order() -> None:
    async with running() as bench:
        passed: list[str] = []
        bench.gate.also = passed.append
        await bench.submit(Add(b"a", b"k"))
        await bench.engine.stop()
        assert list(dict.fromkeys(passed)) == list(POINTS)
