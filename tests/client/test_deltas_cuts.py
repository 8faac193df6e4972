"""Lines that are cut at the worst moment, and files that are opened again after it: every change takes effect once."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel.client import CallError, NoAnswerError, Patience
from semel.client.deltas import pull
from tests.client.cutter import Cutter
from tests.client.names import fresh
from tests.client.replica_kinds import open_replica
from tests.harness.server import RunningServer

pytestmark = pytest.mark.usefixtures("each_kind")
ONE_TRY = Patience(tries=1)
PULL = "/pull"


def log_of(server: RunningServer, gateway: str) -> list[dict[str, Any]]:
    """All entries of a gateway, as somebody new sees them."""
    query = f"since=0&clientId={fresh('reader')}&limit=10000"
    answer = httpx.get(f"{server.url}/v1/sync/{gateway}/pull?{query}").json()
    assert answer["hasMore"] is False
    entries: list[dict[str, Any]] = answer["deltas"]
    return entries


async def test_what_was_on_its_way_is_sent_again_by_the_next_process(server: RunningServer, tmp_path: Path) -> None:
    gateway = fresh("gw")
    options: dict[str, Any] = {"gateway": gateway, "patience": ONE_TRY}
    async with Cutter(server.port) as cutter:
        async with open_replica(tmp_path / "a", url=cutter.url, **options) as db:
            name = db.insert("todos", "1", {"n": 1})
            cutter.cut_answer("/push")
            with pytest.raises(NoAnswerError):
                await db.push()
            [lost] = db.pending()
            assert (lost.delta_id, lost.is_sent, lost.tries) == (name, True, 1)
            db.update("todos", "1", {"n": 2})
        async with open_replica(tmp_path / "a", url=cutter.url, **options) as db:
            assert [one.is_sent for one in db.pending()] == [True, False]
            pushed = await db.push()
            assert (pushed.accepted, pushed.duplicates) == (2, 1)
            assert len(log_of(server, gateway)) == 2


class Traveller:
    """A replica on a bad line, whose clock is off by a little, and which is closed and opened again now and then."""

    def __init__(self, number: int, folder: Path, gateway: str, cutter: Cutter, dice: random.Random) -> None:
        self._path = folder / f"{number}.db"
        off_ms = 3_000 * (number - 1)
        self._options: dict[str, Any] = {
            "gateway": gateway,
            "url": cutter.url,
            "patience": ONE_TRY,
            "wall_ms": lambda: time.time_ns() // 1_000_000 + off_ms,
        }
        self._cutter = cutter
        self._dice = dice
        self.made: list[str] = []
        self.db = open_replica(self._path, **self._options)

    def write(self) -> None:
        """Some change of some row."""
        dice, row = self._dice, str(self._dice.randrange(4))
        columns = {name: dice.randrange(100) for name in dice.sample("abc", dice.randint(0, 2))}
        if dice.random() < 0.25:
            name = self.db.delete("todos", row)
        else:
            name = self.db.put("todos", row, columns | ({"d": None} if dice.random() < 0.2 else {}))
        self.made += [] if name is None else [name]

    async def step(self) -> None:
        """A write, or a try to reach the server that may be cut short."""
        dice, cutter = self._dice, self._cutter
        if dice.random() < 0.6:
            self.write()
            return
        if dice.random() < 0.4:
            dice.choice([cutter.cut_request, cutter.cut_answer])(dice.choice(["/push", PULL, "/checkpoint"]))
        try:
            await dice.choice([self.db.push, self.db.pull, self.db.sync])()
        except CallError:
            if dice.random() < 0.5:
                await self.db.close()
                self.db = open_replica(self._path, **self._options)


@pytest.mark.parametrize("seed", range(6))
async def test_replicas_on_bad_lines_become_equal(
    seed: int, server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:
        monkeypatch.setattr(pull, "PAGE_ENTRIES", 4)  # and less after each answer that was lost
    dice, gateway = random.Random(seed), fresh("gw")
    async with Cutter(server.port) as cutter:
        travellers = [Traveller(number, tmp_path, gateway, cutter, dice) for number in range(3)]
        for _ in range(70):
            await dice.choice(travellers).step()
        cutter.forget()
        for one in travellers * 2:
            await one.db.sync()
        async with open_replica(tmp_path / "new.db", gateway=gateway, url=server.url) as reader:
            await reader.pull()
            for one in travellers:
                assert one.db.rows("todos") == reader.rows("todos")
                assert (one.db.pending(), one.db.dead()) == ([], [])
        for one in travellers:
            await one.db.close()
        told = Counter(entry["deltaId"] for entry in log_of(server, gateway))
        assert set(told.values()) <= {1}, "an entry came twice"
        assert set(told) <= {name for one in travellers for name in one.made}
