"""A history of a server that loses power: lives of random writes, cuts, and what each cut has left.

A life runs to its end while the disk records it. Then the power is cut at several points of that record: what a cut
leaves is given to a new server, which is held against the model of that point. The next life begins with what one of
the cuts has left.

The model: a write that was answered is there once, one that was sent and not answered is there whole or not at all,
and the retry of each key is answered as before. A job whose completion was answered is completed.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from unittest.mock import patch

from semel.store.sqlite.log_changes import LogPart
from semel.store.sqlite.store import _SqliteTx
from tests.harness.crash.run import SQLITE, Surface
from tests.harness.crash.verdict import Verdict
from tests.harness.crash.ways import Way
from tests.store.powercut.disk import DiskSync, DiskWrite, Operation, RecordingVfs, after_cut
from tests.store.powercut.server import KEY_TTL_MS, CutServer, CutWorld, HttpAnswer, faults_in, small_parts
from tests.store.powercut.writes import STREAMS, SURFACES, KeyedWrite, essence, job_count, request, seen, write_of

LIVES = 4
CUTS_A_LIFE = 5
STEPS = 25
INDEX_KEYS = (10, 40, 1_000)
"""Limits on keys in memory, of which each life has one."""
WRITES_AT_ONCE = 16
WHERE = ("commit", "checkpoint", "move", "anywhere")
CUTS, ANSWERED, OPEN, RETRIED = "power cuts", "answered writes", "open ones", "retries"
"""Writes at a cut: answered before it; sent and not answered; retried after it."""
_LOG = "semel.db-wal"
_FILE = "semel.db"


class ServerUnderPowerCuts(Surface):
    """Every answered write is there once, whatever the disk lost of what was not synced, and so is every retry."""

    kills = 1_000
    stores = (SQLITE,)
    shows = (CUTS, ANSWERED, OPEN, RETRIED)

    def make_urls(self) -> Sequence[str]:
        """The server is in this process, on a disk that records."""
        return ()

    def turns(self) -> int:
        """One history for each score of cuts."""
        return -(-self.plan.kills // (LIVES * CUTS_A_LIFE))

    def way(self) -> Way:
        """The power is cut."""
        return PowerCuts(self.seed)


class PowerCuts:
    """A history after the other, each with a seed of its own."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._verdict = Verdict()

    def end(self, number: int) -> str:
        """Lives and cuts of one history."""
        asyncio.run(History(self._seed + number, self._verdict).run())
        return str(self._verdict)

    def judge(self, verdict: Verdict) -> None:
        """What all histories have shown."""
        verdict.counts += self._verdict.counts
        verdict.faults += self._verdict.faults


