"""A replica whose process is killed again and again, wherever it stands, and what must be true in the end.

The process writes, and says so after each write; it pushes and pulls all the time. It is killed a moment after it has
said a number of words; both differ from life to life, and the replica is asynchronous and blocking in turn. In the end
the file is opened once more and synced. Every change that was said to be made must be at the server, once; the replica
and somebody new must see the same rows; and the server must have been told everything in the order in which it was
made.
"""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from semel.client import AsyncClient
from tests.harness.crash.run import SQLITE, CrashPlan, Surface
from tests.harness.crash.verdict import Verdict
from tests.harness.crash.ways import Way

SECONDS = 60
WORDS_MOST = 60
DELAY_MOST = 0.02

_LIFE = """
import asyncio, os, random, sys, threading
from semel.client import AsyncClient, Client

def say(*words):
    # One write: neither the other thread nor the kill can come between the words of a line.
    os.write(1, (" ".join(words) + "\\n").encode())

def writes(db, life):
    dice = random.Random(life)
    for number in range(1_000_000):
        name = db.insert("todos", f"{life}-{number}", {"n": number})
        say("made", name, f"{life}-{number}")
        name = db.put("todos", "shared", {f"c{dice.randrange(5)}": f"{life}-{number}"})
        say("made", name, "shared")
        yield

async def main(path, url, gateway, life):
    async with AsyncClient(url) as client, client.deltas(path, gateway, "mortal") as db:
        async def write():
            for _ in writes(db, life):
                await asyncio.sleep(0)
        async def sync():
            while True:
                await db.sync()
                say("synced")
        await asyncio.gather(write(), sync())

def blocking(path, url, gateway, life):
    with Client(url) as client, client.deltas(path, gateway, "mortal") as db:
        def write():
            for _ in writes(db, life):
                pass
        threading.Thread(target=write, daemon=True).start()
        while True:
            db.sync()
            say("synced")

if int(sys.argv[4]) % 2:
    blocking(*sys.argv[1:])
else:
    asyncio.run(main(*sys.argv[1:]))
"""


class ReplicaUnderKills(Surface):
    """A replica of the SDK, of which nothing that was on disk is lost or doubled; its server is never killed."""

    stores = (SQLITE,)
    shows = ("changes",)
    gateway = "crash"

    def __init__(self, plan: CrashPlan) -> None:
        super().__init__(plan)
        self._path = plan.folder / "mortal.db"
        self._made: dict[str, str] = {}
        """The deltas that lives said they had made, and their rows."""

    @property
    def _url(self) -> str:
        return self.servers[0].url

    def way(self) -> Way:
        """Not that of servers."""
        return ReplicaKills(self._path, self._url, self.gateway, self.chance, self._made)

    def judge(self, verdict: Verdict) -> None:
        """Open the file once more, sync it, and compare it with what somebody new sees."""
        asyncio.run(self._judge(verdict))

    async def _judge(self, verdict: Verdict) -> None:
        async with (
            AsyncClient(self._url) as client,
            client.deltas(self._path, self.gateway, "mortal") as db,
            client.deltas(self._path.with_name("new.db"), self.gateway) as reader,
        ):
            await db.sync()
            await reader.pull()
            own, others, left = db.rows("todos"), reader.rows("todos"), [*db.pending(), *db.dead()]
        entries = await _entries(self._url, self.gateway)
        rows = {entry["deltaId"]: entry["rowId"] for entry in entries}
        hlcs = [int(entry["hlc"]) for entry in entries]
        verdict.count("changes", len(self._made))
        for name, row in self._made.items():
            verdict.require(rows.get(name) == row, f"lost: {name}")
        for name, count in Counter(entry["deltaId"] for entry in entries).items():
            verdict.require(count == 1, f"doubled: {name}")
        verdict.require(own == others, "the replica and somebody new see other rows")
        verdict.require(not left, "something is left in the queue")
        verdict.require(hlcs == sorted(set(hlcs)), "the server was told in another order")
        verdict.require(set(self._made.values()) <= set(own), "a row is missing")


class ReplicaKills:
    """Each life of the replica's process ends a moment after it has said a number of words."""

    def __init__(self, path: Path, url: str, gateway: str, chance: random.Random, made: dict[str, str]) -> None:
        self._arguments = [str(path), url, gateway]
        self._chance = chance
        self._made = made

    def end(self, number: int) -> str:
        """A whole life; what it said it had made is noted."""
        words, delay = self._chance.randrange(WORDS_MOST), self._chance.random() * DELAY_MOST
        said = []
        command = [sys.executable, "-c", _LIFE, *self._arguments, str(number)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for count, line in enumerate(process.stdout):
                said.append(line)
                if count == words:
                    time.sleep(delay)
                    process.kill()
            assert process.wait(SECONDS) == -signal.SIGKILL
        whole = [line.split() for line in said if line.endswith("\n") and line.startswith("made ")]
        self._made |= {name: row for _, name, row in whole}
        return "killed"

    def judge(self, verdict: Verdict) -> None:
        """The replica's file knows it all."""


async def _entries(url: str, gateway: str) -> list[dict[str, Any]]:
    """Everything that the server tells somebody new."""
    entries: list[dict[str, Any]] = []
    since, has_more = "0", True
    async with httpx.AsyncClient(base_url=url) as http:
        while has_more:
            query = f"since={since}&clientId=judge&limit=10000"
            answer = (await http.get(f"/v1/sync/{gateway}/pull?{query}")).json()
            entries += answer["deltas"]
            since, has_more = answer["serverHlc"], answer["hasMore"]
    return entries
