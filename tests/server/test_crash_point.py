"""A crash point that is armed waits for the first request: what the start itself commits is not its prey."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import httpx
import pytest

from semel.engine.clock import SystemWorld
from semel.engine.engine import Engine
from semel.engine.generations import Generations
from semel.engine.sweep import Sweeper
from semel.store.open import open_store
from semel.surfaces.schema import MIGRATIONS, TABLES
from semel.surfaces.streams.settings import StreamsSettings
from semel.surfaces.streams.tables import RECEIPT
from tests.harness.server import RunningServer

DEATH_SECONDS = 60.0
READING_SECONDS = 60.0


async def sweep(folder: Path) -> None:
    """What a server's first sweep writes, so that the sweep of the next one has nothing to write."""
    world = SystemWorld()
    engine = Engine(open_store(f"sqlite:{folder}", TABLES, MIGRATIONS, world.wall_ms), world)
    turns = Generations({RECEIPT: StreamsSettings().streams_idempotency_ttl_ms})
    assert await Sweeper(engine, [turns], 1).sweep(turns) == 1
    await engine.stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("crash") / "data"
    data.mkdir()
    asyncio.run(sweep(data))
    return data


@pytest.mark.parametrize("point", ["locked", "flushed", "committed"])
def test_a_server_that_dies_at_every_pass_starts_and_dies_at_the_first_write(folder: Path, point: str) -> None:
    server = RunningServer(folder, env={"SEMEL_CRASH_POINT": point, "SEMEL_CRASH_ONE_IN": "1"})
    server.start()
    try:
        assert "ledger open" in server.output_tail()
        with pytest.raises(httpx.TransportError):
            httpx.post(f"{server.url}/ledger/v1/orgs", json={"name": "shop"}, timeout=READING_SECONDS)
    finally:
        code = server.wait_for_death(DEATH_SECONDS)
        if code is None:
            server.kill()
    assert code == -signal.SIGKILL
