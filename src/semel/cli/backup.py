"""`semel backup` and `semel restore`: all data of a store in one file, taken beside a running server, or to move it.

A crash of a backup leaves no file under the name that was given. A crash of a restore leaves the target empty, and the
command can be run again.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Annotated, Any

import click

from semel.cli.backup_place import PIPE, OpenBackup, new_place, opened_place
from semel.cli.command import AT_LEAST_1, Arg, DryRun, Opt, command
from semel.cli.help import DefaultGroup
from semel.cli.output import Said, progress, row_progress, shown_time
from semel.cli.store_options import StoreOptions
from semel.server import offline_backup, offline_store
from semel.server.auth.token_table import TOKEN
from semel.server.offline_backup import Restored
from semel.store.backup import VerifiedBackup
from semel.store.backup_file import BackupSummary
from semel.store.open import shown
from semel.store.protocol import CommitUnknownError, StoreError
from semel.surfaces.epoch_raise import EpochPlan

backup = DefaultGroup(
    "backup",
    default="create",
    help="Back up a store, also while a server is using it.\n\n`semel backup FILE` is short for `semel backup create "
    "FILE`.",
    no_args_is_help=True,
)


@command(backup, errors=(StoreError,))
def create(
    file: Arg,
    store: StoreOptions,
    move: Annotated[bool, Opt("Move the store: no server starts on it afterwards. Stop its server first.")] = False,
    force: Annotated[bool, Opt("Overwrite an existing file.")] = False,
    keep: Annotated[
        int | None, Opt("Then delete all but the newest N backups of the folder.", "", "N", AT_LEAST_1)
    ] = None,
    dry_run: DryRun = False,
) -> Said:
    """Write all data of a store to FILE; in a folder the file gets a name with the time, - is standard output.

    The backup is the state of one instant. It has every write that was acknowledged before the command began; a server
    continues meanwhile. The file contains secrets of the server: only its owner can read it.

    With --move the store is marked as moved first, and `semel restore` keeps the epoch of the file. A move that was
    interrupted is run again. `semel epoch raise` takes the mark away.
    """
    url = store.settings().store_url
    offline_backup.refuse_memory(url)
    # The file of a move may be the only copy of its store, so --keep of later backups does not take it for one.
    place = new_place(file, overwrite=force, ending="move" if move else "backup")
    if keep is not None and (place.folder is None or move):
        raise click.UsageError("--keep needs a folder, and deletes nothing behind a move.")
    place.target.refuse_existing()
    if dry_run:
        rows = sum(offline_backup.counted(url).values())
        facts = {"store": shown(url), "file": place.name, "rows": rows, "dry_run": True}
        return Said(facts, f"Would write {rows:,} rows of {shown(url)} to {place.name}.", is_aside=file == PIPE)
    # Only a bar needs to know the number of rows, and counting them takes time.
    length = sum(offline_backup.counted(url).values()) if sys.stderr.isatty() else None
    held = offline_backup.marked_as_moved(url) if move else nullcontext()
    try:
        with place.target as target, held, row_progress("Writing the backup", length) as tell:
            summary = offline_backup.back_up(url, target, tell, is_moved=move)
            target.publish()
    except CommitUnknownError as error:
        unsure = "It is unknown whether the store is marked as moved: run this again."
        raise click.ClickException(f"{error} {unsure}") from error
    offline_backup.mark_backup(url, summary)
    written = f"{summary.size:,} bytes, SHA-256 {summary.sha256}"
    lines = [f"Wrote {summary.total:,} rows of {shown(url)} to {place.name}: {written}."]
    if move:
        lines.append(f"{shown(url)} is marked as moved: restore the file once, and start the server there.")
    deleted = [] if keep is None else place.delete_old(keep)
    lines += (f"Deleted {name}." for name in deleted)
    facts = {"store": shown(url), "file": place.name, **_facts(summary), "deleted": deleted, "dry_run": False}
    return Said(facts, lines, is_aside=file == PIPE)


@command(backup, errors=(StoreError,))
def verify(file: Arg) -> Said:
    """Read FILE to its end and compare every checksum and count; - is standard input."""
    with opened_place(file) as opened:
        summary = _verified(opened).summary
    return Said({"file": file, **_facts(summary)}, _about(file, summary))


@command(errors=(StoreError,))
def restore(
    file: Arg,
    store: StoreOptions,
    dry_run: DryRun = False,
) -> Said:
    """Restore the backup in FILE into a store, which must be empty; - is standard input.

    The file is verified before the first row is written, and all rows are one transaction. The restored store starts a
    new epoch: positions that clients hold from the time after the backup are recognized, and never used again. The file
    of a move keeps its epoch: its store took no write afterwards.
    """
    url = store.settings().store_url
    offline_backup.refuse_memory(url)
    offline_store.refuse_occupied(url)
    with opened_place(file) as opened:
        # A file is verified before the store is opened. A pipe can be read once: its pages are checked on their way.
        checked = _verified(opened) if dry_run or opened.size is not None else None
        if checked is not None and dry_run:
            plan = offline_backup.planned_epoch(checked, offline_backup.wall_ms())
            return _said(url, file, Restored(checked.summary, plan), dry_run=True)
        if checked is not None:
            opened.source.seek(0)
        try:
            with row_progress("Restoring", None if checked is None else checked.summary.total) as tell:
                done = offline_backup.restore(url, opened.source, tell, checked)
        except CommitUnknownError as error:
            unsure = "It is unknown whether the backup was restored: run this again; it is refused if it was."
            raise click.ClickException(f"{error} {unsure}") from error
    return _said(url, file, done, dry_run=False)


def _verified(backup: OpenBackup) -> VerifiedBackup:
    with progress(backup.size, "Verifying the backup") as tell:
        return offline_backup.verified(backup.source, tell)


def _facts(summary: BackupSummary) -> dict[str, Any]:
    header = summary.header
    return {
        "rows": summary.total,
        "bytes": summary.size,
        "sha256": summary.sha256,
        "taken_at": shown_time(header.taken_at),
        "source": header.source,
        "version": header.version,
        "schema": header.schema,
        "moved": header.is_moved,
    }


def _about(file: str, summary: BackupSummary) -> str:
    header = summary.header
    return (
        f"{file}: {summary.total:,} rows of a {header.source} store, taken at {shown_time(header.taken_at)} by Semel "
        f"{header.version} (schema version {header.schema}); every checksum is right, SHA-256 {summary.sha256}."
    )


def _said(url: str, file: str, done: Restored, *, dry_run: bool) -> Said:
    facts = {"store": shown(url), "file": file, **_facts(done.summary), "epoch": None, "dry_run": dry_run}
    verb, raised = ("Would restore", "would be raised") if dry_run else ("Restored", "was raised")
    lines = [_about(file, done.summary), f"{verb} {done.summary.total:,} rows into {shown(url)}."]
    if done.epoch is not None:
        facts |= _epoch_facts(done.epoch)
        lines.append(
            f"The epoch {raised} from {done.epoch.before} to {done.epoch.number}; events continue above committed_id "
            f"{done.epoch.events.next_last_id}."
        )
    else:
        lines.append("The epoch stays: the store was marked as moved, and no server starts on it.")
    tokens = sum(count for part, count in done.summary.rows.items() if part.table is TOKEN)
    if tokens and done.epoch is not None:
        lines.append(_about_tokens(tokens, done.summary.header.taken_at))
    return Said(facts | {"tokens": tokens}, lines)


def _about_tokens(count: int, taken_at: int) -> str:
    """What an operator must do about tokens that ended after the backup: they count again."""
    return (
        f"Stored tokens: {count}, as they were at {shown_time(taken_at)}. What was revoked or rotated since counts "
        "again: before you start the server, revoke it with `semel token revoke --offline`; the audit log of the old "
        "server names it (TOKEN_REVOKED, TOKEN_ROTATED)."
    )


def _epoch_facts(plan: EpochPlan) -> dict[str, Any]:
    return {
        "epoch_before": plan.before,
        "epoch": plan.number,
        "last_committed_id": plan.events.agreed_id,
        "new_last_committed_id": plan.events.next_last_id,
        "ledger_term": plan.term,
    }
