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
from typing import Any, NamedTuple

import httpx

from semel.client import AsyncClient

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


class Verdict(NamedTuple):
    """How it ended; the three lists must be empty."""

    made: int
    lost: list[str]
    doubled: list[str]
    wrong: list[str]


def live(folder: Path, url: str, gateway: str, lives: int, seed: int) -> Verdict:
    """So many lives on one file, each ended by a kill, and the verdict."""
    dice, path = random.Random(seed), folder / "mortal.db"
    made: dict[str, str] = {}
    for number in range(lives):
        made |= _one(path, url, gateway, number, dice)
    return asyncio.run(_judged(path, url, gateway, made))


def _one(path: Path, url: str, gateway: str, life: int, dice: random.Random) -> dict[str, str]:
    """One life; the names of the deltas that it said it had made, and their rows."""
    words, delay = dice.randrange(WORDS_MOST), dice.random() * DELAY_MOST
    said = []
    command = [sys.executable, "-c", _LIFE, str(path), url, gateway, str(life)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for number, line in enumerate(process.stdout):
            said.append(line)
            if number == words:
                time.sleep(delay)
                process.kill()
        assert process.wait(SECONDS) == -signal.SIGKILL
    whole = [line.split() for line in said if line.endswith("\n") and line.startswith("made ")]
    return {name: row for _, name, row in whole}


async def _judged(path: Path, url: str, gateway: str, made: dict[str, str]) -> Verdict:
    async with (
        AsyncClient(url) as client,
        client.deltas(path, gateway, "mortal") as db,
        client.deltas(path.with_name("new.db"), gateway) as reader,
    ):
        await db.sync()
        await reader.pull()
        own, others, left = db.rows("todos"), reader.rows("todos"), [*db.pending(), *db.dead()]
    entries = await _entries(url, gateway)
    counts = Counter(entry["deltaId"] for entry in entries)
    rows = {entry["deltaId"]: entry["rowId"] for entry in entries}
    hlcs = [int(entry["hlc"]) for entry in entries]
    wrong = {
        "the replica and somebody new see other rows": own != others,
        "something is left in the queue": bool(left),
        "the server was told in another order": hlcs != sorted(set(hlcs)),
        "a row is missing": not set(made.values()) <= set(own),
    }
    return Verdict(
        len(made),
        [name for name, row in made.items() if rows.get(name) != row],
        [name for name, count in counts.items() if count != 1],
        [what for what, is_so in wrong.items() if is_so],
    )


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
