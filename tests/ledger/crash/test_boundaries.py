"""A server that dies between any two things it does to its files: what was acknowledged is there, whole, and once.

The files of a run are photographed before each write and each sync, in two ways: as `kill -9` would leave them, and as
a loss of power would that takes whatever was not synced. Each photograph is then opened like the data of a server that
starts again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from semel.store.open import open_store
from semel.store.protocol import Store
from semel.surfaces.ledger import reading
from semel.surfaces.ledger.commands import WriteCommitted, WriteReplayed
from semel.surfaces.ledger.limits import LedgerPolicy
from semel.surfaces.ledger.model import CreateRelationship, DeleteEntity, Entity, LedgerPlace, Operation, SetEntity
from semel.surfaces.schema import MIGRATIONS, TABLES
from tests.engine.toy import ToyWorld
from tests.harness.faulty_vfs import FaultyVfs
from tests.ledger.model.hashing import ZERO, block_hash, state_root, transaction_hash
from tests.ledger.model.model import apply
from tests.ledger.model.rig import ORG, Rig

WRITES = 9
EVERY = 12
"""Between two syncs only some writes are photographed."""
POLICY = LedgerPolicy(eviction_interval=4)
PLACE = LedgerPlace(ORG, 9)
CHECKPOINT_PAGES = 60
"""Small, so that the log is also folded into the database."""


class Photograph(NamedTuple):
    """The files, and how many transactions had been acknowledged when they were so."""

    acknowledged: int
    killed: dict[str, bytes]
    powerless: dict[str, bytes]


class Album(list[Any]):
    """What the file system is asked to do, and photographs of what it held before."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._synced: dict[str, bytes] = {}
        self._since = 0
        self.acknowledged = -1
        self.photographs: list[Photograph] = []

    def append(self, operation: Any) -> None:
        """Called before it is done, in the thread that does it."""
        is_sync = operation.what == "sync"
        self._since = 0 if is_sync else self._since + 1
        # Once: whoever was answered may change it while this thread still tidies up behind the answer.
        acknowledged = self.acknowledged
        if acknowledged >= 0 and (is_sync or self._since % EVERY == 1):
            self.photograph(acknowledged)
        if is_sync:
            self._synced[operation.file] = (self._folder / operation.file).read_bytes()

    def photograph(self, acknowledged: int) -> None:
        """All files as they are; what has been removed is gone."""
        files = [path for path in self._folder.glob("semel.db*") if not path.name.endswith("-shm")]
        killed = {path.name: path.read_bytes() for path in files}
        powerless = {name: self._synced[name] for name in killed if name in self._synced}
        self.photographs.append(Photograph(acknowledged, killed, powerless))


def operations_of(number: int) -> tuple[Operation, ...]:
    """The transaction of a number: it changes what earlier ones made."""
    related = CreateRelationship(b"doc:%d" % number, b"reader", b"user:1")
    own = SetEntity(b"e%d" % (number % 4), b"x" * 700 + b"%d" % number)
    return own, related, DeleteEntity(b"e%d" % ((number + 1) % 4))


async def send(rig: Rig, number: int) -> Any:
    """Odd ones with a sequence alone, even ones with a key alone: one stream each."""
    sequence, key = ((number + 1) // 2, b"") if number % 2 else (None, number.to_bytes(16, "big"))
    client = b"odd" if number % 2 else b"even"
    return await rig.write(client, sequence, key, place=PLACE, operations=operations_of(number))


@pytest.fixture(scope="module")
def album(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Album, list[Any]]]:
    """One run on a file system that is watched."""
    folder = tmp_path_factory.mktemp("watched")
    with pytest.MonkeyPatch.context() as patch, FaultyVfs("watched") as vfs:
        patch.setattr("semel.store.sqlite.checkpoint.CHECKPOINT_PAGES", CHECKPOINT_PAGES)
        album = vfs.operations = Album(folder)
        answers = asyncio.run(_run(folder, album))
        yield album, answers


async def _run(folder: Path, album: Album) -> list[Any]:
    rig = Rig(POLICY, _open(f"sqlite:{folder}?vfs=watched"))
    await rig.start()
    await rig.make()
    await rig.make_vault(PLACE.vault, 0)
    answers: list[Any] = []
    for number in range(1, WRITES + 1):
        album.acknowledged = len(answers)
        answers.append(await send(rig, number))
    album.acknowledged = len(answers)
    album.photograph(len(answers))
    album.acknowledged = -1
    await rig.stop()
    return answers


def _open(url: str) -> Store:
    return open_store(url, TABLES, MIGRATIONS, ToyWorld().wall_ms)


@pytest.mark.parametrize("death", ["killed", "powerless"])
def test_every_boundary_leaves_what_was_acknowledged_and_nothing_by_halves(
    tmp_path: Path, album: tuple[Album, list[Any]], death: str
) -> None:
    photographs, answers = album
    heights = set()
    for number, photograph in enumerate(photographs.photographs):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, content in getattr(photograph, death).items():
            (folder / name).write_bytes(content)
        heights.add(asyncio.run(_judge(folder, photograph.acknowledged, answers)))
    assert heights == set(range(WRITES + 1)), "not every number of blocks has been seen"


async def _judge(folder: Path, acknowledged: int, answers: list[Any]) -> int:
    """Start on the files as they are; how many blocks there were."""
    rig = Rig(POLICY, _open(f"sqlite:{folder}"))
    await rig.start()
    try:
        found = await rig.look(lambda look: reading.blocks(look, PLACE, 1, WRITES)[0])
        assert acknowledged <= len(found) <= acknowledged + 1
        previous, state = ZERO, dict[bytes, Entity]()
        for (header, transaction), first in zip(found, answers, strict=False):
            assert (transaction, header) == first.committed
            assert header.previous_hash == previous
            assert transaction is not None
            assert header.tx_root == transaction_hash(transaction)
            for operation in transaction.operations:
                apply(state, operation, header.height, header.at.seconds)
            assert header.state_root == state_root(state.values())
            previous = block_hash(header)
        await _retry(rig, len(found), answers)
        return len(found)
    finally:
        await rig.stop()


async def _retry(rig: Rig, there: int, answers: list[Any]) -> None:
    """What is there is replayed, what is not is carried out, and then replayed too."""
    if there:
        assert await send(rig, there) == WriteReplayed(answers[there - 1].committed)
    if there < WRITES:
        now = await send(rig, there + 1)
        assert isinstance(now, WriteCommitted)
        assert now.committed.transaction.sequence == answers[there].committed.transaction.sequence
        assert now.committed.header.height == there + 1
        assert now.committed.header.term > answers[there].committed.header.term
        assert await send(rig, there + 1) == WriteReplayed(now.committed)
