"""A program with a durable writer, which may be killed at a named step: `python -m tests.client.ledger_writer_script`.

It has a number of tasks, each one transaction, and a log of those whose outcome it knows. A life first takes what the
writer has recovered, and then does the tasks whose outcome is not in the log. Every fifth task is refused. Tasks are
done alone and in groups by turns.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from semel.client import AsyncClient, Client, retry
from semel.client.errors import CallError, RefusedError
from semel.client.ledger.bulk import BulkResult
from semel.client.ledger.operations import IfExists, SetKey
from semel.client.ledger.writer import AsyncLedgerWriter, LedgerWriter, RecoveredWrite, nowhere
from semel.client.retry import ENDLESS

CLIENT = "mortal"
GROUP = 4
REFUSED_IN = 5


class Life(NamedTuple):
    """The arguments of one run."""

    kind: str
    url: str
    org: str
    vault: str
    folder: str
    tasks: int
    point: str
    """The step to die at; empty for none."""
    nth: int


def operation(task: int) -> SetKey:
    """What a task does."""
    return SetKey(f"task-{task}", str(task), IfExists() if is_refused(task) else None)


def is_refused(task: int) -> bool:
    """Whether the ledger refuses a task."""
    return task % REFUSED_IN == 3


class Log:
    """The program's own memory: which outcome was told for each task."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "told.log"

    def told(self) -> list[tuple[int, int]]:
        """Task and sequence of each line; sequence 0 is a refusal. A torn last line does not count."""
        text = self._path.read_text() if self._path.exists() else ""
        return [(int(task), int(sequence)) for task, sequence in map(str.split, text.split("\n")[:-1])]

    def add(self, task: int, outcome: BulkResult) -> None:
        """Note an outcome."""
        if isinstance(outcome, CallError) and not isinstance(outcome, RefusedError):
            return  # not decided: the writer tells it again
        sequence = 0 if isinstance(outcome, CallError) else outcome.sequence
        with self._path.open("a") as file:
            file.write(f"{task} {sequence}\n")
            file.flush()
            os.fsync(file.fileno())

    def add_recovered(self, found: list[RecoveredWrite]) -> None:
        """Note outcomes of an earlier life."""
        for one in found:
            key = json.loads(one.operations)[0]["setEntity"]["key"]
            self.add(int(key.removeprefix("task-")), one.outcome)

    def groups(self, tasks: int) -> list[list[int]]:
        """The tasks to do, alone and in groups by turns."""
        known = {task for task, _ in self.told()}
        left = [task for task in range(tasks) if task not in known]
        groups: list[list[int]] = []
        while left:
            size = GROUP if len(groups) % 2 else 1
            groups.append(left[:size])
            left = left[size:]
        return groups


def deadly(life: Life) -> Callable[[str], None]:
    """Kills this process when it passes the step for the nth time."""
    passed = 0

    def reach(point: str) -> None:
        nonlocal passed
        passed += point == life.point
        if passed == life.nth and point == life.point:
            os.kill(os.getpid(), signal.SIGKILL)

    return reach if life.point else nowhere


async def live(life: Life, log: Log) -> None:
    """A life with the asynchronous client."""
    async with AsyncClient(life.url, patience=ENDLESS) as client:
        place = client.ledger.place(life.org, life.vault)
        async with AsyncLedgerWriter(place, CLIENT, Path(life.folder) / "w.db", reach=deadly(life)) as writer:
            log.add_recovered(writer.recovered)
            await writer.forget_recovered()
            for group in log.groups(life.tasks):
                if len(group) > 1:
                    results = await writer.write_all([[operation(task)] for task in group])
                else:
                    results = [await _one(writer, group[0])]
                for task, result in zip(group, results, strict=True):
                    log.add(task, result)


async def _one(writer: AsyncLedgerWriter, task: int) -> BulkResult:
    try:
        return await writer.write([operation(task)])
    except RefusedError as error:
        return error


def live_blocking(life: Life, log: Log) -> None:
    """A life with the synchronous client."""
    with Client(life.url, patience=ENDLESS) as client:
        place = client.ledger.place(life.org, life.vault)
        with LedgerWriter(place, CLIENT, Path(life.folder) / "w.db", reach=deadly(life)) as writer:
            log.add_recovered(writer.recovered)
            writer.forget_recovered()
            for group in log.groups(life.tasks):
                results = writer.write_all([[operation(task)] for task in group])
                for task, result in zip(group, results, strict=True):
                    log.add(task, result)


def main() -> None:
    """One life."""
    kind, url, org, vault, folder, tasks, point, nth = sys.argv[1:]
    life = Life(kind, url, org, vault, folder, int(tasks), point, int(nth))
    retry.LONGEST_SECONDS = 0.1  # the server is back soon
    if kind == "async":
        asyncio.run(live(life, Log(Path(folder))))
    else:
        live_blocking(life, Log(Path(folder)))


if __name__ == "__main__":
    main()