class History:
    """One history from a seed."""

    def __init__(self, seed: int, verdict: Verdict, lies: str = "") -> None:
        self.verdict = verdict
        self._seed = seed
        self._lies = lies
        self._chance = random.Random(seed)
        self._world = CutWorld(seed)
        self._writes: list[KeyedWrite] = []
        self._numbers = 0
        self._vault = ""
        self._vault_at = -1
        """When the vault was answered."""
        self._moves: list[int] = []
        """Operations of the disk inside commits that move keys."""

    async def run(self, lives: int = LIVES) -> None:
        """Run lives and cuts; what fails ends the history, and is a fault."""
        try:
            await self._run(lives)
        except Exception as error:  # noqa: BLE001 - a store that does not open, an answer that is none
            self._note([f"{type(error).__name__}: {error}"[:300]], -1, "ended")

    async def _run(self, lives: int) -> None:
        left: Mapping[str, bytes] = {}
        for life in range(lives):
            index_keys = self._chance.choice(INDEX_KEYS)
            commits = self._chance.choice(("never", "never", "always"))
            with small_parts(self._world, index_keys):
                operations = await self._live(left, commits, life)
                left = await self._cut(left, operations, life)

    async def _live(self, left: Mapping[str, bytes], commits: str, life: int) -> Sequence[Operation]:
        with tempfile.TemporaryDirectory() as folder, RecordingVfs(f"cut{self._seed}", self._lies) as vfs:
            _lay_out(left, Path(folder))
            vfs.known = set(left)
            with self._watched_moves(vfs):
                server = CutServer(Path(folder), vfs.name, commits, lambda: vfs.now)
                self._note(await self._faults(server, self._writes), life, "at the start")
                for _ in range(STEPS):
                    await self._step(server)
                await server.stop()
            self._note(faults_in(Path(folder)), life, "in the end")
            return vfs.operations

    @contextmanager
    def _watched_moves(self, vfs: RecordingVfs) -> Iterator[None]:
        self._moves = []
        move, commit = LogPart.move, _SqliteTx.commit
        has_moved = False

        def moved(part: LogPart, count: int) -> None:
            nonlocal has_moved
            move(part, count)
            has_moved = True

        def committed(tx: _SqliteTx) -> tuple[()]:
            nonlocal has_moved
            began, is_move = vfs.now, has_moved
            has_moved = False
            done = commit(tx)
            if is_move:
                self._moves += range(began + 1, vfs.now)
            return done

        with patch.object(LogPart, "move", moved), patch.object(_SqliteTx, "commit", committed):
            yield

    # ---- The load ----

    async def _step(self, server: CutServer) -> None:
        chance = self._chance
        self._world.ms += chance.choice((0, 1, 500, 2_000, 5_000, KEY_TTL_MS // 4))
        kind = chance.random()
        if kind < 0.1:
            await server.sweep()
        elif kind < 0.2:
            server.begin_snapshot()
        elif kind < 0.3:
            server.end_snapshot()
        elif kind < 0.4:
            await self._doom(server)
        elif kind < 0.5:
            await self._work(server)
        else:
            await self._write(server)

    async def _write(self, server: CutServer) -> None:
        """New writes and retries, all at once."""
        chance = self._chance
        sent = []
        for _ in range(chance.randrange(1, WRITES_AT_ONCE)):
            live = [one for one in self._writes if self._is_live(one)]
            if live and chance.random() < 0.15:
                sent.append(chance.choice(live))
                continue
            self._numbers += 1
            padding = "x" * chance.choice((5, 5, 100, 3_000))
            sent.append(write_of(chance.choice(SURFACES), self._numbers, self._vault, self._world.ms, padding))
            sent[-1].sent_at = server._now()
            self._writes.append(sent[-1])
        self._note(await self._send(server, sent), -1, "in a life")

    async def _send(self, server: CutServer, sent: Sequence[KeyedWrite]) -> list[str]:
        """Send writes at once; what differs from earlier answers."""
        answers = await _together(server, [one.data for one in sent])
        faults = []
        for one, (answer, told_at) in zip(sent, answers, strict=True):
            told = essence(one.surface, answer)
            if one.told is None:
                one.told, one.told_at = told, told_at
            elif one.told != told:
                faults.append(f"{one.surface} {one.number}: answered {told} after {one.told}")
            is_done = answer.body is not None and answer.body.get("status") == "completed"
            if one.done_at is not None and one.surface == "jobs" and not is_done:
                faults.append(f"job {one.number}: {answer.body.get('status')} after its completion was answered")
        return faults

    async def _doom(self, server: CutServer) -> None:
        """Streams that expire or are deleted, with appends; nothing but the files is checked of these."""
        number = self._chance.randrange(4)
        path = f"/v1/stream/doomed{number}"
        await server.send(request("PUT", path, Stream_TTL="20"))
        key = f"d{self._chance.randrange(1_000_000)}"
        await _together(server, [request("POST", path, {"n": key}, Idempotency_Key=f"{key}{n}") for n in range(5)])
        if self._chance.random() < 0.3:
            await server.send(request("DELETE", path))

    async def _work(self, server: CutServer) -> None:
        """A worker claims jobs, and completes most of them."""
        claim = request("POST", "/v1/jobs/claim", {"worker_id": "w", "max": 4})
        claimed, _ = await server.send(claim)
        for job in claimed.body["jobs"]:
            if self._chance.random() < 0.8:
                path = f"/v1/jobs/{job['job_id']}/complete"
                told, told_at = await server.send(
                    request("POST", path, {"lease_token": job["lease_token"], "result": 1})
                )
                assert told.status == 200, told
                for one in self._writes:
                    if one.told == job["job_id"] and one.done_at is None:
                        one.done_at = told_at

    def _is_live(self, one: KeyedWrite) -> bool:
        """Whether its key is surely kept."""
        return one.surface != "streams" or self._world.ms - one.sent_ms < KEY_TTL_MS - 1_000

    # ---- The cuts ----

    async def _cut(self, before: Mapping[str, bytes], operations: Sequence[Operation], life: int) -> dict[str, bytes]:
        """Cut the power at several points; the model and what is left go back to the first of them."""
        points = [self._point(operations, where) for where in self._chance.choices(WHERE, k=CUTS_A_LIFE)]
        first: tuple[dict[str, bytes], list[KeyedWrite]] | None = None
        vault, vault_at = self._vault, self._vault_at
        for where, at in points:
            left = after_cut(before, operations[:at], self._chance)
            writes = list(_model_at(self._writes, at))
            if first is None:
                first = left, [copy(one) for one in writes]
            self._vault = "" if vault_at > at else vault
            self.verdict.count(f"cuts in {where}")
            self.verdict.count(CUTS)
            self.verdict.count(ANSWERED, sum(one.told is not None for one in writes))
            self.verdict.count(OPEN, sum(one.told is None for one in writes))
            with tempfile.TemporaryDirectory() as folder:
                _lay_out(left, Path(folder))
                server = CutServer(Path(folder), None, "never", lambda: 0)
                self._note(await self._faults(server, writes), life, f"{where}, cut at {at} of {len(operations)}")
                await server.stop()
                self._note(faults_in(Path(folder)), life, f"{where}, cut at {at}")
        assert first is not None
        left, self._writes = first
        at = points[0][1]
        self._vault, self._vault_at = ("", -1) if vault_at > at else (vault, -1)
        for one in self._writes:
            one.sent_at = one.told_at = -1
            one.done_at = None if one.done_at is None else -1
        return left

    def _point(self, operations: Sequence[Operation], where: str) -> tuple[str, int]:
        """A point of the record inside such work; anywhere if there was none."""
        wanted = {"commit": _LOG, "checkpoint": _FILE}.get(where)
        points = [
            number
            for number, operation in enumerate(operations)
            if wanted and isinstance(operation, DiskWrite | DiskSync) and operation.file == wanted
        ]
        points = self._moves if where == "move" else points
        if not points:
            return "anywhere", self._chance.randrange(len(operations) + 1)
        return where, self._chance.choice(points)

    async def _faults(self, server: CutServer, writes: Sequence[KeyedWrite]) -> list[str]:
        """Start a server and hold it against the model: first what is there, then each retry, then both."""
        await server.start()
        vault, told_at = await self._prepared(server)
        faults = ["the vault is another one"] if self._vault and vault != self._vault else []
        if not self._vault:
            self._vault_at = told_at
        self._vault = vault
        found = await seen(server, self._vault)
        jobs = await job_count(server)
        told = [one for one in writes if one.told is not None]
        faults += _counted(found, told, (1,)) + _counted(found, writes, (0, 1))
        ours = [one for one in writes if one.surface == "jobs"]
        if not sum(one.told is not None for one in ours) <= jobs <= len(ours):
            faults.append(f"{jobs} jobs of {len(ours)} that were sent")
        live = [one for one in writes if self._is_live(one)]
        for at in range(0, len(live), WRITES_AT_ONCE):
            faults += await self._send(server, live[at : at + WRITES_AT_ONCE])
        self.verdict.count(RETRIED, len(live))
        found = await seen(server, self._vault)
        faults += _counted(found, [*live, *told], (1,)) + _counted(found, writes, (0, 1))
        if (jobs := await job_count(server)) != len(ours):
            faults.append(f"{jobs} jobs of {len(ours)} that were retried")
        height = int((await server.send(request("GET", f"{self._vault}/tip")))[0].body["height"])
        if height != sum(one.surface == "ledger" for one in writes):
            faults.append(f"the ledger has {height} blocks")
        return faults

    async def _prepared(self, server: CutServer) -> tuple[str, int]:
        """Streams, an organization and a vault: made if they are not there; the vault's path, and when it was told."""
        for stream in STREAMS:
            await server.send(request("PUT", f"/v1/stream/{stream}"))
        org, _ = await server.send(request("POST", "/ledger/v1/orgs", {"name": "o"}, Idempotency_Key="1"))
        path = f"/ledger/v1/orgs/{org.body['slug']['slug']}/vaults"
        vault, told_at = await server.send(request("POST", path, {}, Idempotency_Key="2"))
        return f"{path}/{vault.body['vault']['slug']}", told_at

    def _note(self, faults: Sequence[str], life: int, where: str) -> None:
        self.verdict.faults += [f"seed {self._seed}, life {life}, {where}: {fault}" for fault in faults]


async def _together(server: CutServer, requests: Sequence[bytes]) -> Sequence[tuple[HttpAnswer, int]]:
    return await asyncio.gather(*(server.send(data) for data in requests))


def _counted(found: Counter[tuple[str, str]], writes: Sequence[KeyedWrite], allowed: tuple[int, ...]) -> list[str]:
    return [
        f"{one.surface} {one.number} is there {found[one.surface, one.name]} times"
        for one in writes
        if one.surface != "jobs" and found[one.surface, one.name] not in allowed
    ]


def _model_at(writes: Sequence[KeyedWrite], at: int) -> Iterator[KeyedWrite]:
    """The writes that were sent before a point, with what was answered before it."""
    for one in writes:
        if one.sent_at <= at:
            known = copy(one)
            if one.told_at > at:
                known.told = None
            if one.done_at is not None and one.done_at > at:
                known.done_at = None
            yield known


def _lay_out(files: Mapping[str, bytes], folder: Path) -> None:
    for name, content in files.items():
        (folder / name).write_bytes(content)
