"""A server in this process, without sockets, on a store that moves keys and checkpoints all the time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast
from unittest.mock import patch

import apsw

from semel.engine.engine import nowhere
from semel.engine.generations import Generations
from semel.engine.sweep import Sweeper
from semel.kernel.clock import World
from semel.server import namespaces
from semel.server.app import App
from semel.server.http.protocol import HttpProtocol
from semel.server.namespaces import build_context
from semel.server.process import make_host
from semel.server.settings_loader import make_settings
from semel.store.migrations import Migration
from semel.store.protocol import AnyTable, Snapshot, Store
from semel.store.sqlite import checkpoint
from semel.store.sqlite.store import SqliteFileStore
from semel.surfaces.registry import SURFACES
from tests.server.http.test_exchange import Reading

KEY_TTL_MS = 100_000
PATIENCE_SECONDS = 60.0
_SMALL = ((checkpoint, {"CHECKPOINT_PAGES": 60, "SHORT_PAGES": 15, "LONG_PAGES": 240}),)


class CutWorld:
    """Clocks that a test moves, and bytes of a seed; they go on while the server starts again."""

    def __init__(self, seed: int) -> None:
        self.ms = 1_794_000_000_000
        self._random = random.Random(seed)

    def wall_ms(self) -> int:
        """As moved."""
        return self.ms

    def monotonic_ms(self) -> int:
        """As moved."""
        return self.ms

    def random_bytes(self, count: int) -> bytes:
        """Other bytes each time."""
        return self._random.randbytes(count)


class HttpAnswer(NamedTuple):
    """Status, headers and body."""

    status: int
    headers: Mapping[str, str]
    body: Any


class _Pipe(Reading):
    """Tells when something is answered."""

    def __init__(self, on_answer: Callable[[], object]) -> None:
        super().__init__()
        self._on_answer = on_answer

    def write(self, data: bytes) -> None:
        """Keep it, and tell."""
        super().write(data)
        self._on_answer()


@contextlib.contextmanager
def small_parts(world: World, index_keys: int) -> Iterator[None]:
    """Servers that are made in the block have this clock, few keys in memory and short logs."""

    def opened(
        url: str,
        tables: Sequence[AnyTable],
        migrations: Sequence[Migration],
        wall_ms: Callable[[], int],
        *,
        index_bytes: int,
    ) -> Store:
        folder, vfs = url.removeprefix("sqlite:").split("?vfs=") if "?" in url else (url.removeprefix("sqlite:"), None)
        return SqliteFileStore(Path(folder), tables, migrations, wall_ms, vfs, index_keys=index_keys)

    with contextlib.ExitStack() as stack:
        for module, values in _SMALL:
            stack.enter_context(patch.multiple(module, **cast(Any, values)))
        stack.enter_context(patch.object(namespaces, "open_store", opened))
        stack.enter_context(patch.object(namespaces, "SystemWorld", lambda: world))
        yield


class CutServer:
    """One life of a server."""

    def __init__(self, folder: Path, vfs: str | None, commits: str, now: Callable[[], int]) -> None:
        """`now` counts the operations of the disk, to say when an answer was given."""
        url = f"sqlite:{folder}" + (f"?vfs={vfs}" if vfs else "")
        self.settings = make_settings(
            store=url, data=str(folder), commit_thread=commits, streams_idempotency_ttl_ms=KEY_TTL_MS
        )
        self.context = build_context(self.settings, nowhere)
        self.app = App(self.context)
        self.store = self.context.engine._store
        self._host = make_host(self.settings, self.app)
        self._now = now
        self._free: list[tuple[HttpProtocol, _Pipe]] = []
        self._told_at = dict[_Pipe, int]()
        self._snapshots: list[Snapshot] = []

    async def start(self) -> None:
        """Start the surfaces."""
        for surface in self.app.surfaces:
            await surface.start()

    async def stop(self) -> None:
        """Close everything."""
        while self._snapshots:
            self.end_snapshot()
        for protocol, _ in self._free:
            protocol.connection_lost(None)
        await self.context.engine.stop()
        self.context.audit.close()

    async def send(self, data: bytes) -> tuple[HttpAnswer, int]:
        """One request on a connection of its own; the answer, and when it was given."""
        protocol, pipe = self._free.pop() if self._free else self._connected()
        pipe.written.clear()
        self._told_at.pop(pipe, None)
        protocol.data_received(data)
        until = time.monotonic() + PATIENCE_SECONDS
        while (protocol.running is not None or protocol.waiting) and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(0)
        answer = _parsed(b"".join(pipe.written))
        if not pipe.is_closed:
            self._free.append((protocol, pipe))
        return answer, self._told_at[pipe]

    def _connected(self) -> tuple[HttpProtocol, _Pipe]:
        pipe = _Pipe(lambda: self._told_at.setdefault(pipe, self._now()))
        protocol = HttpProtocol(self._host, asyncio.get_running_loop())
        protocol.connection_made(cast(asyncio.Transport, pipe))
        return protocol, pipe

    async def sweep(self) -> None:
        """Expire what has expired, once."""
        windows = {table: age for row in SURFACES for table, age in row.windows(self.settings).items()}
        contracts = (Generations(windows), *(surface.contract for surface in self.app.surfaces))
        await Sweeper(self.context.engine, contracts, 0)._sweep_all()

    def begin_snapshot(self) -> None:
        """A reader holds a snapshot: the log cannot start anew, and keys that have moved stay in memory."""
        if len(self._snapshots) < 2:
            snapshot: Snapshot = self.store.read()
            snapshot.__enter__()
            self._snapshots.append(snapshot)

    def end_snapshot(self) -> None:
        """A reader ends."""
        if self._snapshots:
            self._snapshots.pop().__exit__(None, None, None)


def faults_in(folder: Path) -> list[str]:
    """What is wrong with the file, when nobody has it open."""
    database = apsw.Connection(str(folder / "semel.db"))
    check = database.execute("PRAGMA integrity_check").fetchall()
    database.close()
    return [] if check == [("ok",)] else [f"integrity_check: {check}"]


def _parsed(data: bytes) -> HttpAnswer:
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    return HttpAnswer(int(lines[0].split()[1]), headers, json.loads(body) if body else None)
