"""Backups beside a running server, moves of a store that no server uses, and restores into an empty store.

A backup reads one snapshot; nothing of the store is locked or changed. A restore writes the rows and begins a new epoch
of every log in the same transaction: after a crash the target is empty, or is restored and in its new epoch. So no
server can run on restored rows with positions that the lost history has given out before.

A move marks the store before it reads it, and no server starts on a marked store. So the file of a move has every
write, and its restore keeps the epoch. A crash leaves the store unmarked, or marked and without a complete file: then
the move is made again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple

from semel import __version__
from semel.engine.clock import SystemWorld
from semel.engine.view import BatchView
from semel.kernel.clock import Now
from semel.kernel.namespace import folder_of
from semel.server.offline_store import held_store, opened, snapshot_of
from semel.store.backup import Tell, VerifiedBackup, count_rows, restore_backup, verify_backup, write_backup
from semel.store.backup_file import BackupHeader, BackupReader, BackupSummary, ByteSink, ByteSource
from semel.store.backup_mark import write_mark
from semel.store.migrations import last_version
from semel.store.open import POSTGRES, shown
from semel.store.protocol import StoreError, Tx
from semel.store.table import TablePart
from semel.surfaces.epoch import EPOCH
from semel.surfaces.epoch_raise import EpochPlan, EpochRefused, Epochs, RaiseEpoch, plan_raise
from semel.surfaces.events.tables import EVENT_HEAD
from semel.surfaces.ledger.tables import LEDGER_TERM
from semel.surfaces.schema import MIGRATIONS, TABLES

_PLANNED = (EPOCH, EVENT_HEAD, LEDGER_TERM)
"""Tables of one row each, which decide about a new epoch."""


class Restored(NamedTuple):
    """A restored backup, and its new epoch; None for that of a move, which keeps its epoch."""

    summary: BackupSummary
    epoch: EpochPlan | None


def refuse_memory(url: str) -> None:
    """Raise `StoreError` for a memory store."""
    if url.startswith("memory:"):
        raise StoreError("A memory store is empty at every start: there is nothing to back up or to restore.")


def counted(url: str) -> dict[TablePart, int]:
    """The number of rows of each table, beside a running server. Raises `StoreError`."""
    with snapshot_of(url) as snapshot:
        return dict(count_rows(snapshot, TABLES))


def back_up(url: str, sink: ByteSink, tell: Tell, *, is_moved: bool = False) -> BackupSummary:
    """Write a backup of a store that a server may be using, or that is marked as moved. Raises `StoreError`."""
    source = "postgresql" if url.partition(":")[0] in POSTGRES else "sqlite"
    with snapshot_of(url) as snapshot:
        header = BackupHeader(__version__, last_version(MIGRATIONS), snapshot.now_ms, source, is_moved)
        return write_backup(snapshot, TABLES, header, sink, tell)


@contextmanager
def marked_as_moved(url: str) -> Iterator[None]:
    """Hold a store that no server uses and mark it as moved; its backup is written in the block. Raises `StoreError`.

    The mark is on disk before the first byte of the backup: what reads the end of the file knows that no write can have
    followed. A store that is marked already is marked again.
    """
    with held_store(url, in_vain="it cannot be moved") as store:
        store.mark_moved(True)
        try:
            yield
        except StoreError as error:
            raise StoreError(
                f"{error} The store is marked as moved, and no server starts on it: move it again, or run `semel epoch "
                "raise` to use it here."
            ) from error


def mark_backup(url: str, summary: BackupSummary) -> None:
    """Note the time of a backup that is complete, where a running server finds it for its metrics."""
    folder = folder_of(url)
    if folder is not None:
        write_mark(folder, summary.header.taken_at)


def opened_backup(source: ByteSource) -> BackupReader:
    """A backup of this schema, at its first page. Raises `StoreError`."""
    reader = BackupReader(source, TABLES)
    reader.refuse_other_schema(last_version(MIGRATIONS))
    return reader


def verified(source: ByteSource, tell: Tell) -> VerifiedBackup:
    """Read a backup to its end; `tell` is called with the bytes read. Raises `StoreError`."""
    return verify_backup(opened_backup(source), tell, _PLANNED)


def planned_epoch(backup: VerifiedBackup, now_ms: int) -> EpochPlan | None:
    """The new epoch of a restore at this time; None for that of a move. Raises `StoreError` if it is refused."""
    _check_clock(backup.summary.header, now_ms)
    return None if backup.summary.header.is_moved else _accepted(plan_raise(backup, now_ms))


def restore(url: str, source: ByteSource, tell: Tell, backup: VerifiedBackup | None) -> Restored:
    """Restore into an empty store that no server is using; `tell` is called with the rows written. Raises `StoreError`.

    `backup` is the same file, if it was verified before: then a clock that is wrong is told before the first row. The
    epoch of a moved store is kept.
    """
    reader = opened_backup(source)
    is_moved = reader.header.is_moved

    def finish(tx: Tx) -> Restored:
        if backup is not None and reader.summary.sha256 != backup.summary.sha256:
            raise StoreError("The backup was changed while it was restored; nothing was restored.")
        _check_clock(reader.header, tx.now_ms)
        return Restored(reader.summary, None if is_moved else _raised(tx))

    with closing(opened(url)) as store:
        if not store.leads():
            raise StoreError(f"A server is using {shown(url)}: stop all of its nodes first.")
        if backup is not None:
            with store.read() as snapshot:
                planned_epoch(backup, snapshot.now_ms)
        locks = () if is_moved else Epochs().locks(RaiseEpoch())
        return restore_backup(reader, store, TABLES, tell, locks, finish)


def wall_ms() -> int:
    """The clock of this machine."""
    return SystemWorld().wall_ms()


def _raised(tx: Tx) -> EpochPlan:
    """Begin a new epoch in the transaction that has written the rows."""
    now = Now(tx.now_ms, tx.now_ms, tx.now_ms, tx.now_ms)
    view = BatchView(lambda _: True, lambda _, row: row)
    [stage] = Epochs().needs(RaiseEpoch())
    for table, key in stage.keys:
        view.add_rows(table, [key], tx.load({table: [key]}, ()).rows[table])
    plan = _accepted(Epochs().decide(view, RaiseEpoch(), now).answer)
    tx.flush(view.changes(()))
    return plan


def _check_clock(header: BackupHeader, now_ms: int) -> None:
    """Raise `StoreError` if positions that were given out up to the backup would not be below those of a new epoch."""
    if now_ms < header.taken_at:
        raise StoreError("The clock is behind the time of the backup: set the clock right first.")


def _accepted(plan: EpochPlan | EpochRefused) -> EpochPlan:
    if isinstance(plan, EpochRefused):
        raise StoreError(plan.sentence)
    return plan
