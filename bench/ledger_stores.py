"""Ledgers of a given size, made through the engine's own commit path, for measurements of how costs grow.

The path is run without a loop, in this thread: one batch of transactions after another, each with a commit. A ledger
that was made once can be kept and measured again; it is made anew when the layout of its rows has changed.
"""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from semel.engine.batch import run
from semel.engine.clock import DecisionClock, SystemWorld
from semel.engine.contract import Write
from semel.engine.engine import nowhere
from semel.engine.group_commit import QueuedWrite, SilentObserver
from semel.engine.reading import Reading
from semel.engine.soft_changes import SoftChanges
from semel.engine.surroundings import Surroundings
from semel.store.open import open_store
from semel.store.protocol import Range
from semel.store.sqlite.store import FILE_NAME
from semel.surfaces.ledger.commands import CHANCE_BYTES, CreateOrg, CreateVault, OpenTerm, WriteCommand, WriteCommitted
from semel.surfaces.ledger.contract import LedgerContract
from semel.surfaces.ledger.limits import LedgerLimits
from semel.surfaces.ledger.model import LedgerPlace, SetEntity
from semel.surfaces.ledger.tables import LEDGER_TREE
from semel.surfaces.ledger.validation import prepare, write_command
from semel.surfaces.schema import MIGRATIONS, TABLES

PLACE = LedgerPlace(7001, 9001)
ACTOR, LEADER = b"client:bench", b"bench"
CLIENTS = 500
"""Each has one transaction in a batch."""
BATCH_OPERATIONS = 10_000
VALUE = b"v" * 32
MADE = "made.json"
BAR = 40
READ_BYTES = 1024 * 1024


class Size(NamedTuple):
    """How many blocks a ledger has, how many keys each of them sets, and among how many: then it begins anew."""

    blocks: int
    keys_each: int = 1
    among: int = 10**9

    @property
    def keys(self) -> int:
        """How many entities there are."""
        return self.keys_at(self.blocks)

    def keys_at(self, height: int) -> int:
        """How many there were."""
        return min(height * self.keys_each, self.among)

    def set_by(self, height: int) -> list[int]:
        """The numbers of those that a block sets."""
        last = height * self.keys_each
        return [number % self.among for number in range(last - self.keys_each, last)]


SAMPLE = Size(50, 10)


def key_of(number: int) -> bytes:
    """The key of an entity."""
    return b"user:%012d" % number


class Site:
    """A ledger on SQLite and the commit path before it."""

    def __init__(self, folder: Path) -> None:
        self._world = SystemWorld()
        self.store = open_store(f"sqlite:{folder}", TABLES, MIGRATIONS, self._world.wall_ms)
        self._ledger = LedgerContract()
        observer, self._soft = SilentObserver(), SoftChanges()
        self._timekeeper = DecisionClock(self._world, observer)
        self.around = Surroundings(
            store=self.store,
            soft=self._soft,
            timekeeper=self._timekeeper,
            observer=observer,
            error_id=lambda: "",
            is_admitted=lambda order: False,
            reach=nowhere,
        )

    def submission(self, command: Any) -> QueuedWrite:
        """A command as a batch takes it."""
        return QueuedWrite(Write(self._ledger, command))

    def commit(self, commands: Sequence[Any]) -> list[Any]:
        """One batch; the answers."""
        result = run(self.around, [self.submission(command) for command in commands])
        self.store.tidy()
        if result.failed or result.deferred:
            raise SystemExit(f"a batch failed, the figures would mean nothing: {result.failed or result.deferred}")
        return [outcome.answer for _, outcome in result.decided]

    def write(self, client: int, sequence: int, numbers: Sequence[int], value: bytes = VALUE) -> WriteCommand:
        """A transaction that sets some keys."""
        operations = tuple(SetEntity(key_of(number), value) for number in numbers)
        chance = self._world.random_bytes(CHANCE_BYTES)
        return write_command(
            LedgerLimits(),
            prepare(LedgerLimits(), PLACE, b"client-%d" % client, sequence, b"", operations),
            ACTOR,
            LEADER,
            chance,
        )

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """One instant of it."""
        with self.store.read() as snapshot:
            yield Reading(snapshot, self._soft, self._timekeeper.now(snapshot.now_ms))

    def close(self) -> None:
        """Let go of the store."""
        self.store.close()


@contextmanager
def ledger(folder: Path, size: Size) -> Iterator[Site]:
    """A ledger of this size: the one that stands in the folder, or a new one."""
    home = folder / f"{size.blocks}-{size.keys}"
    wanted = {"layout": layout(), **size._asdict()}
    made = home / MADE
    if not made.exists() or json.loads(made.read_text()) != wanted:
        shutil.rmtree(home, ignore_errors=True)
        _fill(home, size)
        made.write_text(json.dumps(wanted))
    _read_through(home / FILE_NAME)
    site = Site(home)
    try:
        yield site
    finally:
        site.close()


def _read_through(file: Path) -> None:
    """Let the system have the file in memory: how long a cold disk takes is not what is measured."""
    with file.open("rb") as opened:
        while opened.read(READ_BYTES):
            continue


@functools.cache
def layout() -> str:
    """Stands for what the rows are: the columns of the tables, and the tree of a small ledger."""
    columns = [(table.name, [column.name for column in table.columns]) for table in TABLES]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "sample"
        _fill(home, SAMPLE)
        site = Site(home)
        try:
            with site.reading() as reading:
                pages = reading.range(Range(LEDGER_TREE, "", PLACE, SAMPLE.blocks * SAMPLE.keys))
        finally:
            site.close()
    return hashlib.sha256(repr((columns, pages)).encode()).hexdigest()


def _fill(home: Path, size: Size) -> None:
    site = Site(home)
    try:
        site.commit([OpenTerm(b"", bytes(32))])
        site.commit([CreateOrg(b"bench", (PLACE.org,), b"", b"")])
        site.commit([CreateVault(PLACE.org, (PLACE.vault,), 0, b"", b"")])
        batch = max(1, min(CLIENTS, BATCH_OPERATIONS // size.keys_each))
        for begin in range(0, size.blocks, batch):
            heights = range(begin + 1, min(begin + batch, size.blocks) + 1)
            writes = [site.write(height - begin, begin // batch + 1, size.set_by(height)) for height in heights]
            answers = site.commit(writes)
            if not all(isinstance(answer, WriteCommitted) for answer in answers):
                raise SystemExit(f"a transaction was not committed: {answers[0]}")
            _tell(heights[-1], size)
    finally:
        site.close()
        print(file=sys.stderr)


def _tell(done: int, size: Size) -> None:
    bar = "#" * (done * BAR // size.blocks)
    told = f"{done:,} of {size.blocks:,} blocks, {size.keys_at(done):,} keys"
    print(f"\r[{bar:<{BAR}}] {told:<50}", end="", file=sys.stderr, flush=True)
