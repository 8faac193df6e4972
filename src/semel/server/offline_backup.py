"""Backups beside a running server, and restores into an empty store.

A backup reads one snapshot; nothing of the store is locked or changed. A restore writes the rows and begins a new epoch
of every log in the same transaction: after a crash the target is empty, or is restored and in its new epoch. So no
server can run on restored rows with positions that the lost history has given out before.
"""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

from semel import __version__
from semel.engine.clock import SystemWorld
from semel.engine.view import BatchView
from semel.kernel.clock import Now
from semel.server.console.session_table import TABLES as SESSION_TABLES
from semel.server.offline_store import opened, snapshot_of
from semel.store.backup import VerifiedBackup, restore_backup, verify_backup, write_backup
from semel.store.backup_file import BackupHeader, BackupReader, BackupSummary, ByteSink, ByteSource
from semel.store.backup_mark import folder_of, write_mark
from semel.store.copy import TablePart, Tell, count_of
from semel.store.open import POSTGRES, shown
from semel.store.protocol import StoreError, Tx
from semel.surfaces.epoch import EPOCH
from semel.surfaces.epoch_raise import EpochPlan, EpochRefused, Epochs, RaiseEpoch, plan_raise
from semel.surfaces.events.tables import EVENT_HEAD
from semel.surfaces.ledger.tables import LEDGER_TERM
from semel.surfaces.schema import MIGRATIONS, TABLES

_PLANNED = (EPOCH, EVENT_HEAD, LEDGER_TERM)
"""Tables of one row each, which decide about a new epoch."""


class Restored(NamedTuple):
    """A restored backup, and its new epoch; None if the epoch was kept."""

    summary: BackupSummary
    epoch: EpochPlan | None


def refuse_memory(url: str) -> None:
    """Raise `StoreError` for a memory store."""
    if url.startswith("memory:"):
        raise StoreError("A memory store is empty at every start: there is nothing to back up or to restore.")


def counted(url: str) -> dict[TablePart, int]:
    """The number of rows of each table, beside a running server. Raises `StoreError`."""
    with snapshot_of(url) as snapshot:
        return dict(count_of(snapshot, TABLES))


def back_up(url: str, sink: ByteSink, tell: Tell) -> BackupSummary:
    """Write a backup of a store that a server may be using. Raises `StoreError`."""
    source = "postgresql" if url.partition(":")[0] in POSTGRES else "sqlite"
    with snapshot_of(url) as snapshot:
        header = BackupHeader(__version__, len(MIGRATIONS), snapshot.now_ms, source)
        return write_backup(snapshot, TABLES, header, sink, tell)


def mark_backup(url: str, summary: BackupSummary) -> None:
    """Note the time of a backup that is complete, where a running server finds it for its metrics."""
    folder = folder_of(url)
    if folder is not None:
        write_mark(folder, summary.header.taken_at)


def opened_backup(source: ByteSource) -> BackupReader:
    """A backup of this schema, at its first page. Raises `StoreError`."""
    reader = BackupReader(source, TABLES)
    reader.refuse_other_schema(len(MIGRATIONS))
    return reader


def verified(source: ByteSource, tell: Tell) -> VerifiedBackup:
    """Read a backup to its end; `tell` is called with the bytes read. Raises `StoreError`."""
    return verify_backup(opened_backup(source), tell, _PLANNED)


def planned_epoch(backup: VerifiedBackup, now_ms: int) -> EpochPlan:
    """The new epoch of a restore at this time. Raises `StoreError` if it is refused."""
    return _accepted(_refused_clock(backup.summary.header, now_ms) or plan_raise(backup, now_ms))


def restore(url: str, source: ByteSource, tell: Tell, backup: VerifiedBackup | None, *, keep_epoch: bool) -> Restored:
    """Restore into an empty store that no server is using; `tell` is called with the rows written. Raises `StoreError`.

    `backup` is the same file, if it was verified before: then a clock that is wrong is told before the first row. With
    a new epoch, console sessions are left out: one that was ended after the backup would count again.
    """
    reader = opened_backup(source)

    def finish(tx: Tx) -> Restored:
        if backup is not None and reader.summary.sha256 != backup.summary.sha256:
            raise StoreError("The backup was changed while it was restored; nothing was restored.")
        return Restored(reader.summary, None if keep_epoch else _raised(tx, reader.header))

    with closing(opened(url)) as store:
        if not store.leads():
            raise StoreError(f"A server is using {shown(url)}: stop all of its nodes first.")
        if backup is not None and not keep_epoch:
            with store.read() as snapshot:
                planned_epoch(backup, snapshot.now_ms)
        locks = () if keep_epoch else sorted(Epochs().locks(RaiseEpoch()))
        return restore_backup(reader, store, TABLES, tell, locks, finish, () if keep_epoch else SESSION_TABLES)


def wall_ms() -> int:
    """The clock of this machine."""
    return SystemWorld().wall_ms()


def _raised(tx: Tx, header: BackupHeader) -> EpochPlan:
    """Begin a new epoch in the transaction that has written the rows."""
    now = Now(tx.now_ms, tx.now_ms, tx.now_ms, tx.now_ms)
    view = BatchView(lambda _: True, lambda _, row: row)
    [stage] = Epochs().needs(RaiseEpoch())
    for table, key in stage.keys:
        view.add_rows(table, [key], tx.load({table: [key]}, ()).rows[table])
    refused = _refused_clock(header, now.wall_ms)
    plan = _accepted(refused or Epochs().decide(view, RaiseEpoch(), now).answer)
    tx.flush(view.changes(()))
    return plan


def _refused_clock(header: BackupHeader, now_ms: int) -> EpochRefused | None:
    """Positions that were given out up to the backup must be below those of the new epoch."""
    if now_ms >= header.taken_at:
        return None
    return EpochRefused("The clock is behind the time of the backup: set the clock right first.")


def _accepted(plan: EpochPlan | EpochRefused) -> EpochPlan:
    if isinstance(plan, EpochRefused):
        raise StoreError(plan.sentence)
    return plan
